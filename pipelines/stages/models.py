"""Recogniser, language model and voice of a call, built from those of the deployment."""

import asyncio
from dataclasses import dataclass

from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.frame_processor import FrameProcessor

from parley.pipelines.call import Call
from parley.pipelines.engines.engines import Engines
from parley.pipelines.stages.privacy import CallPrivacy
from parley.processors.dialogue.durable_tools import DurableTools


@dataclass(frozen=True)
class CallModels:
    """Models of one call, as stages.

    Attributes:
        stt: recogniser.
        thinking: language model, with what guards it.
        tts: voice.
    """

    stt: FrameProcessor
    thinking: list[FrameProcessor]
    tts: FrameProcessor


async def models_of(
    engines: Engines,
    call: Call,
    context: LLMContext,
    privacy: CallPrivacy,
    tools: DurableTools,
    *,
    passes_audio: bool,
) -> CallModels:
    """Build the models of a call; ``passes_audio`` where stages after the recogniser hear the caller too.

    Loads no model; a cloud service builds its parts in a thread.
    """
    events = call.events
    stt, thinking, tts = await asyncio.gather(
        engines.build_stt(
            audio_passthrough=passes_audio,
            events=events,
            recorded=call.resumption.recorded_words,
            as_kept=privacy.utterance,
        ),
        engines.answering.build(
            tools=tools,
            context=context,
            rules=call.rules,
            conversation=call.conversation,
            events=events,
            reveal=privacy.reveal,
            requested=lambda: call.client.requested(),
            prompt=call.choices.prompt(engines.deployment.bot.system_prompt),
        ),
        engines.build_tts(events, call.choices.voice),
    )
    return CallModels(stt, thinking, tts)
