"""Speculative requests before the end of a turn, on virtual time: what is requested, held and spoken."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence

import pytest
from pipecat.adapters.llm.schemas.function_schema import FunctionSchema
from pipecat.adapters.llm.schemas.tools_schema import ToolsSchema
from pipecat.frames.frames import (
    EndFrame,
    Frame,
    FunctionCallsStartedFrame,
    InterruptionFrame,
    LLMContextFrame,
    LLMTextFrame,
    TTSSpeakFrame,
    UserStartedSpeakingFrame,
    UserStoppedSpeakingFrame,
)
from pipecat.observers.base_observer import BaseObserver, FramePushed
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.services.llm_service import FunctionCallParams

from parley.core.call_events import AnsweredAhead, FallbackAnswers, VoicePaused
from parley.core.errors import EngineError
from parley.models.llm import Message
from parley.processors.dialogue.engine_llm import EngineLlmService, messages_of
from parley.processors.dialogue.llm_failover import LlmFailover
from parley.processors.dialogue.speculation import HOLD_S, MAX_HELD, STOP_S, GuessCancelFrame, Speculation
from parley.runtime.event_stream import CallEvents
from tests.fakes.reply_bench import ReplyBench
from tests.fakes.scripted_llm import HANG, TOOL, Script, ScriptedLanguageModel, ScriptedLlmService
from tests.virtual_time import run

SLOW: Script = [0.5, "It is", " ten. ", 0.2, "Really."]
SLOW_TEXT = "It is ten. Really."


class Voice:
    """Voice that records the texts to prepare."""

    def __init__(self) -> None:
        self.clauses: list[str] = []
        self.forgotten = 0

    def prepare(self, clause: str) -> None:
        self.clauses.append(clause)

    def forget_prepared(self) -> None:
        self.forgotten += 1


class Case:
    """A model, and the speculation around it."""

    def __init__(
        self,
        *scripts: Script,
        tools: bool = False,
        guarded: bool = False,
        service: type[ScriptedLlmService] = ScriptedLlmService,
    ) -> None:
        self.llm = service(*scripts)
        self.failovers: list[FallbackAnswers] = []
        self.voice = Voice()
        self.ahead = 0
        self.tool_runs = 0
        self.tools = ToolsSchema([FunctionSchema("look_up", "looks up", {}, [])]) if tools else None
        self.nothing_to_foresee = False
        if tools:
            self.llm.register_function("look_up", self._look_up)
        self.events = CallEvents()
        self.events.subscribe(AnsweredAhead, self._on_ahead)
        self.events.subscribe(FallbackAnswers, self.failovers.append)
        self.speculation = Speculation(
            self.events, self._foresee, foresee_part=self._foresee, voice=self.voice
        )
        fallback = ScriptedLanguageModel(("Fallback.",))
        thinking: list[FrameProcessor] = [self.llm]
        if guarded:
            thinking = LlmFailover(self.llm, fallback, events=self.events).processors
        self.processors = self.speculation.around(thinking)

    def context(self, text: str) -> LLMContext:
        messages = [{"role": "user", "content": text}]
        return LLMContext(messages, tools=self.tools) if self.tools else LLMContext(messages)  # type: ignore[arg-type]

    def _foresee(self, text: str) -> LLMContext | None:
        return None if self.nothing_to_foresee else self.context(text)

    def _on_ahead(self, _event: AnsweredAhead) -> None:
        self.ahead += 1

    async def _look_up(self, params: FunctionCallParams) -> None:
        self.tool_runs += 1
        await params.result_callback({"answer": "sunny"})


def play(case: Case, scenario: Callable[[ReplyBench], Awaitable[None]]) -> ReplyBench:
    async def call() -> ReplyBench:
        async with ReplyBench(case.processors) as bench:
            await bench.worker.queue_frame(UserStartedSpeakingFrame())
            await asyncio.sleep(0.1)
            await scenario(bench)
        return bench

    return run(call())


async def end_turn(bench: ReplyBench, context: LLMContext) -> None:
    """End the turn as the user aggregator does."""
    await bench.worker.queue_frame(UserStoppedSpeakingFrame())
    await bench.ask(context)


GUESSED = pytest.mark.parametrize(
    ("tools", "guarded"), [(False, False), (True, False), (False, True), (True, True)]
)


@GUESSED
def test_an_answer_that_is_ready_is_said_at_once_and_asked_for_once(tools: bool, guarded: bool):
    case = Case(SLOW, tools=tools, guarded=guarded)

    async def scenario(bench: ReplyBench) -> None:
        case.speculation.guess("what is it")
        await asyncio.sleep(2)
        assert (bench.text, bench.pairs) == ("", "")
        await end_turn(bench, case.context("what is it"))
        await bench.until(1)
        assert bench.now_ms() - bench.asked_ms <= 1

    bench = play(case, scenario)
    assert (bench.text, bench.pairs, case.llm.requests, case.ahead) == (SLOW_TEXT, "<>", 1, 1)


@GUESSED
def test_an_answer_that_is_on_its_way_comes_when_it_comes(tools: bool, guarded: bool):
    case = Case(SLOW, tools=tools, guarded=guarded)

    async def scenario(bench: ReplyBench) -> None:
        case.speculation.guess("what is it")
        await asyncio.sleep(0.3)
        await end_turn(bench, case.context("what is it"))
        await bench.until(1)
        assert bench.now_ms() - bench.asked_ms == 400

    bench = play(case, scenario)
    assert (bench.text, bench.pairs, case.llm.requests) == (SLOW_TEXT, "<>", 1)


@GUESSED
def test_other_words_are_asked_afresh_and_nothing_of_the_guess_is_said(tools: bool, guarded: bool):
    case = Case(["Wrong.", 5.0, "Very wrong."], SLOW, tools=tools, guarded=guarded)

    async def scenario(bench: ReplyBench) -> None:
        case.speculation.guess("what is")
        await asyncio.sleep(1)
        await end_turn(bench, case.context("what is it"))
        await bench.until(1)
        assert bench.now_ms() - bench.asked_ms == 700

    bench = play(case, scenario)
    assert (bench.text, bench.pairs, case.llm.requests, case.ahead) == (SLOW_TEXT, "<>", 2, 0)
    assert case.llm.cancelled == 1
    assert case.voice.forgotten == 1


class Reader(ScriptedLanguageModel):
    """Model that reads a question before the request, half a second for each."""

    def __init__(self, *scripts: Script) -> None:
        super().__init__(*scripts)
        self.read: list[str] = []
        self.stopped = 0
        self.fails = False

    @property
    def reads_ahead(self) -> bool:
        return True

    async def read_ahead(self, messages: Sequence[Message]) -> None:
        self.read.append(messages[-1].text)
        if self.fails:
            raise EngineError("full", engine="reader")
        try:
            await asyncio.sleep(0.5)
        except asyncio.CancelledError:
            self.stopped += 1
            raise

    def close(self) -> None:
        pass


def reading(reader: Reader) -> Case:
    case = Case(("Never.",))
    service = EngineLlmService(reader, owns_engine=True)
    assert service.reads_ahead
    case.processors = case.speculation.around([service])
    return case


def test_what_is_said_is_read_while_it_is_said_and_no_longer_than_that():
    reader = Reader(("It is ten.",))
    case = reading(reader)

    async def scenario(bench: ReplyBench) -> None:
        for words in ("what", "what time", "what time is", "what time is it", "what time is it now"):
            case.speculation.read_ahead(words)
            await asyncio.sleep(0.21)
        # Words come faster than they are read: the newest are read next, and a request is sent at once.
        assert reader.read == ["what", "what time", "what time is it"]
        await end_turn(bench, case.context("what time is it now please"))
        await bench.until(1)
        await asyncio.sleep(0.3)
        case.speculation.read_ahead("and")
        await asyncio.sleep(0.1)

    bench = play(case, scenario)
    # By the request, and by the end of the call.
    assert reader.stopped == 2 and reader.read[-1] == "and"
    assert (bench.text, bench.pairs) == ("It is ten.", "<>")
    assert [asked[-1].text for asked in reader.asked] == ["what time is it now please"]


def test_words_that_wait_to_be_read_are_read_when_the_voice_pauses():
    reader = Reader(("It is ten.",))
    # So that no reading takes time.
    reader.fails = True
    case = reading(reader)

    async def scenario(bench: ReplyBench) -> None:
        case.events.publish(VoicePaused(0))
        for words in ("what", "what time", "what time is it"):
            case.speculation.read_ahead(words)
            await asyncio.sleep(0.01)
        assert reader.read == ["what"]
        case.events.publish(VoicePaused(0))
        await asyncio.sleep(0.01)
        assert reader.read == ["what", "what time is it"]
        await asyncio.sleep(1)
        assert len(reader.read) == 2

    play(case, scenario)


def test_a_guess_ends_the_reading_and_nothing_is_read_after_it():
    reader = Reader((0.3, "It is ten."))
    case = reading(reader)

    async def scenario(bench: ReplyBench) -> None:
        case.speculation.read_ahead("what time")
        await asyncio.sleep(0.1)
        case.speculation.guess("what time is it")
        await asyncio.sleep(0.2)
        # The same words again are those of the guess.
        case.speculation.read_ahead("what time is it")
        await asyncio.sleep(0.4)
        await end_turn(bench, case.context("what time is it"))
        await bench.until(1)

    bench = play(case, scenario)
    assert (reader.read, reader.stopped, case.ahead) == (["what time"], 1, 1)
    assert bench.text == "It is ten."


def test_a_voice_that_goes_on_with_other_words_is_read_in_place_of_the_guess():
    reader = Reader((0.3, "It is ten."), ("At noon.",))
    case = reading(reader)

    async def scenario(bench: ReplyBench) -> None:
        case.speculation.guess("what time is it")
        await asyncio.sleep(0.1)
        case.speculation.read_ahead("what time is it over")
        await asyncio.sleep(0.1)
        assert reader.closed == 1
        assert reader.read == ["what time is it over"]
        await end_turn(bench, case.context("what time is it over there"))
        await bench.until(1)

    bench = play(case, scenario)
    assert (bench.text, case.ahead) == ("At noon.", 0)


def test_a_reading_that_fails_is_of_no_consequence():
    reader = Reader(("It is ten.",))
    reader.fails = True
    case = reading(reader)

    async def scenario(bench: ReplyBench) -> None:
        case.speculation.read_ahead("what time")
        await asyncio.sleep(0.5)
        await end_turn(bench, case.context("what time is it"))
        await bench.until(1)

    bench = play(case, scenario)
    assert (bench.text, len(bench.errors), reader.read) == ("It is ten.", 0, ["what time"])


def test_an_engine_that_several_share_reads_nothing_ahead():
    assert not EngineLlmService(Reader(("Yes.",))).reads_ahead
    assert not EngineLlmService(ScriptedLanguageModel(("Yes.",)), owns_engine=True).reads_ahead


@GUESSED
def test_the_newest_of_several_guesses_counts(tools: bool, guarded: bool):
    case = Case([0.1, "One.", HANG], [0.1, "Two.", HANG], SLOW, tools=tools, guarded=guarded)

    async def scenario(bench: ReplyBench) -> None:
        for words in ("what", "what is", "what is it"):
            case.speculation.guess(words)
            await asyncio.sleep(0.2)
        await end_turn(bench, case.context("what is it"))
        await bench.until(1)

    bench = play(case, scenario)
    assert (bench.text, bench.pairs, case.llm.requests, case.ahead) == (SLOW_TEXT, "<>", 3, 1)


def test_guesses_made_in_one_moment_are_asked_about_once():
    case = Case(SLOW)

    async def scenario(bench: ReplyBench) -> None:
        for words in ("what", "what is", "what is it"):
            case.speculation.guess(words)
        await asyncio.sleep(2)
        await end_turn(bench, case.context("what is it"))
        await bench.until(1)

    bench = play(case, scenario)
    assert (bench.text, case.llm.requests, case.llm.cancelled) == (SLOW_TEXT, 1, 0)


@GUESSED
def test_a_voice_that_goes_on_stops_the_model(tools: bool, guarded: bool):
    case = Case(["Wrong.", HANG], SLOW, tools=tools, guarded=guarded)

    async def scenario(bench: ReplyBench) -> None:
        case.speculation.guess("what is it")
        await asyncio.sleep(0.2)
        case.speculation.withdraw()
        await asyncio.sleep(0.2)
        assert case.llm.cancelled == 1
        # The same words may be complete after all.
        case.speculation.guess("what is it")
        await asyncio.sleep(0.6)
        await end_turn(bench, case.context("what is it"))
        await bench.until(1)

    bench = play(case, scenario)
    assert (bench.text, bench.pairs, case.ahead) == (SLOW_TEXT, "<>", 1)


@pytest.mark.parametrize("guarded", [False, True])
def test_a_tool_never_runs_for_a_guess(guarded: bool):
    case = Case([TOOL], [TOOL, "Sunny."], tools=True, guarded=guarded)

    async def scenario(bench: ReplyBench) -> None:
        case.speculation.guess("what is the weather")
        await asyncio.sleep(1)
        assert (case.llm.requests, case.tool_runs) == (1, 0)
        await end_turn(bench, case.context("what is the weather"))
        await asyncio.sleep(1)
        assert (case.llm.requests, case.tool_runs) == (2, 1)

    bench = play(case, scenario)
    assert (bench.text, case.ahead) == ("Sunny.", 0)


def test_a_tool_runs_when_the_model_comes_to_it_after_the_end_of_the_turn():
    case = Case([0.5, TOOL, "Sunny."], tools=True)

    async def scenario(bench: ReplyBench) -> None:
        case.speculation.guess("what is the weather")
        await asyncio.sleep(0.2)
        await end_turn(bench, case.context("what is the weather"))
        await asyncio.sleep(1)

    bench = play(case, scenario)
    assert (bench.text, case.llm.requests, case.tool_runs, case.ahead) == ("Sunny.", 1, 1, 1)


def test_a_tool_does_not_run_between_the_end_of_the_turn_and_its_record():
    case = Case([0.5, TOOL], [TOOL, "Sunny."], tools=True)

    async def scenario(bench: ReplyBench) -> None:
        case.speculation.guess("what is the weather")
        await asyncio.sleep(0.2)
        await bench.worker.queue_frame(UserStoppedSpeakingFrame())
        # The gate still waits for the store.
        await asyncio.sleep(2)
        assert case.tool_runs == 0
        await bench.ask(case.context("what is the weather"))
        await asyncio.sleep(1)

    bench = play(case, scenario)
    assert (bench.text, case.llm.requests, case.tool_runs) == ("Sunny.", 2, 1)


@GUESSED
def test_everybody_after_hears_of_the_end_of_the_turn_once_and_in_time(tools: bool, guarded: bool):
    case = Case(SLOW, tools=tools, guarded=guarded)

    async def scenario(bench: ReplyBench) -> None:
        case.speculation.guess("what is it")
        await asyncio.sleep(2)
        await bench.worker.queue_frame(UserStoppedSpeakingFrame())
        await asyncio.sleep(0.1)
        assert ends(bench) == 1
        await bench.ask(case.context("what is it"))
        await bench.until(1)

    def ends(bench: ReplyBench) -> int:
        return sum(isinstance(frame, UserStoppedSpeakingFrame) for _, frame in bench.ear.frames)

    assert ends(play(case, scenario)) == 1


@GUESSED
def test_an_interruption_forgets_the_guess_and_the_next_question_is_answered(tools: bool, guarded: bool):
    case = Case(["Wrong.", HANG], SLOW, tools=tools, guarded=guarded)

    async def scenario(bench: ReplyBench) -> None:
        case.speculation.guess("what is it")
        await asyncio.sleep(0.2)
        await bench.worker.queue_frame(UserStartedSpeakingFrame())
        await bench.interrupt()
        await asyncio.sleep(0.2)
        await end_turn(bench, case.context("what is it"))
        await bench.until(1)

    bench = play(case, scenario)
    assert (bench.text, bench.pairs, case.ahead) == (SLOW_TEXT, "<>", 0)


def test_an_interruption_in_the_middle_of_a_guessed_answer_ends_it():
    case = Case(["One. ", 1.0, "Two."], ["Next."])

    async def scenario(bench: ReplyBench) -> None:
        case.speculation.guess("what is it")
        await asyncio.sleep(0.2)
        await end_turn(bench, case.context("what is it"))
        await asyncio.sleep(0.2)
        assert bench.text == "One. "
        await bench.interrupt()
        await asyncio.sleep(2)
        case.speculation.guess("and then")
        await asyncio.sleep(0.2)
        await end_turn(bench, case.context("and then"))
        await asyncio.sleep(0.2)

    bench = play(case, scenario)
    assert (bench.text, case.ahead) == ("One. Next.", 2)


def test_nothing_is_guessed_while_an_answer_is_under_way():
    case = Case(["One. ", 1.0, "Two."], SLOW)

    async def scenario(bench: ReplyBench) -> None:
        await bench.ask(case.context("what is it"))
        await asyncio.sleep(0.5)
        case.speculation.guess("mhm")
        await bench.until(1)
        assert case.llm.requests == 1
        case.speculation.guess("and then")
        await asyncio.sleep(0.1)
        assert case.llm.requests == 2

    assert play(case, scenario).text == "One. Two."


def test_nothing_is_guessed_when_no_question_is_to_be_expected():
    case = Case(SLOW)
    case.nothing_to_foresee = True

    async def scenario(_bench: ReplyBench) -> None:
        case.speculation.guess("what is it")
        await asyncio.sleep(1)

    play(case, scenario)
    assert case.llm.requests == 0


def test_the_first_clause_is_prepared_while_the_rest_is_held():
    case = Case(["We open", " at 9 a.m. on", " weekdays. ", "And later", " on Sundays."])

    async def scenario(bench: ReplyBench) -> None:
        case.speculation.guess("when do you open")
        await asyncio.sleep(0.1)
        assert bench.text == ""

    play(case, scenario)
    assert case.voice.clauses == ["We open at 9 a.m. on weekdays."]


def test_an_answer_of_one_clause_is_prepared_at_its_end():
    case = Case(["Nine"])

    async def scenario(_bench: ReplyBench) -> None:
        case.speculation.guess("when")
        await asyncio.sleep(0.1)

    play(case, scenario)
    assert case.voice.clauses == ["Nine"]


def test_a_guess_that_no_one_confirms_is_given_up():
    case = Case(["Held.", HANG], SLOW)

    async def scenario(bench: ReplyBench) -> None:
        case.speculation.guess("what is it")
        await asyncio.sleep(HOLD_S + 0.1)
        assert case.llm.cancelled == 1
        await end_turn(bench, case.context("what is it"))
        await bench.until(1)

    assert play(case, scenario).text == SLOW_TEXT


def test_an_answer_without_end_is_not_held_for_ever():
    case = Case(["word "] * (MAX_HELD + 10) + [HANG], SLOW)

    async def scenario(_bench: ReplyBench) -> None:
        case.speculation.guess("what is it")
        await asyncio.sleep(1)
        assert case.llm.cancelled == 1

    play(case, scenario)


def test_a_model_that_fails_on_a_guess_is_not_heard_and_asked_again():
    case = Case([RuntimeError("down")], SLOW)

    async def scenario(bench: ReplyBench) -> None:
        case.speculation.guess("what is")
        await asyncio.sleep(0.1)
        await end_turn(bench, case.context("what is it"))
        await bench.until(1)

    assert play(case, scenario).text == SLOW_TEXT


def test_what_else_is_said_passes_by_a_held_answer():
    case = Case(SLOW)

    async def scenario(bench: ReplyBench) -> None:
        case.speculation.guess("what is it")
        await asyncio.sleep(1)
        await bench.worker.queue_frame(TTSSpeakFrame("Hello."))
        await asyncio.sleep(0.1)
        assert [frame.text for _, frame in bench.ear.frames if isinstance(frame, TTSSpeakFrame)] == ["Hello."]

    assert play(case, scenario).text == ""


def test_the_end_of_the_call_does_not_wait_for_a_guess():
    case = Case([HANG])

    async def scenario(bench: ReplyBench) -> None:
        case.speculation.guess("what is it")
        await asyncio.sleep(0.1)
        asked_ms = bench.now_ms()
        await bench.worker.queue_frame(EndFrame())
        async with asyncio.timeout(5):
            while not any(isinstance(frame, EndFrame) for _, frame in bench.ear.frames):
                bench.ear.changed.clear()
                await bench.ear.changed.wait()
        assert bench.now_ms() - asked_ms <= 1
        case.speculation.guess("and")

    play(case, scenario)
    assert case.llm.requests == 1


class Slow(FrameProcessor):
    """Processor that delays every frame of an answer, so that more arrive while others are released."""

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if not isinstance(frame, (InterruptionFrame, LLMContextFrame)):
            await asyncio.sleep(0)
        await self.push_frame(frame, direction)


def test_tokens_that_were_held_go_on_as_one_frame():
    case = Case(["We ", "open ", "at ", "nine."])

    async def scenario(bench: ReplyBench) -> None:
        case.speculation.guess("when do you open")
        await asyncio.sleep(0.1)
        await end_turn(bench, case.context("when do you open"))
        await bench.until(1)

    said = play(case, scenario).ear.frames
    assert [frame.text for _, frame in said if isinstance(frame, LLMTextFrame)] == ["We open at nine."]


def test_what_comes_while_held_frames_are_let_go_stands_after_them():
    words = [f"{number} " for number in range(200)]
    case = Case([*words[:100], 0.1, *words[100:]])
    case.processors = [*case.processors, Slow()]

    async def scenario(bench: ReplyBench) -> None:
        case.speculation.guess("count")
        await asyncio.sleep(0.0999)
        await end_turn(bench, case.context("count"))
        await bench.until(1)

    assert play(case, scenario).text == "".join(words)


@GUESSED
def test_a_question_from_after_withdraws_the_guess(tools: bool, guarded: bool):
    # The request about a tool's result comes from the other side.
    case = Case(["Wrong.", HANG], SLOW, tools=tools, guarded=guarded)

    async def scenario(bench: ReplyBench) -> None:
        case.speculation.guess("what is it")
        await asyncio.sleep(0.2)
        await case.speculation.tail.queue_frame(
            LLMContextFrame(case.context("the result")), FrameDirection.UPSTREAM
        )
        await bench.until(1)

    bench = play(case, scenario)
    assert (bench.text, case.llm.cancelled) == (SLOW_TEXT, 1)


CHATTY: Script = [*[step for _ in range(50) for step in ("wrong ", 0)], HANG]


@GUESSED
@pytest.mark.parametrize("instead", [None, "what is it"])
def test_nothing_is_heard_between_a_withdrawal_and_the_end_of_the_model(
    tools: bool, guarded: bool, instead: str | None
):
    case = Case(CHATTY, [HANG], tools=tools, guarded=guarded)

    async def scenario(bench: ReplyBench) -> None:
        case.speculation.guess("what is")
        for _ in range(20):
            await asyncio.sleep(0)
        # A piece comes with every turn of the loop.
        if instead is None:
            case.speculation.withdraw()
        else:
            case.speculation.guess(instead)
        await asyncio.sleep(1)

    assert play(case, scenario).text == ""


class SlowToStop(ScriptedLlmService):
    """Service that takes a moment to close its stream."""

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        try:
            await super().process_frame(frame, direction)
        finally:
            if isinstance(frame, LLMContextFrame):
                await asyncio.sleep(0.05)


@GUESSED
@pytest.mark.parametrize("interrupted", [False, True])
def test_a_guess_that_is_withdrawn_while_the_one_before_is_stopped_is_not_heard(
    tools: bool, guarded: bool, interrupted: bool
):
    case = Case(["Wrong.", HANG], SLOW, tools=tools, guarded=guarded, service=SlowToStop)

    async def scenario(bench: ReplyBench) -> None:
        case.speculation.guess("what")
        await asyncio.sleep(0.2)
        case.speculation.guess("what is")
        await asyncio.sleep(0.01)
        if interrupted:
            await bench.interrupt()
        else:
            case.speculation.withdraw()
        await asyncio.sleep(1)
        assert bench.text == ""
        await end_turn(bench, case.context("what is it"))
        await bench.until(1)

    bench = play(case, scenario)
    assert (bench.text, bench.pairs, case.llm.requests) == (SLOW_TEXT, "<>", 2)
    assert case.failovers == []


@pytest.mark.parametrize("tools", [False, True])
def test_a_guess_that_is_withdrawn_is_no_failure_of_the_model(tools: bool):
    case = Case(["Wrong.", HANG], ["Wrong.", HANG], SLOW, tools=tools, guarded=True)

    async def scenario(bench: ReplyBench) -> None:
        for words in ("what", "what is"):
            case.speculation.guess(words)
            await asyncio.sleep(0.2)
        await end_turn(bench, case.context("what is it"))
        await bench.until(1)

    assert play(case, scenario).text == SLOW_TEXT
    assert case.failovers == []


@pytest.mark.parametrize("guarded", [False, True])
def test_a_tool_that_is_wanted_while_the_end_of_the_turn_is_told_runs_for_the_turn(guarded: bool):
    case = Case([0.5, TOOL], [TOOL, "Sunny."], tools=True, guarded=guarded)
    context = case.context("what is the weather")

    async def ask() -> None:
        await asyncio.sleep(0.5)
        await case.speculation.on_question(LLMContextFrame(context))

    async def scenario(bench: ReplyBench) -> None:
        # The question is there when the model comes to the tool, and before it.
        asking = asyncio.create_task(ask())
        await asyncio.sleep(0)
        case.speculation.guess("what is the weather")
        await asyncio.sleep(0.2)
        await bench.worker.queue_frame(UserStoppedSpeakingFrame())
        await asyncio.sleep(2)
        await asking

    bench = play(case, scenario)
    assert (bench.text, case.tool_runs) == ("Sunny.", 1)


class Deaf(ScriptedLlmService):
    """Service that loses the interruptions that reach it."""

    async def push_frame(self, frame: Frame, direction: FrameDirection = FrameDirection.DOWNSTREAM) -> None:
        if not isinstance(frame, GuessCancelFrame):
            await super().push_frame(frame, direction)


def test_a_service_that_never_stops_does_not_keep_the_caller_waiting_for_ever():
    case = Case(["Wrong.", HANG], SLOW, service=Deaf)

    async def scenario(bench: ReplyBench) -> None:
        case.speculation.guess("what is")
        await asyncio.sleep(0.2)
        case.speculation.withdraw()
        await asyncio.sleep(STOP_S + 0.1)
        await end_turn(bench, case.context("what is it"))
        await bench.until(1)

    assert play(case, scenario).text == SLOW_TEXT


class Echoing(ScriptedLlmService):
    """Service that answers with the question's number, a word at a time, and is sometimes slow to stop."""

    def __init__(self, *scripts: Script) -> None:
        super().__init__(*scripts)
        self.chance = random.Random(0)

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        if isinstance(frame, LLMContextFrame):
            word = f" {messages_of(frame.context)[-1].text} "
            pauses = [self.chance.choice((0, 0, 0.01, 0.1)) for _ in range(5)]
            self._scripts = [[step for pause in pauses for step in (pause, word)]]
        try:
            await super().process_frame(frame, direction)
        finally:
            if isinstance(frame, LLMContextFrame):
                await asyncio.sleep(self.chance.choice((0, 0, 0.02)))


@GUESSED
@pytest.mark.parametrize("seed", range(8))
def test_in_whatever_order_it_comes_only_what_was_asked_is_answered_and_the_last_question_once(
    tools: bool, guarded: bool, seed: int
):
    case = Case([], tools=tools, guarded=guarded, service=Echoing)
    case.llm.chance = chance = random.Random(seed)
    asked: list[str] = []

    async def scenario(bench: ReplyBench) -> None:
        for turn in range(6):
            await bench.worker.queue_frame(UserStartedSpeakingFrame())
            await bench.interrupt()
            for _ in range(chance.randrange(8)):
                match chance.choice(("guess", "wrong", "withdraw", "interrupt", "pause", "tick", "tick")):
                    case "guess":
                        case_.guess(f"q{turn}")
                    case "wrong":
                        case_.guess(f"wrong{turn}")
                    case "withdraw":
                        case_.withdraw()
                    case "interrupt":
                        await bench.interrupt()
                    case "pause":
                        await asyncio.sleep(chance.choice((0.005, 0.1, 0.6)))
                    case _:
                        await asyncio.sleep(0)
            asked.append(f"q{turn}")
            await end_turn(bench, case.context(f"q{turn}"))
            await asyncio.sleep(chance.choice((0, 0.05, 1)))
            heard = bench.text.split()
            assert set(heard) <= set(asked)
        await asyncio.sleep(3)

    case_ = case.speculation
    bench = play(case, scenario)
    heard = bench.text.split()
    assert heard == sorted(heard)
    assert heard.count("q5") == 5
    assert all(heard.count(question) <= 5 for question in asked)
    assert set(heard) <= set(asked)
    assert case.failovers == []


class Shown(BaseObserver):
    """Observer of a client's frames: each at its first push, unless that was before the tail."""

    def __init__(self, hidden: list[FrameProcessor]) -> None:
        super().__init__()
        self._hidden = hidden
        self.shown: list[str] = []

    async def on_push_frame(self, data: FramePushed) -> None:
        if data.source in self._hidden or not data.first_push:
            return
        if isinstance(data.frame, LLMTextFrame):
            self.shown.append(data.frame.text)
        elif (
            isinstance(data.frame, FunctionCallsStartedFrame) and data.direction is FrameDirection.DOWNSTREAM
        ):
            self.shown.append("tool")


@pytest.mark.parametrize("guarded", [False, True])
def test_a_client_is_shown_what_is_said_once_and_nothing_of_a_guess(guarded: bool):
    case = Case(["Wrong.", HANG], ["Ahead."], ["Asked."], [TOOL, "Sunny."], tools=False, guarded=guarded)
    case.llm.register_function("look_up", case._look_up)
    observer = Shown(case.processors[:-1])

    async def call() -> None:
        async with ReplyBench(case.processors, observers=[observer]) as bench:
            for guesses, asked in ((["what"], None), (["one"], "one"), ([], "two"), ([], "three")):
                await bench.worker.queue_frame(UserStartedSpeakingFrame())
                await asyncio.sleep(0.1)
                for words in guesses:
                    case.speculation.guess(words)
                    await asyncio.sleep(0.1)
                if asked is None:
                    case.speculation.withdraw()
                    await asyncio.sleep(0.1)
                else:
                    await end_turn(bench, case.context(asked))
                    await asyncio.sleep(0.5)

    run(call())
    assert observer.shown == ["Ahead.", "Asked.", "tool", "Sunny."]
