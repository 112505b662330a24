"""Callers' speech for the instruments, and the part of it that the latency evaluation counts."""

import argparse
import json
import wave
from pathlib import Path

import numpy as np
import pytest

from parley.audio.audible import audible_spans
from parley.core.errors import ConfigError, EngineError
from parley.evals.harness.phone_speech import samples_of, turn_packets
from parley.evals.harness.speech import RATE_HZ, Speakers, of_turn
from parley.evals.heard_truth import __main__ as heard_truth
from parley.evals.human.callers import (
    MixedCallers,
    SetCallers,
    SpeechKind,
    add_speech_option,
    open_callers,
)
from parley.evals.human.generators import VOICE_GENERATORS, _by_command, installed
from parley.evals.human.hesitations import HesitationLaw
from parley.evals.human.own_folder import load_own
from parley.evals.human.recordings import decode_wav
from parley.evals.human.split import ReportSet, Split, SplitError, TuningSet
from parley.evals.latency import __main__ as latency
from parley.evals.latency.figures import TurnFigures, by_speech, summary
from parley.evals.phone.interruptions import questions_of
from parley.evals.turns.callers import CallSpec
from parley.evals.turns.recorded import script
from tests.recorded_speech import CLIP

TEXTS = ("my son has lost the key of the house", "we would like to come a little later on sunday")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a user's folder: two sentences by a voice of the tuning side, under a name of its own."""
    path = tmp_path_factory.mktemp("speech")
    rows = []
    for number, text in enumerate(TEXTS):
        one = VOICE_GENERATORS["flite"].say("rms", text)
        with wave.open(str(path / f"{number}.wav"), "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(one.rate_hz)
            file.writeframes((one.samples * 32_767).astype("<i2").tobytes())
        rows.append({"file": f"{number}.wav", "text": text, "speaker": "anna", "set": "report"})
    (path / "utterances.json").write_text(json.dumps(rows))
    return path


def test_the_same_seed_gives_the_same_turns_and_every_recording_before_one_comes_again(folder: Path):
    callers = open_callers(SpeechKind.HUMAN, own=folder, law=HesitationLaw(per_turn=2.0))
    said = callers.turns(4, seed=1)
    assert {each.turn.utterance.text for each in said[:2]} == set(TEXTS)
    again = callers.turns(4, seed=1)
    assert all((a.turn.samples == b.turn.samples).all() for a, b in zip(said, again, strict=True))
    assert {each.kind for each in said} == {SpeechKind.HUMAN}
    assert any(each.turn.pauses for each in said)


def test_mixed_callers_take_turns(folder: Path):
    human = open_callers(SpeechKind.HUMAN, own=folder)
    synthetic = SetCallers(load_own(folder)[1], SpeechKind.SYNTHETIC)
    said = MixedCallers((human, synthetic)).turns(5, seed=1)
    assert [each.kind.value for each in said] == ["human", "synthetic"] * 2 + ["human"]


def test_a_set_of_long_or_short_recordings_has_no_callers(folder: Path):
    with pytest.raises(ConfigError, match="5 words"):
        SetCallers(load_own(folder)[1].where(language="fr"), SpeechKind.HUMAN)


def test_a_turn_is_sent_with_its_pauses_where_they_are_heard(folder: Path):
    callers = open_callers(SpeechKind.HUMAN, own=folder, law=HesitationLaw(per_turn=6.0, spread=0.0))
    caller = next(each for each in callers.turns(8, seed=2) if each.turn.longest_pause_ms > 400)
    spoken = of_turn(caller, gap_ms=300)
    spans = audible_spans(spoken.pcm.astype(np.float32) / 32_768, RATE_HZ)
    start = spans[0].first
    silences = [
        ((one.last - start) * 1000 / RATE_HZ, (other.first - start) * 1000 / RATE_HZ)
        for one, other in zip(spans, spans[1:], strict=False)
    ]
    for first_ms, end_ms in (pause for pause in spoken.pauses_ms if pause[1] - pause[0] > 250):
        near = min(silences, key=lambda silence: abs(silence[1] - end_ms))
        assert abs(near[1] - end_ms) < 40
        assert near[0] < first_ms + 40
    assert (spoken.speech, spoken.gap_ms) == ("human", 300)


def test_synthetic_callers_are_those_of_the_instruments():
    with pytest.raises(ConfigError, match="evaluation itself"):
        open_callers(SpeechKind.SYNTHETIC)


def test_speech_of_a_generator_stays_on_its_side():
    one = VOICE_GENERATORS["espeak"].say("en-us", "my son has lost the key")
    assert len(TuningSet([one])) == 1
    with pytest.raises(SplitError, match="belongs to the tuning set"):
        ReportSet([one])
    assert {generator.name for generator in installed(Split.TUNING)} == {"flite", "espeak"}


def test_a_generator_that_is_missing_says_what_it_needs():
    for generator in VOICE_GENERATORS.values():
        if (missing := generator.needs()) is not None:
            with pytest.raises(ConfigError, match=generator.name):
                generator.say(generator.voices[0], "hello")
            assert missing


def test_a_program_that_writes_a_file_is_a_voice():
    synthesize = _by_command(lambda voice, text, path: ["cp", str(CLIP), path], from_input=False)
    samples, rate_hz = synthesize("any", "any text")
    assert (samples == decode_wav(CLIP.read_bytes())[0]).all()
    assert rate_hz == 16_000
    with pytest.raises(EngineError, match="no such voice"):
        _by_command(lambda *_: ["no such voice"], from_input=True)("any", "any text")


def test_instruments_take_the_kinds_of_speech():
    root = argparse.ArgumentParser()
    add_speech_option(root)
    assert root.parse_args([]).speech is SpeechKind.SYNTHETIC
    assert root.parse_args(["--speech", "mixed"]).speech is SpeechKind.MIXED
    with pytest.raises(SystemExit):
        root.parse_args(["--speech", "loud"])


def turn(cut_ms: int | None = None, speech: str = "human", voice_ms: int = 400) -> TurnFigures:
    return TurnFigures(
        text="a",
        pause_ms=900,
        voice_to_voice_us=None if cut_ms else voice_ms * 1000,
        cut_in=cut_ms is not None,
        unanswered=False,
        cut_in_us=None if cut_ms is None else cut_ms * 1000,
        # 150 ms end no turn; 2 s invite the bot to speak.
        pauses_ms=((500, 650), (1_000, 1_400), (2_000, 2_900), (4_000, 6_000)),
        speech=speech,
    )


@pytest.mark.parametrize(
    ("cut_ms", "met"),
    [
        (None, (2, 0)),
        (300, (0, 0)),
        (1_200, (1, 1)),
        # Heard when the caller had continued already.
        (1_700, (1, 1)),
        (2_500, (2, 1)),
        (4_500, (2, 0)),
    ],
)
def test_a_cut_belongs_to_the_last_pause_that_had_begun(cut_ms: int | None, met: tuple[int, int]):
    assert turn(cut_ms).pauses_met() == met


def test_people_and_synthetic_voices_are_reported_apart():
    heard = [turn(), turn(1_200), turn(speech="synthetic", voice_ms=600)]
    assert summary(heard)["pauses"] == {"met": 5, "cut": 1}
    apart = by_speech(heard)
    assert {kind: part["turns"] for kind, part in apart.items()} == {"human": 2, "synthetic": 1}
    assert apart["synthetic"]["voice_to_voice_ms"]["p50"] == 600
    assert apart["human"]["pauses"] == {"met": 3, "cut": 1}


def test_recorded_turns_become_scripted_ones_with_all_of_their_words_and_sound(folder: Path):
    callers = open_callers(SpeechKind.HUMAN, own=folder, law=HesitationLaw(per_turn=3.0))
    calls = script(callers, CallSpec(callers=2, turns=3), seed=4)
    assert [len(call.turns) for call, _ in calls] == [3, 3]
    holds = 0
    for call, sounds in calls:
        for each, pieces in zip(call.turns, sounds, strict=True):
            assert " ".join(silence.said for silence in each.silences).split() in [t.split() for t in TEXTS]
            assert len(pieces) == len(each.silences)
            assert each.silences[-1].length_ms is None
            assert all((silence.length_ms or 0) >= 200 for silence in each.silences[:-1])
            assert all(len(piece) > 0 for piece in pieces)
            holds += len(each.silences) - 1
    assert holds > 0


@pytest.mark.parametrize("measurement", ["--capacity", "--call-start"])
def test_latency_refuses_recorded_callers_where_it_has_its_own(
    measurement: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert latency.main([measurement, "--speech", "human", "--out-dir", str(tmp_path)]) == 2
    assert "--speech is only for voice-to-voice" in capsys.readouterr().err


def test_people_who_interrupt_are_every_other_question(folder: Path, tmp_path: Path):
    callers = open_callers(SpeechKind.HUMAN, own=folder, law=HesitationLaw(per_turn=0.0))
    plan = heard_truth._plan(Speakers(tmp_path), 5, 1, 50, callers)
    assert [asked.speech for asked in plan.questions] == ["synthetic", "human"] * 2 + ["synthetic"]


def test_people_who_interrupt_by_telephone_are_every_other_question(folder: Path):
    law = HesitationLaw(per_turn=0.0)
    people = open_callers(SpeechKind.HUMAN, own=folder, law=law)
    questions = questions_of(5, 1, people)
    assert [one.speech for one in questions] == ["synthetic", "human", "synthetic", "human", "synthetic"]
    assert {one.text for one in questions[1::2]} == set(TEXTS)
    assert all(one.packets for one in questions)
    alone = questions_of(5, 1)
    assert [one.text for one in alone[::2]] == [one.text for one in questions[::2]]
    assert {one.speech for one in alone} == {"synthetic"}


def test_a_turn_is_sent_by_telephone_from_its_first_sound_to_its_last(folder: Path):
    callers = open_callers(SpeechKind.HUMAN, own=folder, law=HesitationLaw(per_turn=0.0))
    (caller,) = callers.turns(1, seed=1)
    packets = turn_packets(caller.turn)
    assert {len(packet) for packet in packets} == {160}
    assert len(packets) == -(-len(caller.turn.samples) // 320)
    heard = np.concatenate([samples_of(packet) for packet in packets])
    assert np.abs(heard[:400]).max() > 0.01
    assert np.abs(heard[-800:]).max() > 0.01
