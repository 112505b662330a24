"""Recognition with lost packets, by the method that fills the holes.

Every question in every caller's voice, as packets of a line, some of them lost, passes ``CallerLine`` and
PocketSphinx at 16 kHz. There is no network, no pipeline and no bot, so that many draws of the loss take
minutes. A turn is recognised as in ``bad_line``. Parley's method is compared with silence, and with the last
piece repeated, softer each time. A recogniser adapts to its input, so all methods have the same draws in the
same order.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np

from parley.audio.resample import Resampler
from parley.core.media import float_to_pcm16, pcm16_to_float
from parley.evals.harness.phone_speech import PACKET, VOICES, said
from parley.evals.harness.progress import Progress
from parley.evals.harness.questions import WHOLE
from parley.evals.harness.report import percent
from parley.evals.phone.bad_line import Turn, typed
from parley.models.llm import Message
from parley.models.llm.documents import DocumentLlm
from parley.models.stt.pocketsphinx import PocketsphinxStt
from parley.protocols.twilio_media import PACKET_MS, RATE_HZ
from parley.transports.twilio.caller import SAMPLES_PER_MS, CallerLine

TARGET = "Parley's loses fewer of the clean line's turns than silence and than the last piece again"
STT_RATE_HZ = 16_000
QUIET = 15
WORKERS = 2


class _Silence(CallerLine):
    def _filler(self, long_ms: int, behind: np.ndarray) -> np.ndarray:
        return np.zeros(long_ms * SAMPLES_PER_MS, np.int16)


class _LastPiece(CallerLine):
    def _filler(self, long_ms: int, behind: np.ndarray) -> np.ndarray:
        last = self._before()[-PACKET_MS * SAMPLES_PER_MS :].astype(np.float32)
        pieces = [
            last * np.linspace(0.5**number, 0.5 ** (number + 1), len(last))
            for number in range(long_ms // PACKET_MS)
        ]
        return np.concatenate(pieces).astype(np.int16)


METHODS: Mapping[str, Callable[[], CallerLine]] = {
    "parley": CallerLine,
    "last_piece": _LastPiece,
    "silence": _Silence,
}


# Recognised words by question and voice.
Heard = dict[tuple[str, str], str]


@dataclass(frozen=True, slots=True)
class _Line:
    """Task of a process: all questions once, on a line that loses this share of packets."""

    method: str
    loss: float
    seed: int
    questions: tuple[str, ...]


def _heard(line: _Line) -> Heard:
    """Return the recognised words of each question in each voice."""
    engine, dice = PocketsphinxStt(), Random(line.seed)
    found: Heard = {}
    for voice in VOICES:
        for question in line.questions:
            caller, raised = METHODS[line.method](), Resampler(RATE_HZ, STT_RATE_HZ)
            stream = engine.open_stream()
            stream.start()
            packets = [*[PACKET] * QUIET, *said(question, voice), *[PACKET] * QUIET]
            for number, packet in enumerate(packets):
                if number and dice.random() < line.loss:
                    continue
                pcm = caller.hear(packet, number * PACKET_MS)
                stream.feed(float_to_pcm16(raised.feed(pcm16_to_float(pcm))))
            found[question, voice] = stream.finish().text
            stream.close()
    return found


async def measure(
    draws: int, loss: float, methods: Sequence[str] = tuple(METHODS), *, questions: Sequence[str] = WHOLE
) -> dict[str, Any]:
    """Ask each question in each voice, ``draws`` times by each method.

    Args:
        draws: of the loss.
        loss: share of packets that are lost.
        methods: of ``METHODS``.
        questions: texts of the callers.
    """
    asked = tuple(questions)
    lines = [
        _Line("parley", 0.0, 0, asked),
        *(_Line(each, loss, seed, asked) for each in methods for seed in range(draws)),
    ]
    with ProcessPoolExecutor(WORKERS) as pool:
        clean, *bad = await asyncio.to_thread(lambda: list(_reported(pool.map(_heard, lines), len(lines))))
    expected = await typed(questions)
    answers = await _answered({text for each in (clean, *bad) for text in each.values()})

    def turn(words: Mapping[tuple[str, str], str], question: str, voice: str) -> Turn:
        text = words[question, voice]
        return Turn(question, text, answers[text], expected[question])

    known = [key for key in clean if turn(clean, *key).is_heard]
    figures: dict[str, Any] = {}
    for method in methods:
        heard = lost = words = 0
        for line, found in zip(lines[1:], bad, strict=True):
            if line.method != method:
                continue
            heard += sum(turn(found, *key).is_as_good_as(turn(clean, *key)) for key in known)
            for key, text in clean.items():
                of_clean = Counter(text.split())
                lost += sum((of_clean - Counter(found[key].split())).values())
                words += sum(of_clean.values())
        figures[method] = {
            "heard_percent": percent(heard, draws * len(known)),
            "words_lost_percent": percent(lost, words),
        }
    others = [figures[method]["heard_percent"] for method in methods if method != "parley"]
    return {
        "target": TARGET,
        "reached": all(figures["parley"]["heard_percent"] > other for other in others),
        "loss": loss,
        "draws": draws,
        "turns": {"asked": len(clean), "heard_on_the_clean_line": len(known)},
        "methods": figures,
    }


def _reported(results: Iterator[Heard], total: int) -> Iterator[Heard]:
    """Pass results on, and report each."""
    progress = Progress("lines", total)
    for result in results:
        progress.step()
        yield result


async def _answered(texts: set[str]) -> dict[str, str]:
    model = await asyncio.to_thread(DocumentLlm)
    found = {"": ""}
    for text in texts - {""}:
        found[text] = "".join([piece async for piece in model.reply([Message("user", text)])])
    return found
