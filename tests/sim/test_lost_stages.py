"""Calls by turns of which a stage has failed for good, on virtual time: they say so and end."""

from pathlib import Path

from parley.configs.deployment import Bot
from parley.core.errors import EngineError
from parley.session_store.events import Kind
from tests.fakes.dead_engine import DeadEngine
from tests.fakes.scripted_llm import ScriptedRow
from tests.sim.call import OFF, SimulatedCall, silence, simulate, voice

PHRASE = Bot().voiceless_phrase
FAILS = [EngineError("refused", engine="llm")]
TURN = [voice(1_200), silence(9_000)]


def said(call: SimulatedCall) -> list[str]:
    return [event.payload["text"] for event in call.events if event.kind is Kind.BOT_TURN]


def test_a_call_whose_recogniser_is_gone_says_so_and_ends(tmp_path: Path):
    call = simulate(
        [silence(600), *TURN, silence(30_000)],
        tmp_path,
        ears=DeadEngine(),
        bot={"idle": None},
        speculation=OFF,
    )
    assert said(call)[-1] == PHRASE
    assert call.end == ("error", "no engine of the stage stt is left for the call")


def test_a_call_that_waits_without_a_recogniser_goes_on_until_words_are_lost(tmp_path: Path):
    call = simulate([silence(20_000)], tmp_path, ears=DeadEngine(), bot={"idle": None}, speculation=OFF)
    assert (said(call), call.end[0]) == ([], "stopped")


def test_a_model_without_a_fallback_that_fails_three_turns_in_a_row_ends_the_call(tmp_path: Path):
    call = simulate(
        [silence(600), *TURN, *TURN, *TURN, silence(20_000)],
        tmp_path,
        row=ScriptedRow(FAILS),
        speculation=OFF,
    )
    assert said(call).count(PHRASE) == 1 and said(call)[-1] == PHRASE
    assert call.end == ("error", "no engine of the stage llm is left for the call")


def test_a_model_that_answers_in_between_is_not_given_up(tmp_path: Path):
    row = ScriptedRow(FAILS, FAILS, ["It is ten."], FAILS, ["It is eleven."])
    call = simulate([silence(600), *TURN, *TURN, *TURN, *TURN, *TURN], tmp_path, row=row, speculation=OFF)
    assert "It is eleven." in said(call) and PHRASE not in said(call)
