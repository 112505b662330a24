"""The page and the table about replayed calls."""

from dataclasses import replace
from pathlib import Path

from parley.recording.call_files import CallFiles
from parley.recording.comparison import CallTurn, compare
from parley.recording.comparison_page import ReplayedCall, console_table, median_ms, write_page
from parley.recording.folder import CallRecording

THEN = CallTurn(1_000, "<b>how</b> much", 500, "Five", "pounds.", is_cut=True, latency_ms=700)
NOW = CallTurn(1_100, "<b>how</b> much", 400, "Six pounds.", latency_ms=500)


def replayed(folder: Path) -> ReplayedCall:
    recording = CallRecording(folder / "then", "session", "c" * 32, {}, CallFiles(folder / "then"))
    return ReplayedCall(recording, folder / "now" / "call.wav", tuple(compare([THEN], [NOW])), ("a note",))


def test_the_table_says_what_was_said_then_and_now(tmp_path: Path):
    lines = console_table(replayed(tmp_path)).splitlines()
    assert lines[0].endswith(
        "1 turns, 1 decided otherwise, 0 with other words of the caller; latency 700 -> 500 ms (median)"
    )
    assert lines[1] == "  a note"
    assert "700 -> 500" in lines[2] and "[answer, cut off or not]" in lines[2]
    assert lines[3].strip() == "then: Five (cut: pounds.)"
    assert lines[4].strip() == "now: Six pounds."


def test_the_page_escapes_what_people_said_and_names_only_audio_that_is_there(tmp_path: Path):
    (tmp_path / "now").mkdir()
    (tmp_path / "now" / "call.wav").touch()
    page = write_page([replayed(tmp_path)], tmp_path / "index.html", "<embedded>").read_text()
    assert "<b>how" not in page and "&lt;b&gt;how" in page and "<h1>Replay with &lt;embedded&gt;</h1>" in page
    assert page.count("<audio") == 1 and 'src="now/call.wav"' in page
    assert '<tr class="decided">' in page and "0 of 1 calls were decided alike" in page


def test_the_table_and_the_page_say_what_each_turn_cost_then_and_now(tmp_path: Path):
    then = [replace(THEN, cost=0.0125), CallTurn(9_000, "thanks", heard="Bye.", cost=0.5)]
    now = [replace(NOW, cost=0.01), CallTurn(9_000, "thanks", heard="Bye.")]
    call = replace(replayed(tmp_path), pairs=tuple(compare(then, now)), currency="EUR")
    lines = console_table(call).splitlines()
    assert lines[0].endswith("(median); cost 0.512 -> 0.01 EUR")
    assert "700 -> 500        0.0125 -> 0.01  " in lines[2]
    assert "            0.5 -> -  thanks" in lines[-1]
    page = write_page([call], tmp_path / "index.html", "embedded").read_text()
    assert "<th>cost</th>" in page and "cost 0.512 -&gt; 0.01 EUR" in page
    assert '<td class="time">0.0125 -&gt; 0.01</td>' in page and '<td class="time">0.5 -&gt; -</td>' in page


def test_a_call_without_prices_has_no_costs_in_its_table(tmp_path: Path):
    table = console_table(replayed(tmp_path))
    assert "cost" not in table and "- -> -" not in table


def test_a_call_that_cannot_be_replayed_is_not_alike_and_says_why(tmp_path: Path):
    call = ReplayedCall(replayed(tmp_path).recording, None, failure="nothing was recorded of this side")
    assert not call.is_decided_alike
    assert console_table(call).endswith("not replayed: nothing was recorded of this side")
    page = write_page([call], tmp_path / "index.html", "embedded").read_text()
    assert "0 of 1 calls were decided alike" in page and "<audio" not in page


def test_medians_are_of_turns_that_have_the_time_in_both():
    pairs = compare([THEN, CallTurn(9_000, "b")], [NOW, CallTurn(9_000, "b", latency_ms=9_000)])
    assert median_ms(pairs, lambda turn: turn.latency_ms) == (700, 500)
    assert median_ms(pairs[1:], lambda turn: turn.latency_ms) is None
