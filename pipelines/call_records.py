"""Record the events of a call in its session.

Records are: begin and end of the call (``call_bounds``) and of its recording, losses of the recording,
engines that took over from others, and the heard part of each reply: during playback, at its end, and as its
client corrects it later. None of the writes is awaited; records that must be durable before they take effect
are held back by the commit gate. The conversation keeps the order within the session.
"""

import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from parley.core.bounded_dict import BoundedDict
from parley.core.call_events import (
    BotTurnEnded,
    CameraChanged,
    DisclosureHeard,
    EngineFailedOver,
    FallbackAnswers,
    HoldBegan,
    HoldEnded,
    OperatorListened,
    PassagesCited,
    PhraseChosen,
    PrivatePauseBegan,
    PrivatePauseEnded,
    RecordingAnnounced,
    RecordingDegraded,
    RecordingEnded,
    RecordingStarted,
    ReplyBrought,
    ReplyCorrected,
    ReplyFinished,
    ReplyOpened,
    ReplyProgressed,
    ReplyWritten,
    ResponseStarted,
    ResponseText,
    TextGiven,
)
from parley.core.passage_notes import CitedPassage, cited_as_json
from parley.core.pictures import CAMERA, SCREEN
from parley.core.tiers import Medium
from parley.core.timeline import HeardMark, HeardReply
from parley.pipelines.call import Call
from parley.pipelines.call_bounds import CallBounds
from parley.session_store.events import Draft, Kind
from parley.session_store.prompt import BY_DEPLOYMENT, BY_HUMAN
from parley.telemetry.engine_names import THINKING_SECTION

# Medium of a step by what is shown, which is a transport of its own in the records.
MEDIA = {CAMERA: Medium.VIDEO, SCREEN: Medium.SCREEN}
# Number of replies for which corrections of their client are remembered, of those whose passages are, and of
# texts and replies whose author is.
MOST_CORRECTED = 16
MOST_CITED = 16
MOST_AUTHORS = 32
# A longer rest of a reply is not stored with each heard clause: the model is asked again after a crash.
MOST_REST_CHARS = 4_000


class CallRecords:
    """Records of one call, from here on.

    Args:
        call: the call.
        made_by: returns the field of a reply of the model that names its engines and prompt, for the prompt
            of its request, or None where that is not known, and the authors of its text; None for no field.
        greetings: first words of the deployment, of which no event names the author.
    """

    def __init__(
        self,
        call: Call,
        made_by: Callable[[str | None, Sequence[str]], Mapping[str, Any]] | None = None,
        greetings: Collection[str] = (),
    ) -> None:
        self._call, self._made_by = call, made_by
        self._greetings = {_words(greeting) for greeting in greetings}
        # True when a reply was heard since the bot's last turn.
        self._was_heard = False
        # Keys of the clients' corrections, by reply, and the number of all corrections.
        self._corrected: BoundedDict[str, str] = BoundedDict(MOST_CORRECTED)
        self._claims = 0
        # Passages of each reply, and those of the bot's present turn.
        self._cited: BoundedDict[str, tuple[CitedPassage, ...]] = BoundedDict(MOST_CITED)
        self._cited_in_turn: tuple[CitedPassage, ...] = ()
        # Prompt of each reply, and that of the model's present response.
        self._prompts: BoundedDict[str, str | None] = BoundedDict(MOST_AUTHORS)
        self._prompt: str | None = None
        # Authors of the text of each reply, and those of the model's present response.
        self._writers: BoundedDict[str, list[str]] = BoundedDict(MOST_AUTHORS)
        self._writing: list[str] = []
        # Authors of texts that no model wrote, by their words; and replies that the model wrote.
        self._authors: BoundedDict[str, str] = BoundedDict(MOST_AUTHORS)
        self._written: BoundedDict[str, bool] = BoundedDict(MOST_AUTHORS)
        # Replies of which the model may write more.
        self._unfinished: BoundedDict[str, None] = BoundedDict(MOST_AUTHORS)
        events = call.events
        CallBounds(
            *(events, call.conversation, call.call_id, call.transport),
            more={"line": call.resumption.line} if call.resumption.line else {},
            choices=call.choices.as_payload(),
        )
        events.subscribe(TextGiven, self._on_text_given)
        events.subscribe(PhraseChosen, self._on_phrase_chosen)
        events.subscribe(CameraChanged, self._on_camera_changed)
        events.subscribe(ResponseStarted, self._on_response_started)
        events.subscribe(ResponseText, self._on_response_text)
        events.subscribe(ReplyOpened, self._on_reply_opened)
        events.subscribe(ReplyWritten, self._on_reply_written)
        events.subscribe(ReplyProgressed, self._on_reply_progressed)
        events.subscribe(ReplyFinished, self._on_reply_finished)
        events.subscribe(ReplyCorrected, self._on_reply_corrected)
        events.subscribe(ReplyBrought, self._on_reply_brought)
        events.subscribe(BotTurnEnded, self._on_bot_turn_ended)
        events.subscribe(PassagesCited, self._on_passages_cited)
        events.subscribe(EngineFailedOver, self._on_engine_failed_over)
        events.subscribe(FallbackAnswers, self._on_fallback_answers)
        events.subscribe(DisclosureHeard, self._on_disclosure_heard)
        events.subscribe(RecordingAnnounced, self._on_recording_announced)
        events.subscribe(RecordingStarted, self._on_recording_started)
        events.subscribe(RecordingDegraded, self._on_recording_degraded)
        events.subscribe(RecordingEnded, self._on_recording_ended)
        events.subscribe(PrivatePauseBegan, self._on_private_pause)
        events.subscribe(PrivatePauseEnded, self._on_private_pause)
        events.subscribe(OperatorListened, self._on_operator_listened)
        events.subscribe(HoldBegan, lambda _event: self._note_hold("began"))
        events.subscribe(HoldEnded, lambda event: self._note_hold("ended", by=event.by))

    def _on_text_given(self, event: TextGiven) -> None:
        self._authors[_words(event.text)] = BY_HUMAN if event.by_human else BY_DEPLOYMENT

    def _on_camera_changed(self, event: CameraChanged) -> None:
        """Record the step to a camera or a screen, or back, like the coming and going of a transport."""
        call, kind = self._call, Kind.JOINED if event.is_on else Kind.LEFT
        payload = {"transport": event.source, "call_id": call.call_id}
        call.conversation.record(call.conversation.draft(kind, "system", payload))
        call.conversation.use_medium(MEDIA[event.source], call.events, is_on=event.is_on)

    def _on_engine_failed_over(self, event: EngineFailedOver) -> None:
        self._note_failover(event.stage, event.engine, event.successor, event.reason.value)

    def _on_fallback_answers(self, event: FallbackAnswers) -> None:
        self._note_failover(THINKING_SECTION, event.engine, event.successor, event.reason)

    def _note_failover(self, stage: str, engine: str, successor: str, reason: str) -> None:
        call = self._call
        payload = {"stage": stage, "engine": engine, "successor": successor, "reason": reason}
        payload["call_id"] = call.call_id
        call.conversation.record(call.conversation.draft(Kind.FAILOVER, "system", payload))

    def _on_phrase_chosen(self, event: PhraseChosen) -> None:
        self._authors[_words(event.text)] = BY_DEPLOYMENT

    def _on_response_started(self, event: ResponseStarted) -> None:
        self._prompt, self._writing = event.prompt, []

    def _on_response_text(self, event: ResponseText) -> None:
        if event.text.strip() and self._writing[-1:] != [event.author]:
            # At most the service, a bridge, the fallback and an apology.
            self._writing.append(event.author)

    def _on_reply_opened(self, event: ReplyOpened) -> None:
        self._prompts[event.reply_id] = self._prompt
        # The list of the response, which grows while the reply is being made.
        self._writers[event.reply_id] = self._writing
        self._written[event.reply_id] = True
        self._unfinished[event.reply_id] = None

    def _on_reply_written(self, event: ReplyWritten) -> None:
        self._unfinished.pop(event.reply_id, None)

    def _author(self, reply_id: str, text: str) -> str | None:
        """Return the author of a whole reply; None for the model, which may repeat the words of a human."""
        return None if reply_id in self._written else self._authors.get(_words(text))

    def _by(self, reply_id: str, text: str) -> dict[str, Any]:
        """Return the author of a whole reply as payload; for the model what the deployment signs about it."""
        author = self._author(reply_id, text)
        if author is not None:
            return {"by": author}
        if self._made_by is None or _words(text) in self._greetings:
            return {}
        # A reply that was only shown has no id.
        prompt = self._prompts[reply_id] if reply_id in self._prompts else self._prompt
        writers = self._writers[reply_id] if reply_id in self._writers else self._writing
        return dict(self._made_by(prompt, writers))

    def _by_so_far(self, reply_id: str, text: str) -> dict[str, str]:
        """Return the author of the newest text that begins with the heard part of a reply as payload."""
        words = _words(text)
        if not words or reply_id in self._written:
            return {}
        known = reversed(list(self._authors.items()))
        return next(({"by": author} for whole, author in known if f"{whole} ".startswith(f"{words} ")), {})

    def _on_disclosure_heard(self, event: DisclosureHeard) -> None:
        call = self._call
        payload = {"call_id": call.call_id, "text": event.text}
        call.conversation.record(call.conversation.draft(Kind.DISCLOSED, "system", payload))

    def _on_recording_announced(self, event: RecordingAnnounced) -> None:
        self._write_recording("announced", text=event.text)

    def _on_recording_started(self, event: RecordingStarted) -> None:
        self._write_recording("started")

    def _on_recording_degraded(self, event: RecordingDegraded) -> None:
        self._write_recording("degraded", reason=event.reason, lost_ms=event.lost_ms)

    def _on_recording_ended(self, event: RecordingEnded) -> None:
        self._write_recording("ended", duration_ms=event.duration_ms, lost_ms=event.lost_ms)

    def _on_private_pause(self, event: PrivatePauseBegan | PrivatePauseEnded) -> None:
        state = "paused" if isinstance(event, PrivatePauseBegan) else "resumed"
        self._write_recording(state, by=event.by)

    def _note_hold(self, state: str, **more: str) -> None:
        conversation = self._call.conversation
        payload = {"call_id": self._call.call_id, "state": state, **more}
        conversation.record(conversation.draft(Kind.HOLD, "system", payload))

    def _on_operator_listened(self, event: OperatorListened) -> None:
        conversation = self._call.conversation
        payload = {"call_id": self._call.call_id, "state": "began" if event.is_on else "ended"}
        conversation.record(conversation.draft(Kind.LISTENED, "system", payload))

    def _write_recording(self, state: str, **more: object) -> None:
        conversation = self._call.conversation
        payload = {"call_id": self._call.call_id, "state": state, **more}
        conversation.record(conversation.draft(Kind.RECORDING, "system", payload))

    def _on_passages_cited(self, event: PassagesCited) -> None:
        self._cited[event.reply_id] = self._cited_in_turn = event.passages

    def _on_reply_progressed(self, event: ReplyProgressed) -> None:
        """Record another clause: it counts if this process dies before the end of the reply."""
        reply = event.heard
        if reply.in_context:
            by = self._by_so_far(reply.reply_id, reply.text)
            is_whole = reply.reply_id not in self._unfinished and len(reply.rest) <= MOST_REST_CHARS
            self._write(
                Kind.HEARD,
                reply.reply_id,
                reply.at_us,
                text=reply.text,
                rest=reply.rest if is_whole else None,
                **_position(reply.mark),
                **by,
            )

    def _on_reply_finished(self, event: ReplyFinished) -> None:
        reply = event.heard
        if reply.is_known and reply.in_context:
            self._was_heard = True
            self._write_reply(reply, f"reply.{reply.reply_id}")
            author = self._author(reply.reply_id, f"{reply.text} {reply.unheard}")
            if author is not None and reply.truncated and reply.unheard:
                # The rest may be said later, as a reply of its own.
                self._authors[_words(reply.unheard)] = author

    def _on_reply_corrected(self, event: ReplyCorrected) -> None:
        reply = event.heard
        if reply.in_context:
            key = f"reply.{reply.reply_id}"
            # Key of the previous record of the reply, an earlier correction included.
            before = self._corrected[reply.reply_id] if reply.reply_id in self._corrected else key
            # A client may claim a length again that it has corrected: each claim is a record of its own.
            self._claims += 1
            key = self._corrected[reply.reply_id] = f"{key}.claimed.{reply.mark.audio_ms}.{self._claims}"
            self._write_reply(reply, key, supersedes=[before])

    def _on_reply_brought(self, event: ReplyBrought) -> None:
        self._write_shown(event.text, truncated=False, brought=True)

    def _on_bot_turn_ended(self, event: BotTurnEnded) -> None:
        if event.text and not self._was_heard:
            # Not for the voice (a client that reads): all of the text was shown, and none of it played.
            self._write_shown(event.text, truncated=event.interrupted, **_passages(self._cited_in_turn))
        self._was_heard = False
        self._cited_in_turn = ()

    def _write_shown(self, text: str, **more: object) -> None:
        call, reply_id = self._call, uuid.uuid4().hex
        payload: dict[str, object] = {"reply_id": reply_id, "text": text, "unheard": "", **self._by("", text)}
        payload |= {**more, **call.rules.mark}
        call.conversation.record(
            call.conversation.draft(Kind.BOT_TURN, "bot", payload, transport=call.transport)
        )

    def _write_reply(self, reply: HeardReply, key: str, **more: object) -> None:
        self._write(
            Kind.BOT_TURN,
            reply.reply_id,
            reply.ended_us if reply.started_us is None else reply.started_us,
            key=key,
            text=reply.text,
            truncated=reply.truncated,
            # Its text is not whole, so that its rest is not known.
            **({"unwritten": True} if reply.truncated and reply.reply_id in self._unfinished else {}),
            unheard=reply.unheard,
            transport=self._call.transport,
            **_position(reply.mark),
            **_passages(self._cited.get(reply.reply_id) or ()),
            **self._by(reply.reply_id, f"{reply.text} {reply.unheard}"),
            **more,
        )

    def _write(self, kind: Kind, reply_id: str, event_us: int, *, key: str = "", **payload: object) -> None:
        conversation = self._call.conversation
        arrival_us = conversation.clock.now_us()
        payload = {**payload, "reply_id": reply_id, **self._call.rules.mark}
        # Playback at the ear is slightly later than the reports; an event is not later than its arrival.
        draft = Draft(kind, payload, min(event_us, arrival_us), arrival_us, "bot")
        conversation.record(replace(draft, key=key) if key else draft)


def _passages(passages: tuple[CitedPassage, ...]) -> dict[str, Any]:
    """Return the field with the passages of a reply; none where it rests on none."""
    return {"passages": cited_as_json(passages)} if passages else {}


def _words(text: str) -> str:
    return " ".join(text.split())


def _position(mark: HeardMark) -> dict[str, Any]:
    return {"audio_ms": mark.audio_ms, "last_word": mark.last_word, "source": mark.source.value}
