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
    reader = _CaptionReader()
    for event in events:
        if isinstance(event.get("at_ms"), int):
            reader.take(event, int(event["at_ms"]), str(event.get("text") or ""))
    return sorted(reader.captions, key=lambda each: each.start_ms)


class _CaptionReader:
    """Collects captions from events in their order."""

    def __init__(self) -> None:
        self.captions: list[Caption] = []
        self._begun_ms: dict[str, int] = {}
        # Of the caller's turn: first and last sound; and the same of one whose words come later.
        self._first_ms: int | None = None
        self._last_ms: int | None = None
        self._untold: tuple[int, int] | None = None

    def take(self, event: Mapping[str, Any], at_ms: int, text: str) -> None:
        match event.get("event"):
            case "VoiceStarted" if self._first_ms is None:
                self._first_ms = at_ms - _ms(event, "voiced_ms")
            case "VoiceEnded":
                self._last_ms = at_ms - _ms(event, "silence_ms")
            case "TurnEnded":
                self._on_turn_ended(at_ms, text)
            case "TurnTranscribed" if text:
                # A realtime service ends the turn first and brings its words later.
                start_ms, end_ms = self._untold or (at_ms - SHOWN_MS, at_ms)
                self._untold = None
                self.captions.append(Caption(max(0, start_ms), end_ms, True, text))
            case "TextTyped" if text:
                self.captions.append(Caption(at_ms, at_ms + SHOWN_MS, True, text))
            case "ReplyStarted":
                self._begun_ms[str(event.get("reply_id"))] = at_ms
            case "ReplyFinished" if text:
                start = self._begun_ms.pop(str(event.get("reply_id")), None)
                if start is not None:
                    self.captions.append(Caption(start, max(at_ms, start + 1), False, text))

    def _on_turn_ended(self, at_ms: int, text: str) -> None:
        first_ms = at_ms if self._first_ms is None else self._first_ms
        span = first_ms, max(self._last_ms or 0, first_ms + 1)
        self._first_ms = self._last_ms = None
        if text:
            self.captions.append(Caption(*span, True, text))
        else:
            self._untold = span


def _ms(event: Mapping[str, Any], name: str) -> int:
    value = event.get(name)
    return value if isinstance(value, int) else 0
