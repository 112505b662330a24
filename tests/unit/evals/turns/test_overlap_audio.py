"""Sounds over the bot's voice through engines: scripted ones, and the policies on their reports."""

import asyncio
from collections import deque

import numpy as np
import pytest

from parley.core.media import float_to_pcm16, pcm16_to_float
from parley.evals.turns import audio, sounds
from parley.evals.turns.overlap_audio import (
    POLICIES,
    DuckingBot,
    Trial,
    call_trials,
    cut_at_ms,
    events_over,
    judge,
    wilson,
)
from parley.evals.turns.overlap_calls import OF_A_CALL, CallScript, Reply, Sound
from parley.evals.turns.overlap_ears import Ears, Event, listen
from parley.models.echo.webrtc import WebRtcEcho
from parley.turn_taking.barge_in.barge_in import BargeIn
from tests.fakes.stt import ScriptedStt
from tests.fakes.vad import EnergyVad


@pytest.fixture(scope="module")
def speakers() -> audio.Speakers:
    return audio.Speakers()


@pytest.fixture(scope="module")
def trials(speakers: audio.Speakers) -> list[Trial]:
    ears = Ears(EnergyVad(), ScriptedStt(), ScriptedStt(), WebRtcEcho())
    return call_trials(0, 5, ears, speakers, (Sound.SENTENCE, Sound.HUM))


def test_a_hum_is_as_long_as_people_s_and_a_cough_is_noise():
    rng = np.random.default_rng(1)
    hums, coughs = [sounds.hum(rng) for _ in range(20)], [sounds.cough(rng) for _ in range(20)]
    assert all(240 * 16 <= len(hum) <= 700 * 16 for hum in hums)
    assert all(150 * 16 <= len(cough) <= 1_300 * 16 for cough in coughs)
    assert all(np.abs(sound).max() == pytest.approx(sounds.PEAK) for sound in hums + coughs)

    def flatness(sound: np.ndarray) -> float:
        power = np.abs(np.fft.rfft(sound)) ** 2 + 1e-12
        return float(np.exp(np.mean(np.log(power))) / np.mean(power))

    assert np.median([flatness(c) for c in coughs]) > 5 * np.median([flatness(h) for h in hums])


def test_the_same_seed_gives_the_same_call(speakers: audio.Speakers):
    def said(seed: int) -> list[tuple[Sound, str, str]]:
        script = CallScript(np.random.default_rng(seed), ("espeak", "en-us"), speakers)
        for sound in OF_A_CALL:
            script.add(sound)
        return [(reply.sound, reply.text, reply.says) for reply in script.replies]

    # Not sample by sample: flite draws the noise in its voices from a generator of its own.
    assert said(3) == said(3)
    assert said(3) != said(4)


def test_a_call_has_every_kind_and_most_of_what_is_meant_is_short():
    assert set(OF_A_CALL) == set(Sound)
    assert [OF_A_CALL.count(kind) for kind in (Sound.SENTENCE, Sound.COMMAND, Sound.STOP)] == [2, 2, 2]
    assert sum(kind.is_meant and kind is not Sound.SENTENCE for kind in OF_A_CALL) == 7


def test_a_sentence_over_the_bot_is_reported_as_a_voice_with_words(trials: list[Trial]):
    trial = next(trial for trial in trials if trial.sound is Sound.SENTENCE)
    starts = [event.at_ms for event in trial.events if event.method == "on_voice_started"]
    assert any(0 < start - trial.onset_ms < 400 for start in starts)
    finals = [event for event in trial.events if event.method == "on_final"]
    assert any(event.facts["text"] for event in finals)
    assert [event.at_ms for event in trial.events] == sorted(event.at_ms for event in trial.events)


def test_who_talks_over_the_bot_is_yielded_to_but_not_by_a_bot_that_never_yields(trials: list[Trial]):
    trial = next(trial for trial in trials if trial.sound is Sound.SENTENCE)
    cuts = {name: cut_at_ms(build(), trial) for name, build in POLICIES.items()}
    assert cuts["never"] is None
    assert cuts["voice-0"] is not None and cuts["barge-in"] is not None
    assert cuts["voice-0"] < cuts["barge-in"]


@pytest.mark.parametrize("name", ["barge-in-stop-words", "voice-300"])
def test_what_a_policy_does_in_a_call_is_what_it_does_on_what_was_reported(
    speakers: audio.Speakers, name: str
):
    script = CallScript(np.random.default_rng(5), ("flite", "rms"), speakers)
    for sound in (Sound.SENTENCE, Sound.HUM, Sound.ANSWER, Sound.ECHO):
        script.add(sound)
    chosen = Ears(EnergyVad(), ScriptedStt(), ScriptedStt(), WebRtcEcho())
    played: list[bytes] = []

    class Listened(DuckingBot):
        def play(self, pcm: bytes) -> bytes:
            played.append(super().play(pcm))
            return played[-1]

    bot = Listened(script.replies, POLICIES[name])
    events = asyncio.run(listen(script.room(), chosen, bot))
    as_played = pcm16_to_float(b"".join(played))
    assert len(as_played) > script.replies[-1].ended
    cuts = []
    for reply in script.replies:
        over = Trial(
            reply.sound,
            "",
            "",
            (reply.onset - reply.began) // 16,
            reply.says,
            tuple(events_over(events, reply)),
        )
        cut_ms = cut_at_ms(POLICIES[name](), over)
        cuts.append(cut_ms)
        at = reply.ended if cut_ms is None else reply.began + 16 * cut_ms
        # From the next piece on nothing is played; until then the reply is.
        assert not np.any(as_played[at + 640 : reply.ended])
        assert np.any(as_played[max(reply.began, at - 8_000) : at])
    assert None in cuts and any(cuts)


def test_a_bot_that_ducks_is_lower_until_it_is_not():
    reply = Reply(Sound.HUM, "", began=0, onset=16_000, ended=5 * 16_000, says="")
    bot = DuckingBot([reply], POLICIES["barge-in-stop-words"])
    piece = float_to_pcm16(np.full(320, 0.5, np.float32))
    heard = []
    events = deque([Event(1_000, "on_maybe_voice"), Event(1_128, "on_voice_started", {"voiced_ms": 128})])
    events += [Event(1_400, "on_voice_stopped", {"silence_ms": 128}), Event(1_500, "on_final", {"text": ""})]
    for now_ms in range(20, 2_000, 20):
        heard.append(float(np.abs(pcm16_to_float(bot.play(piece))).min()))
        due = []
        while events and events[0].at_ms <= now_ms:
            due.append(events.popleft())
        bot.hear(now_ms, due)
    ducked = [20 * (place + 1) for place, level in enumerate(heard) if level < 0.2]
    # The gain rises by 3 dB a packet: the second one still begins low.
    assert (ducked[0], ducked[-1]) == (1_020, 1_540)
    assert heard[-1] == pytest.approx(0.5, abs=1e-3)


def trial(sound: Sound, *events: Event, onset_ms: int = 1_000) -> Trial:
    return Trial(sound, "", "flite rms", onset_ms, "your card is blocked", tuple(events))


def voice(since_ms: int, length_ms: int, *, text: str = "", stop_word: bool = False) -> tuple[Event, ...]:
    ended_ms = since_ms + length_ms
    spotted = (Event(ended_ms + 190, "on_spotted", {"text": "stop"}),) if stop_word else ()
    return (
        Event(since_ms + 32, "on_maybe_voice"),
        Event(since_ms + 128, "on_voice_started", {"voiced_ms": 128}),
        Event(ended_ms + 96, "on_maybe_quiet"),
        Event(ended_ms + 160, "on_voice_stopped", {"silence_ms": 160}),
        *spotted,
        Event(ended_ms + 200, "on_final", {"text": text, "confidences": (0.3,) * len(text.split())}),
    )


def test_a_spotted_stop_word_cuts_what_the_recogniser_mistook():
    stop = trial(Sound.STOP, *voice(1_000, 400, text="shut", stop_word=True))
    assert cut_at_ms(POLICIES["barge-in-stop-words"](), stop) == 1_000 + 400 + 190
    assert cut_at_ms(POLICIES["barge-in"](), stop) is None


def test_figures_count_what_was_meant_and_what_was_not():
    rows = [
        trial(Sound.SENTENCE, *voice(1_000, 2_000)),
        trial(Sound.STOP, *voice(1_000, 400)),
        trial(Sound.BACKCHANNEL, *voice(1_000, 300)),
        trial(Sound.ECHO),
    ]
    timer, ours = judge("voice-0", rows), judge("barge-in", rows)
    assert (timer["barge_in_recall"], timer["false_yield_rate"]) == (1.0, 1.0)
    assert (ours["barge_in_recall"], ours["false_yield_rate"]) == (0.5, 0.0)
    assert timer["barge_in_stop_ms"] == {"p50": 128, "p95": 128}
    assert ours["yields"]["cough"] is None


def test_a_share_is_told_with_how_sure_it_is():
    # Newcombe (1998), table I: 81 of 263 is 0.2553 to 0.3662.
    assert wilson([True] * 81 + [False] * 182) == pytest.approx((0.2553, 0.3662), abs=1e-4)
    assert wilson([]) is None
    rows = [trial(Sound.SENTENCE, *voice(1_000, 2_000)), trial(Sound.HUM, *voice(1_000, 300))]
    assert judge("barge-in", rows)["intervals"]["barge_in_recall"] == wilson([True])


def test_a_reply_that_is_cut_before_anybody_spoke_was_cut_by_itself():
    early = trial(Sound.SENTENCE, *voice(200, 2_000), *voice(3_000, 2_000), onset_ms=3_000)
    figures = judge("voice-0", [early, trial(Sound.ECHO, *voice(100, 900))])
    assert figures["self_interruptions"] == 2
    assert figures["barge_in_recall"] is None


def test_every_policy_is_told_everything():
    received = {"on_maybe_voice", "on_voice_started", "on_maybe_quiet", "on_voice_stopped", "on_final"}
    received |= {"on_partial", "on_self_voice", "on_spotting", "on_spotted", "on_saying", "on_bot_started"}
    received |= {"on_question"}
    assert all(hasattr(build(), name) for build in POLICIES.values() for name in received)
    assert isinstance(POLICIES["barge-in-stop-words"](), BargeIn)


def test_the_voices_over_a_reply_are_numbered_from_its_first():
    reply = Reply(Sound.STOP, "stop", began=16 * 1_000, onset=16 * 1_500, ended=16 * 3_000, says="a reply")
    events = [
        Event(200, "on_voice_started", {"voiced_ms": 128}),
        Event(500, "on_voice_stopped", {"silence_ms": 128}),
        Event(1_600, "on_voice_started", {"voiced_ms": 128}),
        Event(1_900, "on_voice_stopped", {"silence_ms": 128}),
        Event(1_950, "on_spotted", {"text": "stop", "voice": 2}),
        Event(9_000, "on_final", {"text": "late"}),
    ]
    assert list(events_over(events, reply)) == [
        Event(600, "on_voice_started", {"voiced_ms": 128}),
        Event(900, "on_voice_stopped", {"silence_ms": 128}),
        Event(950, "on_spotted", {"text": "stop", "voice": 1}),
    ]
