"""Figures of echo control: echo loss, the caller's voice in double talk, self-interruptions, processor time.

Voice activity detection is the product's: Silero, the counters of ``SharedVadAnalyzer`` with its default
times and levels, and after them ``turn_taking.barge_in.self_voice``.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from pipecat.audio.vad.vad_analyzer import VADState

from parley.evals.echo.calls import (
    PIECE_SAMPLES,
    ROWS,
    Controlled,
    Recorded,
    Scene,
    erle_db,
    first_sound,
    record,
    run,
    windows,
)
from parley.evals.echo.rooms import RATE_HZ, Speakerphone
from parley.evals.echo.speech import BOT, BOT_LINES, CALLER_LINES, CALLERS, Voices
from parley.models.vad.silero import SileroVad
from parley.processors.front_end.vad import SharedVadAnalyzer
from parley.turn_taking.barge_in.self_voice import SelfVoice

VOICE = 0.7
ALONE_S, TALK_S, AFTER_S = 8, 4, 2
STEADY_FROM_S = 4
START_S = 5
DELAYS_MS = (20.0, 80.0, 200.0, 400.0, 600.0)
DRIFTS_PPM = (0.0, 200.0)


class Ears:
    """Engines shared by all calls of a run."""

    def __init__(self) -> None:
        self.voices = Voices()
        self.detector = SileroVad()

    def probabilities(self, samples: np.ndarray) -> np.ndarray:
        """Return the probabilities of a voice: float, (windows,)."""
        stream = self.detector.open_stream()
        return np.array([stream.probability(one) for one in windows(samples, self.detector.window_samples)])


def scenes(seed: int, rooms: int) -> Iterable[Scene]:
    """Yield every delay with every drift in each room; levels, reverberation and distortion are drawn."""
    rng = np.random.default_rng([seed, 4])
    for room in range(rooms):
        for delay_ms in DELAYS_MS:
            for drift_ppm in DRIFTS_PPM:
                yield _scene(rng, int(1000 * seed + room), delay_ms, drift_ppm)


def _scene(rng: np.random.Generator, seed: int, delay_ms: float, drift_ppm: float) -> Scene:
    phone = Speakerphone(
        seed=int(rng.integers(1 << 30)) + seed,
        delay_ms=delay_ms + float(rng.uniform(0, 1)),
        drift_ppm=drift_ppm,
        reverb_ms=float(rng.uniform(150, 400)),
        direct_db=float(rng.uniform(0, 6)),
        distortion_db=float(rng.uniform(-40, -28)),
    )
    return Scene(phone, echo_dbfs=float(rng.uniform(-44, -30)))


def double_talk(scene: Scene, ears: Ears, rows: Iterable[str] = ROWS) -> list[dict[str, Any]]:
    """Simulate 8 s of the bot alone, 4 s of both, 2 s of the bot; return a result for each row."""
    total = RATE_HZ * (ALONE_S + TALK_S + AFTER_S)
    rng = np.random.default_rng([scene.phone.seed, 5])
    first = int(rng.integers(len(BOT_LINES)))
    lines = BOT_LINES[first:] + BOT_LINES[:first]
    played = 0.35 * ears.voices.talk(BOT, lines, samples=total, pause_ms=250)
    near = np.zeros(total, np.float32)
    begins, ends = RATE_HZ * ALONE_S, RATE_HZ * (ALONE_S + TALK_S)
    said = int(rng.integers(len(CALLER_LINES)))
    voice = CALLERS[int(rng.integers(len(CALLERS)))]
    texts = CALLER_LINES[said:] + CALLER_LINES[:said]
    near[begins:ends] = ears.voices.talk(voice, texts, samples=ends - begins, pause_ms=300)
    call = record(scene, played, near)
    return [_judge(row, call, scene, ears, voice) for row in rows]


def _judge(row: str, call: Recorded, scene: Scene, ears: Ears, voice: str) -> dict[str, Any]:
    made = run(row, call, seed=scene.phone.seed)
    begins = RATE_HZ * ALONE_S
    echo_at = first_sound(call.echo)
    alone = slice(RATE_HZ * STEADY_FROM_S, begins)
    after = slice(RATE_HZ * (ALONE_S + TALK_S) + RATE_HZ // 2, len(made.left))
    clean = ears.probabilities(call.near) > VOICE
    left = ears.probabilities(made.left) > VOICE
    size = ears.detector.window_samples
    talking = np.zeros(len(left), bool)
    talking[begins // size :] = clean[begins // size : len(left)]
    quiet = np.zeros(len(left), bool)
    quiet[: begins // size] = True
    return {
        "row": row,
        "scene": asdict(scene),
        "voice": voice,
        "erle_first_second_db": round(_span_erle(call, made, slice(echo_at, echo_at + RATE_HZ)), 1),
        "erle_steady_db": round(_span_erle(call, made, alone), 1),
        "erle_after_double_talk_db": round(_span_erle(call, made, after), 1),
        "vad_recall": round(float(np.mean(left[talking])), 3),
        "vad_on_echo": round(float(np.mean(left[quiet])), 3),
        "cpu_us_per_10_ms": round(made.cpu_us, 1),
        "pieces_ms_p99": round(float(np.percentile(made.pieces_ms, 99)), 3) if made.pieces_ms else 0.0,
    }


def _span_erle(call: Recorded, made: Controlled, span: slice) -> float:
    return erle_db(call.heard[span], made.left[span])


@dataclass(frozen=True, slots=True)
class Start:
    """A call start: a greeting on a speakerphone, optionally with a caller who talks into it.

    Attributes:
        scene: the devices.
        line: of the bot.
        near_at_ms: time at which the caller begins. None for a silent caller.
        voice: of the caller.
    """

    scene: Scene
    line: int
    near_at_ms: int | None
    voice: str


def starts(seed: int, count: int, *, with_caller: bool) -> Iterable[Start]:
    """Yield typical speakerphones: delays of 20 to 600 ms, echoes up to as loud as the bot itself."""
    rng = np.random.default_rng([seed, 6 + with_caller])
    for number in range(count):
        drift_ppm = float(rng.choice((0.0, 0.0, 50.0, -200.0, 200.0)))
        scene = _scene(rng, number, float(rng.uniform(20, 600)), drift_ppm)
        scene = replace(
            scene,
            echo_dbfs=float(rng.uniform(-46, -18)),
            noise_dbfs=float(rng.uniform(-70, -48)),
        )
        if with_caller:
            scene = replace(scene, echo_dbfs=min(scene.echo_dbfs, -26.0))
        near_at_ms = int(rng.integers(1_200, 3_500)) if with_caller else None
        voice = CALLERS[int(rng.integers(len(CALLERS)))]
        yield Start(scene, int(rng.integers(len(BOT_LINES))), near_at_ms, voice)


def begin(start: Start, ears: Ears, row: str) -> list[tuple[int, bool]]:
    """Return every beginning of speech that is reported: (time in ms, true for the bot's own voice)."""
    total = RATE_HZ * START_S
    lines = BOT_LINES[start.line :] + BOT_LINES[: start.line]
    played = 0.35 * ears.voices.talk(BOT, lines, samples=total, pause_ms=250)
    # The playout begins after the beginning of the call.
    lead = np.zeros(RATE_HZ // 5, np.float32)
    begun = np.concatenate((lead, played))[:total]
    near = np.zeros(total, np.float32)
    if start.near_at_ms is not None:
        at = RATE_HZ * start.near_at_ms // 1000
        text = CALLER_LINES[start.scene.phone.seed % len(CALLER_LINES)]
        spoken = ears.voices.say(start.voice, text)[: total - at]
        near[at : at + len(spoken)] = spoken
    return asyncio.run(_listen(row, record(start.scene, begun, near), start, ears))


async def _listen(row: str, call: Recorded, start: Start, ears: Ears) -> list[tuple[int, bool]]:
    vad = SharedVadAnalyzer(ears.detector, executor=None)
    vad.set_sample_rate(RATE_HZ)
    pieces: list[bytes] = []
    made = run(row, call, seed=start.scene.phone.seed, on_piece=pieces.append)
    own = SelfVoice()
    heard: list[tuple[int, bool]] = []
    speaking = counted = False
    frames = iter(made.frames)
    samples = 0
    for piece in pieces:
        samples += len(piece) // 2
        for _ in range(len(piece) // (PIECE_SAMPLES)):
            frame = next(frames, None)
            if frame is not None:
                own.on_frame(left_db=frame.left_db, far_db=frame.far_db)
        state = await vad.analyze_audio(piece)
        now = state in (VADState.SPEAKING, VADState.STOPPING)
        is_own = bool(made.frames) and own.is_own()
        if now and (not speaking or (not counted and not is_own)):
            heard.append((1000 * samples // RATE_HZ, is_own))
            counted = not is_own
        if not now:
            counted = False
        speaking = now
    return heard
