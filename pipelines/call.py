"""Description and live parts of one call: one transport of a session, from picking up to hanging up.

``Call`` is its description, which does not change. ``LiveCall`` holds the parts that exist before its
pipeline: the event stream, the playout record, the holder of the floor.
"""

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Protocol

from parley.core.call_choices import CallChoices
from parley.core.call_events import TurnEstimated, UtteranceRead
from parley.core.client_rules import ClientRules, prompt_of
from parley.core.clock import Clock
from parley.models.tools import Tool
from parley.pipelines.pipeline_input import PipelineInput
from parley.processors.dialogue.commit_gate import Answers
from parley.processors.playout.heard import PlayoutSettings
from parley.processors.playout.playout import Playout
from parley.processors.turns.floor import Floor
from parley.protocols.client_protocol import SessionUpdate, UnitSink
from parley.runtime.event_stream import CallEvents, EventScope
from parley.session_store.conversation import Conversation
from parley.telemetry.turns import TurnLog
from parley.transports.registry import TRANSPORTS, Capabilities
from parley.transports.unit_input import UnitEntry
from parley.turn_taking.answering_machine import VoicemailSettings

# This stays in the model's context, and remains true. No other instruction may stay there.
OPENING = "When this conversation began the person on the line had said nothing, and you were to speak first."


@dataclass(frozen=True, slots=True)
class SocketClient:
    """Requirements of a socket's client for its conversation; the defaults are those of a human caller.

    Attributes:
        greets: the bot speaks first.
        speaks_announcements: announcements are spoken at the beginning, also where the bot does not greet.
        prompts: a silent caller is prompted.
        reports_units: the client receives a speech model's units one by one.
        reads_rtvi: the client reads RTVI's messages about the bot; the caller's words are sent in any case.
        requested: returns the settings that the client has requested so far.
        began: set when they are complete; the conversation waits for it.
        on_placed: called when an engine is assigned, before it is prepared; must not block.
        entry: entry by which a speech model receives the transport's audio ahead of the pipeline.
        unit_sink: receives the units of a speech model ahead of the pipeline.
        hums: the client receives backchannels, which the bot speaks during the caller's turn.
        run_tool: has the client run one of its tools; None where it has none.
        mcp_tools: returns the tools of the client's MCP servers, with names other than the given ones.
        asks_consent: the client asks its caller whether the call may be recorded: not before they agree.
    """

    greets: bool = True
    speaks_announcements: bool = True
    prompts: bool = True
    reports_units: bool = False
    reads_rtvi: bool = True
    requested: Callable[[], SessionUpdate] = SessionUpdate
    began: asyncio.Event | None = None
    on_placed: Callable[[], None] | None = None
    entry: UnitEntry = field(default_factory=UnitEntry)
    unit_sink: UnitSink | None = None
    hums: bool = True
    run_tool: Callable[[str, str, str, float], Awaitable[str]] | None = None
    mcp_tools: Callable[[Collection[str]], Sequence[Tool]] = lambda _taken: ()
    asks_consent: bool = False


def client_prompt(update: SessionUpdate, system_prompt: str) -> str:
    """Return the deployment's prompt, followed by the client's additions that its rules have permitted."""
    return prompt_of(system_prompt, update.instructions, update.notes)


class MediaFollower(Protocol):
    """Receiver of the audio and the pictures of a call, on the event loop. No method may block."""

    def hear(self, pcm: bytes, rate_hz: int) -> None:
        """Receive audio of the caller that has just come."""
        ...

    def play(self, pcm: bytes, rate_hz: int, at_us: int | None) -> None:
        """Receive audio of the bot that leaves, and when a device took it, where that is known."""
        ...

    def see(self, pixels: bytes, size: tuple[int, int]) -> None:
        """Receive a picture of the caller's camera, raw RGB."""
        ...


class LiveCall:
    """Parts of a call that exist before its pipeline, and the reports of its audio.

    Args:
        clock: clock of the session.
        settings: rules of when audio counts as heard.
        follows_packets: the transport reports packets through ``on_packet``.
        peer_quiet_ms: returns for how long the peer has given no sign of life.
        rate_hz: rate of the packets, where the transport has a rate of its own; 0 for that of the pipeline.

    Attributes:
        events: event stream of the call.
        playout: record of the audio that is heard.
        turns: marks of every turn.
        floor: tracks whether the bot holds the floor.
        input: entry of frames from outside into the pipeline, while it runs.
        began_ms: when the call began, on the clock of its events.
        echo_control: name and settings of its echo control; None without one.
    """

    def __init__(
        self,
        clock: Clock,
        settings: PlayoutSettings | None = None,
        *,
        follows_packets: bool = True,
        peer_quiet_ms: Callable[[], int] | None = None,
        rate_hz: int = 0,
    ) -> None:
        events = self.events = CallEvents()
        self.playout = Playout(
            settings,
            events=events,
            follows_packets=follows_packets,
            peer_quiet_ms=peer_quiet_ms,
            clock=clock,
            rate_hz=rate_hz,
        )
        self.turns = TurnLog(events)
        self.floor = Floor(events)
        self.input = PipelineInput()
        self.began_ms = events.now_ms()
        self.echo_control: dict[str, Any] | None = None
        self._followers: list[Callable[[bytes, int | None], None]] = []
        self._media: list[MediaFollower] = []

    def has_echo_control(self, name: str, settings: Mapping[str, Any]) -> None:
        """Note the echo control that the call has got, for its recording."""
        self.echo_control = {"name": name, "settings": dict(settings)}

    def follow_packets(self, follower: Callable[[bytes, int | None], None]) -> None:
        """Report every packet from here on, and when it left; ``follower`` must not block."""
        self._followers.append(follower)

    def on_packet(self, pcm: bytes, at_us: int | None = None) -> None:
        """A packet of the bot's audio leaves; for the transport.

        ``at_us``: when a device took it, on the loop's clock; None: now.
        """
        self.playout.played(pcm)
        self.turns.played(pcm)
        for follower in self._followers:
            follower(pcm, at_us)
        for media in self._media:
            media.play(pcm, self.playout.rate_hz, at_us)

    def follow_media(self, follower: MediaFollower) -> None:
        """Report the audio of both sides and the camera's pictures from here on, where they are tapped."""
        self._media.append(follower)

    def leave_media(self, follower: MediaFollower) -> None:
        """Report nothing more to a follower."""
        if follower in self._media:
            self._media.remove(follower)

    def on_caller_audio(self, pcm: bytes, rate_hz: int) -> None:
        """Audio of the caller has come; for the tap after the transport's input."""
        for follower in self._media:
            follower.hear(pcm, rate_hz)

    def on_caller_picture(self, pixels: bytes, size: tuple[int, int]) -> None:
        """A picture of the camera has come, raw RGB; for the same tap."""
        for follower in self._media:
            follower.see(pixels, size)

    def on_accepted(self, pcm: bytes, rate_hz: int) -> None:
        """An output that reports no packets has accepted audio; for the tap after it."""
        for follower in self._media:
            follower.play(pcm, rate_hz, None)

    def close(self) -> None:
        """Drop the references to a pipeline that has ended. Records stay."""
        self._followers.clear()
        self._media.clear()
        self.input.close()
        self.events.close()


@dataclass(frozen=True, slots=True)
class EarlierStreams:
    """Records of the connections that a call has lost.

    Attributes:
        announced: announcements that the caller has heard to their end.
        since_seq: seq after which the events of its session are those of the call; None: not known.
    """

    announced: frozenset[str] = frozenset()
    since_seq: int | None = None


@dataclass(frozen=True, slots=True)
class Resumption:
    """Facts that a call takes over from its lost connections, or from a recording of it that is held again.

    Attributes:
        first_words: first words to a caller whose call goes on after its stream was lost, before the rest of
            what was being said; None for a call that begins.
        earlier: records of the connections that the call has lost.
        line: name of the call in the records of its connections; empty where its id is enough.
        begins_held: the call was on hold when its stream was lost, and still is.
        paused_by: who began the private pause in which the call goes on; empty where there is none.
        recorded_words: utterances of the call that is held again, which keep their words; times count from
            the caller's arrival.
        recorded_estimates: estimates of the completeness model of that call.
    """

    first_words: str | None = None
    earlier: EarlierStreams = EarlierStreams()
    line: str = ""
    begins_held: bool = False
    paused_by: str = ""
    recorded_words: Sequence[UtteranceRead] = ()
    recorded_estimates: Sequence[TurnEstimated] = ()

    @property
    def goes_on(self) -> bool:
        """True for a call that goes on after its stream was lost."""
        return self.first_words is not None


@dataclass(frozen=True, slots=True)
class CallPeer:
    """The other side of a call's transport.

    Attributes:
        speaks_rtvi: it reads and writes RTVI messages (a browser page, another program).
        cancels_echo: True when its echo canceller is on; None when it does not report that.
        recorded_as: name of the transport in the session's records; empty for that of the row.
    """

    speaks_rtvi: bool = True
    cancels_echo: bool | None = None
    recorded_as: str = ""


def _pass_to_no_person(_reason: str) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class PhoneRules:
    """Rules of a phone call; the defaults are those of every other call.

    Attributes:
        tools: tools of the call itself, in addition to the deployment's and the client's.
        pass_on: passes the call on to a person, who hears the reason, and returns True; returns False where
            there is no way to one.
        voicemail: settings for an answering machine; None when the answering party is not checked.
        ends_on_goodbye: a farewell of the caller ends the call, where the deployment enables that.
    """

    tools: Sequence[Tool] = ()
    pass_on: Callable[[str], bool] = _pass_to_no_person
    voicemail: VoicemailSettings | None = None
    ends_on_goodbye: bool = True


def no_answer(said: str, *, is_again: bool) -> str | None:
    """Return None: the model answers the turn."""
    return None


@dataclass(frozen=True, slots=True)
class Call:
    """Description of one call, with its events.

    Attributes:
        conversation: the session that the call is a part of.
        row: name of its transport's row in ``transports.registry``.
        live: its parts that exist before its pipeline.
        client: requirements of a socket's client for the conversation.
        rules: what the client may change.
        choices: of the caller: voice, preset, reference voice, instructions.
        peer: the other side of the transport.
        phone: rules of a phone call.
        resumption: facts that the call takes over from its lost connections.
        answers: returns the call's own answer to a turn; None: the model answers it.
        handles_sigint: Ctrl-C ends it.
        finished: set to end it in good order, after the current speech.
        call_id: unique id.
        scope: part of the event stream for stages that may be replaced during the call; None: all of it.
    """

    conversation: Conversation
    row: str
    live: LiveCall
    _: KW_ONLY
    client: SocketClient = field(default_factory=SocketClient)
    rules: ClientRules = field(default_factory=ClientRules)
    choices: CallChoices = CallChoices()
    peer: CallPeer = CallPeer()
    phone: PhoneRules = PhoneRules()
    resumption: Resumption = Resumption()
    answers: Answers = no_answer
    handles_sigint: bool = False
    finished: asyncio.Event | None = None
    call_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    scope: EventScope | None = None

    @property
    def events(self) -> CallEvents:
        """Event stream of the call, or the part of it that its stages use."""
        return self.live.events if self.scope is None else self.scope

    @property
    def capabilities(self) -> Capabilities:
        """Capabilities of the transport."""
        return TRANSPORTS.row(self.row).capabilities

    @property
    def transport(self) -> str:
        """Name of the transport in the session's records."""
        return self.peer.recorded_as or TRANSPORTS.row(self.row).recorded_as or self.row
