"""Perception in a running pipeline, on virtual time, over a real session store."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from pipecat.frames.frames import (
    InterimTranscriptionFrame,
    LLMMessagesAppendFrame,
    TranscriptionFrame,
    VADUserStartedSpeakingFrame,
    VADUserStoppedSpeakingFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineWorker
from pipecat.workers.runner import WorkerRunner

from parley.core.call_events import (
    AnnotationReported,
    OutsideReportsReceived,
    OutsideStreamEnded,
    VoicesLearnt,
    WordsDiscarded,
)
from parley.core.media import WordTime
from parley.core.timeline import (
    Annotation,
    DiarPayload,
    KnownVoice,
    OutsideReport,
    ProsodyPayload,
    Source,
    VisionPayload,
)
from parley.language import find_language
from parley.models.stt import Transcript
from parley.processors.fusion.perception import Perception, PerceptionSettings
from parley.processors.perception.engine_stt import BEGAN_S
from parley.processors.perception.hosted_words import HostedWord
from parley.runtime.event_stream import CallEvents
from parley.sequencer.calibration import LearntLatencies
from parley.sequencer.fusion import FusionSettings
from parley.session_store.compaction import Compactor
from parley.session_store.conversation import Conversation, ConversationTuning
from parley.session_store.conversations import Conversations
from parley.session_store.events import Event, Kind
from parley.session_store.settings import StoreTuning
from parley.session_store.store import SessionStore
from tests import virtual_time
from tests.session_files import new_session_file

EARS = {Source.STT: "ears"}


class Bench:
    """A perception with scripted input."""

    def __init__(
        self, perception: Perception, conversation: Conversation, store: SessionStore, events: CallEvents
    ) -> None:
        self.perception, self.conversation, self.events = perception, conversation, events
        self._store = store
        self.clock = conversation.clock
        self.worker = PipelineWorker(
            Pipeline([perception]), enable_rtvi=False, enable_turn_tracking=False, idle_timeout_secs=None
        )

    async def hears(
        self, text: str, *, final: bool = True, text_of_final: str | None = None, late_ms: int = 100
    ) -> None:
        """Send words of 200 ms each that ended ``late_ms`` ago."""
        words = tuple(WordTime(word, n * 200, (n + 1) * 200) for n, word in enumerate(text.split()))
        began_s = asyncio.get_running_loop().time() - (len(words) * 200 + late_ms) / 1000
        frame_type = TranscriptionFrame if final else InterimTranscriptionFrame
        said = text if text_of_final is None else text_of_final
        frame = frame_type(said, "caller", "", result=Transcript(text, words, 1.0, final))
        BEGAN_S.put(frame, began_s)
        await self.worker.queue_frame(frame)
        await asyncio.sleep(0.01)

    async def reads(self, text: str) -> None:
        await self.worker.queue_frame(
            LLMMessagesAppendFrame([{"role": "user", "content": text}], run_llm=False)
        )
        await asyncio.sleep(0.01)

    async def sees(self, ref: str, *, ago_ms: int, lasts_ms: int = 200) -> None:
        """Send a pointing gesture."""
        now_us = self.clock.now_us()
        start_us = now_us - ago_ms * 1000
        seen = VisionPayload(start_us, start_us + lasts_ms * 1000, ref=ref, gesture="pointing")
        annotation = Annotation(start_us + lasts_ms * 1000, now_us, Source.VISION, seen)
        self.events.publish(AnnotationReported(self.events.now_ms(), Source.VISION, annotation))
        await asyncio.sleep(0.01)

    def outside(self, *, ago_ms: int = 0, ref: str = "", identity: str | None = None) -> None:
        """Send what a program outside of this process sees; without ``ref``, that it sees nothing new."""
        now_us = self.clock.now_us()
        event_us = now_us - ago_ms * 1000
        seen = Annotation(event_us, now_us, Source.VISION, VisionPayload(event_us, event_us, ref, "pointing"))
        report = OutsideReport(Source.VISION, event_us, seen if ref else None, identity)
        self.events.publish(OutsideReportsReceived(self.events.now_ms(), (report,)))

    def outside_leaves(self) -> None:
        self.events.publish(OutsideStreamEnded(self.events.now_ms(), Source.VISION))

    async def wait_ms(self, said: str) -> int:
        """End the turn; return how long it waited."""
        before_us = self.clock.now_us()
        await self.perception.take(said)
        return (self.clock.now_us() - before_us) // 1000

    async def feels(self, stress: float, *, ago_ms: int, lasts_ms: int) -> None:
        now_us = self.clock.now_us()
        start_us = now_us - ago_ms * 1000
        how = ProsodyPayload(start_us, start_us + lasts_ms * 1000, stress=stress)
        annotation = Annotation(start_us + lasts_ms * 1000, now_us, Source.PROSODY, how)
        self.events.publish(AnnotationReported(self.events.now_ms(), Source.PROSODY, annotation))
        await asyncio.sleep(0.01)

    async def speaks(self, speaker: str, *, ago_ms: int, lasts_ms: int) -> None:
        """Send who spoke."""
        now_us = self.clock.now_us()
        start_us = now_us - ago_ms * 1000
        who = DiarPayload(start_us, start_us + lasts_ms * 1000, speaker)
        annotation = Annotation(start_us + lasts_ms * 1000, now_us, Source.DIAR, who, speaker_id=speaker)
        self.events.publish(AnnotationReported(self.events.now_ms(), Source.DIAR, annotation))
        await asyncio.sleep(0.01)

    async def hears_partial(self, text: str, *, began_ms_ago: int) -> None:
        """Send words without times of an utterance that began this long ago, as Moonshine's partials are."""
        frame = InterimTranscriptionFrame(text, "caller", "", result=Transcript(text))
        BEGAN_S.put(frame, asyncio.get_running_loop().time() - began_ms_ago / 1000)
        await self.worker.queue_frame(frame)
        await asyncio.sleep(0.01)

    async def voice(self, *, active: bool) -> None:
        """Let the voice begin, or end."""
        frame = VADUserStartedSpeakingFrame if active else VADUserStoppedSpeakingFrame
        await self.worker.queue_frame(frame())
        await asyncio.sleep(0.01)

    async def watch(self, ref: str, *, for_ms: int, late_ms: int = 200, every_ms: int = 40) -> None:
        """Send a gesture of now ``late_ms`` from now, and heartbeats in between."""
        for passed_ms in range(0, for_ms, every_ms):
            if passed_ms == late_ms:
                self.outside(ref=ref, ago_ms=late_ms)
            else:
                self.outside(ago_ms=late_ms)
            await asyncio.sleep(every_ms / 1000)

    async def waits_ms(self) -> list[int]:
        """Return for each gesture how long after it happened it was committed."""
        return [
            (each.payload["committed_us"] - each.event_us) // 1000
            for each in await self.reports()
            if each.source == "vision.outside"
        ]

    async def reports(self) -> list[Event]:
        """Return the committed reports of the session."""
        await self.conversation.flushed()
        return await self._store.events(self.conversation.session_id, limit=1_000, kinds=[Kind.ANNOTATION])

    async def turn(self, said: str) -> tuple[str, list[object]]:
        """End the turn; return the model's text, and the texts of the tokens."""
        seen = await self.perception.take(said)
        return seen.text, [token["text"] for token in seen.tokens]


def play(
    folder: Path,
    scenario: Callable[[Bench], Coroutine[Any, Any, None]],
    *,
    latencies: LearntLatencies | None = None,
    before: Callable[[Bench], None] = lambda _bench: None,
    **chosen: Any,
) -> None:
    async def whole() -> None:
        url = new_session_file(folder / "sessions.db")
        store = await SessionStore.open(StoreTuning(url=url, busy_timeout_ms=0))
        opened = Conversations(store, ConversationTuning(), compactor=Compactor())
        try:
            async with opened.open() as conversation:
                events = CallEvents()
                perception = Perception(
                    conversation,
                    events=events,
                    call_id="call",
                    settings=PerceptionSettings(**chosen),
                    latencies=latencies,
                    engines=EARS,
                    rules=find_language("en").perceived,
                )
                bench = Bench(perception, conversation, store, events)
                before(bench)
                runner = WorkerRunner(handle_sigint=False)
                await runner.add_workers(bench.worker)
                running = asyncio.create_task(runner.run())
                await asyncio.sleep(0.1)
                try:
                    await scenario(bench)
                finally:
                    await runner.cancel()
                    await running
        finally:
            await opened.close()
            await store.close()

    virtual_time.run(whole())


def test_an_hour_of_noise_without_a_turn_is_forgotten_by_age(tmp_path: Path):
    sizes: list[int] = []

    async def scenario(bench: Bench) -> None:
        # A television: partials without a final, and a person who moves in view of the camera.
        for number in range(1_800):
            await bench.hears(f"noise {number}", final=False)
            await bench.sees(f"channel {number}", ago_ms=300)
            sizes.append(bench.perception.untaken)
            await asyncio.sleep(1.98)
        await bench.hears("what is the fee")
        assert await bench.turn("what is the fee") == ("", ["what is the fee"])

    play(tmp_path, scenario, remembered_ms=60_000)
    # One statement every two seconds, in two queues.
    assert max(sizes) <= 2 * 31
    assert sizes[-1] >= 2 * 29


def test_a_crowd_of_statements_is_forgotten_by_number(tmp_path: Path):
    async def scenario(bench: Bench) -> None:
        for number in range(100):
            await bench.hears(f"noise {number}", final=False)
            await bench.reads(f"typed {number}")
        assert bench.perception.untaken <= 3 * 20

    play(tmp_path, scenario, remembered=20)


def test_words_that_are_forgotten_here_are_told_with_the_rest_of_their_turn(tmp_path: Path):
    async def scenario(bench: Bench) -> None:
        await bench.reads("and this was typed long ago")
        await asyncio.sleep(11)
        await bench.hears("this is fine")
        await bench.sees("the fee", ago_ms=400)
        text, tokens = await bench.turn("and this was typed long ago\nthis is fine")
        assert text == "and this was typed long ago this is fine [pointing at the fee]"
        assert tokens == ["this is fine"]

    # Without a margin: a word with a pointing gesture takes its neighbours along.
    play(tmp_path, scenario, remembered_ms=10_000, fusion=FusionSettings(epsilon_us=600_000))


def test_a_late_tag_of_an_earlier_turn_does_not_bring_its_words_back(tmp_path: Path):
    async def scenario(bench: Bench) -> None:
        await bench.hears("how much is it")
        assert await bench.turn("how much is it") == ("", ["how much is it"])
        await asyncio.sleep(1)
        await bench.sees("the fee", ago_ms=1_500, lasts_ms=400)
        await asyncio.sleep(5)
        await bench.hears("and this")
        assert await bench.turn("and this") == ("", ["and this"])

    play(tmp_path, scenario)


def test_the_model_reads_the_words_of_the_record_when_the_recognisers_differ(tmp_path: Path):
    async def scenario(bench: Bench) -> None:
        await bench.hears("this is fine", text_of_final="This is really fine.")
        await bench.feels(0.9, ago_ms=900, lasts_ms=900)
        said = "This is really fine."
        assert (await bench.turn(said))[0] == "This is [tense] really fine. [tense]"

    play(tmp_path, scenario)


def test_the_model_reads_no_words_that_are_not_in_the_record(tmp_path: Path):
    async def scenario(bench: Bench) -> None:
        # Typed text arrives in the middle of a spoken sentence.
        await bench.hears("this is fine")
        await bench.feels(0.9, ago_ms=900, lasts_ms=900)
        await bench.reads("what is the fee")
        assert (await bench.turn("what is the fee"))[0] == ""

    play(tmp_path, scenario)


def test_words_that_were_nobodys_are_not_in_the_next_turn(tmp_path: Path):
    async def scenario(bench: Bench) -> None:
        await bench.hears("mhm right")
        bench.events.publish(WordsDiscarded(bench.events.now_ms()))
        await asyncio.sleep(3)
        await bench.hears("what is it")
        assert await bench.turn("what is it") == ("", ["what is it"])

    play(tmp_path, scenario)


def test_what_was_said_in_two_breaths_is_one_turn(tmp_path: Path):
    async def scenario(bench: Bench) -> None:
        await bench.hears("what is", final=False)
        await bench.hears("what is the fee")
        await asyncio.sleep(1.5)
        await bench.hears("for the card")
        await bench.sees("the card", ago_ms=500)
        text, _ = await bench.turn("what is the fee for the card")
        assert text == "what is the fee for the card [pointing at the card]"

    play(tmp_path, scenario, fusion=FusionSettings(epsilon_us=600_000))


def test_what_one_call_learns_is_the_prior_of_the_next_one_that_learns(tmp_path: Path):
    latencies = LearntLatencies()

    async def speaks(bench: Bench, times: int) -> None:
        for _ in range(times):
            await bench.hears("hello", late_ms=500)
            await asyncio.sleep(2)
            await bench.turn("hello")

    def learnt_us() -> int | None:
        return latencies.prior_us("ears", Source.STT)

    def call(times: int, name: str) -> None:
        folder = tmp_path / name
        folder.mkdir()
        play(folder, lambda bench: speaks(bench, times), latencies=latencies)

    call(0, "silent")
    assert learnt_us() is None
    call(10, "first")
    # From the configured 80 ms, by 10 ms a sample.
    assert learnt_us() == 180_000
    call(0, "silent again")
    assert learnt_us() == 180_000
    call(3, "second")
    assert learnt_us() == 210_000


def test_the_latency_of_a_hosted_recogniser_is_learnt_by_the_end_of_the_voice(tmp_path: Path):
    latencies = LearntLatencies()

    async def finals(bench: Bench, *, times: int, ends_first: bool) -> None:
        for _ in range(times):
            await bench.voice(active=True)
            await asyncio.sleep(1)
            if ends_first:
                await bench.voice(active=False)
            # Two of one voice: the second one does not count.
            for late_s in (0.4, 0.5):
                await asyncio.sleep(late_s)
                words = (HostedWord("hello", 0, 300, None),)
                await bench.worker.queue_frame(TranscriptionFrame("hello", "caller", "", result=words))
            await asyncio.sleep(0.1)
            await bench.voice(active=False)
            await asyncio.sleep(1)
            await bench.turn("hello")

    def learnt_us(name: str, **how: Any) -> int | None:
        (tmp_path / name).mkdir()
        play(tmp_path / name, lambda bench: finals(bench, **how), latencies=latencies)
        return latencies.prior_us("ears", Source.STT)

    assert learnt_us("before its end", times=3, ends_first=False) is None
    # From the stated 80 ms, by 10 ms a sample.
    assert learnt_us("after its end", times=5, ends_first=True) == 130_000


def test_words_happen_where_they_end(tmp_path: Path):
    async def scenario(bench: Bench) -> None:
        await bench.hears("this is fine", late_ms=300)
        arrived_us = bench.clock.now_us() - 10_000
        await bench.turn("this is fine")
        (report,) = await bench.reports()
        assert report.event_us == arrived_us - 300_000
        assert report.payload["body"]["words"][-1]["end_us"] == report.event_us

    play(tmp_path, scenario)


def test_a_turn_knows_when_it_pointed(tmp_path: Path):
    async def scenario(bench: Bench) -> None:
        await bench.hears("what is this and what does it cost")
        ended_us = bench.clock.now_us() - 10_000 - 100_000
        await asyncio.sleep(1)
        seen = await bench.perception.take("what is this and what does it cost")
        # The third of eight words of 200 ms.
        assert seen.pointed_us == ended_us - 5 * 200_000 - 100_000
        await bench.hears("and the fee")
        assert (await bench.perception.take("and the fee")).pointed_us is None

    play(tmp_path, scenario)


def test_words_alone_are_never_late(tmp_path: Path):
    async def scenario(bench: Bench) -> None:
        for late_ms in (120, 700, 240, 90, 480) * 4:
            # A second and a half of speech, with a partial up to 100 ms after its end.
            for spoken_ms in (300, 700, 1_100, 1_600):
                await bench.hears_partial("one two three", began_ms_ago=spoken_ms)
                await asyncio.sleep(0.4)
            await asyncio.sleep(late_ms / 1000)
            await bench.hears("one two three four five six seven", late_ms=late_ms)
            await bench.turn("one two three four five six seven")
            await asyncio.sleep(1.5)
        found = await bench.reports()
        assert len(found) == 20 * 5
        assert not any(report.payload["late"] for report in found)

    play(tmp_path, scenario)


def test_a_turn_waits_briefly_for_a_program_that_is_silent_and_not_for_one_that_has_left(tmp_path: Path):
    async def scenario(bench: Bench) -> None:
        bench.outside(ref="the fee", ago_ms=100)
        await bench.hears("this is fine")
        assert await bench.wait_ms("this is fine") == 150
        # It says nothing more, by a heartbeat.
        bench.outside(ref="the fee", ago_ms=100)
        await bench.hears("this is fine too")
        bench.outside(ago_ms=0)
        assert await bench.wait_ms("this is fine too") == 0
        bench.outside(ref="the fee", ago_ms=100)
        await bench.hears("and this")
        bench.outside_leaves()
        assert await bench.wait_ms("and this") == 0
        # It is back, as another instance.
        bench.outside(ref="the fee", ago_ms=100)
        await bench.hears("and that")
        assert await bench.wait_ms("and that") == 150
        bench.outside_leaves()
        bench.outside_leaves()

    play(tmp_path, scenario)


def test_a_turn_waits_for_no_program_that_has_been_silent_for_a_second(tmp_path: Path):
    async def scenario(bench: Bench) -> None:
        bench.outside(ref="the fee", ago_ms=100)
        await asyncio.sleep(1.1)
        await bench.hears("this is fine")
        assert await bench.wait_ms("this is fine") == 0

    play(tmp_path, scenario)


def test_a_program_revises_and_ends_no_statement_of_this_process(tmp_path: Path):
    async def scenario(bench: Bench) -> None:
        bench.outside(ref="the fee", identity="g1")
        now_us = bench.clock.now_us()
        seen = Annotation(now_us, now_us, Source.VISION, VisionPayload(now_us, now_us, "the card"))
        bench.events.publish(AnnotationReported(0, Source.VISION, annotation=seen, identity="g1"))
        bench.outside_leaves()
        # The specialist of this process is still waited for.
        await bench.hears("this is fine")
        assert await bench.wait_ms("this is fine") == 150
        found = [each for each in await bench.reports() if each.source != Source.STT]
        assert [(each.source, each.payload["body"]["ref"]) for each in found] == [
            ("vision.outside", "the fee"),
            ("vision", "the card"),
        ]

    play(tmp_path, scenario)


def test_a_gesture_waits_for_words_no_longer_than_a_recogniser_needs(tmp_path: Path):
    async def scenario(bench: Bench) -> None:
        await bench.hears("good morning")
        await bench.watch("the fee", for_ms=400)
        await bench.voice(active=True)
        await bench.watch("the bill", for_ms=400)
        await bench.hears("what is this")
        await bench.voice(active=False)
        await bench.watch("the card", for_ms=400)
        await bench.turn("what is this")
        silent, spoken, after = await bench.waits_ms()
        assert 200 <= silent <= 250
        assert 200 <= spoken <= 250
        assert [each.payload["late"] for each in await bench.reports()] == [False] * 5
        assert 200 <= after <= 250

    play(tmp_path, scenario)


def test_a_speaker_is_named_in_every_turn_once_there_are_two(tmp_path: Path):
    async def scenario(bench: Bench) -> None:
        async def said_by(speaker: str, words: str) -> str:
            await asyncio.sleep(2)
            await bench.hears(words)
            await bench.speaks(speaker, ago_ms=600, lasts_ms=500)
            return (await bench.turn(words))[0]

        assert await said_by("speaker 1", "good morning") == ""
        assert await said_by("speaker 2", "good day") == "[speaker 2] good day"
        assert await said_by("speaker 1", "what is new") == "[speaker 1] what is new"
        await asyncio.sleep(2)
        await bench.hears("not known who")
        assert (await bench.turn("not known who"))[0] == ""

    play(tmp_path, scenario)


def test_the_speakers_of_a_hosted_recogniser_are_tags_of_their_words(tmp_path: Path):
    def token(text: str, start_ms: int, end_ms: int, speaker: str) -> dict[str, Any]:
        return {"text": text, "start_ms": start_ms, "end_ms": end_ms, "speaker": speaker}

    async def scenario(bench: Bench) -> None:
        await bench.voice(active=True)
        await asyncio.sleep(1)
        ended_us = bench.clock.now_us()
        await bench.voice(active=False)
        tokens = [token("cancel", 61_000, 61_300, "1"), token(" no", 61_500, 61_900, "2")]
        await bench.worker.queue_frame(TranscriptionFrame("cancel no", "caller", "", result=tokens))
        await asyncio.sleep(0.01)
        assert await bench.turn("cancel no") == ("[speaker 1] cancel\n[speaker 2] no", ["cancel", "no"])
        found = [(each.source, each.event_us - ended_us) for each in await bench.reports()]
        # The last word ended with the voice.
        assert found == [("diar", -600_000), ("stt", 0), ("diar", 0)]

    play(tmp_path, scenario)


def test_a_report_before_the_pipeline_has_started_counts(tmp_path: Path):
    def before(bench: Bench) -> None:
        bench.outside(ref="the fee")
        bench.outside(ref="the date")

    async def scenario(bench: Bench) -> None:
        await asyncio.sleep(5)
        assert len(await bench.reports()) == 2

    play(tmp_path, scenario, before=before)


def test_a_report_after_the_end_of_a_call_is_looked_at_no_more(tmp_path: Path):
    async def scenario(bench: Bench) -> None:
        bench.outside(ref="the fee")
        await bench.perception.cleanup()
        before = len(await bench.reports())
        bench.outside(ref="the date")
        await asyncio.sleep(5)
        assert before and len(await bench.reports()) == before

    play(tmp_path, scenario)


def test_speakers_of_earlier_calls_count_too(tmp_path: Path):
    async def scenario(bench: Bench) -> None:
        voices = tuple(KnownVoice(f"speaker {number}", (1.0, 0.0), 9.0) for number in (1, 2))
        bench.events.publish(VoicesLearnt(0, voices))
        await bench.hears("good day")
        await bench.speaks("speaker 2", ago_ms=600, lasts_ms=500)
        assert (await bench.turn("good day"))[0] == "[speaker 2] good day"

    play(tmp_path, scenario)
