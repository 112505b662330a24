"""One call: one transport of a session, from picking up to hanging up.

Gathers what the parts of a call share, and writes into the session what has happened: that the call began and
ended, what was heard of each reply while it played and when it was over. None of that is waited for; what
must be durable before it takes effect is held back by the commit gate. Order within the session is kept by
the conversation.
"""

import asyncio
import uuid
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from core.call_events import AnswerHeard, CallAnswered, CallEnding, ReplyFinished, ReplyProgressed
from core.client_rules import ClientRules, prompt_of
from core.newest import Newest
from core.timeline import HeardMark, HeardReply
from models.tools import Tool
from pipelines.pipeline_input import PipelineInput
from processors.dialogue.commit_gate import Answers
from processors.playout.heard import PlayoutSettings
from processors.playout.playout import Playout
from processors.turns.floor import Floor
from protocols.surface import UnitMouth, Wish
from runtime.event_stream import CallEvents
from session_store.conversation import Conversation
from session_store.events import Draft, Kind
from telemetry.turns import TurnLog
from transports.registry import TRANSPORTS
from transports.unit_ears import UnitEars
from turn_taking.voicemail import VoicemailSettings

# Replies that are over, for a client that is told of them with the next turn.
MAX_UNTOLD = 16
# Stays in the model's context, and is true for as long as it does. The only instruction that may stand there.
OPENING = "When this conversation began the person on the line had said nothing, and you were to speak first."


@dataclass
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
        ears: of a speech model that hears what the transport hears, before the pipeline does.
        mouth: has the units of a speech model in front of the pipeline.
        hums: hears what the bot says while the caller speaks.
        run_tool: has the client run one of its tools; None where it has none.
        change_tools: has the conversation offer the tools that it wishes for now, while the call runs.
    """

    greets: bool = True
    prompts: bool = True
    tells_units: bool = False
    reads_rtvi: bool = True
    wish: Callable[[], Wish] = Wish
    is_wished: asyncio.Event | None = None
    on_placed: Callable[[], None] | None = None
    ears: UnitEars | None = None
    mouth: UnitMouth | None = None
    hums: bool = True
    run_tool: Callable[[str, str, str, float], Awaitable[str]] | None = None
    change_tools: Callable[[], None] | None = None

    def hear_by(self, ears: UnitEars) -> None:
        """Have a speech model hear what the transport hears."""
        self.ears = ears

    @contextmanager
    def changing_tools(self, change: Callable[[], None]) -> Iterator[None]:
        """Have ``change_tools`` do this meanwhile."""
        self.change_tools = change
        try:
            yield
        finally:
            self.change_tools = None


def told_to(wish: Wish, system_prompt: str) -> str:
    """Return the deployment's prompt and after it what the client adds, which its rules have let pass."""
    return prompt_of(system_prompt, wish.instructions, wish.notes)


class Call:
    """What the parts of one call share.

    Args:
        conversation: the session that the call is a part of.
        transport: name of its row in ``transports.registry``.
        follows_packets: the transport tells ``on_packet`` what leaves.
        peer_quiet_ms: how long the peer has given no sign of life.
        playout: what counts as heard.
        peer_cancels_echo: whether the other side's echo canceller is on; None when it does not say.
        output_rate_hz: of the packets that leave, where the transport has a rate of its own; None where it
            takes that of the pipeline.
        client: of a socket.
        rules: what the client may change; None: those of an anonymous one.
        recorded_as: name of the transport in the session's records; empty: that of the row.
        events: what happens in the call, where a part of it is there before it; None: a new stream.
        floor: the same.
        ends_on_goodbye, answers, tools, voicemail: see the attributes.

    Attributes:
        transport: name in the session's records.
        capabilities: of the transport.
        call_id: unique.
        events: what happens in the call.
        rules: what the client may change.
        turns: marks of every turn.
        playout: what is heard.
        input: where frames from outside enter the pipeline, while it runs.
        floor: whether the bot holds the floor.
        ends_on_goodbye: a caller who takes leave has ended the call, where the deployment says so.
        answers: what the call says to a turn by itself, in place of the model; None: nothing.
        tools: that the call itself has, beside the deployment's and the client's.
        client: how the client of a socket wants the conversation to be; see ``Client``.
        end: why the call is over, in a word and a sentence, where it was not the caller who ended it.
        voicemail: what happens when a machine answers; None where nobody asks who does.
        answered_by: who did: "person", "nobody" (who said a word) or "voicemail"; None while nobody knows.
    """

    def __init__(
        self,
        conversation: Conversation,
        transport: str,
        *,
        follows_packets: bool = True,
        peer_quiet_ms: Callable[[], int] | None = None,
        playout: PlayoutSettings | None = None,
        peer_cancels_echo: bool | None = None,
        output_rate_hz: int | None = None,
        client: "Client | None" = None,
        rules: ClientRules | None = None,
        recorded_as: str = "",
        events: CallEvents | None = None,
        floor: Floor | None = None,
        ends_on_goodbye: bool = True,
        answers: Answers | None = None,
        tools: Sequence[Tool] = (),
        voicemail: VoicemailSettings | None = None,
    ) -> None:
        self.rules = rules or ClientRules()
        self.conversation = conversation
        row = TRANSPORTS.row(transport)
        self.transport = recorded_as or row.recorded_as or row.name
        self.capabilities = row.capabilities
        self.call_id = uuid.uuid4().hex
        self.events = events or CallEvents()
        self.floor = floor or Floor(self.events)
        self.input = PipelineInput()
        stream = self.events
        # Not a method of the call: the log would hold it.
        self.turns = TurnLog(
            on_answer=lambda latency_ms: stream.publish(AnswerHeard(stream.now_ms(), latency_ms))
        )
        self.peer_cancels_echo = peer_cancels_echo
        self._on_far_end: Callable[[bytes, int], None] | None = None
        self.ends_on_goodbye = ends_on_goodbye
        self.answers, self.tools, self.voicemail = answers, tools, voicemail
        self.client = client or Client()
        self.end = "stopped", ""
        self.answered_by: str | None = None
        self._heard: deque[HeardReply] = deque(maxlen=MAX_UNTOLD)
        # Keys of what clients said of their replies.
        self._claims: Newest[str, str] = Newest(MAX_UNTOLD)
        self.playout = Playout(
            playout,
            events=self.events,
            follows_packets=follows_packets,
            peer_quiet_ms=peer_quiet_ms,
            clock=conversation.clock,
            rate_hz=output_rate_hz or 0,
        )
        self.events.subscribe(ReplyProgressed, self._on_progress)
        self.events.subscribe(ReplyFinished, self._on_reply)
        self.events.subscribe(CallAnswered, self._on_answered)
        self.events.subscribe(CallEnding, self._on_ending)

    def release(self) -> None:
        """Drop the references to a pipeline that has ended. What was recorded stays."""
        self._on_far_end = self.answers = None
        self.tools = ()
        self.input.close()
        self.floor.close()
        self.playout.release()
        self.events.close()
        client = self.client
        client.ears = client.mouth = client.run_tool = client.change_tools = client.on_placed = None

    def tell_far_end(self, told: Callable[[bytes, int], None]) -> None:
        """Report every packet of the bot's audio as it leaves, with its rate."""
        self._on_far_end = told

    def on_packet(self, pcm: bytes) -> None:
        """A packet of the bot's audio leaves; for the transport."""
        self.playout.played(pcm)
        self.turns.played(pcm)
        if self._on_far_end is not None:
            self._on_far_end(pcm, self.playout.rate_hz)

    def _on_answered(self, event: CallAnswered) -> None:
        self.answered_by = event.by

    def _on_ending(self, event: CallEnding) -> None:
        self.end = event.reason, event.message

    def drain_heard(self) -> list[HeardReply]:
        """Replies that are over and that the other side was not told about."""
        heard, self._heard = list(self._heard), deque(maxlen=MAX_UNTOLD)
        return heard

    def claim(self, reply_id: str, audio_ms: int) -> bool:
        """The client says how much of a reply it played; what the session has of it is corrected.

        Returns:
            Whether the reply is still known.
        """
        if self.playout.mark(reply_id) is None:
            return False
        reply = self.playout.claim(reply_id, audio_ms)
        if reply is not None and reply.in_context:
            self._write_reply(reply, corrects=True)
        return True

    def wrote(self, text: str, *, interrupted: bool, brought: bool = False) -> None:
        """A reply was shown and not spoken; ``brought``: a client says that the bot said it before."""
        reply_id = uuid.uuid4().hex
        payload: dict[str, Any] = {
            "reply_id": reply_id,
            "text": text,
            "truncated": interrupted,
            "unheard": "",
            **({"brought": True} if brought else {}),
            **self.rules.mark,
        }
        draft = self.conversation.draft(Kind.BOT_TURN, "bot", payload, transport=self.transport)
        self.conversation.record(draft)

    def joined(self) -> None:
        """The call began."""
        self._note(Kind.JOINED)

    def left(self) -> None:
        """The call is over."""
        self._note(Kind.LEFT, **({} if self.answered_by is None else {"answered_by": self.answered_by}))

    def _on_progress(self, event: ReplyProgressed) -> None:
        """Another clause was heard: what counts if this process dies before the end of the reply."""
        reply = event.heard
        if reply.in_context:
            self._write(Kind.HEARD, reply.reply_id, reply.at_us, text=reply.text, **_position(reply.mark))

    def _on_reply(self, event: ReplyFinished) -> None:
        """A reply was heard to its end, or cut off."""
        reply = event.heard
        if not reply.is_known:
            return
        self._heard.append(reply)
        if reply.in_context:
            self._write_reply(reply)

    def _write_reply(self, reply: HeardReply, *, corrects: bool = False) -> None:
        key = f"reply.{reply.reply_id}"
        more: dict[str, Any] = {}
        if corrects:
            # Of what was written of the reply before, a claim of the client's included.
            more = {
                "supersedes": [key] if reply.reply_id not in self._claims else [self._claims[reply.reply_id]]
            }
            key = self._claims[reply.reply_id] = f"{key}.claimed.{reply.mark.audio_ms}"
        self._write(
            Kind.BOT_TURN,
            reply.reply_id,
            reply.ended_us if reply.started_us is None else reply.started_us,
            key=key,
            text=reply.text,
            truncated=reply.truncated,
            unheard=reply.unheard,
            transport=self.transport,
            **_position(reply.mark),
            **more,
        )

    def _write(
        self, kind: Kind, reply_id: str, event_us: int, *, key: str | None = None, **payload: object
    ) -> None:
        arrival_us = self.conversation.clock.now_us()
        payload = {**payload, "reply_id": reply_id, **self.rules.mark}
        # The ear is a little behind what is known here; an event is not later than its arrival.
        draft = Draft(kind, payload, min(event_us, arrival_us), arrival_us, "bot")
        self.conversation.record(draft if key is None else replace(draft, key=key))

    def _note(self, kind: Kind, **more: object) -> None:
        self.conversation.record(
            self.conversation.draft(
                kind,
                "system",
                {"transport": self.transport, "call_id": self.call_id, **more},
                key=f"{kind.value}.{self.call_id}",
            )
        )


def _position(mark: HeardMark) -> dict[str, Any]:
    return {"audio_ms": mark.audio_ms, "last_word": mark.last_word, "source": mark.source.value}
