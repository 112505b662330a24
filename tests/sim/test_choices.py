"""Calls whose callers have chosen something, on virtual time: the prompt, the reference voice, the record."""

import base64
from pathlib import Path

import numpy as np
import pytest

from parley.configs.deployment import Bot
from parley.core.call_choices import CallChoices
from parley.core.client_rules import CLIENT_HEADING
from parley.core.provenance import digest_of
from parley.processors.service_rows import NOTHING_SHARED, Shared
from parley.session_store.events import Kind
from parley.session_store.evidence import EVIDENCE_KEY_ENV
from tests.fakes.omni import OmniScript, ScriptedOmniHost
from tests.fakes.scripted_llm import ScriptedLlmService, ScriptedRow
from tests.sim.call import OFF, silence, simulate, voice

CHOSEN = CallChoices(preset="bank", preset_text="You are a bank.", instructions="Be brief.")
ADDED = f"\n\nYou are a bank.\n\n{CLIENT_HEADING}\n\nBe brief."
CALLER = [silence(500), voice(1_000), silence(3_000)]


class PromptedRow(ScriptedRow):
    """Row that notes the prompts of its services."""

    def __init__(self) -> None:
        super().__init__(("Yes.",))
        self.prompts: list[str | None] = []

    def build(
        self, shared: Shared = NOTHING_SHARED, *, system_instruction: str | None = None
    ) -> ScriptedLlmService:
        self.prompts.append(system_instruction)
        return super().build(shared, system_instruction=system_instruction)


def test_the_model_of_a_cascade_is_asked_with_the_texts_of_the_preset_and_the_caller(tmp_path: Path):
    row = PromptedRow()
    call = simulate(CALLER, tmp_path, row=row, choices=CHOSEN, speculation=OFF)
    [prompt] = row.prompts
    assert prompt == f"{Bot().system_prompt}{ADDED}"
    [joined] = [event.payload for event in call.events if event.kind is Kind.JOINED]
    assert joined["choices"] == {"preset": "bank", "instructions": True}


def test_the_evidence_of_a_reply_has_the_prompt_with_the_texts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv(EVIDENCE_KEY_ENV, base64.b64encode(bytes(32)).decode())
    row = PromptedRow()
    call = simulate(CALLER, tmp_path, row=row, choices=CHOSEN, speculation=OFF, privacy={"evidence": True})
    [prompt] = row.prompts
    *_, reply = [event.payload for event in call.events if event.kind is Kind.BOT_TURN]
    assert reply["made_by"]["prompt"] == digest_of(prompt or "")


def test_a_speech_model_is_prepared_with_the_texts_and_the_reference_voice(tmp_path: Path):
    host = ScriptedOmniHost(OmniScript())
    tone = np.full(1_600, 0.1, np.float32)
    chosen = CallChoices(preset_text="You are a bank.", reference_voice="x", reference_audio=tone)
    simulate(CALLER, tmp_path, omni=[host], choices=chosen, speculation=OFF)
    [preparation] = host.engines[0].prepared
    assert preparation.system_prompt == "You are a bank."
    assert preparation.llm_ref_audio is tone and preparation.tts_ref_audio is tone
