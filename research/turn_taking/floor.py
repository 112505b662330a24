"""``python -m research.turn_taking.floor``: fit the line of short voices (``models.keyword_spotting.floor``).

Synthetic callers speak a backchannel, hum, cough, or say something short that claims the floor
(``floor_texts``). The voices are those of flite and some sixty of espeak, changed in length and pitch by
resampling. Each sound is used once by itself through a drawn channel, and once over a bot in a simulated
room. There it passes the echo canceller that ships, with the bot ducked as in a call (``evals.echo.rooms``).
A logistic regression with ridge penalty weighs the encoder's features; both kinds have the same weight.

Reported is the area under the curve (Mann and Whitney) on voices over a bot: for each speaker in turn with a
fit without that speaker, and for all of them. The line that is written is fitted on everything. Its effect on
calls, in other rooms and with other claims, in some of the same voices, is measured by ``python -m
evals.turns``.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from enum import Enum
from functools import cache
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import soxr

from parley.core.errors import AgentError
from parley.core.media import float_to_pcm16, pcm16_to_float
from parley.evals.echo.rooms import RATE_HZ, EchoPath, Speakerphone, at_level, noise
from parley.evals.echo.speech import BOT, BOT_LINES
from parley.evals.harness.command import machine, positive
from parley.evals.turns import audio, sounds
from parley.evals.turns.overlap_calls import CALLERS, DELAYS_MS, ECHO_DBFS, NEAR_OVER_ECHO_DB, ROOM_DBFS
from parley.models.echo.control import EchoControl
from parley.models.echo.webrtc import WebRtcEcho
from parley.models.keyword_spotting.floor import FloorEncoder
from parley.models.turn.network import LinearScore
from research.turn_taking.floor_texts import CLAIMING, LISTENING

# Other speakers of espeak: formants, voice quality, accents.
_VARIANTS = (
    "f1 f2 f4 f5 m1 m2 m4 m5 m6 m7 m8 Alex Alicia Andrea Andy Annie Denis Gene Jacky Lee Marco Mario "
    "Michael Mike Nguyen Storm Tweaky anika antonio aunty belinda benjamin boris caleb david ed edward "
    "grandma grandpa gustave iven john linda max michel miguel norbert pablo paul pedro quincy rob robert "
    "sandro shelby steph travis victor zac klatt klatt3 croak"
)
OTHERS: tuple[tuple[str, str], ...] = (
    *(("espeak", f"en-us+{variant}") for variant in _VARIANTS.split()),
    *(("espeak", name) for name in ("en-gb-scotland", "en-gb-x-rp", "en-029", "en-gb-x-gbcwmd")),
)
# Each group is drawn a third of the time: the bot's own voice (flite has few), the callers of
# ``overlap_calls``, all the others.
SPEAKERS = ((("flite", BOT),), CALLERS, OTHERS)
PIECE = RATE_HZ // 50
LONGEST = 18 * RATE_HZ // 10
DUCK_DB = -12.0
# Number of sounds in a room, seconds before the first, and range of the pauses between them.
SAID_IN_ROOM, LEAD_S, PAUSE_S = 16, 4, (0.9, 1.6)
# Delay from a voice to its detection, when the bot is ducked, and spread of the caller's level.
NOTICED_S, LEVEL_SPREAD_DB = 0.075, 2.5
RIDGE = 1_000.0
PIECES_AT_ONCE = 100


class Kind(Enum):
    """Kinds of sounds."""

    LISTENING = "listening"
    HUM = "hum"
    COUGH = "cough"
    CLAIMING = "claiming"


SHARES = {Kind.LISTENING: 0.36, Kind.HUM: 0.14, Kind.COUGH: 0.05, Kind.CLAIMING: 0.45}


@dataclass(frozen=True, slots=True)
class Row:
    """A sound and its features.

    Attributes:
        kind: of the sound.
        voice: engine and name of the voice.
        is_over_bot: true when it went through a room and the canceller.
        features: float32, (``FEATURES``,).
    """

    kind: Kind
    voice: str
    is_over_bot: bool
    features: np.ndarray


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return 0, or 2 after printing one line to standard error."""
    root = argparse.ArgumentParser(prog="python -m research.turn_taking.floor")
    root.add_argument("--said", type=positive, default=6_000, help="voices on their own")
    root.add_argument("--rooms", type=positive, default=240, help=f"rooms with {SAID_IN_ROOM} voices each")
    root.add_argument("--seed", type=int, default=1)
    root.add_argument("--processes", type=positive, default=2)
    root.add_argument(
        "--write",
        type=Path,
        help="write the decision line to this file, as models/keyword_spotting/floor_line.npz",
    )
    root.add_argument("--json", type=Path, help="write the figures to this JSON file")
    arguments = root.parse_args(argv)
    try:
        rows = made(arguments.said, arguments.rooms, arguments.seed, processes=arguments.processes)
    except AgentError as error:
        print(error, file=sys.stderr)
        return 2
    result = {
        "settings": {name: str(value) for name, value in vars(arguments).items()},
        "rows": {kind.value: sum(row.kind is kind for row in rows) for kind in Kind},
        "area_under_curve": judged(rows),
        "machine": machine(),
    }
    if arguments.write:
        weights, bias = fit(rows)
        LinearScore(weights, bias, FloorEncoder().network).save(arguments.write)
    text = json.dumps(result, indent=1)
    if arguments.json:
        arguments.json.write_text(text + "\n")
    print(text)
    return 0


def made(said: int, rooms: int, seed: int, *, processes: int) -> list[Row]:
    """Make ``said`` voices by themselves, and ``SAID_IN_ROOM`` in each of ``rooms`` rooms.

    Raises:
        ConfigError: an engine is not installed.
        EngineError: an engine does not load, or failed.
    """
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        waiting = [
            pool.submit(by_themselves, min(PIECES_AT_ONCE, said - at), seed, at)
            for at in range(0, said, PIECES_AT_ONCE)
        ]
        waiting += [pool.submit(in_a_room, seed, room) for room in range(rooms)]
        return [row for each in waiting for row in each.result()]


@cache
def _encoder() -> FloorEncoder:
    return FloorEncoder()


@cache
def speakers() -> audio.Speakers:
    """Return the voices of this process of the pool; they cannot be sent between processes."""
    return audio.Speakers()


def by_themselves(count: int, seed: int, first: int) -> list[Row]:
    """Make the given number of voices, each with a speaker drawn anew, on a channel of its own."""
    rng = np.random.default_rng([seed, first, 1])
    rows = []
    for _ in range(count):
        voice = drawn_voice(rng)
        kind, sound = _make(rng, voice, drawn_stretch(rng) if rng.random() < 0.8 else 1.0)
        heard = on_a_line(sound, rng)[:LONGEST]
        rows.append(Row(kind, " ".join(voice), False, _encoder().features(heard)))
    return rows


def on_a_line(sound: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Pass a sound through a drawn channel: highs and lows are lost, silence before and after, pink noise."""
    spectrum = np.fft.rfft(sound)
    hertz = np.fft.rfftfreq(len(sound), 1 / RATE_HZ)
    lost_db = rng.uniform(-18, 2) * np.clip((hertz - rng.uniform(1_500, 4_500)) / 2_000, 0, 1)
    low_hz = rng.uniform(50, 350)
    spectrum *= 10 ** (lost_db / 20) / np.sqrt(1 + (low_hz / np.maximum(hertz, 1.0)) ** 4)
    heard = np.pad(
        np.fft.irfft(spectrum, len(sound)), (int(rng.integers(RATE_HZ // 4)), int(rng.integers(RATE_HZ // 4)))
    ).astype(np.float32)
    return heard + noise(len(heard), _level_dbfs(heard) - rng.uniform(12, 40), int(rng.integers(1 << 30)))


def in_a_room(seed: int, room: int, *, count: int = SAID_IN_ROOM) -> list[Row]:
    """Simulate a caller over a bot that speaks without a pause, ``count`` times; return the canceller's
    output.
    """
    rng = np.random.default_rng([seed, room, 2])
    phone = Speakerphone(
        seed=int(rng.integers(1 << 30)), delay_ms=float(rng.uniform(*DELAYS_MS)), direct_db=3.0
    )
    voice, stretch = drawn_voice(rng), drawn_stretch(rng) if rng.random() < 0.6 else 1.0
    at, said = LEAD_S * RATE_HZ, []
    for _ in range(count):
        kind, sound = _make(rng, voice, stretch)
        loud_db = ECHO_DBFS + NEAR_OVER_ECHO_DB + float(rng.normal(0, LEVEL_SPREAD_DB))
        said.append((kind, at, at_level(sound, loud_db + 6 * (kind is Kind.COUGH))))
        at += len(sound) + int(rng.uniform(*PAUSE_S) * RATE_HZ)
    bot, gain, near = _talk(rng, at + RATE_HZ), np.ones(at + RATE_HZ, np.float32), np.zeros(at + RATE_HZ)
    for _, onset, sound in said:
        near[onset : onset + len(sound)] += sound
        if rng.random() < 0.8:
            noticed = onset + int(NOTICED_S * RATE_HZ)
            gain[noticed : onset + len(sound) + 3 * RATE_HZ // 10] = 10 ** (DUCK_DB / 20)
    near += noise(len(near), ROOM_DBFS, phone.seed)
    heard = _cancelled(bot * gain, near, EchoPath(phone, bot, ECHO_DBFS))
    rows = []
    for kind, onset, sound in said:
        first = max(0, onset - int(rng.uniform(0.15, 0.33) * RATE_HZ))
        last = onset + len(sound) + int(rng.uniform(0.06, 0.17) * RATE_HZ)
        features = _encoder().features(heard[first : min(last, first + LONGEST)])
        rows.append(Row(kind, " ".join(voice), True, features))
    return rows


def _cancelled(played: np.ndarray, near: np.ndarray, path: EchoPath) -> np.ndarray:
    control = EchoControl(canceller=WebRtcEcho())
    passed: list[np.ndarray] = []
    try:
        for at in range(0, len(played) - PIECE + 1, PIECE):
            pcm = float_to_pcm16(played[at : at + PIECE])
            heard = np.clip(path.hear(pcm16_to_float(pcm)) + near[at : at + PIECE], -1, 1)
            began_us = 1_000_000 + at * 1_000_000 // RATE_HZ
            control.played(pcm, RATE_HZ, began_us)
            _, levels = control.process(float_to_pcm16(heard), began_us + PIECE * 1_000_000 // RATE_HZ)
            passed += [level.cancelled for level in levels]
    finally:
        control.close()
    return np.concatenate(passed).astype(np.float32)


def _make(rng: np.random.Generator, voice: tuple[str, str], stretch: float) -> tuple[Kind, np.ndarray]:
    kind = list(SHARES)[int(rng.choice(len(SHARES), p=list(SHARES.values())))]
    if kind is Kind.HUM:
        return kind, sounds.hum(rng)
    if kind is Kind.COUGH:
        return kind, sounds.cough(rng)
    texts = LISTENING if kind is Kind.LISTENING else CLAIMING
    sound = audio.trimmed(speakers().speak(*voice, texts[int(rng.integers(len(texts)))])[0])
    return kind, soxr.resample(sound, RATE_HZ, RATE_HZ * stretch).astype(np.float32)


def drawn_voice(rng: np.random.Generator) -> tuple[str, str]:
    """Draw one of ``SPEAKERS``: engine and name."""
    group = SPEAKERS[int(rng.integers(len(SPEAKERS)))]
    return group[int(rng.integers(len(group)))]


def drawn_stretch(rng: np.random.Generator) -> float:
    """Draw a factor of the rate: another vocal tract, pitch and tempo."""
    return float(np.exp(rng.uniform(np.log(0.85), np.log(1.18))))


def _talk(rng: np.random.Generator, length: int) -> np.ndarray:
    bot, at = np.zeros(length, np.float32), 0
    while at < length:
        line = speakers().speak("flite", BOT, BOT_LINES[int(rng.integers(len(BOT_LINES)))])[0][: length - at]
        bot[at : at + len(line)] = line
        at += len(line) + RATE_HZ // 5
    return bot


def _level_dbfs(sound: np.ndarray) -> float:
    loud = sound[np.abs(sound) > 0.1 * np.abs(sound).max()]
    return float(10 * np.log10(np.mean(loud**2)))


def fit(rows: Sequence[Row]) -> tuple[np.ndarray, float]:
    """Return (weights, bias) of the log odds that a voice claims the floor."""
    return fitted([row.features for row in rows], [row.kind is Kind.CLAIMING for row in rows], ridge=RIDGE)


def fitted(
    rows: Sequence[np.ndarray], wanted: Sequence[bool], *, ridge: float, most_steps: int = 50
) -> tuple[np.ndarray, float]:
    """Return (weights, bias) of the log odds that a row is wanted; both kinds weigh the same.

    Logistic regression by Newton's method. The penalty is on weights of features of unit variance.

    Args:
        rows: float32, (features,), each.
        wanted: true for each row of the wanted kind.
        ridge: the penalty.
        most_steps: upper bound of the steps; it stops earlier when the result no longer changes.
    """
    features = np.stack(rows).astype(np.float64)
    hits = np.array(wanted, dtype=np.float64)
    mean, spread = features.mean(axis=0), features.std(axis=0) + 1e-3
    known = np.c_[(features - mean) / spread, np.ones(len(rows))]
    share = hits.mean()
    each = np.where(hits > 0, 0.5 / share, 0.5 / (1 - share))
    penalty = np.full(known.shape[1], ridge)
    penalty[-1] = 0.0
    line = np.zeros(known.shape[1])
    for _ in range(most_steps):
        odds = 1 / (1 + np.exp(-known @ line))
        curvature = (known * (each * odds * (1 - odds))[:, None]).T @ known + np.diag(penalty + 1e-9)
        step = np.linalg.solve(curvature, known.T @ (each * (odds - hits)) + penalty * line)
        line -= step
        if np.abs(step).max() < 1e-6:
            break
    weights = line[:-1] / spread
    return weights.astype(np.float32), float(line[-1] - mean @ weights)


def judged(rows: Sequence[Row]) -> dict[str, float | None]:
    """Return the area under the curve over a bot: with each caller of ``overlap_calls`` left out, and with
    all.
    """
    areas = {}
    for voice in (" ".join(caller) for caller in CALLERS):
        line = fit([row for row in rows if row.voice != voice])
        areas[f"without {voice}"] = _area(line, [r for r in rows if r.voice == voice and r.is_over_bot])
    areas["all, fitted on themselves"] = _area(fit(rows), [row for row in rows if row.is_over_bot])
    return areas


def _area(line: tuple[np.ndarray, float], rows: Sequence[Row]) -> float | None:
    odds = [float(row.features @ line[0] + line[1]) for row in rows]
    return area(odds, [row.kind is Kind.CLAIMING for row in rows])


def area(odds: Sequence[float], wanted: Sequence[bool]) -> float | None:
    """Return the share of pairs in which the wanted row has the higher odds; None without pairs."""
    hits, others = np.array(odds)[np.array(wanted, bool)], np.array(odds)[~np.array(wanted, bool)]
    if not len(hits) or not len(others):
        return None
    above = (hits[:, None] > others[None]).mean() + 0.5 * (hits[:, None] == others[None]).mean()
    return round(float(above), 4)


if __name__ == "__main__":
    sys.exit(main())
