"""Classification of the answer to an outbound call by a language model."""

import asyncio
from typing import Any

import pytest
from pipecat.classifiers.base_classifier import BaseClassifier
from pipecat.extensions.voicemail.voicemail_detector import VOICEMAIL_QUESTION
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.services.llm_service import LLMService
from pydantic import ValidationError

from parley.configs.deployment import Phone
from parley.processors.turns.voicemail import ModelClassifier, RulesClassifier
from parley.turn_taking.answering_machine import VoicemailTuning

MACHINE = "please leave a message after the tone"


class Model(LLMService[Any]):
    """Model with a scripted answer; None: it never answers."""

    def __init__(self, answer: str | None) -> None:
        super().__init__()
        self._answer = answer
        self.ended = False

    async def run_inference(self, context: LLMContext, *args: Any, **more: Any) -> str | None:
        if self._answer is None:
            await asyncio.sleep(60)
        return self._answer

    async def cleanup(self) -> None:
        self.ended = True
        await super().cleanup()


async def choice(classifier: BaseClassifier, heard: str) -> str:
    return (await classifier.choice(heard, {"voicemail": VOICEMAIL_QUESTION}))["voicemail"].choice


async def test_rules_answer_the_question_of_the_detector():
    assert await choice(RulesClassifier(), MACHINE) == "voicemail"
    assert await choice(RulesClassifier(), "hello") == "conversation"


async def test_a_model_that_can_judge_does():
    model = Model('{"voicemail": {"choice": "conversation", "probabilities": {"conversation": 0.9}}}')
    classifier = ModelClassifier(model, answer_ms=500)
    assert await choice(classifier, MACHINE) == "conversation"
    await classifier.cleanup()
    assert model.ended


@pytest.mark.parametrize(
    "answer", [None, "", "I think that it is a machine.", '{"voicemail": {"choice": "x"}}']
)
async def test_rules_judge_where_it_fails_or_is_slow(answer: str | None):
    assert await choice(ModelClassifier(Model(answer), answer_ms=100), MACHINE) == "voicemail"


def test_full_duplex_and_voicemail_are_refused_together():
    with pytest.raises(ValidationError, match="voicemail"):
        Phone(mode="duplex", voicemail=VoicemailTuning())
