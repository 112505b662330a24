"""Replay recorded calls with today's configuration, and compare: the regression test of prompts and settings.

Input: the recording of a call (``recording.folder``) and, where the deployment's store still has its session,
what was said in it before the call. Output: a recording of the replay in a folder of its own, and the pairs
of turns. The session itself is only read.

The caller of a replay is a file that plays in real time from the moment at which the recorded caller arrived.
It does not react: where the agent speaks longer than it did then, the caller's next words interrupt it. What
was typed is typed again at its time. Pictures are not replayed.
"""

import asyncio
import math
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parley.command.call_files import FILE_RATE_HZ
from parley.command.file_call import FILE, RecordedCaller, hold_from_file
from parley.core.call_events import ClientDelayReported
from parley.core.errors import AgentError, ConfigError, MediaError
from parley.core.media import PCM_BYTES_PER_SAMPLE, float_to_pcm16, ms_to_samples
from parley.pipelines.modes import CASCADE, DUPLEX, REALTIME
from parley.recording.comparison import compare, turns_of
from parley.recording.comparison_page import PAGE, ReplayedCall, console_table, write_page
from parley.recording.divergence import explain, steps_of
from parley.recording.estimates import estimates_of
from parley.recording.folder import CALLER_AUDIO, CallRecording, read_recording, session_folder
from parley.recording.heard_audio import HeardAudio, as_heard
from parley.recording.library import recordings_of
from parley.recording.merge import track_samples
from parley.recording.objects import RecordingBucket
from parley.recording.timeline import RecordedTimeline, timeline_of
from parley.recording.typed import TypedTurn, typed_turns_of
from parley.recording.words import utterances_of
from parley.runtime import unhurried_loop

if TYPE_CHECKING:
    from parley.configs.deployment import Deployment
    from parley.core.call_events import UtteranceRead
    from parley.pipelines.engines.engines import Engines
    from parley.session_store.conversations import Conversations

PAGE_EVENTS = 500
PICTURES = "pictures of the call were not replayed"
KILLED = "the recorded call was ended by a crash: what came after its last written events is not compared"
ECHO_DIFFERS = "echo control differs, so that other voices and words may be heard"
# Of ``meta.json``.
ECHO_CONTROL = "echo_control"
NO_HISTORY = "the store has no such session: the call was replayed without what was said before it"
# Voice activity has windows of 32 ms, echo control of 10, and callers' audio comes in pieces of 20.
WINDOWS_MS = 160
# Of the recorded call: its page and the replay's audio are next to each other.
AUDIO = "call.wav"


@dataclass(frozen=True, slots=True)
class Before:
    """Session as it was before a call.

    Attributes:
        lines: export of the session up to the call, also of one that begins with it; empty without a session.
        note: why there is none.
    """

    lines: tuple[str, ...] = ()
    note: str = ""


def replay_session(
    deployment: "Deployment",
    session_id: str,
    output: Path,
    *,
    mode: str | None = None,
    hears_again: bool = False,
) -> int:
    """Replay the recorded calls of a session; print what changed, and write a page about it.

    ``mode`` and ``hears_again`` are as for ``replay_calls``.

    Returns:
        0 when the same was decided, 1 otherwise, also where a call cannot be replayed.

    Raises:
        ConfigError: nothing was recorded, or the output cannot be written.
        EngineError: an engine does not load.
    """
    try:
        settings = deployment.recording
        bucket = None if settings.s3 is None else RecordingBucket(settings.s3)
        recordings = recordings_of(settings.folder, session_id, bucket)
    except MediaError as error:
        raise ConfigError(str(error)) from error
    if not recordings:
        where = session_folder(deployment.recording.folder, session_id)
        raise ConfigError(f"nothing was recorded in {where}")
    replaying = replay_calls(deployment, recordings, output, mode=mode, hears_again=hears_again)
    replayed = unhurried_loop.run(replaying)
    page = write_page(replayed, output / PAGE, deployment.name)
    for call in replayed:
        print(console_table(call))
    print(page)
    return int(not all(call.is_decided_alike for call in replayed))


async def replay_calls(
    deployment: "Deployment",
    recordings: Sequence[CallRecording],
    output: Path,
    *,
    mode: str | None = None,
    at_once: int = 1,
    hears_again: bool = False,
    on_begun: Callable[[CallRecording], object] = lambda _recording: None,
    on_replayed: Callable[[ReplayedCall], object] = lambda _call: None,
) -> list[ReplayedCall]:
    """Replay calls, up to ``at_once`` at the same time; return them in order.

    Those of one mode share one set of engines, and the modes come one after the other. Without ``mode`` each
    call has its own (``mode_of``). ``hears_again`` has the recogniser read
    utterances anew also where the recording has its words of them.
    ``on_begun`` is called before each call, when the engines are loaded, and ``on_replayed`` after it.

    Raises:
        ConfigError: the output cannot be written.
        EngineError: an engine does not load.
    """
    recording = deployment.recording.model_copy(
        update={
            "enabled": True,
            "folder": output,
            "announcement": "",
            "merged": False,
            "retention_days": None,
            "max_storage_gb": None,
            "s3": None,
        }
    )
    deployment_now = deployment.model_copy(update={"recording": recording})
    replayed: dict[int, ReplayedCall] = {}
    by_mode: dict[str, list[int]] = {}
    for place, each in enumerate(recordings):
        try:
            its_mode = await asyncio.to_thread(mode_of, each) if mode is None else mode
        except MediaError as error:
            # The others are replayed nevertheless.
            replayed[place] = ReplayedCall(each, None, failure=str(error))
            on_replayed(replayed[place])
            continue
        by_mode.setdefault(its_mode, []).append(place)
    replaying = _Replaying(deployment, deployment_now, output, hears_again, on_begun, on_replayed)
    for its_mode, places in by_mode.items():
        held = await replaying.all([recordings[place] for place in places], its_mode, at_once)
        replayed |= zip(places, held, strict=True)
    return [replayed[place] for place in range(len(recordings))]


def mode_of(recording: CallRecording) -> str:
    """Return the mode in which a call is held again.

    Recordings of earlier releases do not have it: there only a full-duplex engine has votes.

    Raises:
        RecordingKeyError: the recording is encrypted with another key.
        AlteredFileError: it is encrypted, and was altered.
        ObjectStoreError: it is in a bucket that does not answer.
    """
    recorded = recording.meta.get("mode")
    if recorded in (CASCADE, DUPLEX, REALTIME):
        return CASCADE if recorded == CASCADE else DUPLEX
    votes = any(event["event"] == "VoteChanged" for event in timeline_of(recording).events)
    return DUPLEX if votes else CASCADE


@dataclass(frozen=True, slots=True)
class _Replaying:
    """Replay of calls.

    Attributes:
        deployment: with the store of the recorded sessions.
        now: deployment that holds the calls again.
        output, hears_again, on_begun, on_replayed: as for ``replay_calls``.
    """

    deployment: "Deployment"
    now: "Deployment"
    output: Path
    hears_again: bool
    on_begun: Callable[[CallRecording], object]
    on_replayed: Callable[[ReplayedCall], object]

    async def all(self, recordings: Sequence[CallRecording], mode: str, at_once: int) -> list[ReplayedCall]:
        """Replay calls with one set of engines."""
        from parley.pipelines.engines.engines import Engines

        free, opening = asyncio.Semaphore(at_once), asyncio.Lock()
        async with await Engines.load(self.now, duplex=mode == DUPLEX) as engines:

            async def one(each: CallRecording) -> ReplayedCall:
                async with free:
                    return await self._one(engines, each, mode, opening)

            tasks = [asyncio.create_task(one(each), name="replay") for each in recordings]
            try:
                return await asyncio.gather(*tasks)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    async def _one(
        self, engines: "Engines", recording: CallRecording, mode: str, opening: asyncio.Lock
    ) -> ReplayedCall:
        before = await _before(self.deployment, recording)
        self.on_begun(recording)
        try:
            replayed = await _replay(
                engines, self.now, recording, before, self.output, mode, opening, self.hears_again
            )
        except MediaError as error:
            # The others are replayed nevertheless.
            replayed = ReplayedCall(recording, None, failure=str(error))
        self.on_replayed(replayed)
        return replayed


async def _before(deployment: "Deployment", recording: CallRecording) -> Before:
    from parley.session_store.events import Kind
    from parley.session_store.store import SessionReader

    try:
        store = await SessionReader.open(deployment.remembering.store)
    except AgentError as error:
        return Before(note=f"{NO_HISTORY} ({error})")
    try:
        after_seq = 0
        while True:
            page = await store.events(
                recording.session_id, after_seq=after_seq, limit=PAGE_EVENTS, kinds=(Kind.JOINED,)
            )
            for event in page:
                if event.payload.get("call_id") == recording.call_id:
                    until = event.seq - 1
                    found = store.export(recording.session_id, until_seq=until)
                    return Before(tuple([line async for line in found]))
            if not page:
                return Before(note=NO_HISTORY)
            after_seq = page[-1].seq
    except AgentError as error:
        return Before(note=f"{NO_HISTORY} ({error})")
    finally:
        await store.close()


async def _replay(
    engines: "Engines",
    deployment: "Deployment",
    recording: CallRecording,
    before: Before,
    output: Path,
    mode: str,
    opening: asyncio.Lock,
    hears_again: bool,
) -> ReplayedCall:
    then = await asyncio.to_thread(timeline_of, recording)
    heard = await asyncio.to_thread(_heard_of, recording, then)
    beginning = first_audio_of(then)
    typed = typed_turns_of(then.events, then.arrival_ms)
    pcm = until_typed(float_to_pcm16(heard.samples[beginning.sample :]), beginning, typed)
    audio = output / recording.call_id / AUDIO
    async with _sessions_of_its_own(deployment, engines, opening) as conversations:
        if before.lines:
            await conversations.store.import_(before.lines)
        async with conversations.open(recording.session_id if before.lines else None) as conversation:
            call, _ = await hold_from_file(
                engines,
                conversation,
                pcm,
                audio,
                mode,
                RecordedCaller(
                    row_of(recording.meta.get("transport")),
                    begins_ms=beginning.after_ms,
                    first_samples=beginning.piece,
                    pauses=pauses_of(heard, beginning),
                    words=() if hears_again else _words_of(then, beginning.left_out_ms),
                    estimates=()
                    if hears_again
                    else estimates_of(then.events, then.arrival_ms, left_out_ms=beginning.left_out_ms),
                    typed=typed,
                    delays=delays_of(then),
                ),
            )
            made = session_folder(output, conversation.session_id) / call.call_id
    again = read_recording(made)
    now = timeline_of(again)
    until_ms = math.inf if then.is_over else _last_ms(then)
    pairs = compare(
        turns_of(then.events, then.arrival_ms), turns_of(now.events, now.arrival_ms), until_ms=until_ms
    )
    reasons = explain(pairs, steps_of(then.events, then.arrival_ms), steps_of(now.events, now.arrival_ms))
    return ReplayedCall(
        recording,
        audio,
        tuple(pairs),
        tuple([*_notes(before, recording, then), *echo_notes(recording.meta, again.meta)]),
        reasons=tuple(reasons),
        currency="" if deployment.prices is None else deployment.prices.currency,
    )


def _heard_of(recording: CallRecording, then: RecordedTimeline) -> HeardAudio:
    samples = track_samples(recording, CALLER_AUDIO, FILE_RATE_HZ)
    scale = FILE_RATE_HZ / (then.caller.rate_hz or FILE_RATE_HZ)
    return as_heard(
        samples, [(round(place * scale), round(count * scale)) for place, count in then.caller.seams]
    )


def pauses_of(heard: HeardAudio, beginning: "FirstAudio") -> list[tuple[int, int]]:
    """Return the pauses of a caller's audio from its beginning on, each with its length in milliseconds."""
    return [
        (place - beginning.sample, round(count * 1_000 / FILE_RATE_HZ))
        for place, count in heard.pauses
        if place > beginning.sample
    ]


def delays_of(then: RecordedTimeline) -> list[tuple[int, int]]:
    """Return the reports of the way to the caller's ear, each with the time from the arrival."""
    return [
        (max(0, round(each["at_ms"] - then.arrival_ms)), each["delay_ms"])
        for each in then.events
        if each["event"] == ClientDelayReported.__name__ and isinstance(each.get("delay_ms"), int)
    ]


def row_of(transport: object) -> str:
    """Return the row of the transport whose capabilities a recorded call had.

    Silences are noticed, and echo is cancelled, as the transport requires. A room does not report what was
    played, and a socket's client decides itself what it requires: their calls are held as those of a file.
    """
    from parley.transports.registry import TRANSPORTS

    for row in TRANSPORTS.rows() if transport else ():
        if transport in (row.name, row.recorded_as) and row.capabilities.reports_playout:
            return row.name
    return FILE


def _last_ms(timeline: RecordedTimeline) -> float:
    """Return the time of the last event that was written, from the caller's arrival."""
    return max((each["at_ms"] for each in timeline.events), default=0) - timeline.arrival_ms


def _notes(before: Before, recording: CallRecording, then: RecordedTimeline) -> Iterator[str]:
    if before.note:
        yield before.note
    if then.pictures or recording.images():
        yield PICTURES
    if not then.is_over:
        yield KILLED


def echo_notes(then: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """Yield how the echo control of a replay differs from that of the recorded call.

    Recordings of earlier releases do not say which they had.

    Args:
        then, now: facts of the two calls (``meta.json``).
    """
    if ECHO_CONTROL not in then or then[ECHO_CONTROL] == now.get(ECHO_CONTROL):
        return
    was, is_now = _echo_words(then[ECHO_CONTROL]), _echo_words(now.get(ECHO_CONTROL))
    change = f"{was} then and {is_now} now" if was != is_now else f"{was} with other settings"
    yield f"{ECHO_DIFFERS}: {change}"


def _echo_words(control: object) -> str:
    name = control.get("name") if isinstance(control, Mapping) else None
    return name if isinstance(name, str) else "none"


@dataclass(frozen=True, slots=True)
class FirstAudio:
    """First audio of a recorded caller that is held again.

    Detectors count from their first sample, and take the audio in pieces: where the windows of a replay lie
    elsewhere in a voice, it ends elsewhere and other words are recognised now and then.

    Attributes:
        sample: its place in the track.
        piece: number of samples of the first piece.
        after_ms: time after the caller's arrival at which it came.
        left_out_ms: length of the audio before it, which is not held again.
    """

    sample: int
    piece: int
    after_ms: int
    left_out_ms: int


def first_audio_of(timeline: RecordedTimeline) -> FirstAudio:
    """Return the first audio to be held again: what came before the caller's arrival is left out."""
    scale = FILE_RATE_HZ / (timeline.caller.rate_hz or FILE_RATE_HZ)
    sample = round((timeline.caller.first_sample or 0) * scale)
    after_ms = round(timeline.first_sample_ms - timeline.arrival_ms)
    # A whole number of windows of every detector, so that those of the replay lie where they lay.
    left_out_ms = math.ceil(max(0, -after_ms) / WINDOWS_MS) * WINDOWS_MS
    return FirstAudio(
        sample + left_out_ms * FILE_RATE_HZ // 1_000,
        round(timeline.caller.first_piece * scale),
        after_ms + left_out_ms,
        left_out_ms,
    )


def until_typed(pcm: bytes, beginning: FirstAudio, typed: Sequence[TypedTurn]) -> bytes:
    """Return the caller's audio, followed by silence where a turn was typed later."""
    last_ms = max((turn.at_ms for turn in typed), default=0)
    return pcm.ljust(
        PCM_BYTES_PER_SAMPLE * ms_to_samples(max(0, last_ms - beginning.after_ms), FILE_RATE_HZ), b"\0"
    )


def _words_of(timeline: RecordedTimeline, left_out_ms: int) -> tuple["UtteranceRead", ...]:
    return utterances_of(timeline.events, timeline.arrival_ms, left_out_ms=left_out_ms)


@asynccontextmanager
async def _sessions_of_its_own(
    deployment: "Deployment", engines: "Engines", opening: asyncio.Lock
) -> AsyncIterator["Conversations"]:
    """Yield the sessions of an empty store, which is gone afterwards."""
    from parley.pipelines.sessions import open_conversations

    folder = await asyncio.to_thread(tempfile.mkdtemp, prefix="parley-replay-")
    try:
        store = deployment.remembering.store.model_copy(update={"url": f"sqlite:///{folder}/sessions.db"})
        remembering = deployment.remembering.model_copy(update={"store": store})
        own = deployment.model_copy(update={"remembering": remembering})
        async with AsyncExitStack() as stack:
            # Two schemas cannot be made at the same time in one process.
            async with opening:
                conversations = await stack.enter_async_context(open_conversations(own, engines.answering))
            yield conversations
    finally:
        await asyncio.to_thread(shutil.rmtree, folder)
