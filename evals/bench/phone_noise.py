"""``python -m evals.bench phone_noise``: effect of noise suppression on the recogniser of telephone calls.

The sentences of ``evals.harness.questions`` in flite's voices follow each other with pauses, in noise. The
noise is a street (it falls with its frequency, and cars pass) or other voices that talk at once. The sum goes
through mu-law at 8 kHz, is raised to 16 kHz as in a call, passes the suppressor as one stream, and
PocketSphinx recognises each sentence. Output: word errors, and the suppressor's share of a processor.
Suppressors: none, WebRTC's (as in echo control), and RNNoise where ``pyrnnoise`` is installed. A simulator
result.
"""

import argparse
import importlib
import importlib.util
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import jiwer
import numpy as np

from parley.audio import g711
from parley.audio.resample import Resampler
from parley.core.media import float_to_pcm16, pcm16_to_float
from parley.evals.harness.command import exit_code, machine, positive
from parley.evals.harness.progress import say
from parley.evals.harness.questions import WHOLE
from parley.evals.turns.audio import Speakers
from parley.language.words import plain
from parley.models.echo.webrtc import WebRtcEcho, WebRtcEchoSettings
from parley.models.stt.pocketsphinx import PocketsphinxSettings, PocketsphinxStt

RATE_HZ, LINE_HZ, RNNOISE_HZ = 16_000, 8_000, 48_000
VOICES = (("flite", "rms"), ("flite", "awb"), ("flite", "slt"))
TALKERS = (("flite", "kal16"), ("flite", "slt"), ("flite", "awb"), ("flite", "rms"))
LEAD_MS, GAP_MS, MARGIN_MS = 2_000, 800, 250
NOISES = ("clean", "street", "babble")
SNRS_DB = (10, 20)
Suppress = Callable[[np.ndarray], np.ndarray]


def line(samples: np.ndarray) -> np.ndarray:
    """Pass audio through a telephone line: float32 at 16 kHz, through mu-law at 8 kHz."""
    low = np.frombuffer(float_to_pcm16(Resampler(RATE_HZ, LINE_HZ).feed(samples)), "<i2").astype(np.int16)
    back = g711.decode(g711.encode(low, g711.Law.MU), g711.Law.MU).astype("<i2").tobytes()
    return Resampler(LINE_HZ, RATE_HZ).feed(pcm16_to_float(back))


def street(samples: int, seed: int) -> np.ndarray:
    """Return noise that falls by 3 dB an octave, with a car every 4 s."""
    rng = np.random.default_rng(seed)
    spectrum = np.fft.rfft(rng.standard_normal(samples))
    spectrum /= np.sqrt(np.maximum(50.0, np.fft.rfftfreq(samples, 1 / RATE_HZ)))
    seconds = np.arange(samples) / RATE_HZ
    return np.fft.irfft(spectrum, samples) * (1 + 2 * np.sin(np.pi * seconds / 4) ** 8)


def babble(samples: int, seed: int, speakers: Speakers) -> np.ndarray:
    """Return eight voices, each at its own place in the sentences."""
    rng = np.random.default_rng(seed)
    total = np.zeros(samples)
    for talker in range(8):
        kind, voice = TALKERS[talker % len(TALKERS)]
        texts = [str(text) for text in rng.permutation(WHOLE)]
        said = np.concatenate([speakers.speak(kind, voice, text)[0] for text in texts[:8]])
        total += np.roll(np.resize(said, samples), int(rng.integers(samples)))
    return total


def off(samples: np.ndarray) -> np.ndarray:
    """Return the samples unchanged."""
    return samples


def webrtc(samples: np.ndarray) -> np.ndarray:
    """Apply WebRTC's suppressor and high pass, as in echo control."""
    engine = WebRtcEcho(WebRtcEchoSettings(echo_cancellation=False))
    stream, size = engine.open_stream(), engine.frame_samples
    far = np.zeros(size, np.float32)
    frames = [stream.process(samples[at : at + size], far) for at in range(0, len(samples) - size + 1, size)]
    stream.close()
    return np.concatenate(frames)


def rnnoise(samples: np.ndarray) -> np.ndarray:
    """Apply RNNoise, at the 48 kHz that it requires."""
    library = importlib.import_module("pyrnnoise.rnnoise")
    state = library.create()
    up = np.frombuffer(float_to_pcm16(Resampler(RATE_HZ, RNNOISE_HZ).feed(samples)), "<i2").astype(np.int16)
    size = library.FRAME_SIZE
    frames = [
        library.process_mono_frame(state, up[at : at + size])[0] for at in range(0, len(up) - size + 1, size)
    ]
    library.destroy(state)
    pcm = np.concatenate(frames).astype("<i2").tobytes()
    return Resampler(RNNOISE_HZ, RATE_HZ).feed(pcm16_to_float(pcm))


def suppressors() -> dict[str, Suppress]:
    """Return the installed suppressors by name."""
    known: dict[str, Suppress] = {"off": off, "webrtc": webrtc}
    if importlib.util.find_spec("pyrnnoise"):
        known["rnnoise"] = rnnoise
        known["webrtc, rnnoise"] = lambda samples: rnnoise(webrtc(samples))
    return known


def spoken(
    speakers: Speakers, voice: tuple[str, str], count: int
) -> tuple[np.ndarray, list[tuple[int, int]]]:
    """Return sentences at -20 dBFS, one after the other: float32 at 16 kHz, and the place of each, in
    samples.
    """
    pieces, places = [np.zeros(RATE_HZ * LEAD_MS // 1000)], []
    at = len(pieces[0])
    for text in WHOLE[:count]:
        samples = speakers.speak(*voice, text)[0].astype(np.float64)
        samples *= 0.1 / np.sqrt(np.mean(samples[np.abs(samples) > 0.01] ** 2))
        places.append((at, at + len(samples)))
        pieces += [samples, np.zeros(RATE_HZ * GAP_MS // 1000)]
        at += len(samples) + len(pieces[-1])
    return np.concatenate(pieces), places


def word_errors(
    stt: PocketsphinxStt, sound: np.ndarray, places: Sequence[tuple[int, int]], delay: int
) -> tuple[int, int]:
    """Return the errors and words of one stream."""
    stream, margin = stt.open_stream(), RATE_HZ * MARGIN_MS // 1000
    errors = words = 0
    for text, (start, end) in zip(WHOLE, places, strict=False):
        pcm = float_to_pcm16(sound[start + delay - margin : end + delay + margin].astype(np.float32))
        stream.start()
        for at in range(0, len(pcm), 640):
            stream.feed(pcm[at : at + 640])
        said = plain(text)
        counted = jiwer.process_words(" ".join(said), " ".join(plain(stream.finish().text)))
        errors += counted.substitutions + counted.deletions + counted.insertions
        words += len(said)
    stream.close()
    return errors, words


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return 0, or 2 after printing one line to standard error."""
    root = argparse.ArgumentParser(prog="python -m evals.bench phone_noise")
    root.add_argument("--sentences", type=positive, default=len(WHOLE), help="sentences per voice")
    root.add_argument("--seed", type=int, default=1)
    root.add_argument("--noises", default=",".join(NOISES), help="noises, separated by commas")
    root.add_argument(
        "--snrs-db",
        default=",".join(map(str, SNRS_DB)),
        help="signal-to-noise ratios in dB, separated by commas",
    )
    given = root.parse_args(argv)
    return exit_code(lambda: _run(given))


def _run(given: argparse.Namespace) -> int:
    """Measure, and print one line of JSON for each condition."""
    speakers = Speakers()
    stt = PocketsphinxStt(PocketsphinxSettings(documents=Path("knowledge")))
    print(json.dumps({"kind": "simulator", "seed": given.seed, "machine": machine()}), flush=True)
    known = suppressors()
    for noise in given.noises.split(","):
        for snr_db in map(int, given.snrs_db.split(",")) if noise != "clean" else (0,):
            totals = {name: [0, 0, 0.0, 0.0] for name in known}
            for number, voice in enumerate(VOICES):
                say(f"{noise}, {snr_db} dB, voice {number + 1} of {len(VOICES)}")
                speech, places = spoken(speakers, voice, given.sentences)
                seed = given.seed + number
                added = np.zeros(len(speech))
                if noise != "clean":
                    made = (
                        street(len(speech), seed)
                        if noise == "street"
                        else babble(len(speech), seed, speakers)
                    )
                    added = made * 0.1 * 10 ** (-snr_db / 20) / np.sqrt(np.mean(made**2))
                heard = line((speech + added).astype(np.float32))
                for name, suppress in known.items():
                    began_s = time.process_time()
                    cleaned = suppress(heard)
                    total = totals[name]
                    total[2] += time.process_time() - began_s
                    total[3] += len(heard) / RATE_HZ
                    errors, words = word_errors(stt, cleaned, places, 0)
                    total[0] += errors
                    total[1] += words
            rows = {
                name: {
                    "word_errors": round(errors / words, 3),
                    "words": words,
                    "cpu_percent": round(100 * cpu_s / audio_s, 2),
                }
                for name, (errors, words, cpu_s, audio_s) in totals.items()
            }
            print(json.dumps({"noise": noise, "snr_db": snr_db, **rows}), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
