"""A whole call on virtual time: the real pipeline, a scripted caller, engines that cost nothing."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import soundfile

from parley.configs.deployment import (
    Bot,
    Choice,
    Deployment,
    Duplex,
    EchoMode,
    Hearing,
    Remembering,
    Speaking,
    Thinking,
)
from parley.core.call_choices import CallChoices
from parley.core.call_events import CallEnding
from parley.core.client_rules import ClientRules
from parley.core.media import float_to_pcm16
from parley.core.passage_notes import CitedPassage
from parley.core.privacy import PrivacySettings
from parley.models.echo import EchoCanceller
from parley.models.llm import LanguageModel
from parley.models.omni import OmniHost
from parley.models.omni.two_tier.engine import TwoTierHost, TwoTierTuning
from parley.models.retrieval.finder import PassageFinder
from parley.models.stt import Transcript
from parley.models.tools import Tool
from parley.models.tts import TextToSpeech
from parley.models.tts.phrase_cache import PhraseCache
from parley.pipelines.call import Call, CallPeer, LiveCall, PhoneRules, Resumption
from parley.pipelines.engines.engines import Engines
from parley.pipelines.engines.llm_runtime import AnsweringPlan, LlmRuntime
from parley.pipelines.engines.loading import Executors, Loaded
from parley.pipelines.sessions import open_conversations
from parley.pipelines.voice.cascade import run_conversation
from parley.pipelines.voice.duplex import run_duplex
from parley.processors.dialogue.llm_timeouts import GuardTuning
from parley.processors.dialogue.services import Documents, DocumentsSettings, LlmRow
from parley.processors.dialogue.shared_tools import SharedTools
from parley.processors.perception.second_opinion import SecondOpinion
from parley.recording.settings import RecordingSettings
from parley.runtime.observers import ObserverFactory
from parley.runtime.utterances import UtteranceEngine
from parley.serving.gateway.desk.settings import DeskSettings
from parley.session_store.conversations import Conversations
from parley.session_store.events import Event
from parley.session_store.settings import StoreTuning
from parley.telemetry.turns import TurnRecord
from parley.transports.local.file import FileCall, FileTransport, file_call_params
from parley.turn_taking.answering_machine import VoicemailTuning
from parley.turn_taking.backchannel import BackchannelTuning
from parley.turn_taking.barge_in.settings import BargeInTuning
from parley.turn_taking.clarification import AskBackTuning
from parley.turn_taking.endpointing.endpointer import EndpointTuning
from parley.turn_taking.speculation import SpeculationSettings
from parley.turn_taking.tier_settings import TierSettings
from tests import virtual_time
from tests.fakes.executor import InlineExecutor
from tests.fakes.late_engine import LateEngine
from tests.fakes.looks import ScriptedLooks
from tests.fakes.scripted_llm import CitingLanguageModel, Script, ScriptedLanguageModel
from tests.fakes.stt import ScriptedStt, ScriptedSttSettings
from tests.fakes.tts import ToneTts
from tests.fakes.turn import ScriptedTurn
from tests.fakes.vad import EnergyVad
from tests.in_place_engine import InPlaceEngine, as_transcript
from tests.session_files import new_session_file
from tests.sim.room import Room, RoomTransport

RATE_HZ = 16_000
# The model is called when the turn has ended, not before.
OFF: Mapping[str, Any] = MappingProxyType({"on": "off"})


def silence(duration_ms: int) -> np.ndarray:
    return np.zeros(RATE_HZ * duration_ms // 1000, np.float32)


def voice(duration_ms: int) -> np.ndarray:
    """Return a loud tone that the fake recogniser takes for speech."""
    t = np.arange(RATE_HZ * duration_ms // 1000) / RATE_HZ
    return (0.3 * np.sin(2 * np.pi * 200 * t)).astype(np.float32)


@dataclass(frozen=True)
class RunningCall:
    """Objects that a coroutine next to a simulated call can use."""

    call: Call
    conversations: Conversations
    model: ScriptedLanguageModel
    engines: Engines


@dataclass
class SimulatedCall:
    """Results of a scripted call.

    Attributes:
        stereo: float, (samples, 2) at 16 kHz: caller left, bot right.
        turns: the record of every turn.
        events: events of the session.
        model: the language model, with the requests that it received.
        call: state that the parts of the call shared.
        ends: why the call ended, when the caller did not end it.
    """

    stereo: np.ndarray
    turns: Sequence[TurnRecord]
    events: Sequence[Event]
    model: ScriptedLanguageModel
    call: Call
    ends: Sequence[CallEnding] = ()
    completeness: ScriptedTurn = field(default_factory=ScriptedTurn)

    @property
    def end(self) -> tuple[str, str]:
        """Reason for the end of the call: a word and a sentence."""
        return (self.ends[-1].reason, self.ends[-1].message) if self.ends else ("stopped", "")

    def bot_spans_ms(self, *, gap_ms: int = 400) -> list[tuple[int, int]]:
        """Return start and end of each stretch of bot speech; pauses up to ``gap_ms`` belong to it."""
        loud = np.abs(self.stereo[:, 1]).reshape(-1, RATE_HZ // 100).max(axis=1) > 0.01
        spans: list[tuple[int, int]] = []
        for hop in np.flatnonzero(loud):
            at_ms = int(hop) * 10
            if spans and at_ms - spans[-1][1] <= gap_ms:
                spans[-1] = (spans[-1][0], at_ms + 10)
            else:
                spans.append((at_ms, at_ms + 10))
        return spans


def simulate(
    caller: Sequence[np.ndarray],
    tmp_path: Path,
    *,
    scripts: Sequence[Script] = (("The answer is yes. ", "That is all."),),
    greeting: str = "",
    completeness: Sequence[float] = (0.95,),
    tail_ms: int = 3_000,
    frame_ms: int = 20,
    talks_over: bool = False,
    pauses: Sequence[tuple[int, int]] = (),
    bot: Mapping[str, Any] = MappingProxyType({}),
    guard: Mapping[str, Any] = MappingProxyType({}),
    endpoint: Mapping[str, Any] = MappingProxyType({"kind": "adaptive"}),
    speculation: Mapping[str, Any] = MappingProxyType({}),
    barge_in: Mapping[str, Any] | None = MappingProxyType({}),
    ears: UtteranceEngine[Transcript] | None = None,
    words: Sequence[str] = ("what", "is", "it"),
    word_ms: int = 200,
    words_late_ms: int = 0,
    confidence: float = 0.9,
    commands: Sequence[str] = (),
    commands_late_ms: int = 0,
    commands_word_ms: int = 200,
    commands_floor: float | None = None,
    looks: Sequence[float] | None = None,
    ask_back: Mapping[str, Any] | None = None,
    heard_again: Sequence[str] = (),
    heard_again_late_ms: int = 0,
    backchannel: Mapping[str, Any] | None = None,
    concurrently: Callable[[RunningCall], Coroutine[Any, Any, None]] | None = None,
    row: LlmRow | None = None,
    guarded: str = "",
    tools: Sequence[Tool] = (),
    speaks: TextToSpeech | None = None,
    room: Room | None = None,
    echo: EchoCanceller | None = None,
    echo_mode: EchoMode = "auto",
    transport: str = "file",
    peer_cancels_echo: bool | None = None,
    quietest: float = 0.01,
    limit_s: int = 120,
    omni: Sequence[OmniHost] | None = None,
    duplex: Mapping[str, Any] = MappingProxyType({}),
    voicemail: Mapping[str, Any] | None = None,
    rules: ClientRules | None = None,
    observers: Sequence[ObserverFactory] = (),
    failures: int = 0,
    cites: Mapping[str, CitedPassage] = MappingProxyType({}),
    finder: PassageFinder | None = None,
    privacy: Mapping[str, Any] = MappingProxyType({}),
    records: bool = False,
    reports_packets: bool = True,
    begins_held: bool = False,
    paused_by: str = "",
    choices: CallChoices | None = None,
    desk: Mapping[str, Any] | None = None,
    tiers: Mapping[str, Any] | None = None,
) -> SimulatedCall:
    """Run a call with the caller's audio on virtual time, and return what was recorded.

    Scripts are counted by questions, speculative ones included. A test of the time of a request switches
    ``speculation`` off.

    Args:
        words: words of the fake recogniser, one for each ``word_ms`` of voice, anew in each utterance, with
            ``confidence`` in each.
        commands: words of a spotter, one for each ``commands_word_ms``; it reports them ``commands_late_ms``
            after the end of the voice, with ``commands_floor`` as the log odds that the voice claims the
            turn.
        looks: log odds of each early look at a voice over the bot; None: no early looks.
        ask_back: None answers turns of low confidence without a question.
        heard_again: words of a second recogniser for doubtful utterances, which is sure of them and late by
            ``heard_again_late_ms``; empty: there is none.
        backchannel: None: the bot does not emit backchannels.
        barge_in: None leaves interruptions to Pipecat.
        ``concurrently``: coroutine that runs during the call, to disturb it or to add annotations.
        ears: recognises in place of ``words``.
        row: answers in place of the scripts; it may use ``tools``.
        guarded: name of the language model of the deployment, for which the scripts are the fallback.
        room: the microphone hears the loudspeaker in this room.
        echo: canceller after the room, in calls that get echo control.
        quietest: level from which the fake detector takes a sound for a voice.
        omni: engines of a full-duplex call, with ``duplex`` as its settings; an empty list is the two-tier
            engine.
        voicemail: the bot has placed the call, and detects who answers.
        rules: rules of the client.
        observers: observers of the call, of other packages.
        failures: deliveries of events that fail, in an observer.
        cites: passages that the model names for answers that contain the key.
        finder: finds passages for each question.
        privacy: what is redacted.
        begins_held: the call goes on that was on hold.
        paused_by: the call goes on that was in a private pause, begun by this.
        choices: of the caller.
        desk: humans can be fetched, by these settings.
        tiers: another medium can be offered, by these settings.
        reports_packets: the transport reports each packet of the bot, which that of a room does not.
        records: the call is recorded below ``tmp_path / "data"``.
        endpoint: by default the policy whose waits do not depend on fitted weights.
    """
    model = CitingLanguageModel(*scripts, passages=cites)
    turn = ScriptedTurn(completeness)
    output = tmp_path / "call.wav"

    ends: list[CallEnding] = []

    async def scenario() -> tuple[Call, list[Event]]:
        # SQLite must not wait for a locked file itself: that would be real time.
        store = StoreTuning(url=new_session_file(tmp_path / "sessions.db"), busy_timeout_ms=0)
        deployment = Deployment(
            bot=Bot(greeting=greeting, **bot),
            hearing=Hearing(
                endpoint=EndpointTuning.model_validate(dict(endpoint)),
                barge_in=None if barge_in is None else BargeInTuning.model_validate(dict(barge_in)),
                echo_mode=echo_mode,
                ask_back=None if ask_back is None else AskBackTuning.model_validate(dict(ask_back)),
                second_opinion=Choice(name="scripted") if heard_again else None,
            ),
            thinking=Thinking(
                llm=Choice(name=guarded or "documents"),
                guard=GuardTuning.model_validate(dict(guard)),
                speculation=SpeculationSettings.model_validate(dict(speculation)),
            ),
            speaking=Speaking(
                backchannel=None
                if backchannel is None
                else BackchannelTuning.model_validate(dict(backchannel))
            ),
            remembering=Remembering(store=store),
            duplex=Duplex.model_validate({"tick_log": tmp_path / "ticks", **duplex}),
            privacy=PrivacySettings.model_validate(dict(privacy)),
            recording=RecordingSettings(enabled=records, folder=tmp_path / "data", min_free_gb=0),
            desk=None if desk is None else DeskSettings.model_validate(dict(desk)),
            tiers=None if tiers is None else TierSettings.model_validate(dict(tiers)),
        )
        plan = AnsweringPlan(row or Documents(DocumentsSettings()), None, bool(guarded))
        answering = _WithTools(deployment, plan, model, tools, finder)
        scripted = LateEngine(
            ScriptedStt(ScriptedSttSettings(words=tuple(words), word_ms=word_ms, confidence=confidence)),
            as_transcript,
            words_late_ms,
        )
        spotter = None
        if commands:
            spotter = LateEngine(
                ScriptedStt(
                    ScriptedSttSettings(
                        words=tuple(commands), word_ms=commands_word_ms, floor_log_odds=commands_floor
                    )
                ),
                as_transcript,
                commands_late_ms,
            )
        tts, phrases = speaks or ToneTts(), None
        if deployment.speaking.backchannel is not None:
            tts = phrases = PhraseCache(tts, deployment.speaking.backchannel.tokens)
            phrases.warm()
        vad, inline = EnergyVad(quietest), InlineExecutor()
        hosts: Sequence[OmniHost] = ()
        if omni is not None:
            settings = TwoTierTuning.model_validate(
                {
                    "policy": {
                        "endpoint": dict(endpoint),
                        "barge_in": dict(barge_in or {}),
                        "backchannel": None if backchannel is None else dict(backchannel),
                        "speculation": dict(speculation),
                    }
                }
            )
            hosts = omni or [TwoTierHost(settings, vad=vad, turn=turn, executor=inline)]
        looked = None if looks is None else InPlaceEngine(ScriptedLooks(looks), as_transcript)
        loaded = Loaded(
            vad,
            turn,
            ears or scripted,
            tts,
            answering,
            phrases,
            echo,
            spotter,
            looks=looked,
            second_opinion=_second_opinion(deployment, heard_again, heard_again_late_ms),
            omni=tuple(hosts),
            observers=tuple(observers),
        )
        executors = Executors(inline, inline, inline, inline, omni=InlineExecutor)
        async with (
            Engines(deployment, loaded, executors) as engines,
            open_conversations(deployment, answering) as conversations,
        ):
            conversations.board.set_staffed(desk is not None)
            async with conversations.open() as conversation:
                live = LiveCall(conversation.clock, follows_packets=reports_packets)
                played = on_line(live)
                call = Call(
                    conversation,
                    transport,
                    live,
                    peer=CallPeer(speaks_rtvi=False, cancels_echo=peer_cancels_echo),
                    finished=played.finished,
                    rules=rules or ClientRules(),
                    resumption=Resumption(begins_held=begins_held, paused_by=paused_by),
                    choices=choices or CallChoices(),
                    phone=PhoneRules(
                        voicemail=None
                        if voicemail is None
                        else VoicemailTuning.model_validate(dict(voicemail))
                    ),
                )
                call.events.subscribe(CallEnding, ends.append)
                other = (
                    asyncio.create_task(concurrently(RunningCall(call, conversations, model, engines)))
                    if concurrently
                    else None
                )
                await hold(engines, call, played)
                if other is not None:
                    await other
            return call, await conversations.store.events(conversation.session_id, limit=10_000)

    def on_line(live: LiveCall) -> FileCall:
        pcm = float_to_pcm16(np.concatenate(caller))

        def on_packet(pcm: bytes, _at_us: int) -> None:
            if room is not None:
                room.played(pcm)
            live.on_packet(pcm)

        return FileCall(
            pcm,
            rate_hz=RATE_HZ,
            output=output,
            patience_ms=0,
            tail_ms=tail_ms,
            limit_s=limit_s,
            frame_ms=frame_ms,
            talks_over=talks_over,
            pauses=pauses,
            on_packet=on_packet if reports_packets else None,
        )

    async def hold(engines: Engines, call: Call, played: FileCall) -> None:
        if room is None:
            over = FileTransport(played, file_call_params(RATE_HZ), call.events)
        else:
            over = RoomTransport(played, file_call_params(RATE_HZ), call.events, room)
        run = run_conversation if omni is None else run_duplex
        await run(engines, over, call)
        played.recording.close()

    call, events = virtual_time.run(scenario())
    assert call.events.failures == failures
    stereo, _ = soundfile.read(output, dtype="float32")
    whole = len(stereo) - len(stereo) % (RATE_HZ // 100)
    return SimulatedCall(stereo[:whole], tuple(call.live.turns.finished), events, model, call, ends, turn)


def _second_opinion(deployment: Deployment, words: Sequence[str], late_ms: int) -> SecondOpinion | None:
    doubt = deployment.hearing.ask_back
    if not words or doubt is None:
        return None
    engine = ScriptedStt(ScriptedSttSettings(words=tuple(words), confidence=0.95))
    return SecondOpinion(LateEngine(engine, as_transcript, late_ms), doubt)


class _WithTools(LlmRuntime):
    """Answering with tools that no deployment names."""

    def __init__(
        self,
        deployment: Deployment,
        plan: AnsweringPlan,
        model: LanguageModel,
        tools: Sequence[Tool],
        finder: PassageFinder | None,
    ) -> None:
        super().__init__(deployment, plan, model, finder=finder)
        self._tools = SharedTools(tools)
