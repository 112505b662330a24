"""Spans of a turn: the client's two edges and the server's marks on one wall clock.

The edges come from the microphone's slots and the arrival of frames, not from the recording, and the marks
from the server. The equality of their sum and the recorded voice-to-voice is therefore a finding and not an
identity. A span is named by the mark it ends at. Work done before its turn in the order (a model that began
before the endpoint) costs nothing and has a span of 0. Time that no mark accounts for, in either direction,
is ``unexplained``.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from parley.audio.audible import first_audible, last_audible
from parley.evals.harness.playout import place
from parley.evals.harness.speech import RATE_HZ
from parley.evals.harness.webrtc_caller import Line, Sent

SPANS = (
    "network_in",
    "endpoint_wait",
    "stt_final",
    "llm_first_token",
    "first_clause",
    "tts_first_audio",
    "playout_queue",
    "network_out",
)
UNEXPLAINED = "unexplained"
MARK_SLACK_US = 200_000
PACKET_US = 20_000
# Longer than a frame: the content of the last one belongs to the time line.
TAIL_US = 200_000
# The span that ends at each mark of the server, between its first and its last.
_ENDS = {
    "endpoint": "endpoint_wait",
    "transcript": "stt_final",
    "llm_first_token": "llm_first_token",
    "first_clause": "first_clause",
    "tts_first_audio": "tts_first_audio",
}


def turn_spans(user_end_us: int, bot_first_us: int, marks_us: Mapping[str, int]) -> dict[str, int]:
    """Return microseconds per span; a missing mark leaves its span out and adds its time to the next one.

    Args:
        user_end_us: wall-clock time of the caller's last audible sample.
        bot_first_us: wall-clock time of the bot's first audible sample.
        marks_us: wall-clock marks of the server. Without ``speech_end`` or ``playout`` there is no network
            span on that side, and its time stays unexplained.
    """
    spans: dict[str, int] = {}
    reached_us = user_end_us
    if "speech_end" in marks_us:
        spans["network_in"] = max(0, marks_us["speech_end"] - user_end_us)
        # The server judges whole packets: the last one, whose beginning is audible, may be too soft for it.
        is_packet_before = 0 < user_end_us - marks_us["speech_end"] <= PACKET_US
        reached_us = user_end_us if is_packet_before else marks_us["speech_end"]
    limit_us = marks_us.get("playout", bot_first_us)
    # Streaming recognition ends before the endpoint, segmented recognition after it: the clock decides.
    decided = sorted({"endpoint", "transcript"} & marks_us.keys(), key=lambda mark: marks_us[mark])
    later = [mark for mark in list(_ENDS)[2:] if mark in marks_us]
    for position, mark in enumerate(decided + later):
        at_us = min(max(marks_us[mark], reached_us), max(limit_us, reached_us))
        if position or "speech_end" in marks_us:
            spans[_ENDS[mark]] = at_us - reached_us
        reached_us = at_us
    if "playout" in marks_us:
        spans["playout_queue"] = max(0, marks_us["playout"] - reached_us)
        spans["network_out"] = max(0, bot_first_us - marks_us["playout"])
    return spans


def user_end_us(line: Line, sent: Sent) -> int:
    """Return the wall-clock time of the caller's last audible sample, from the microphone's clock."""
    last = last_audible(sent.spoken.pcm.astype(np.float32) / 32768, RATE_HZ)
    assert last is not None
    return line.microphone.at_us(sent.slot) + last * 1_000_000 // RATE_HZ + line.wall_offset_us


def bot_first_us(line: Line, after_wall_us: int) -> int | None:
    """Return the wall-clock time of the bot's first audible sample after a moment, as its frames were
    released.
    """
    after_us = after_wall_us - line.wall_offset_us
    frames = [frame for frame in line.ears.frames if frame.release_us >= after_us]
    if not frames:
        return None
    # Gaps of late packets are included: a first sound that breaks off is not yet the answer.
    heard = place(frames, RATE_HZ, after_us, frames[-1].release_us + TAIL_US).pcm
    first = first_audible(heard.astype(np.float32) / 32768, RATE_HZ)
    return None if first is None else after_us + first * 1_000_000 // RATE_HZ + line.wall_offset_us


def match_marks(
    turns: Sequence[Mapping[str, Any]], user_end_wall_us: int, bot_first_wall_us: int
) -> Mapping[str, Any] | None:
    """Return the server's turn that produced this answer; None without one.

    ``turns`` are the server's ``turn`` messages of the call. The turn is the one whose playout lies closest
    to the first audible sample. A mark that lies somewhat after it is still taken, so that wrong marks of a
    server show up as time unexplained.
    """
    best: Mapping[str, Any] | None = None
    best_distance_us = MARK_SLACK_US + bot_first_wall_us - user_end_wall_us
    for turn in turns:
        marks = turn.get("marks_us")
        if not isinstance(marks, Mapping):
            continue
        at_us = marks.get("playout", marks.get("tts_first_audio"))
        if at_us is None or not user_end_wall_us <= at_us <= bot_first_wall_us + MARK_SLACK_US:
            continue
        if abs(bot_first_wall_us - at_us) < best_distance_us:
            best, best_distance_us = turn, abs(bot_first_wall_us - at_us)
    return best
