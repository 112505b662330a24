"""The playout clock in a real pipeline: a voice, a paced track, the context; on virtual time."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

import pytest
from pipecat.frames.frames import (
    Frame,
    FunctionCallInProgressFrame,
    FunctionCallResultFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMTextFrame,
    OutputAudioRawFrame,
    TTSAudioRawFrame,
    TTSSpeakFrame,
    TTSStartedFrame,
    TTSTextFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.aggregators.llm_response_universal import (
    AssistantTurnStoppedMessage,
    LLMContextAggregatorPair,
)
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.services.settings import TTSSettings
from pipecat.services.tts_service import TTSService

from parley.core.call_events import (
    CallEvent,
    ClauseAnnounced,
    ClientDelayReported,
    ReplyAnnounced,
    ReplyFinished,
    ReplyOpened,
    ReplyProgressed,
    ReplyStarted,
    ReplyWritten,
)
from parley.core.timeline import HeardReply, HeardSoFar, HeardSource
from parley.processors.playout.assistant import HeardAssistantAggregator
from parley.processors.playout.heard import PlayoutSettings
from parley.processors.playout.playout import Playout
from parley.processors.speech.engine_tts import EngineTtsService
from parley.runtime.event_stream import CallEvents
from tests.fakes.executor import InlineExecutor
from tests.fakes.pipecat_clock import PipecatClock
from tests.fakes.spoken_call import SpokenCall, hold_call
from tests.fakes.track_output import RATE_HZ, TrackOutput
from tests.fakes.tts import ToneTts


class DeepOutput(TrackOutput):
    """Output that has taken the last word of a reply, and the next reply, before that word is heard."""

    lead_ms = 200


class SpeakerOutput(TrackOutput):
    """Output that reports a chunk when it begins to play, and takes the next one when it has ended."""

    async def take_audio(self, frame: OutputAudioRawFrame) -> bool:
        self._left(frame.audio)
        await asyncio.sleep(len(frame.audio) / 2 / RATE_HZ)
        return True


class SentenceTts(TTSService):
    """Service that sends whole sentences and no word times, at its own rate and faster than real time."""

    def __init__(self, *, word_ms: int = 100, rate_hz: int = 24_000, pieces_ms: int = 100) -> None:
        super().__init__(
            push_start_frame=True,
            push_stop_frames=True,
            sample_rate=rate_hz,
            settings=TTSSettings(model="sentences", voice=None, language=None),
        )
        self._word_ms = word_ms
        self._rate_hz = rate_hz
        self._pieces_ms = pieces_ms
        self.contexts: list[str] = []

    async def run_tts(self, text: str, context_id: str) -> AsyncGenerator[Frame | None, None]:
        self.contexts.append(context_id)
        for _ in range(len(text.split()) * self._word_ms // self._pieces_ms):
            pcm = b"\1\1" * (self._rate_hz * self._pieces_ms // 1000)
            yield TTSAudioRawFrame(pcm, self._rate_hz, 1, context_id=context_id)


class WordTimesTts(SentenceTts):
    """Service that reports words by the seconds since the beginning of their context, as clouds do."""

    def __init__(self) -> None:
        super().__init__()
        self._push_text_frames = False
        self._said_ms = 0

    async def run_tts(self, text: str, context_id: str) -> AsyncGenerator[Frame | None, None]:
        times = []
        for word in text.split():
            times.append((word, self._said_ms / 1000))
            self._said_ms += self._word_ms
        await self.add_word_timestamps(times, context_id)
        async for frame in super().run_tts(text, context_id):
            yield frame


class NeverStopsTts(SentenceTts):
    """Service that does not report the end of its speech."""

    def __init__(self) -> None:
        super().__init__()
        self._push_stop_frames = False


class Injector(FrameProcessor):
    """Processor after the voice: lets a test push frames that a service would push late."""

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        await self.push_frame(frame, direction)


class Call(SpokenCall):
    """A pipeline of model, voice, entry, output, exit and context."""

    def __init__(
        self,
        voice: TTSService | None,
        *,
        follows_packets: bool = True,
        output: type[TrackOutput] = TrackOutput,
        guards_protected: bool = False,
        **settings: Any,
    ) -> None:
        self.replies: list[HeardReply] = []
        self.progress: list[HeardSoFar] = []
        self.turns: list[AssistantTurnStoppedMessage] = []
        self.events = CallEvents()
        self.events.subscribe(ReplyFinished, self._on_finished)
        self.events.subscribe(ReplyProgressed, lambda event: self.progress.append(event.heard))
        self.playout = Playout(
            PlayoutSettings(**settings),
            events=self.events,
            follows_packets=follows_packets,
        )
        self.voice = voice or EngineTtsService(ToneTts(), executor=InlineExecutor())
        self.injector = Injector()
        heard = self.playout.played if follows_packets else (lambda _pcm: None)
        self.output = output(heard)
        self.context = LLMContext()
        user, _ = LLMContextAggregatorPair(self.context)
        assistant = HeardAssistantAggregator(self.context, user)

        @assistant.event_handler("on_assistant_turn_stopped")
        async def on_turn(_aggregator: Any, message: AssistantTurnStoppedMessage) -> None:
            self.turns.append(message)

        thought, entry, playout_exit = self.playout.taps(guards_protected=guards_protected)
        worker = PipelineWorker(
            Pipeline([thought, self.voice, self.injector, entry, self.output, playout_exit, assistant]),
            params=PipelineParams(audio_out_sample_rate=RATE_HZ),
            clock=PipecatClock(),
            cancel_on_idle_timeout=False,
            enable_rtvi=False,
        )
        super().__init__(worker)

    def _on_finished(self, event: ReplyFinished) -> None:
        if event.heard.is_known:
            self.replies.append(event.heard)

    async def wait_ms(self, milliseconds: int) -> None:
        await asyncio.sleep(milliseconds / 1000)

    def remembered(self) -> list[str]:
        return [str(message["content"]) for message in self.context.get_messages()]


def play(
    scenario: Callable[[Call], Awaitable[None]],
    voice: Callable[[], TTSService] | None = None,
    **settings: Any,
) -> Call:
    return hold_call(lambda: Call(voice() if voice else None, **settings), scenario)


REPLY = ("One two three, ", "four five six ", "seven eight nine ten eleven twelve, ", "and thirteen.")
TEXT = "".join(REPLY)
# Words of one length, as the services here speak them.
SENTENCES = ("They said that only nine more came home. ", "Then some went away.")
WORDS = TEXT.split()


def test_a_reply_is_over_when_its_last_packet_has_left_and_not_before():
    async def scenario(call: Call) -> None:
        await call.says(*REPLY)
        await call.wait_ms(1_340)
        assert call.replies == [] and call.remembered() == []
        await call.wait_ms(1_000)
        assert call.remembered() == [TEXT]

    call = play(scenario)
    (reply,) = call.replies
    assert (reply.text, reply.unheard, reply.truncated) == (TEXT, "", False)
    assert (reply.mark.audio_ms, reply.mark.last_word) == (1_400, 13)
    assert reply.mark.source is HeardSource.PLAYOUT_CLOCK
    assert [turn.interrupted for turn in call.turns] == [False]
    started_s = call.output.sent[0][0]
    assert reply.started_us == round(started_s * 1e6) + 60_000
    assert reply.ended_us - reply.started_us == 1_380_000


@pytest.mark.parametrize("at_ms", [5, 30, 77, 170, 251, 430, 666, 790, 1_130, 1_345])
def test_after_an_interruption_record_and_context_hold_what_left(at_ms):
    async def scenario(call: Call) -> None:
        await call.says(*REPLY)
        await call.wait_ms(at_ms)
        await call.interrupts()
        await call.wait_ms(3_000)

    call = play(scenario)
    (reply,) = call.replies
    sent_ms = call.output.audible_ms()
    # Packets of 20 ms; nothing leaves after the interruption but the one that was due.
    assert at_ms - 20 <= sent_ms <= at_ms + 40
    assert reply.mark.audio_ms == sent_ms
    heard = WORDS[: (sent_ms + 50) // 100]
    assert reply.text == " ".join(heard)
    assert reply.unheard == " ".join(WORDS[len(heard) :])
    assert reply.truncated
    assert call.remembered() == ([reply.text] if heard else [])
    assert [turn.content for turn in call.turns] == [reply.text]


def test_nothing_leaves_between_an_interruption_and_its_handling():
    async def scenario(call: Call) -> None:
        await call.says(*REPLY)
        await call.wait_ms(500)
        before = call.output.audible_ms()
        await call.interrupts()
        await call.wait_ms(500)
        assert call.output.audible_ms() <= before + 20

    play(scenario)


def test_the_reply_after_an_interruption_is_counted_from_its_own_beginning():
    async def scenario(call: Call) -> None:
        await call.says(*REPLY)
        await call.wait_ms(330)
        await call.interrupts()
        await call.wait_ms(10)
        await call.says("Alpha beta gamma delta.")
        await call.wait_ms(270)
        await call.interrupts()
        await call.wait_ms(500)

    call = play(scenario)
    first, second = call.replies
    assert first.text == "One two three,"
    assert second.mark.audio_ms == call.output.audible_ms() - first.mark.audio_ms
    heard = (second.mark.audio_ms + 50) // 100
    assert heard in (2, 3)
    assert second.text.split() == ["Alpha", "beta", "gamma", "delta."][:heard]
    assert call.remembered() == [first.text, second.text]


@pytest.mark.parametrize("at_ms", [330, 1_336, 1_390, 1_400, 1_450])
def test_a_reply_that_begins_directly_after_an_interruption_is_not_met_by_it(at_ms):
    async def scenario(call: Call) -> None:
        await call.says(*REPLY)
        await call.wait_ms(at_ms)
        await call.interrupts()
        await call.says("Alpha beta gamma.")
        await call.wait_ms(2_000)

    call = play(scenario)
    first, second = call.replies
    assert f"{first.text} {first.unheard}".strip() == TEXT
    assert (second.text, second.unheard, second.truncated) == ("Alpha beta gamma.", "", False)
    assert second.mark.audio_ms == 300
    assert call.remembered() == [first.text, second.text]


def test_words_after_a_pause_of_the_model_are_counted_by_their_audio():
    async def scenario(call: Call) -> None:
        await call.worker.queue_frame(LLMFullResponseStartFrame())
        await call.worker.queue_frame(LLMTextFrame("One two three. "))
        await call.wait_ms(5_000)
        await call.worker.queue_frame(LLMTextFrame("Four five six.\n"))
        await call.wait_ms(180)
        await call.interrupts()
        await call.wait_ms(100)

    (reply,) = play(scenario).replies
    assert reply.text == "One two three. Four five"
    assert reply.mark.last_word == 4
    assert 440 <= reply.mark.audio_ms <= 480


def test_a_filler_is_a_record_of_its_own_and_not_in_the_context():
    async def scenario(call: Call) -> None:
        await call.worker.queue_frame(TTSSpeakFrame("Let me see.", append_to_context=False))
        await call.says("Alpha beta.")
        await call.wait_ms(460)
        await call.interrupts()
        await call.wait_ms(500)

    call = play(scenario)
    filler, reply = call.replies
    assert (filler.text, filler.in_context, filler.truncated) == ("Let me see.", False, False)
    assert (reply.text, reply.in_context) == ("Alpha", True)
    assert call.remembered() == ["Alpha"]


def test_a_reply_that_follows_a_filler_directly_is_heard_whole():
    async def scenario(call: Call) -> None:
        await call.worker.queue_frame(TTSSpeakFrame("Let me see.", append_to_context=False))
        await call.says("Alpha beta.")
        await call.wait_ms(2_000)

    call = play(scenario)
    assert [(r.text, r.truncated) for r in call.replies] == [("Let me see.", False), ("Alpha beta.", False)]
    assert call.remembered() == ["Alpha beta."]


def test_a_greeting_is_a_reply():
    async def scenario(call: Call) -> None:
        await call.worker.queue_frame(TTSSpeakFrame("Hello there, this is me."))
        await call.wait_ms(2_000)
        await call.worker.queue_frame(TTSSpeakFrame("Hello again, my friend."))
        await call.wait_ms(230)
        await call.interrupts()
        await call.wait_ms(100)

    call = play(scenario)
    assert [(r.text, r.truncated) for r in call.replies] == [
        ("Hello there, this is me.", False),
        ("Hello again,", True),
    ]
    assert call.remembered() == [reply.text for reply in call.replies]


@pytest.mark.parametrize("output", [TrackOutput, DeepOutput])
def test_replies_that_follow_at_once_are_remembered_one_by_one(output: type[TrackOutput]):
    async def scenario(call: Call) -> None:
        await call.says("One two three.")
        await call.says("Four five six.")
        await call.wait_ms(2_000)

    call = play(scenario, output=output)
    assert [reply.text for reply in call.replies] == ["One two three.", "Four five six."]
    assert call.remembered() == ["One two three.", "Four five six."]
    assert [turn.interrupted for turn in call.turns] == [False, False]


def test_short_replies_one_after_the_other_and_one_without_a_sound_end_in_order():
    async def scenario(call: Call) -> None:
        await call.says("One two three.")
        await call.says("Four.")
        # No part of it can be heard, as in a reply that only calls a tool.
        await call.says()
        await call.says("Five.")
        await call.wait_ms(1_500)

    call = play(scenario, output=DeepOutput)
    assert call.remembered() == ["One two three.", "Four.", "Five."]
    assert [turn.content for turn in call.turns] == ["One two three.", "Four.", "", "Five."]


def test_a_reply_whose_end_was_lost_does_not_keep_the_next_one_waiting():
    async def scenario(call: Call) -> None:
        await call.worker.queue_frame(LLMFullResponseStartFrame())
        await call.worker.queue_frame(LLMTextFrame("One two three."))
        await call.wait_ms(2_000)
        await call.says("Four five six.")
        await call.wait_ms(2_000)

    call = play(scenario)
    assert [reply.text for reply in call.replies] == ["One two three. Four five six."]
    # The end of the second one has come through.
    assert [turn.interrupted for turn in call.turns] == [False]


def test_speech_put_into_a_reply_belongs_to_it():
    async def scenario(call: Call) -> None:
        await call.worker.queue_frame(LLMFullResponseStartFrame())
        await call.worker.queue_frame(LLMTextFrame("One two three. "))
        await call.worker.queue_frame(TTSSpeakFrame("By the way."))
        await call.worker.queue_frame(LLMFullResponseEndFrame())
        await call.wait_ms(3_000)

    call = play(scenario)
    assert [reply.text for reply in call.replies] == ["One two three. By the way."]
    assert call.remembered() == ["One two three. By the way."]


def test_an_interruption_before_the_first_sound_remembers_nothing():
    async def scenario(call: Call) -> None:
        await call.worker.queue_frame(LLMFullResponseStartFrame())
        await call.worker.queue_frame(LLMTextFrame("One two"))
        await call.wait_ms(10)
        await call.interrupts()
        await call.wait_ms(100)

    call = play(scenario)
    (reply,) = call.replies
    assert (reply.text, reply.unheard, reply.mark.last_word) == ("", "One two", -1)
    assert call.remembered() == []


def test_progress_is_told_while_the_reply_plays():
    async def scenario(call: Call) -> None:
        await call.says(*REPLY)
        await call.wait_ms(1_200)
        assert [so_far.text for so_far in call.progress] == ["One two three,", TEXT[: TEXT.index(" and")]]
        assert call.progress[0].mark.audio_ms in (260, 280)
        await call.wait_ms(1_000)

    call = play(scenario)
    assert call.progress[-1].text == TEXT
    assert {so_far.reply_id for so_far in call.progress} == {call.replies[0].reply_id}


def test_a_mark_can_be_asked_for_at_any_moment():
    async def scenario(call: Call) -> None:
        await call.says(*REPLY)
        await call.wait_ms(1_050)
        (reply_id,) = {so_far.reply_id for so_far in call.progress}
        mark = call.playout.mark(reply_id)
        # 60 ms are on their way to the caller.
        assert mark is not None and 970 <= mark.audio_ms <= 990
        assert mark.last_word == 9
        call.playout.events.publish(ClientDelayReported(0, 0))
        later = call.playout.mark(reply_id)
        assert later is not None and 1_030 <= later.audio_ms <= 1_050
        await call.wait_ms(1_000)

    play(scenario)


def test_late_audio_of_a_cancelled_reply_goes_no_further():
    async def scenario(call: Call) -> None:
        await call.says(*REPLY)
        await call.wait_ms(400)
        await call.interrupts()
        await call.wait_ms(50)
        before_ms = call.output.audible_ms()
        late = TTSAudioRawFrame(b"\1\1" * 1_600, RATE_HZ, 1, context_id=contexts[0])
        words = TTSTextFrame("late", "word", context_id=contexts[0])
        for frame in (TTSStartedFrame(context_id=contexts[0]), late, words):
            await call.injector.push_frame(frame)
        await call.wait_ms(300)
        assert call.output.audible_ms() == before_ms
        assert call.playout.late_frames == 3
        await call.says("Alpha beta.")
        await call.wait_ms(500)

    contexts: list[str] = []

    class Watched(EngineTtsService):
        async def on_turn_context_created(self, context_id: str) -> None:
            contexts.append(context_id)
            await super().on_turn_context_created(context_id)

    call = play(scenario, lambda: Watched(ToneTts(), executor=InlineExecutor()))
    assert [reply.text for reply in call.replies] == ["One two three, four", "Alpha beta."]
    assert call.remembered() == ["One two three, four", "Alpha beta."]


TOOL = {"function_name": "order", "tool_call_id": "1", "arguments": {}}


def results(call: Call) -> list[str]:
    return [str(message["content"]) for message in call.context.get_messages() if message["role"] == "tool"]


def test_a_response_without_a_sound_does_not_hold_up_what_follows_it():
    seen: list[list[str]] = []

    async def scenario(call: Call) -> None:
        await call.worker.queue_frame(LLMFullResponseStartFrame())
        await call.worker.queue_frame(FunctionCallInProgressFrame(**TOOL, cancel_on_interruption=True))
        await call.worker.queue_frame(LLMFullResponseEndFrame())
        await call.wait_ms(300)
        await call.worker.queue_frame(FunctionCallResultFrame(**TOOL, result={"number": 7}))
        await call.wait_ms(50)
        seen.append(results(call))

    assert play(scenario).replies == []
    assert seen == [['{"number": 7}']]


@pytest.mark.parametrize("at_ms", range(270, 330, 5))
def test_an_interruption_at_the_end_of_a_reply_lets_go_what_follows_it(at_ms):
    seen: list[list[str]] = []

    async def scenario(call: Call) -> None:
        await call.worker.queue_frame(LLMFullResponseStartFrame())
        await call.worker.queue_frame(LLMTextFrame("One two three."))
        await call.worker.queue_frame(FunctionCallInProgressFrame(**TOOL, cancel_on_interruption=True))
        await call.worker.queue_frame(LLMFullResponseEndFrame())
        await call.worker.queue_frame(FunctionCallResultFrame(**TOOL, result={"number": 7}))
        await call.wait_ms(at_ms)
        await call.interrupts()
        await call.wait_ms(50)
        seen.append(results(call))

    (reply,) = play(scenario).replies
    assert seen == [['{"number": 7}']]
    assert reply.text == "One two three."


def test_a_service_without_word_times_is_cut_where_its_audio_was_cut():
    async def scenario(call: Call) -> None:
        await call.says(*SENTENCES)
        await call.wait_ms(430)
        await call.interrupts()
        await call.wait_ms(500)

    call = play(scenario, SentenceTts)
    (reply,) = call.replies
    assert reply.mark.source is HeardSource.ESTIMATED
    heard = (call.output.audible_ms() + 50) // 100
    assert abs(len(reply.text.split()) - heard) <= 1
    assert f"{reply.text} {reply.unheard}" == "".join(SENTENCES)
    assert call.remembered() == [reply.text]


def test_a_service_without_word_times_that_is_heard_to_the_end_is_whole():
    async def scenario(call: Call) -> None:
        await call.says(*SENTENCES)
        await call.wait_ms(3_000)

    call = play(scenario, SentenceTts)
    (reply,) = call.replies
    assert (reply.text, reply.truncated) == ("".join(SENTENCES), False)
    assert reply.mark.audio_ms == 1_200
    assert call.remembered() == [reply.text]


def test_a_reply_whose_voice_does_not_say_that_it_is_over_ends_when_the_output_is_empty():
    async def scenario(call: Call) -> None:
        await call.says(*SENTENCES)
        await call.wait_ms(8_000)
        # Before the call ends.
        assert call.remembered() == ["".join(SENTENCES)]

    call = play(scenario, NeverStopsTts)
    assert [(reply.text, reply.truncated) for reply in call.replies] == [("".join(SENTENCES), False)]


@pytest.mark.parametrize("at_ms", [240, 530, 910])
def test_a_service_that_times_words_from_the_start_of_their_context_is_measured(at_ms):
    async def scenario(call: Call) -> None:
        await call.says("One two three four five. ", "Six seven eight nine ten.")
        await call.wait_ms(at_ms)
        await call.interrupts()
        await call.wait_ms(500)

    call = play(scenario, WordTimesTts)
    (reply,) = call.replies
    expected = (call.output.audible_ms() + 50) // 100
    assert len(reply.text.split()) == expected
    assert reply.mark.source is HeardSource.PLAYOUT_CLOCK
    assert call.remembered() == [reply.text]


def test_an_output_that_reports_no_packets_is_taken_at_its_word():
    async def scenario(call: Call) -> None:
        await call.says(*REPLY)
        await call.wait_ms(530)
        await call.interrupts()
        await call.wait_ms(500)

    call = play(scenario, follows_packets=False)
    (reply,) = call.replies
    # Audio that the track still held counts as heard: at most its lead and one chunk.
    assert 0 <= reply.mark.audio_ms - call.output.audible_ms() <= 100
    assert call.remembered() == [reply.text]


@pytest.mark.parametrize("at_ms", [205, 335, 347])
def test_an_output_that_plays_while_it_writes_is_counted_to_its_last_chunk(at_ms):
    async def scenario(call: Call) -> None:
        await call.says(*REPLY)
        await call.wait_ms(at_ms)
        await call.interrupts()
        await call.wait_ms(500)
        await call.says("Alpha beta gamma delta.")
        await call.wait_ms(230)
        await call.interrupts()
        await call.wait_ms(500)

    call = play(scenario, output=SpeakerOutput)
    first, second = call.replies
    assert first.mark.audio_ms + second.mark.audio_ms == call.output.audible_ms()
    # The chunk that was begun is played to its end.
    assert at_ms <= first.mark.audio_ms <= at_ms + 40
    assert 230 <= second.mark.audio_ms <= 280
    assert call.remembered() == [first.text, second.text]


def test_speech_that_may_not_be_interrupted_is_heard_to_its_end_and_remembered():
    async def scenario(call: Call) -> None:
        speak = TTSSpeakFrame("This call is recorded, please note.")
        speak.interruptible = False
        await call.worker.queue_frame(speak)
        await call.wait_ms(330)
        await call.interrupts()
        await call.wait_ms(1_000)

    call = play(scenario)
    (reply,) = call.replies
    assert (reply.text, reply.truncated) == ("This call is recorded, please note.", False)
    assert reply.mark.audio_ms == 600
    assert call.output.audible_ms() >= 600


class Follower:
    """Observer that keeps the events of replies, numbered in the order in which they arrive."""

    def __init__(self, events: CallEvents) -> None:
        self.received: list[tuple[Any, ...]] = []
        self._numbers: dict[str, int] = {}
        events.subscribe(CallEvent, self._on_event)

    def _on_event(self, event: CallEvent) -> None:
        match event:
            case (
                ReplyOpened(reply_id=reply_id)
                | ReplyWritten(reply_id=reply_id)
                | ReplyStarted(reply_id=reply_id)
            ):
                self._publish(event, reply_id)
            case ReplyAnnounced(reply_id=reply_id, protected=protected):
                self._publish(event, reply_id, protected)
            case ClauseAnnounced(reply_id=reply_id, text=text):
                self._publish(event, reply_id, text.strip())
            case ReplyFinished(heard=heard):
                self._publish(event, heard.reply_id, heard.truncated)

    def _publish(self, event: CallEvent, reply_id: str, *more: object) -> None:
        number = self._numbers.setdefault(reply_id, len(self._numbers))
        self.received.append((type(event), number, *more))


def test_a_caller_who_follows_the_replies_is_told_in_the_order_in_which_things_happen():
    followers: list[Follower] = []

    async def scenario(call: Call) -> None:
        followers.append(Follower(call.events))
        await call.says("One two three.")
        await call.wait_ms(1_000)
        await call.worker.queue_frame(TTSSpeakFrame("Hello again, my friend."))
        await call.wait_ms(230)
        await call.interrupts()
        await call.wait_ms(100)

    play(scenario)
    [follower] = followers
    answer = [received for received in follower.received if received[1] == 0]
    assert [received[0] for received in answer] == [
        ReplyOpened, ReplyWritten, ReplyAnnounced, ClauseAnnounced, ReplyStarted, ReplyFinished,
    ]  # fmt: skip
    assert answer[-1] == (ReplyFinished, 0, False)
    greeting = [received for received in follower.received if received[1] == 1]
    assert [received[0] for received in greeting] == [
        ReplyAnnounced,
        ClauseAnnounced,
        ReplyStarted,
        ReplyFinished,
    ]
    assert greeting[-1] == (ReplyFinished, 1, True)


def test_where_someone_guards_protected_speech_an_interruption_that_comes_ends_all_of_it():
    async def scenario(call: Call) -> None:
        follower = Follower(call.events)
        speak = TTSSpeakFrame("This call is recorded, please note. " * 5)
        speak.interruptible = False
        await call.worker.queue_frame(speak)
        await call.wait_ms(330)
        assert follower.received[0] == (ReplyAnnounced, 0, True)
        await call.interrupts()
        await call.wait_ms(100)
        # The rest of it is not waited for.
        await call.worker.queue_frame(TTSSpeakFrame("Sure."))
        await call.wait_ms(400)

    call = play(scenario, guards_protected=True)
    assert [(reply.truncated, reply.text == "Sure.") for reply in call.replies] == [
        (True, False),
        (False, True),
    ]


def test_a_call_that_ends_in_good_order_remembers_its_last_reply():
    async def scenario(call: Call) -> None:
        await call.says("One two three.")
        # The end follows at once: the output still has everything to play.

    call = play(scenario)
    assert [(reply.text, reply.truncated) for reply in call.replies] == [("One two three.", False)]
    assert call.remembered() == ["One two three."]
    assert call.output.audible_ms() >= 300


def test_a_hang_up_counts_what_had_reached_the_ear():
    async def scenario(call: Call) -> None:
        await call.says(*REPLY)
        await call.wait_ms(600)
        await call.worker.cancel()

    call = play(scenario, client_delay_ms=200)
    (reply,) = call.replies
    assert 360 <= reply.mark.audio_ms <= 400
    assert reply.text == "One two three, four"
    assert reply.truncated
