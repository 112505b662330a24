"""Read the captions of a recorded call from its events: who said what, from when to when. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# Without the end of a voice, as where a crash ended the call.
SHOWN_MS = 3_000


@dataclass(frozen=True, slots=True)
class Caption:
    """Words of one side.

    Attributes:
        start_ms: first sound, from the beginning of the recording.
        end_ms: last sound.
        is_caller: of the caller; otherwise of the bot.
        text: what was understood of the caller, or heard of the bot.
    """

    start_ms: int
    end_ms: int
    is_caller: bool
    text: str


def captions_of(events: Sequence[Mapping[str, Any]]) -> list[Caption]:
    """Return the captions of a timeline in the order of their beginnings; events without text have none."""
    captions: list[Caption] = []
    begun_ms: dict[str, int] = {}
    first_ms = last_ms = None
    for event in events:
        at_ms, text = event.get("at_ms"), str(event.get("text") or "")
        if not isinstance(at_ms, int):
            continue
        match event.get("event"):
            case "VoiceStarted" if first_ms is None:
                first_ms = at_ms - _ms(event, "voiced_ms")
            case "VoiceEnded":
                last_ms = at_ms - _ms(event, "silence_ms")
            case "TurnEnded":
                start_ms = at_ms if first_ms is None else first_ms
                if text:
                    captions.append(Caption(start_ms, max(last_ms or 0, start_ms + 1), True, text))
                first_ms = last_ms = None
            case "TextTyped" if text:
                captions.append(Caption(at_ms, at_ms + SHOWN_MS, True, text))
            case "ReplyStarted":
                begun_ms[str(event.get("reply_id"))] = at_ms
            case "ReplyFinished" if text:
                start = begun_ms.pop(str(event.get("reply_id")), None)
                if start is not None:
                    captions.append(Caption(start, max(at_ms, start + 1), False, text))
    return sorted(captions, key=lambda each: each.start_ms)


def _ms(event: Mapping[str, Any], name: str) -> int:
    value = event.get(name)
    return value if isinstance(value, int) else 0
