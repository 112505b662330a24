"""``python -m research.turn_taking.looks``: fit the lines of the early looks (``models.stt.looks``).

Calls of the tuning side (``tuning_sounds``) pass echo control and voice activity detection as in a call, with
the bot ducked at the first window of a voice. For each voice over a reply that is detected, the canceller's
signal around its beginning is stored with the kind of the sound. A logistic regression with a ridge penalty
weighs the encoder's features at each look. Interruptions and the rest have the same weight.

Reported are areas under the curve on speakers that were left out of the fit, a third of them at a time. The
bounds of ``turn_taking.barge_in.looks`` follow from these left-out odds, ``--false-share`` and
``--missed-share``. The lines that are written are fitted on everything.
"""

import argparse
import asyncio
import json
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import cache
from io import BytesIO
from multiprocessing import get_context
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
from pipecat.audio.vad.vad_analyzer import VADState

from parley.audio.gain import RampedGain
from parley.core.call_events import VoiceSuspected
from parley.core.errors import AgentError, ConfigError
from parley.core.media import float_to_pcm16, pcm16_to_float
from parley.evals.echo.rooms import RATE_HZ, at_level, noise
from parley.evals.harness.command import exit_code, machine, positive
from parley.evals.turns import audio, sounds
from parley.evals.turns.overlap_calls import (
    ECHO_DBFS,
    NEAR_OVER_ECHO_DB,
    NEAR_SPREAD_DB,
    ROOM_DBFS,
    Reply,
    Sound,
)
from parley.evals.turns.overlap_ears import BEGAN_US, PIECE_MS, PIECE_SAMPLES
from parley.evals.turns.yield_calls import SoundMaterial, SpokenSound
from parley.models.echo.control import EchoControl
from parley.models.echo.webrtc import WebRtcEcho
from parley.models.stt.looks import BEFORE_MS, LOOKS_MS, features
from parley.models.stt.moonshine_network import MoonshineNetwork
from parley.models.stt.moonshine_tiny import MoonshineTinySettings
from parley.models.vad import VAD, VoiceActivityDetector
from parley.processors.front_end.vad import SharedVadAnalyzer, VadSettings
from parley.runtime.atomic_file import replace_file
from parley.runtime.event_stream import CallEvents
from parley.turn_taking.barge_in.settings import BargeInTuning
from research.turn_taking.floor import area, fitted
from research.turn_taking.tuning_sounds import TUNING_CALL, TuningScript, tuning_material

RIDGE = 300.0
FOLDS = 3
# From the first audible sample of a voice to its beginning by voice activity, without a bot.
LATE_MS = (0, 90)
# Shares over all looks together: of other sounds taken for interruptions, and of interruptions missed.
FALSE_SHARE, MISSED_SHARE = 0.05, 0.02
KEPT_MS = BEFORE_MS + LOOKS_MS[-1]


@dataclass(frozen=True, slots=True, eq=False)
class VoiceWindow:
    """Beginning of a voice over a reply.

    Attributes:
        sound: kind of the sound.
        speaker: name. Empty for the bot's echo.
        is_human: true for a recorded person.
        text: spoken words, as far as they are known.
        late_ms: from its first audible sample to its beginning by voice activity.
        voiced_ms: length of the sound.
        audio: int16, (samples,), ``BEFORE_MS`` and the voice to the last look.
        is_over_bot: true when it went through a room and the canceller.
    """

    sound: Sound
    speaker: str
    is_human: bool
    text: str
    late_ms: int
    voiced_ms: int
    audio: np.ndarray
    is_over_bot: bool = True


@cache
def _own() -> tuple[VoiceActivityDetector, audio.Speakers, SoundMaterial]:
    """Return the material of this process of the pool, loaded once."""
    return VAD.create("silero"), audio.Speakers(), tuning_material()


def windows_of_call(place: int, seed: int) -> list[VoiceWindow]:
    """Return the voices of one tuning call."""
    vad, speakers, material = _own()
    rng = np.random.default_rng([seed, place, 11])
    script = TuningScript(rng, speakers, material)
    said = []
    for kind in rng.permutation(np.array(TUNING_CALL, dtype=object)):
        said.append(script.drawn(kind))
        script.add(said[-1])
    voices = asyncio.run(_voices(script, vad))
    found = []
    for reply, spoken in zip(script.replies, said, strict=True):
        first = _first_voice(reply, voices)
        if first is not None:
            began, heard = first
            found.append(
                VoiceWindow(
                    reply.sound,
                    spoken.speaker if spoken is not None else "",
                    spoken.is_human if spoken is not None else False,
                    reply.text,
                    (began - reply.onset) * 1000 // RATE_HZ,
                    len(spoken.samples) * 1000 // RATE_HZ if spoken is not None else 0,
                    heard,
                )
            )
    return found


def _first_voice(reply: Reply, voices: Sequence[tuple[int, np.ndarray]]) -> tuple[int, np.ndarray] | None:
    """Return the first voice over a reply; a voice from before its sound is the bot's own and is left out."""
    first = reply.began if reply.sound is Sound.ECHO else reply.onset - RATE_HZ // 10
    return next((each for each in voices if first <= each[0] < reply.ended), None)


async def _voices(script: TuningScript, vad: VoiceActivityDetector) -> list[tuple[int, np.ndarray]]:
    """Return the beginning of each voice by voice activity, and the canceller's signal around it."""
    room, settings, control = script.room(), VadSettings(), EchoControl(canceller=WebRtcEcho())
    gain, events = RampedGain(), CallEvents()
    events.subscribe(VoiceSuspected, lambda _event: gain.set_db(BargeInTuning().duck_db))
    analyzer = SharedVadAnalyzer(
        vad,
        executor=None,
        params=settings.params(),
        pause_ms=settings.pause_ms,
        events=events,
    )
    analyzer.set_sample_rate(RATE_HZ)
    cancelled: list[np.ndarray] = []
    begun: list[int] = []
    before = VADState.QUIET
    try:
        for at in range(0, len(room.bot) - PIECE_SAMPLES + 1, PIECE_SAMPLES):
            began_us = BEGAN_US + at * 1_000_000 // RATE_HZ
            played = gain.apply(float_to_pcm16(room.bot[at : at + PIECE_SAMPLES]))
            heard = float_to_pcm16(room.hear(at, pcm16_to_float(played)))
            control.played(played, RATE_HZ, began_us)
            piece, levels = control.process(heard, began_us + PIECE_MS * 1_000)
            cancelled += [level.cancelled for level in levels]
            state = await analyzer.analyze_audio(piece)
            if state is VADState.SPEAKING and before in (VADState.QUIET, VADState.STARTING):
                begun.append(at + PIECE_SAMPLES - settings.start_ms * RATE_HZ // 1000)
            if state is VADState.QUIET:
                gain.set_db(0.0)
            before = state
    finally:
        control.close()
    whole = np.concatenate(cancelled)
    return [
        (at, np.rint(np.clip(window, -1, 1) * 32_767).astype(np.int16))
        for at in begun
        if len(window := whole[max(0, at - _samples(BEFORE_MS)) : at + _samples(LOOKS_MS[-1])])
        == _samples(KEPT_MS)
    ]


def by_themselves(material: SoundMaterial, seed: int) -> list[VoiceWindow]:
    """Return every sound of the set once without a bot, and synthetic hums and coughs, a tenth as many of
    each.
    """
    rng = np.random.default_rng([seed, 19])
    made = [SpokenSound(Sound.HUM, "sounds", sounds.hum(rng), False) for _ in material.sounds[::10]]
    made += [SpokenSound(Sound.COUGH, "sounds", sounds.cough(rng), False) for _ in material.sounds[::10]]
    return [_by_itself(each, rng) for each in (*material.sounds, *made)]


def _by_itself(spoken: SpokenSound, rng: np.random.Generator) -> VoiceWindow:
    late = int(rng.integers(*LATE_MS))
    loud = at_level(spoken.samples, ECHO_DBFS + NEAR_OVER_ECHO_DB + float(rng.normal(0, NEAR_SPREAD_DB)))
    heard = noise(_samples(KEPT_MS), ROOM_DBFS, int(rng.integers(1 << 30)))
    first = _samples(BEFORE_MS - late)
    voice = loud[: len(heard) - first]
    heard[first : first + len(voice)] += voice
    return VoiceWindow(
        spoken.sound,
        spoken.speaker,
        spoken.is_human,
        spoken.text,
        late,
        len(spoken.samples) * 1000 // RATE_HZ,
        np.rint(np.clip(heard, -1, 1) * 32_767).astype(np.int16),
        is_over_bot=False,
    )


def measured(calls: int, seed: int, *, processes: int) -> list[VoiceWindow]:
    """Return the voices of the given number of calls, and every sound of the set by itself.

    Raises:
        ConfigError: an engine is not installed, or recordings were not fetched.
        EngineError: an engine failed.
    """
    material = tuning_material()
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        waiting = [pool.submit(windows_of_call, place, seed) for place in range(calls)]
        alone = by_themselves(material, seed)
        return [*alone, *(each for one in waiting for each in one.result())]


def save(path: Path, rows: Sequence[VoiceWindow]) -> None:
    """Write the windows to a file for ``load``."""
    facts = [
        {
            "sound": row.sound.value,
            "speaker": row.speaker,
            "is_human": row.is_human,
            "text": row.text,
            "late_ms": row.late_ms,
            "voiced_ms": row.voiced_ms,
            "is_over_bot": row.is_over_bot,
        }
        for row in rows
    ]
    content = BytesIO()
    np.savez(content, audio=np.stack([row.audio for row in rows]), facts=json.dumps(facts))
    replace_file(path, content.getvalue())


def load(path: Path) -> list[VoiceWindow]:
    """Read a file of ``save``.

    Raises:
        ConfigError: it is no such file.
    """
    try:
        with np.load(path, allow_pickle=False) as kept:
            facts, heard_rows = json.loads(str(kept["facts"])), kept["audio"]
        return [
            VoiceWindow(**(fact | {"sound": Sound(fact["sound"])}), audio=heard)
            for fact, heard in zip(facts, heard_rows, strict=True)
        ]
    except (ValueError, LookupError, TypeError, EOFError, BadZipFile) as error:
        raise ConfigError(f"{path} contains no voices: measure them again") from error


def features_of(rows: Sequence[VoiceWindow], network: MoonshineNetwork) -> np.ndarray:
    """Return the features of each look: float32, (looks, rows, features)."""
    return np.stack(
        [
            np.stack(
                [
                    features(network, row.audio[: _samples(BEFORE_MS + look_ms)] / np.float32(32_768), look)
                    for row in rows
                ]
            )
            for look, look_ms in enumerate(LOOKS_MS)
        ]
    )


def folds(rows: Sequence[VoiceWindow]) -> Iterator[np.ndarray]:
    """Yield masks of the rows that are left out: all of a speaker together, rows without a
    speaker in turn.
    """
    names = sorted({row.speaker for row in rows})
    places = [
        names.index(row.speaker) if row.speaker not in ("", "sounds") else number
        for number, row in enumerate(rows)
    ]
    for fold in range(FOLDS):
        yield np.array([place % FOLDS == fold for place in places], bool)


def left_out_odds(rows: Sequence[VoiceWindow], known: np.ndarray) -> np.ndarray:
    """Return (looks, rows): log odds of each row by lines that were fitted without its speaker."""
    meant = np.array([row.sound.is_meant for row in rows])
    odds = np.zeros(known.shape[:2])
    for out in folds(rows):
        for look, features_there in enumerate(known):
            weights, bias = fitted(list(features_there[~out]), list(meant[~out]), ridge=RIDGE)
            odds[look, out] = features_there[out] @ weights + bias
    return odds


def _samples(ms: int) -> int:
    return ms * RATE_HZ // 1000


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds of each look, and their effect on voices that they were not fitted on.

    Attributes:
        take: log odds from which a look takes the floor.
        leave: log odds up to which it restores the volume.
        taken: share of interruptions that were taken by each look.
        false: share of all other sounds that were taken, the kinds weighing the same.
        missed: share of interruptions that a look left.
        left: share of all other sounds that a look left.
    """

    take: tuple[float, ...]
    leave: tuple[float, ...]
    taken: tuple[float, ...]
    false: float
    missed: float
    left: float


def bounds(
    every: Sequence[VoiceWindow], every_odds: np.ndarray, *, false_share: float, missed_share: float
) -> Bounds:
    """Choose the bounds on left-out odds.

    Each look may take a share of other sounds and leave a share of interruptions, such that all looks
    together stay within the given shares. A look gets an equal part, and the unused part of the looks before
    it. Kinds of sounds weigh the same, whatever number of each was drawn. Only voices over a bot count.
    """
    over_bot = np.array([row.is_over_bot for row in every])
    rows, odds = [row for row in every if row.is_over_bot], every_odds[:, over_bot]
    meant = np.array([row.sound.is_meant for row in rows])
    kinds = np.array([row.sound.value for row in rows])
    weight = np.zeros(len(rows))
    for side in (meant, ~meant):
        present = sorted(set(kinds[side]))
        for kind in present:
            weight[side & (kinds == kind)] = 1 / len(present) / np.sum(side & (kinds == kind))
    is_open = np.ones(len(rows), bool)
    take, leave, taken = [], [], []
    false = missed = left = hits = 0.0
    for look, scores in enumerate(odds):
        share = (look + 1) / len(odds)
        upper = _bound(scores, weight * (is_open & ~meant), share * false_share - false, top=True)
        lower = _bound(scores, weight * (is_open & meant), share * missed_share - missed, top=False)
        # Bounds that cross would leave nothing for a further look.
        lower = min(lower, upper - 0.01)
        takes, leaves = is_open & (scores >= upper), is_open & (scores <= lower)
        false += float(weight[takes & ~meant].sum())
        missed += float(weight[leaves & meant].sum())
        left += float(weight[leaves & ~meant].sum())
        hits += float(weight[takes & meant].sum())
        is_open &= ~takes & ~leaves
        take.append(round(upper, 2))
        leave.append(round(lower, 2))
        taken.append(round(hits, 4))
    return Bounds(tuple(take), tuple(leave), tuple(taken), round(false, 4), round(missed, 4), round(left, 4))


def _bound(scores: np.ndarray, weight: np.ndarray, share: float, *, top: bool) -> float:
    """Return the bound beyond which at most this share of the weight lies."""
    order = np.argsort(-scores if top else scores, kind="stable")
    order = order[weight[order] > 0]
    beyond = np.cumsum(weight[order])
    allowed = int(np.searchsorted(beyond, share + 1e-12, side="right"))
    if allowed >= len(order):
        return float(scores[order[-1]]) if len(order) else 0.0
    # Just inside the first score that is too many.
    step = 0.01
    return float(scores[order[allowed]] + (step if top else -step))


def require_both(rows: Sequence[VoiceWindow]) -> None:
    """Check that both kinds of sounds are present, whichever speakers are left out.

    Raises:
        ConfigError: a part lacks one of the kinds.
    """
    over_bot = np.array([row.is_over_bot for row in rows], bool)
    meant = np.array([row.sound.is_meant for row in rows], bool)
    parts = (over_bot, *(~out for out in folds(rows)))
    if any(not 0 < int(meant[part].sum()) < int(part.sum()) for part in parts):
        raise ConfigError(f"{len(rows)} voices, {int(over_bot.sum())} of them over the bot, are too few")


def write(path: Path, fits: Sequence[tuple[np.ndarray, float]], network_sha256: str) -> None:
    """Write the lines of all looks, as ``LookJudge`` reads them.

    Raises:
        AgentError: a weight is not finite; an existing file stays unchanged.
    """
    # A value beyond half precision becomes infinite and is refused below.
    with np.errstate(over="ignore"):
        weights = np.stack([weights for weights, _ in fits]).astype(np.float16)
    bias = np.array([bias for _, bias in fits], np.float32)
    if not np.isfinite(weights).all() or not np.isfinite(bias).all():
        raise AgentError("no lines were found; nothing is written")
    content = BytesIO()
    np.savez_compressed(content, weights=weights, bias=bias, network=network_sha256)
    replace_file(path, content.getvalue())


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return 0, or 2 after printing one line to standard error."""
    root = argparse.ArgumentParser(prog="python -m research.turn_taking.looks")
    root.add_argument("--calls", type=positive, default=20, help=f"calls with {len(TUNING_CALL)} sounds each")
    root.add_argument("--seed", type=int, default=1)
    root.add_argument("--processes", type=positive, default=2)
    root.add_argument(
        "--voices", type=Path, help="folder for what was measured there; existing files are reused"
    )
    root.add_argument("--false-share", type=float, default=FALSE_SHARE)
    root.add_argument("--missed-share", type=float, default=MISSED_SHARE)
    root.add_argument(
        "--write", type=Path, help="write the decision lines to this file, as models/stt/look_lines.npz"
    )
    arguments = root.parse_args(argv)
    return exit_code(lambda: _run(arguments))


def _run(arguments: argparse.Namespace) -> int:
    """Measure, fit, write and print.

    Raises:
        AgentError: recordings were not fetched, weights are missing, there are too few voices, or the fit is
            worth nothing.
    """
    network = MoonshineNetwork(MoonshineTinySettings().folder)
    if arguments.voices and arguments.voices.exists():
        rows = load(arguments.voices)
    else:
        rows = measured(arguments.calls, arguments.seed, processes=arguments.processes)
        if arguments.voices:
            save(arguments.voices, rows)
    require_both(rows)
    known = features_of(rows, network)
    odds = left_out_odds(rows, known)
    over_bot = np.array([row.is_over_bot for row in rows])
    chosen = bounds(rows, odds, false_share=arguments.false_share, missed_share=arguments.missed_share)
    meant = [row.sound.is_meant for row in rows]
    result = {
        "settings": {name: str(value) for name, value in vars(arguments).items()},
        "rows": {kind.value: sum(row.sound is kind for row in rows) for kind in Sound},
        "area_under_curve": [area(list(each[over_bot]), list(np.array(meant)[over_bot])) for each in odds],
        "bounds": asdict(chosen),
        "machine": machine(),
    }
    if arguments.write:
        write(arguments.write, [fitted(list(each), meant, ridge=RIDGE) for each in known], network.sha256)
    print(json.dumps(result, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
