"""``python -m research.turn_taking.pauses``: try settings of the end of turn on callers of ``evals.latency``.

The same questions, voices and pauses are used, without calls. Silero, smart-turn and PocketSphinx process
each question as in a call, their outputs are recorded with their times, and the policy that ships replays
them with one setting after the other. Results of the model and of the recogniser are delayed by
``--model-ms`` and ``--words-ms``. Reported are turns that end while the caller still speaks (in a planned
pause, or in a gap inside a word). Of the other turns it reports the waits, from the last voice in voice
activity detection.

A replay takes a minute or two and serves to choose a setting; ``python -m evals.latency`` measures its effect
in calls. Choose on other seeds than are reported.
"""

import argparse
import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import soxr
from pipecat.audio.vad.vad_analyzer import VADState

from parley.core.call_events import VoicePaused, VoiceSuspected
from parley.core.media import PCM_FULL_SCALE, float_to_pcm16
from parley.evals.harness.command import machine, positive
from parley.evals.harness.progress import Progress
from parley.evals.harness.questions import Utterance, plan
from parley.evals.harness.report import add_outputs, percentile, run_command
from parley.evals.harness.speech import RATE_HZ as CLIENT_HZ
from parley.evals.harness.speech import Speakers
from parley.models.stt import STT, SpeechStream, Transcript
from parley.models.turn import TURN, TurnCompleteness, TurnEstimate
from parley.models.vad import VAD, VoiceActivityDetector
from parley.processors.front_end.vad import SharedVadAnalyzer, VadSettings
from parley.processors.perception.engine_stt import EngineSttSettings
from parley.runtime.event_stream import CallEvents
from parley.turn_taking.endpointing.endpointer import Endpointer, EndpointTuning

RATE_HZ = 16_000
PIECE = RATE_HZ // 50
# Silence around a question: for the recogniser's start, and for the longest wait.
BEFORE_S, BEHIND_S = 0.5, 1.5
NOISE = 1e-4


@dataclass(slots=True)
class Heard:
    """Output of the engines for a question; times in ms.

    Attributes:
        utterance: the question.
        starts: times at which a voice was reported, each with the earlier time at which it became possible.
        stops: times at which its end was reported.
        pauses: times at which a possible end was reported.
        looks: estimates at possible ends and at reported ones, by time.
        words: final words with the confidence of the last one, by the time of the end they belong to.
    """

    utterance: Utterance
    starts: list[tuple[int, int]] = field(default_factory=list)
    stops: list[int] = field(default_factory=list)
    pauses: list[int] = field(default_factory=list)
    looks: dict[int, TurnEstimate] = field(default_factory=dict)
    words: dict[int, tuple[str, float]] = field(default_factory=dict)


async def hear(
    utterance: Utterance,
    speakers: Speakers,
    vad: VoiceActivityDetector,
    turn: TurnCompleteness,
    stream: SpeechStream,
) -> Heard:
    """Run one question through the engines; ``stream`` is that of its voice."""
    spoken = speakers.speak(utterance).pcm.astype(np.float32) / PCM_FULL_SCALE
    sound = soxr.resample(spoken, CLIENT_HZ, RATE_HZ)
    silence = (int(BEFORE_S * RATE_HZ), int(BEHIND_S * RATE_HZ))
    noise = NOISE * np.random.default_rng(1).standard_normal(len(sound) + sum(silence))
    sound = (np.pad(sound, silence) + noise).astype(np.float32)
    heard, settings = Heard(utterance), VadSettings()
    onset_ms, now_ms = 0, 0

    def on_onset(_event: VoiceSuspected) -> None:
        nonlocal onset_ms
        onset_ms = now_ms

    events = CallEvents()
    events.subscribe(VoiceSuspected, on_onset)
    events.subscribe(VoicePaused, lambda _event: heard.pauses.append(now_ms))

    analyzer = SharedVadAnalyzer(
        vad,
        executor=None,
        params=settings.params(),
        pause_ms=settings.pause_ms,
        events=events,
    )
    analyzer.set_sample_rate(RATE_HZ)
    speaks, fed = False, 0
    for at in range(0, len(sound) - PIECE + 1, PIECE):
        now_ms = (at + PIECE) * 1_000 // RATE_HZ
        state = await analyzer.analyze_audio(float_to_pcm16(sound[at : at + PIECE]))
        if state is VADState.SPEAKING and not speaks:
            speaks = True
            heard.starts.append((now_ms, onset_ms))
            stream.start()
            before = (EngineSttSettings().pre_speech_ms + settings.start_ms) * RATE_HZ // 1_000
            fed = max(fed, at - before)
        if speaks:
            stream.feed(float_to_pcm16(sound[fed : at + PIECE]))
            fed = at + PIECE
        if state is VADState.QUIET and speaks:
            speaks = False
            heard.stops.append(now_ms)
            heard.words[now_ms] = _words(stream.finish())
    for ms in (*heard.pauses, *heard.stops):
        heard.looks[ms] = turn.estimate(sound[: ms * RATE_HZ // 1_000][-turn.max_samples :])
    return heard


def _words(final: Transcript) -> tuple[str, float]:
    return final.text, final.words[-1].confidence if final.words else 0.0


def endings(
    heard: Heard, settings: EndpointTuning, *, model_ms: int, words_ms: int
) -> Iterator[tuple[int, int]]:
    """Yield (time of the end, silence before it) for each end of turn that the policy finds in a question."""
    silence_ms = VadSettings().stop_ms
    policy = Endpointer(settings)
    # At one time the words come before their consequences.
    happenings: list[tuple[int, int, Callable[[int], None]]] = []
    for at_ms, onset_ms in heard.starts:
        happenings.append((onset_ms, 0, policy.on_maybe_voice))
        happenings.append((at_ms, 1, policy.on_voice_started))
    for at_ms in heard.stops:
        happenings.append((at_ms, 2, partial(policy.on_voice_stopped, silence_ms=silence_ms)))
        text, sure = heard.words[at_ms]
        if text:
            # A voice without words gives no transcript.
            happenings.append((at_ms + words_ms, 3, partial(_understood, policy, text, sure)))
        early_ms = max((ms for ms in heard.pauses if ms <= at_ms), default=None)
        early = heard.looks[early_ms] if early_ms is not None else None
        known_ms, estimate = at_ms + model_ms, heard.looks[at_ms]
        if early is not None and early_ms is not None:
            is_enough = policy.is_complete(early.complete, filler_log_odds=early.filler_log_odds)
            # The model is run again after its answer.
            early_known_ms = max(at_ms, early_ms + model_ms)
            known_ms = early_known_ms if is_enough else early_known_ms + model_ms
            estimate = early if is_enough else estimate
        happenings.append((known_ms, 4, partial(_estimated, policy, estimate)))
    last_ms = max(heard.stops) + settings.hanging_silence_ms + settings.transcript_wait_ms
    for at_ms, _, tell in [*sorted(happenings, key=lambda row: row[:2]), (last_ms, 9, lambda _now: None)]:
        due_ms = policy.next_deadline_ms()
        if due_ms is not None and due_ms < at_ms:
            endpoint = policy.on_deadline(due_ms)
            if endpoint is not None:
                yield endpoint.at_ms, endpoint.silence_ms
                policy.reset()
        tell(at_ms)


def _understood(policy: Endpointer, text: str, sure: float, at_ms: int) -> None:
    policy.on_transcript(at_ms, text, last_word_confidence=sure)


def _estimated(policy: Endpointer, estimate: TurnEstimate, _at_ms: int) -> None:
    policy.on_completeness(estimate.complete, filler_log_odds=estimate.filler_log_odds)


def figures(
    questions: Sequence[Heard], settings: EndpointTuning, *, model_ms: int, words_ms: int
) -> dict[str, Any]:
    """Return the cut-ins and waits of one setting."""
    in_pauses, in_words, waits = 0, 0, []
    for heard in questions:
        if not heard.stops:
            continue
        found = list(endings(heard, settings, model_ms=model_ms, words_ms=words_ms))
        ended_ms = max(heard.stops)
        cut = [at_ms for at_ms, _ in found if at_ms < ended_ms]
        planned = heard.utterance.pause_ms > 0
        in_pauses += planned and any(True for _ in cut)
        in_words += not planned and any(True for _ in cut)
        waits += [silence_ms for at_ms, silence_ms in found if at_ms >= ended_ms and not cut]
    return {
        "cut_in_pauses": in_pauses,
        "with_pause": sum(heard.utterance.pause_ms > 0 for heard in questions),
        "cut_in_others": in_words,
        "wait_ms": {"p50": percentile(waits, 50), "p95": percentile(waits, 95)} if waits else None,
        "mean_wait_ms": round(float(np.mean(waits)), 1) if waits else None,
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return 0, or 2 after printing one line to standard error."""
    root = argparse.ArgumentParser(prog="python -m research.turn_taking.pauses")
    root.add_argument("--turns", type=positive, default=40, help="questions per seed")
    root.add_argument("--seeds", type=int, nargs="+", default=[2, 3, 4, 5, 6, 7])
    root.add_argument(
        "--model-ms", type=positive, default=60, help="simulated delay of the completeness model"
    )
    root.add_argument("--words-ms", type=positive, default=40, help="simulated delay of final words")
    add_outputs(root, with_table=False)
    arguments = root.parse_args(argv)
    return run_command(arguments, lambda: _measure(arguments))


def _measure(given: argparse.Namespace) -> dict[str, Any]:
    with TemporaryDirectory() as folder:
        questions = asyncio.run(_all(given.turns, given.seeds, Path(folder)))
    rows = {
        name: figures(questions, settings, model_ms=given.model_ms, words_ms=given.words_ms)
        for name, settings in SETTINGS.items()
    }
    return {
        "questions": len(questions),
        "settings": rows,
        "seeds": given.seeds,
        "model_ms": given.model_ms,
        "words_ms": given.words_ms,
        "machine": machine(),
    }


async def _all(turns: int, seeds: Sequence[int], folder: Path) -> list[Heard]:
    speakers, vad, turn = Speakers(folder), VAD.create("silero"), TURN.create("smart_turn")
    stt, streams = STT.create("pocketsphinx"), {}
    questions = []
    progress = Progress("questions", turns * len(seeds))
    for seed in seeds:
        for utterance in plan(turns, seed):
            if utterance.voice not in streams:
                streams[utterance.voice] = stt.open_stream()
            questions.append(await hear(utterance, speakers, vad, turn, streams[utterance.voice]))
            progress.step()
    return questions


def _setting(**changes: Any) -> EndpointTuning:
    return EndpointTuning.model_validate({"heard_for_fillers": ["them"], **changes})


SETTINGS = {
    **{
        f"words alone, complete from {least}": _setting(filler_log_odds=None, complete_probability=least)
        for least in (0.5, 0.2)
    },
    **{
        f"fillers by sound, complete from {least}": _setting(complete_without_filler=least)
        for least in (0.5, 0.3, 0.2, 0.1, 0.05)
    },
    "fillers by sound, complete from 0.2, shortest wait 160": _setting(min_silence_ms=160),
    "fillers by sound, complete from 0.2, shortest wait 220": _setting(min_silence_ms=220),
}


if __name__ == "__main__":
    raise SystemExit(main())
