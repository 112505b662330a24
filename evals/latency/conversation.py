"""A caller's conversation: receive the greeting, ask, receive the answer to its end, wait, ask again.

Each call runs in the task that awaits ``converse``; it always hangs up. Every wait has a deadline: a silent
bot costs ``answer_ms`` per question and is recorded as unanswered.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from parley.evals.harness import recording
from parley.evals.harness.collector import uncollected
from parley.evals.harness.manners import Manners, ask, hear_greeting
from parley.evals.harness.recording import TurnEdges
from parley.evals.harness.speech import Spoken
from parley.evals.harness.webrtc_caller import SLOT_US, Line, Sent
from parley.evals.latency.figures import TurnFigures
from parley.evals.latency.spans import bot_first_us, match_marks, turn_spans, user_end_us


async def converse(
    url: str, questions: Sequence[Spoken], path: Path, manners: Manners, *, mode: str | None = None
) -> list[TurnFigures]:
    """Place one call, ask every question, record to ``path`` and measure the turns.

    With ``mode`` None the server chooses the mode.

    Raises:
        PeerError: the call did not connect or broke.
    """
    line = Line(url, mode=mode)
    try:
        with uncollected():
            await line.dial()
            await hear_greeting(line, manners)
            for question in questions:
                await ask(line, question, manners)
        recording.write(line, path)
    finally:
        await line.hang_up()
    samples_per_slot = SLOT_US * recording.WAV_RATE_HZ // 1_000_000
    edges = recording.measure(path, [sent.slot * samples_per_slot for sent in line.microphone.sent])
    turns = line.server_messages("turn")
    return [figures(line, sent, edge, turns) for sent, edge in zip(line.microphone.sent, edges, strict=True)]


def figures(line: Line, sent: Sent, edges: TurnEdges, turns: Sequence[Mapping[str, Any]]) -> TurnFigures:
    """Combine the recorded edges of a turn with the marks of the server."""
    spans: dict[str, int] = {}
    buffer_us = None
    heard_as = reply = ""
    masked = answered_ahead = False
    end_us = user_end_us(line, sent)
    first_us = bot_first_us(line, end_us)
    if edges.voice_to_voice_us is not None and first_us is not None:
        buffer_us = line.ears.buffered_us(first_us - line.wall_offset_us)
        turn = match_marks(turns, end_us, first_us)
        if turn is not None:
            spans = turn_spans(end_us, first_us, turn["marks_us"])
            heard_as, reply = str(turn.get("user_text", "")), str(turn.get("bot_text", ""))
            masked = bool(turn.get("masked", False))
            answered_ahead = bool(turn.get("answered_ahead", False))
    return TurnFigures(
        text=sent.spoken.text,
        pause_ms=sent.spoken.pause_ms,
        voice_to_voice_us=edges.voice_to_voice_us,
        cut_in=edges.cut_in is not None,
        cut_in_us=edges.cut_in_us,
        unanswered=edges.unanswered,
        spans_us=spans,
        client_buffer_us=buffer_us,
        send_late_us=max(line.microphone.send_late_us[sent.slot :][: len(sent.spoken.packets)], default=0),
        heard_as=heard_as,
        reply=reply,
        masked=masked,
        answered_ahead=answered_ahead,
        pauses_ms=sent.spoken.pauses_ms,
        speech=sent.spoken.speech,
    )
