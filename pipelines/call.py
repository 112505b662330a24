"""One call: one transport of a session, from picking up to hanging up.

``Call`` is its description, which does not change. ``LiveCall`` has what a transport and a telephone know of
it before there is a pipeline: the stream of what happens, what is heard, who holds the floor.
"""

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field

from core.call_events import AnswerHeard
from core.client_rules import ClientRules, prompt_of
from core.clock import Clock
from models.tools import Tool
from pipelines.pipeline_input import PipelineInput
from processors.dialogue.commit_gate import Answers
from processors.playout.heard import PlayoutSettings
from processors.playout.playout import Playout
from processors.turns.floor import Floor
from protocols.surface import UnitMouth, Wish
from runtime.event_stream import CallEvents
from session_store.conversation import Conversation
from telemetry.turns import TurnLog
from transports.registry import TRANSPORTS, Capabilities
from transports.unit_ears import UnitEntry
from turn_taking.voicemail import VoicemailSettings

# Stays in the model's context, and is true for as long as it does. The only instruction that may stand there.
OPENING = "When this conversation began the person on the line had said nothing, and you were to speak first."


@dataclass(frozen=True, slots=True)
class Client:
    """How a client of a socket wants a conversation to be; the default is that of a person's call.

    Attributes:
        greets: the bot speaks first.
        prompts: a caller who says nothing is spoken to.
        tells_units: a speech model's units are told one by one.
        reads_rtvi: RTVI's messages about the bot reach somebody; what the caller said is told in any case.
        wish: what it has asked for so far.
        is_wished: set when that is all that the conversation waits for.
        on_placed: told that an engine is there, before it is prepared; must not block.
        entry: where a speech model hears what the transport hears, before the pipeline does.
        mouth: has the units of a speech model in front of the pipeline.
        hums: hears what the bot says while the caller speaks.
        run_tool: has the client run one of its tools; None where it has none.
    """

    greets: bool = True
    prompts: bool = True
    tells_units: bool = False
    reads_rtvi: bool = True
    wish: Callable[[], Wish] = Wish
    is_wished: asyncio.Event | None = None
    on_placed: Callable[[], None] | None = None
    entry: UnitEntry = field(default_factory=UnitEntry)
    mouth: UnitMouth | None = None
    hums: bool = True
    run_tool: Callable[[str, str, str, float], Awaitable[str]] | None = None


def told_to(wish: Wish, system_prompt: str) -> str:
    """Return the deployment's prompt and after it what the client adds, which its rules have let pass."""
    return prompt_of(system_prompt, wish.instructions, wish.notes)


class LiveCall:
    """The parts of a call that are there before its pipeline, and what leaves as packets.

    Args:
        clock: of the session.
        settings: what counts as heard.
        follows_packets: the transport tells ``on_packet`` what leaves.
        peer_quiet_ms: how long the peer has given no sign of life.
        rate_hz: of the packets, where the transport has a rate of its own; 0: that of the pipeline.

    Attributes:
        events: what happens in the call.
        playout: what is heard.
        turns: marks of every turn.
        floor: whether the bot holds the floor.
        input: where frames from outside enter the pipeline, while it runs.
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
        self.turns = TurnLog(
            on_answer=lambda latency_ms: events.publish(AnswerHeard(events.now_ms(), latency_ms))
        )
        self.floor = Floor(events)
        self.input = PipelineInput()
        self._followers: list[Callable[[bytes, int | None], None]] = []

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

    def close(self) -> None:
        """Drop the references to a pipeline that has ended. What was recorded stays."""
        self._followers.clear()
        self.input.close()
        self.events.close()


@dataclass(frozen=True, slots=True)
class Call:
    """Description of one call, with its events.

    Attributes:
        conversation: the session that the call is a part of.
        row: name of its transport's row in ``transports.registry``.
        live: its parts that are there before its pipeline.
        client: how the client of a socket wants the conversation to be.
        rules: what the client may change.
        recorded_as: name of the transport in the session's records; empty: that of the row.
        rtvi: whether the other side speaks RTVI (a browser page, another program).
        handles_sigint: Ctrl-C ends it.
        finished: set to end it in good order, after what is being said.
        peer_cancels_echo: whether the other side's echo canceller is on; None when it does not say.
        ends_on_goodbye: a caller who takes leave has ended the call, where the deployment says so.
        answers: what the call says to a turn by itself, in place of the model; None: nothing.
        tools: that the call itself has, in addition to the deployment's and the client's.
        voicemail: settings for a machine that answers; None: who answers is not asked.
        call_id: unique.
    """

    conversation: Conversation
    row: str
    live: LiveCall
    _: KW_ONLY
    client: Client = field(default_factory=Client)
    rules: ClientRules = field(default_factory=ClientRules)
    recorded_as: str = ""
    rtvi: bool = True
    handles_sigint: bool = False
    finished: asyncio.Event | None = None
    peer_cancels_echo: bool | None = None
    ends_on_goodbye: bool = True
    answers: Answers | None = None
    tools: Sequence[Tool] = ()
    voicemail: VoicemailSettings | None = None
    call_id: str = field(default_factory=lambda: uuid.uuid4().hex)

    @property
    def events(self) -> CallEvents:
        """Event stream of the call."""
        return self.live.events

    @property
    def capabilities(self) -> Capabilities:
        """Return what the transport can do."""
        return TRANSPORTS.row(self.row).capabilities

    @property
    def transport(self) -> str:
        """Name of the transport in the session's records."""
        return self.recorded_as or TRANSPORTS.row(self.row).recorded_as or self.row
