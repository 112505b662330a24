"""Engines of one full-duplex call: its own end of a shared host, and the beginning of a conversation."""

from dataclasses import replace
from typing import Any

from parley.models.omni import OmniHost, Preparation
from parley.models.omni.two_tier.engine import TwoTierEngine, TwoTierHost, TwoTierTuning
from parley.pipelines.call import Call, client_prompt
from parley.pipelines.engines.engines import Engines
from parley.pipelines.lifecycle import history_of
from parley.pipelines.queue_announcer import QueueAnnouncer
from parley.processors.duplex.dialogue import CallDialogue
from parley.protocols.client_protocol import SessionUpdate
from parley.serving.pool.omni import PooledOmni
from parley.serving.scheduler.types import Task


class OfCall:
    """Two-tier host with the large tier of one call; see ``OmniHost``."""

    sessions: int | None = None
    takes_frames = False

    def __init__(self, host: TwoTierHost, dialogue: CallDialogue, *, has_echo: bool) -> None:
        self._host, self._dialogue = host, dialogue
        self._settings = _with_echo(host.settings) if has_echo else host.settings

    def open_engine(self) -> TwoTierEngine:
        return self._host.open_engine(self._dialogue.end(), self._settings)

    def close(self) -> None:
        """Do nothing: other calls share the host."""


def host_of_call(
    host: OmniHost, dialogue: CallDialogue, call: Call, in_queue: QueueAnnouncer, *, has_echo: bool
) -> OmniHost:
    """Return a call's own view of a shared host."""
    if isinstance(host, TwoTierHost):
        return OfCall(host, dialogue, has_echo=has_echo)
    if isinstance(host, PooledOmni):
        conversation = call.conversation
        task = Task.OMNI_DUPLEX if host.takes_frames else Task.AUDIO_DUPLEX
        return host.of_call(conversation.session_id, conversation.epoch, task=task, on_queue=in_queue.take)
    return host


def _with_echo(settings: TwoTierTuning) -> TwoTierTuning:
    """Weigh a voice in the first moments of an answer like any other: it may be the echo."""
    policy = settings.policy
    barge_in = policy.barge_in.model_copy(update={"early_ms": 0})
    return settings.model_copy(update={"policy": policy.model_copy(update={"barge_in": barge_in})})


async def preparation_of(engines: Engines, call: Call) -> Preparation:
    """Return the beginning of a context: the valid instructions, and the conversation so far.

    Waits until the client has sent its settings, where the call requires them.
    """
    client = call.client
    if client.on_placed is not None:
        client.on_placed()
    if client.began is not None:
        await client.began.wait()
    update, preparation, chosen = client.requested(), engines.preparation, call.choices
    llm, tts = update.llm_ref_audio, update.tts_ref_audio
    if chosen.reference_audio is not None:
        llm = tts = chosen.reference_audio
    return replace(
        preparation,
        system_prompt=client_prompt(update, chosen.prompt(preparation.system_prompt)),
        llm_ref_audio=preparation.llm_ref_audio if llm is None else llm,
        tts_ref_audio=preparation.tts_ref_audio if tts is None else tts,
        history=history_of(call.conversation),
        settings={**preparation.settings, **_accepted(engines, update)},
    )


def _accepted(engines: Engines, update: SessionUpdate) -> dict[str, Any]:
    """Return the client's settings that every engine of the deployment has; others belong to other models."""
    known: list[frozenset[str]] = [getattr(host, "client_settings", frozenset()) for host in engines.omni]
    names = frozenset.intersection(*known)
    return {name: value for name, value in update.settings.items() if name in names}
