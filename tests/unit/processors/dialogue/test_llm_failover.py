import asyncio
import itertools
from collections.abc import Awaitable, Callable

import pytest
from pipecat.adapters.llm.schemas.function_schema import FunctionSchema
from pipecat.adapters.llm.schemas.tools_schema import ToolsSchema
from pipecat.frames.frames import (
    BotStartedSpeakingFrame,
    EagerEndOfTurnCancelFrame,
    EndFrame,
    InterruptionFrame,
    LLMConfigureOutputFrame,
    LLMContextFrame,
    LLMTextFrame,
    TTSSpeakFrame,
    UserStoppedSpeakingFrame,
)
from pipecat.observers.base_observer import BaseObserver, FramePushed
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.frame_processor import FrameDirection
from pipecat.services.llm_service import FunctionCallParams

from parley.core.call_events import FallbackAnswers
from parley.core.errors import EngineError
from parley.core.failover import CircuitBreaker
from parley.core.passage_notes import CitedPassage
from parley.processors.dialogue.cited_passages import PassagesCitedFrame
from parley.processors.dialogue.llm_failover import ORIGINAL, LlmFailover
from parley.processors.dialogue.llm_timeouts import (
    TRANSITIONS,
    AnswerState,
    AnswerStep,
    FailureReason,
    GuardTuning,
)
from parley.runtime.event_stream import CallEvents
from tests.fakes.reply_bench import ReplyBench
from tests.fakes.scripted_llm import (
    HANG,
    TOOL,
    CitingLanguageModel,
    Script,
    ScriptedLanguageModel,
    ScriptedLlmService,
)
from tests.virtual_time import run

FALLBACK: Script = ["We open", " at nine. ", "Ask me more."]
FALLBACK_TEXT = "We open at nine. Ask me more."
BRIDGE = GuardTuning().bridge


class Case:
    """A guard, its service and its reports."""

    def __init__(
        self, *scripts: Script, fallback: Script = FALLBACK, settings: GuardTuning | None = None
    ) -> None:
        self.llm = ScriptedLlmService(*scripts)
        self.engine = ScriptedLanguageModel(fallback)
        self.failovers: list[FallbackAnswers] = []
        events = CallEvents()
        events.subscribe(FallbackAnswers, self.failovers.append)
        self.guard = LlmFailover(self.llm, self.engine, settings, events=events)

    @property
    def reasons(self) -> list[FailureReason]:
        return [FailureReason(each.reason) for each in self.failovers]


def play(
    case: Case, scenario: Callable[[ReplyBench], Awaitable[None]], *, metrics: bool = False
) -> ReplyBench:
    """Run a scenario on virtual time."""

    async def call() -> ReplyBench:
        async with ReplyBench(case.guard.processors, metrics=metrics) as bench:
            await scenario(bench)
        return bench

    return run(call())


def ask_once(case: Case, question: str = "When do you open?") -> ReplyBench:
    async def scenario(bench: ReplyBench) -> None:
        await bench.answer(question)

    return play(case, scenario)


def test_a_healthy_answer_passes_unchanged():
    case = Case(["We", " open", " at", " ten", ".", " Come", " in"])
    bench = ask_once(case)
    assert bench.text == "We open at ten. Come in"
    assert bench.pairs == "<>"
    assert case.failovers == []
    assert case.engine.asked == []
    # Each piece is a copy, and keeps the first object with its id alive: observers see it once.
    pieces = [frame for _, frame in bench.ear.frames if isinstance(frame, LLMTextFrame)]
    originals = [ORIGINAL.of(piece) for piece in pieces]
    assert [each.id for each in originals if each is not None] == [piece.id for piece in pieces]
    assert not any(ORIGINAL.is_on(each) for each in originals if each is not None)


def test_a_model_that_says_nothing_in_time_is_replaced():
    case = Case([HANG])
    bench = ask_once(case)
    assert bench.text == FALLBACK_TEXT
    assert bench.pairs == "<>"
    assert case.reasons == [FailureReason.NO_FIRST_TOKEN]
    assert bench.gaps_ms()[0] == pytest.approx(1_000, abs=5)
    assert case.llm.cancelled == 1


def test_a_stall_inside_a_sentence_is_bridged_and_the_half_word_is_not_spoken():
    case = Case(["Our branch", " is open fr", HANG])
    bench = ask_once(case)
    assert bench.text == f"Our branch is open. {BRIDGE} {FALLBACK_TEXT}"
    assert bench.pairs == "<>"
    assert case.reasons == [FailureReason.STALLED]


def test_silence_of_a_stalled_model_stays_below_two_seconds():
    for pause in (0.0, 0.5, 0.9):
        case = Case([pause, "Well", " then", HANG])
        bench = ask_once(case)
        heard_ms = next(t for t, f in bench.ear.frames if isinstance(f, LLMTextFrame) and BRIDGE in f.text)
        assert heard_ms - bench.asked_ms < 2000


def test_no_sentence_is_said_twice():
    case = Case(
        ["We open at NINE! ", "On Sundays", " we", HANG], fallback=["We open at nine. We close at five."]
    )
    bench = ask_once(case)
    assert bench.text == f"We open at NINE! On Sundays. {BRIDGE} We close at five."


def test_a_stall_between_sentences_needs_no_bridge():
    case = Case(["We open at nine.", HANG], fallback=["We open at nine. ", "We close at five."])
    assert ask_once(case).text == "We open at nine. We close at five."


def test_an_error_is_answered_at_once():
    case = Case([0.1, RuntimeError("429")])
    bench = ask_once(case)
    assert bench.text == FALLBACK_TEXT
    assert bench.pairs == "<>"
    assert bench.gaps_ms()[0] == pytest.approx(100, abs=5)
    assert case.reasons == [FailureReason.ERROR]
    assert len(bench.errors) == 1


def test_an_error_that_the_model_talks_on_after_is_not_a_failure():
    async def scenario(bench: ReplyBench) -> None:
        await bench.ask("hello")
        await asyncio.sleep(0.05)
        await case.llm.push_error("a summary failed")
        await bench.until(1)

    case = Case([0.1, "All is", " well."])
    assert play(case, scenario).text == "All is well."
    assert case.failovers == []


def test_an_error_of_another_processor_is_not_a_failure():
    async def scenario(bench: ReplyBench) -> None:
        await bench.ask("hello")
        await bench.ear.push_error("the voice failed")
        await bench.until(1)

    case = Case([0.1, "All is well."])
    assert play(case, scenario).text == "All is well."
    assert case.failovers == []


def test_a_permanent_error_does_not_end_the_call():
    async def scenario(bench: ReplyBench) -> None:
        assert await bench.answer("one") == FALLBACK_TEXT
        assert await bench.answer("two") == FALLBACK_TEXT

    case = Case([PermissionError("401")])

    async def with_bad_key(bench: ReplyBench) -> None:
        await case.llm.set_usable(False)
        await scenario(bench)

    play(case, with_bad_key)


def test_an_empty_answer_is_replaced():
    case = Case([0.1])
    bench = ask_once(case)
    assert (bench.text, case.reasons) == (FALLBACK_TEXT, [FailureReason.EMPTY])


def test_the_next_question_is_answered_by_the_model_again():
    async def scenario(bench: ReplyBench) -> None:
        assert await bench.answer("one") == FALLBACK_TEXT
        assert await bench.answer("two") == "I am back."

    bench = play(Case([HANG], ["I", " am", " back."]), scenario)
    assert bench.pairs == "<><>"


def test_text_that_comes_after_the_failure_is_dropped():
    async def scenario(bench: ReplyBench) -> None:
        await bench.ask("one")
        await asyncio.sleep(1.3)
        await case.llm.push_frame(LLMTextFrame("too late"))
        await bench.until(1)

    case = Case([HANG], fallback=["We", 0.5, " open."])
    assert play(case, scenario).text == "We open."


def test_an_interruption_ends_the_fallback_and_the_pair():
    async def scenario(bench: ReplyBench) -> None:
        await bench.ask("one")
        await asyncio.sleep(1.5)
        await bench.interrupt()
        await asyncio.sleep(1)
        assert await bench.answer("two") == "I am back."

    case = Case([HANG], ["I am back."], fallback=["Well, ", 1.0, "never said."])
    bench = play(case, scenario)
    assert bench.text == "Well, I am back."
    assert bench.pairs == "<><>"
    assert case.engine.closed == 1
    order = [type(f) for _, f in bench.ear.frames if not isinstance(f, LLMTextFrame)]
    assert order.count(InterruptionFrame) == 1


def test_an_interruption_stops_the_deadline():
    async def scenario(bench: ReplyBench) -> None:
        await bench.ask("one")
        await asyncio.sleep(0.5)
        await bench.interrupt()
        await asyncio.sleep(10)

    case = Case([HANG])
    bench = play(case, scenario)
    assert bench.text == ""
    assert bench.pairs == "<>"
    assert case.failovers == []


def test_the_cancelling_interruption_never_reaches_the_voice():
    bench = ask_once(Case(["Our branch is", HANG]))
    assert not any(isinstance(frame, InterruptionFrame) for _, frame in bench.ear.frames)


def test_observers_meet_the_cancelling_interruption_first_at_the_head():
    class FirstPushes(BaseObserver):
        def __init__(self) -> None:
            super().__init__(observe_every_push=False)
            self.sources: list[object] = []

        async def on_push_frame(self, data: FramePushed) -> None:
            if isinstance(data.frame, InterruptionFrame):
                self.sources.append(data.source)

    observer = FirstPushes()
    case = Case([HANG])

    async def call() -> None:
        async with ReplyBench(case.guard.processors, observers=[observer]) as bench:
            await bench.answer("one")

    run(call())
    assert observer.sources == [case.guard.head]


def test_observers_count_the_words_of_the_model_once():
    class Texts(BaseObserver):
        def __init__(self) -> None:
            super().__init__(observe_every_push=False)
            self.text = ""

        async def on_push_frame(self, data: FramePushed) -> None:
            if isinstance(data.frame, LLMTextFrame):
                self.text += data.frame.text

    observer = Texts()
    case = Case(["We", " open", " at", " nine"])

    async def call() -> None:
        async with ReplyBench(case.guard.processors, observers=[observer]) as bench:
            await bench.answer("one")

    run(call())
    assert observer.text == "We open at nine"


def test_three_failures_open_the_circuit_and_the_cool_down_closes_it():
    async def scenario(bench: ReplyBench) -> None:
        for _ in range(3):
            await bench.answer("again")
        assert case.llm.requests == 3
        await bench.answer("fourth")
        assert case.llm.requests == 3
        assert bench.gaps_ms()[0] < 10
        await asyncio.sleep(30)
        assert await bench.answer("fifth") == "I am back."

    case = Case([HANG], [HANG], [HANG], ["I am back."])
    bench = play(case, scenario)
    assert case.reasons[-1] is FailureReason.CIRCUIT_OPEN
    assert bench.pairs == "<><><><><>"


def test_calls_share_a_circuit():
    circuit = CircuitBreaker(max_failures=1, cool_down_ms=30_000)
    second = ScriptedLlmService(["never asked"])

    async def call() -> str:
        guard = LlmFailover(ScriptedLlmService([HANG]), ScriptedLanguageModel(FALLBACK), circuit=circuit)
        async with ReplyBench(guard.processors) as bench:
            await bench.answer("one")
        guard = LlmFailover(second, ScriptedLanguageModel(FALLBACK), circuit=circuit)
        async with ReplyBench(guard.processors) as bench:
            return await bench.answer("two")

    assert run(call()) == FALLBACK_TEXT
    assert second.requests == 0


@pytest.mark.parametrize(
    "broken",
    [[HANG], [EngineError("no", engine="x")], [ValueError("a bug")], []],
    ids=["hangs", "engine error", "bug", "nothing"],
)
def test_a_fallback_that_fails_too_ends_in_an_apology_within_two_seconds(broken: Script):
    case = Case([HANG], fallback=broken)
    bench = ask_once(case)
    assert bench.text.strip() == GuardTuning().apology
    assert bench.pairs == "<>"
    assert bench.gaps_ms()[0] < 2000


def test_a_function_call_pauses_the_deadline():
    case = Case([TOOL], ["It is", " sunny."])
    context = LLMContext(
        [{"role": "user", "content": "weather?"}],
        tools=ToolsSchema(
            standard_tools=[FunctionSchema(name="look_up", description="", properties={}, required=[])]
        ),
    )

    async def look_up(params: FunctionCallParams) -> None:
        await asyncio.sleep(20)
        await params.result_callback("sunny")

    async def scenario(bench: ReplyBench) -> None:
        case.llm.register_function("look_up", look_up)
        await bench.ask(context)
        await asyncio.sleep(25)
        assert case.failovers == []
        # The assistant aggregator sends the request again from below once the result is there.
        await bench.ear.push_frame(LLMContextFrame(context), FrameDirection.UPSTREAM)
        await bench.until(2)

    bench = play(case, scenario)
    assert bench.text == "It is sunny."
    assert case.failovers == []


def test_a_question_from_below_is_guarded_too():
    async def scenario(bench: ReplyBench) -> None:
        context = LLMContext([{"role": "user", "content": "weather?"}])
        await bench.ear.push_frame(LLMContextFrame(context), FrameDirection.UPSTREAM)
        await bench.until(1)

    case = Case([HANG])
    assert play(case, scenario).text == FALLBACK_TEXT


def test_a_tool_call_being_written_has_more_time_than_text():
    tools = ToolsSchema(
        standard_tools=[FunctionSchema(name="look_up", description="", properties={}, required=[])]
    )

    async def scenario(bench: ReplyBench) -> None:
        await bench.ask(LLMContext([{"role": "user", "content": "weather?"}], tools=tools))
        await bench.until(1)

    case = Case([2.0, "Sunny."])
    play(case, scenario)
    assert case.failovers == []
    case = Case([2.0, "Sunny."])
    play(case, scenario, metrics=True)
    assert case.reasons == [FailureReason.NO_FIRST_TOKEN]


def test_a_question_after_a_running_answer_waits_and_is_answered():
    async def scenario(bench: ReplyBench) -> None:
        await bench.ask("one")
        await bench.ask("two")
        await bench.until(2)

    case = Case(["First", " we", HANG], ["Second."])
    bench = play(case, scenario)
    assert bench.text == f"First. {BRIDGE} {FALLBACK_TEXT}Second."
    assert bench.pairs == "<><>"


def test_frames_after_the_answer_stay_after_the_fallback():
    async def scenario(bench: ReplyBench) -> None:
        await bench.ask("one")
        await asyncio.sleep(1.3)
        await bench.worker.queue_frames([TTSSpeakFrame("later"), EndFrame()])
        await bench.until(1)
        await asyncio.sleep(0.1)

    case = Case([HANG], fallback=["We", 0.5, " open."])
    bench = play(case, scenario)
    kinds = [type(f).__name__ for _, f in bench.ear.frames]
    assert kinds.index("LLMFullResponseEndFrame") < kinds.index("TTSSpeakFrame") < kinds.index("EndFrame")


def test_text_that_is_not_for_the_voice_is_not_for_it_from_the_fallback_either():
    async def scenario(bench: ReplyBench) -> None:
        await bench.worker.queue_frame(LLMConfigureOutputFrame(skip_tts=True))
        await bench.answer("one")

    bench = play(Case([HANG]), scenario)
    assert all(f.skip_tts for _, f in bench.ear.frames if isinstance(f, LLMTextFrame))


def test_a_guess_has_no_deadline_until_the_turn_ends():
    async def scenario(bench: ReplyBench) -> None:
        await bench.ask("when do you", speculation=True)
        await asyncio.sleep(5)
        assert case.failovers == []
        await bench.worker.queue_frame(UserStoppedSpeakingFrame())
        bench.asked_ms = bench.now_ms()
        await bench.until(1)
        assert bench.gaps_ms()[0] == pytest.approx(1_000, abs=5)

    case = Case([HANG])
    assert play(case, scenario).text == FALLBACK_TEXT


def test_a_withdrawn_guess_is_never_answered():
    async def scenario(bench: ReplyBench) -> None:
        await bench.ask("when do you", speculation=True)
        await asyncio.sleep(0.1)
        await bench.worker.queue_frame(EagerEndOfTurnCancelFrame())
        await asyncio.sleep(5)
        assert bench.text == ""
        assert await bench.answer("when do you open?") == "At ten."

    case = Case([HANG], ["At ten."])
    play(case, scenario)
    assert case.failovers == []


def test_a_pause_while_the_bot_is_heard_is_not_a_failure():
    async def scenario(bench: ReplyBench) -> None:
        await bench.ask("one")
        await asyncio.sleep(0.2)
        await bench.ear.push_frame(BotStartedSpeakingFrame(), FrameDirection.UPSTREAM)
        await bench.until(1)

    case = Case([0.9, "One.", 1.4, " Two.", 1.4, " Three."])
    assert play(case, scenario).text == "One. Two. Three."
    assert case.failovers == []


def test_nothing_runs_after_the_call():
    async def call() -> set[str]:
        case = Case([HANG], fallback=[HANG], settings=GuardTuning(fallback_first_ms=20_000))
        async with ReplyBench(case.guard.processors) as bench:
            await bench.ask("one")
            await asyncio.sleep(1.5)
        return {task.get_name() for task in asyncio.all_tasks() if task is not asyncio.current_task()}

    assert not [name for name in run(call()) if "guard" in name.lower()]


def test_every_state_stops_and_no_other_pair_goes_unnoticed():
    for state, step in itertools.product(AnswerState, AnswerStep):
        if step is AnswerStep.STOPPED:
            assert TRANSITIONS[state, step] is AnswerState.IDLE
    assert (AnswerState.FALLBACK, AnswerStep.FAILED) not in TRANSITIONS
    assert (AnswerState.PRIMARY, AnswerStep.ASKED) not in TRANSITIONS


def test_the_fallback_is_told_what_the_service_was_told():
    llm = ScriptedLlmService([HANG], system_instruction="You speak on the phone.")
    engine = ScriptedLanguageModel(FALLBACK)

    async def call() -> None:
        async with ReplyBench(LlmFailover(llm, engine).processors) as bench:
            await bench.answer("When do you open?")

    run(call())
    assert [message.role for message in engine.asked[0]] == ["system", "user"]
    assert engine.asked[0][0].text == "You speak on the phone."


FEES, HOURS = CitedPassage("the fees", "Cards", 1), CitedPassage("the guide", "Hours", 2)


def cited(script: Script) -> list[tuple[CitedPassage, ...]]:
    """Return what the voice's side learns, in order, where the fallback rests on the hours."""
    case = Case(script)
    case.guard = LlmFailover(case.llm, CitingLanguageModel(FALLBACK, passages={"We open": HOURS}))
    frames = ask_once(case).ear.frames
    return [frame.passages for _, frame in frames if isinstance(frame, PassagesCitedFrame)]


def test_passages_of_a_model_that_answers_are_passed_on():
    assert cited([PassagesCitedFrame((FEES,)), "Four euros."]) == [(FEES,)]


def test_a_fallback_takes_the_passages_of_a_model_that_said_nothing_back():
    assert cited([PassagesCitedFrame((FEES,)), HANG]) == [(FEES,), (), (HOURS,)]


def test_a_fallback_that_goes_on_adds_its_passages():
    assert cited([PassagesCitedFrame((FEES,)), "Four euros. And", HANG]) == [(FEES,), (FEES, HOURS)]
