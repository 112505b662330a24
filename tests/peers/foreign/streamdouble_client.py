"""A phone call by streamdouble: a question, and words over its answer.

``python -m tests.peers.foreign.streamdouble_client URL QUESTION STOP`` takes the server and two WAVs of 24
kHz. The caller waits for the greeting, asks QUESTION, and says STOP during the answer. The line has comfort
noise, so there is never nothing to play. streamdouble checks the messages that it receives. The program
prints what it has seen as one line of JSON.
"""

import asyncio
import json
import sys
from collections.abc import Generator
from typing import Any

from parley.evals.harness.phone_caller import Recording, call
from parley.evals.harness.phone_network import front_of
from parley.evals.harness.phone_server import turns
from parley.evals.harness.phone_speech import packets
from parley.evals.harness.sessions import newest
from tests.peers.foreign.player import RATE_HZ, LoopWatch, Player, keep_imports, pcm_of

LINE_HZ = 8_000
LONGEST_S, QUIET_S, CUT_AFTER_S = 45.0, 1.5, 1.5
# The server commits what was said at the end of a call a moment later.
SETTLE_S = 1.0


async def main(url: str, question: bytes, stop: bytes) -> dict[str, Any]:
    """Hold the call; return what was seen of it."""
    player, watch = Player(), LoopWatch()
    late: list[str] = []
    # Converted before the call: in it, the loop would stand still meanwhile.
    asked, interruption = packets(question, RATE_HZ), packets(stop, RATE_HZ)

    def script(recording: Recording) -> Generator[bytes, None, None]:
        asked_s = 0.0
        for name, words in (("greeting", []), ("question", asked)):
            if words:
                asked_s = (yield from recording.say(name, words)).last_s
            if not (yield from recording.until_heard(asked_s, LONGEST_S)):
                late.append(f"{name}: nothing was heard")
            if not words and not (yield from recording.until_quiet(QUIET_S, LONGEST_S)):
                late.append(f"{name}: no end")
        yield from recording.wait(CUT_AFTER_S)
        asked_s = (yield from recording.say("stop", interruption)).last_s
        if not (yield from recording.until_heard(asked_s + 0.5, LONGEST_S)):
            late.append("stop: nothing was heard")
        if not (yield from recording.until_quiet(QUIET_S, LONGEST_S)):
            late.append("stop: no end")

    async with front_of(url) as front:
        watch.begin()
        held = await call(front.url, script)
        await watch.end()
        await asyncio.sleep(SETTLE_S)
        timeline = await newest(url)
    clears = list(held.recording.clears)
    for piece in held.recording.heard:
        while clears and clears[0] <= piece.at_s:
            clears.pop(0)
            player.over()
        player.take("line", len(piece.mu_law) / LINE_HZ, piece.at_s)
    return {
        "late": late,
        "violations": [str(each) for each in (*held.result.violations, *front.violations)],
        "heard": [turn["text"] for turn in turns(timeline, "user_turn")],
        "said": [[turn["text"], bool(turn.get("truncated"))] for turn in turns(timeline, "bot_turn")],
        "clears": len(held.recording.clears),
        **player.report(watch),
    }


if __name__ == "__main__":
    address, *files = sys.argv[1:]
    keep_imports()
    print(json.dumps(asyncio.run(main(address, *(pcm_of(file) for file in files)))))
