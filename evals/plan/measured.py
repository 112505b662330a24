"""Costs of frames, measured on a small random model, and a load of calls that checks a plan.

Times are those of the processor, so that other programs on the machine do not count. Every call has its own
cache, and its frames come in the order in which a server would get them. A cache that is full drops its end:
the cost of a frame depends on its length, so measurement and load keep it in the same range.
"""

import random
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, DynamicCache

from parley.evals.harness.progress import Progress
from parley.evals.plan.costs import Costs, Figure
from parley.evals.plan.fleet import DESIGNS, Load
from parley.evals.tiny_qwen3 import install_tiny_qwen3
from parley.models.llm.kv.growable_cache import growing

# Frames of 80 ms are those of Moshi; one token is read or generated for each.
FRAME_MS = 80
SIZES: Mapping[str, Mapping[str, Any]] = {
    "large": {"layers": 4, "width": 256, "heads": 8},
    "controller": {"layers": 1, "width": 64, "heads": 4},
}
LEAST_TOKENS, MOST_TOKENS = 128, 512
# Frames that the large model reads at once when it is woken.
READ_FRAMES = 12
TURN_S = 3.0
SOURCE = "python -m evals.plan measure"
GATEWAY = Figure(
    value=0.14, unit="cores", source="docs/reference/measurements.md, Simultaneous calls (3 and 4 calls)"
)


class FrameModel:
    """Model that reads frames of many calls.

    Args:
        size: of ``SIZES``.
    """

    def __init__(self, size: str) -> None:
        with tempfile.TemporaryDirectory() as folder:
            made = install_tiny_qwen3(Path(folder) / size, **SIZES[size])
            self._model: Any = AutoModelForCausalLM.from_pretrained(made, dtype=torch.float32).eval()

    def open(self) -> DynamicCache:
        """Return the cache of a new call."""
        cache = growing(DynamicCache(config=self._model.config))
        self.read(cache, LEAST_TOKENS)
        return cache

    def read(self, cache: DynamicCache, frames: int) -> None:
        """Run the model for some frames at once."""
        if cache.get_seq_length() + frames > MOST_TOKENS:
            cache.crop(LEAST_TOKENS - cache.get_seq_length())
        with torch.inference_mode():
            ids = torch.full((1, frames), 7)
            self._model(input_ids=ids, past_key_values=cache, use_cache=True, logits_to_keep=1)


def measure(seconds: float) -> Costs:
    """Measure the cost of each kind of frame, for some seconds of the processor each."""
    torch.set_num_threads(1)
    large, controller = FrameModel("large"), FrameModel("controller")
    taken = {
        "generate_frame_ms": _frame_ms(large, 1, seconds),
        "read_frame_ms": _frame_ms(large, READ_FRAMES, seconds),
        "controller_frame_ms": _frame_ms(controller, 1, seconds),
    }
    figures = {name: Figure(value=round(value, 4), unit="ms", source=SOURCE) for name, value in taken.items()}
    return Costs(
        device="a processor core, with random models (4 layers of 256; controller: 1 layer of 64)",
        frame_ms=Figure(value=FRAME_MS, unit="ms", source="the frame rate of Moshi, 12.5 Hz"),
        gateway_cores=GATEWAY,
        **figures,
    )


def _frame_ms(model: FrameModel, frames: int, seconds: float) -> float:
    cache, count = model.open(), 0
    model.read(cache, frames)
    began_s = time.process_time()
    while (taken_s := time.process_time() - began_s) < seconds:
        model.read(cache, frames)
        count += frames
    return 1_000 * taken_s / count


class _Call:
    """Call in which caller and bot speak in turns, with pauses."""

    def __init__(self, load: Load, seed: int) -> None:
        self._draw = random.Random(seed)
        silence = max(0.0, 1 - load.talk_ratio - load.caller_ratio)
        self._mean_s = {
            "caller": TURN_S,
            "bot": TURN_S * load.talk_ratio / load.caller_ratio,
            "silence": TURN_S * silence / load.caller_ratio,
        }
        self._phases = ("caller", "bot", "silence")
        self._at = self._draw.randrange(3)
        self._left_frames = 0
        self.heard_frames = 0

    def frame(self) -> str:
        """Return which side has the next frame."""
        while self._left_frames <= 0:
            self._at = (self._at + 1) % 3
            mean_s = self._mean_s[self._phases[self._at]]
            self._left_frames = round(self._draw.uniform(0.5, 1.5) * mean_s * 1_000 / FRAME_MS)
        self._left_frames -= 1
        return self._phases[self._at]


def run_load(load: Load, *, seconds: float, seed: int) -> dict[str, dict[str, float]]:
    """Serve calls by each design; return the processor's share of a call, and the shares of speech.

    Args:
        load: the calls.
        seconds: length of the calls.
        seed: of their turns.
    """
    torch.set_num_threads(1)
    large, controller = FrameModel("large"), FrameModel("controller")
    served: dict[str, dict[str, float]] = {}
    progress = Progress("designs", len(DESIGNS))
    for design in DESIGNS:
        served[design] = _served(design, large, controller, load, seconds, seed)
        progress.step(design)
    return served


def _served(
    design: str, large: FrameModel, controller: FrameModel, load: Load, seconds: float, seed: int
) -> dict[str, float]:
    calls = [_Call(load, seed + number) for number in range(load.calls)]
    caches = [(large.open(), controller.open()) for _ in calls]
    frames = round(seconds * 1_000 / FRAME_MS)
    spoken = {"caller": 0, "bot": 0, "silence": 0}
    began_s = time.process_time()
    for _ in range(frames):
        for call, (mind, reflex) in zip(calls, caches, strict=True):
            side = call.frame()
            spoken[side] += 1
            if design != "half duplex" and design != "full duplex":
                controller.read(reflex, 1)
            if design == "full duplex":
                large.read(mind, 1)
                continue
            # The caller's frames are read when there are enough, and before the bot speaks.
            call.heard_frames += side == "caller"
            if call.heard_frames and (side == "bot" or call.heard_frames == READ_FRAMES):
                large.read(mind, call.heard_frames)
                call.heard_frames = 0
            if side == "bot":
                large.read(mind, 1)
    taken_s = time.process_time() - began_s
    whole = frames * load.calls
    return {
        "device_share": taken_s / (whole * FRAME_MS / 1_000),
        "talk_ratio": spoken["bot"] / whole,
        "caller_ratio": spoken["caller"] / whole,
    }
