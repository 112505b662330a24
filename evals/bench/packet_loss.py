"""``python -m evals.bench packet_loss``: effect of a browser's lost packets on recognition.

Recordings of the report side (``evals.human``, to be fetched before) are encoded by Opus as a browser does
it, lose packets by Gilbert's model, and go through the call's own receiver (``transports.webrtc
.caller_audio``) and the embedded recogniser. ``left out``: the receiver sees no gap, as when a lost packet is
not noticed. ``concealed``: the same packets, whose gaps it sees. ``copied``: each packet carries a copy of
the one before, as those of Chrome do, which takes some of its bits. Output: word errors. A simulator result:
libopus is in place of the browser, and nothing arrives late.
"""

import argparse
import asyncio
import random
from collections.abc import Sequence
from typing import Any

import av
import jiwer
import numpy as np
from aiortc import RTCRtpCodecParameters
from av.audio.codeccontext import AudioCodecContext

from parley.core.media import PCM_BYTES_PER_SAMPLE, float_to_pcm16
from parley.evals.harness.command import machine, positive
from parley.evals.harness.progress import say
from parley.evals.harness.report import add_outputs, markdown, run_command
from parley.evals.human.recordings import RecordedUtterance
from parley.evals.human.split import load_report
from parley.evals.stt.normalise import normalised
from parley.models.stt import STT, SpeechToText
from parley.transports.webrtc.caller_audio import CallerAudio
from parley.transports.webrtc.rtp import RtpAudio

RATE_HZ, BROWSER_HZ, PACKET_SAMPLES = 16_000, 48_000, 960
PAYLOAD_TYPE = 111
OPUS = RTCRtpCodecParameters("audio/opus", BROWSER_HZ, 2, PAYLOAD_TYPE)
# RFC 7587 gives 28 to 40 kbit/s for speech; browsers use 32.
BIT_RATE_BPS, EXPECTED_LOSS_PERCENT = 32_000, 10
# Share of the packets that are lost, and the mean length of a gap in packets.
LINES = ((0.0, 1.0), (0.05, 1.0), (0.1, 1.0), (0.1, 2.0), (0.2, 2.0))
HOW = ("left out", "concealed", "copied")
SHORTEST_S, LONGEST_S = 2.0, 9.0
LEAD_S, TAIL_S, PIECE_S = 0.3, 0.2, 0.2


def encoded(samples: np.ndarray, *, has_copies: bool) -> list[bytes]:
    """Encode float32 at ``BROWSER_HZ`` as packets of 20 ms."""
    codec = av.CodecContext.create("libopus", "w")
    assert isinstance(codec, AudioCodecContext)
    codec.bit_rate, codec.format, codec.layout, codec.sample_rate = BIT_RATE_BPS, "s16", "mono", BROWSER_HZ
    codec.options = {"application": "voip", "frame_duration": "20"}
    if has_copies:
        codec.options |= {"fec": "1", "packet_loss": str(EXPECTED_LOSS_PERCENT)}
    codec.open()
    pcm = np.frombuffer(float_to_pcm16(samples), "<i2")
    pcm = np.pad(pcm, (0, -len(pcm) % PACKET_SAMPLES))
    packets: list[bytes] = []
    for first in range(0, len(pcm), PACKET_SAMPLES):
        piece = np.ascontiguousarray(pcm[None, first : first + PACKET_SAMPLES])
        frame = av.AudioFrame.from_ndarray(piece, format="s16", layout="mono")
        frame.sample_rate = BROWSER_HZ
        packets += [bytes(packet) for packet in codec.encode(frame)]
    return packets


def losses(count: int, loss: float, burst: float, dice: random.Random) -> list[bool]:
    """Return which packets are lost, by Gilbert's model."""
    ends = 1 / burst
    begins = loss * ends / (1 - loss)
    found: list[bool] = []
    is_lost = False
    for _ in range(count):
        is_lost = dice.random() >= ends if is_lost else dice.random() < begins
        found.append(is_lost)
    return found


class PacketClock:
    """Clock of a line on which each packet comes when it would in a call."""

    def __init__(self) -> None:
        self.packets = 0

    def now_us(self) -> int:
        """Return the time of the present packet."""
        return self.packets * 20_000

    def now_ms(self) -> int:
        """Return the same in milliseconds."""
        return self.packets * 20

    async def sleep_until_ms(self, deadline_ms: int) -> None:
        """Move to a time."""
        self.packets = deadline_ms // 20


async def received(packets: Sequence[bytes], lost: Sequence[bool], *, sees_gaps: bool) -> bytes:
    """Return the sound of a call that receives these packets."""
    clock, heard = PacketClock(), bytearray()
    audio = CallerAudio(RATE_HZ, 1, clock=clock)

    async def read() -> None:
        while True:
            heard.extend(await audio.read())

    reading = asyncio.create_task(read(), name="packet_loss.read")
    came = [(number, data) for number, data in enumerate(packets) if not lost[number]]
    for place, (number, data) in enumerate(came):
        slot = number if sees_gaps else place
        clock.packets = number
        audio.take(RtpAudio(slot, slot * PACKET_SAMPLES, 1, PAYLOAD_TYPE, data), OPUS)
        # The reader takes all that is there.
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    reading.cancel()
    return bytes(heard)


def words_of(recogniser: SpeechToText, pcm: bytes) -> tuple[str, ...]:
    """Recognise 16-bit PCM with quiet around it."""
    stream = recogniser.open_stream()
    stream.start()
    second = RATE_HZ * PCM_BYTES_PER_SAMPLE
    sound = bytes(round(LEAD_S * RATE_HZ) * 2) + pcm + bytes(round(TAIL_S * RATE_HZ) * 2)
    piece = round(PIECE_S * second)
    for first in range(0, len(sound), piece):
        stream.feed(sound[first : first + piece])
    text = stream.finish().text
    stream.close()
    return normalised(text)


async def measure(count: int, seed: int) -> dict[str, Any]:
    """Measure ``count`` recordings on every line."""
    chosen = [
        each for each in load_report(["prompts-en"]) if each.text and SHORTEST_S < each.duration_s < LONGEST_S
    ][:count]
    recogniser = STT.create("moonshine_tiny")
    rows: list[dict[str, Any]] = []
    for loss, burst in LINES:
        for how in HOW if loss else HOW[1:]:
            errors, words = await _errors(recogniser, chosen, loss, burst, how, seed)
            percent = round(100 * errors / max(1, words), 1)
            rows.append({"loss": loss, "burst": burst, "how": how, "word_errors_percent": percent})
            say(f"{loss:.0%} lost, gaps of {burst:g}, {how}: {percent} % of {words} words")
    return {"recordings": len(chosen), "words": words, "seed": seed, "lines": rows, "machine": machine()}


async def _errors(
    recogniser: SpeechToText,
    chosen: Sequence[RecordedUtterance],
    loss: float,
    burst: float,
    how: str,
    seed: int,
) -> tuple[int, int]:
    errors = words = 0
    for number, utterance in enumerate(chosen):
        packets = encoded(utterance.at_rate(BROWSER_HZ), has_copies=how == "copied")
        lost = losses(len(packets), loss, burst, random.Random(f"{seed} {number}"))
        pcm = await received(packets, lost, sees_gaps=how != "left out")
        reference = normalised(utterance.text, utterance.language)
        heard = await asyncio.to_thread(words_of, recogniser, pcm)
        found = jiwer.process_words(" ".join(reference), " ".join(heard))
        errors += found.substitutions + found.deletions + found.insertions
        words += len(reference)
    return errors, words


def table(result: dict[str, Any]) -> str:
    """Return the Markdown table of a result."""
    rows = [
        (f"{row['loss']:.0%}", row["burst"], row["how"], row["word_errors_percent"])
        for row in result["lines"]
    ]
    return markdown(("lost", "packets in a gap", "lost packets are", "word errors %"), rows)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure; return 2 after one line on standard error when nothing could be measured."""
    parser = argparse.ArgumentParser(
        prog="python -m evals.bench packet_loss", description="Measure the effect of lost packets."
    )
    parser.add_argument("--recordings", type=positive, default=60)
    parser.add_argument("--seed", type=positive, default=1)
    add_outputs(parser)
    given = parser.parse_args(arguments)
    return run_command(given, lambda: asyncio.run(measure(given.recordings, given.seed)), table)
