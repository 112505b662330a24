"""Session data of an interrupted reply.

Decides whether the timeline and the view of the model agree with the ``heard`` message to the client. They
must have the same words, the same mark of a cut, and the rest as not heard. The correctness of the message is
judged by the caller's recording and counted separately, in words. The timeline only grows, so it is read
once, at the end of a call. The view changes with every turn (older ones are summarised) and is read after
each interruption.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

# Fields of a record that are both in the message to the client and in the timeline.
STATED = ("text", "unheard", "truncated", "audio_ms", "last_word")
INTERRUPTED = re.compile(r'\[interrupted by the person here, who did not hear: "(.*)"\]')
# The model had written no more when it was cut off.
CUT_OFF = re.compile(r"\[cut off here; [^\]]*\]")
# Replies at the moment of reading: the interrupted one, and the one that has begun since.
NEWEST = 2


def is_committed(events: Sequence[Mapping[str, Any]], heard: Mapping[str, Any]) -> bool:
    """Return whether the timeline holds the reply once, and in agreement with the message of the record."""
    replies = [
        event["payload"]
        for event in events
        if event["kind"] == "bot_turn" and event["payload"].get("reply_id") == heard["reply_id"]
    ]
    return len(replies) == 1 and all(replies[0][name] == heard[name] for name in STATED)


def is_shown(messages: Sequence[Mapping[str, Any]], heard: Mapping[str, Any]) -> bool:
    """Return whether the model is shown the words heard and, of a cut reply, the rest as not heard."""
    replies = [str(message["content"]) for message in messages if message["role"] == "assistant"]
    blocks = [block for reply in replies[-NEWEST:] for block in reply.split("\n\n")]
    if not heard["text"] and not heard["unheard"]:
        # No words were heard, and none that could have been are known.
        return True
    if not heard["truncated"]:
        return heard["text"] in blocks
    return any(_is_the_reply(block, heard["text"], heard["unheard"]) for block in blocks)


def _is_the_reply(block: str, text: str, unheard: str) -> bool:
    if not block.startswith(text):
        return False
    remark = block[len(text) :].strip()
    if not unheard:
        return CUT_OFF.fullmatch(remark) is not None
    quoted = INTERRUPTED.fullmatch(remark)
    if quoted is None:
        return False
    # A remark contains no brackets and no quotes; a long rest is cut and marked as such.
    rest = unheard.replace("[", "(").replace("]", ")").replace('"', "'").split()
    words = quoted[1].split()
    if words and words[-1] == "..." and len(words) <= len(rest):
        return 1 < len(words) and words[:-1] == rest[: len(words) - 1]
    return words == rest
