"""Notes in a model's input, which no person said: a summary of earlier turns, and known facts.

Decides their form, so that the code that writes them (``session_store.prompt``) and an engine that parses
them (``models.llm.dialogue_history``) agree. Notes are a paragraph before the words of a message, between two
lines in brackets. A model without any knowledge of the format can read them too. Pure.

The first message has the notes on everything before it. A later one has those on what was learned with it, so
that text that a model has read before stays where it is (docs/adr/0017). Of two notes the later one counts.

    [Notes for the assistant; the person did not say this]
    Earlier in this conversation:
    - The person asked when branches open; the assistant answered.
    Reason for the conversation: a lost card
    Known about the person:
    - name: Ada
    [End of notes]
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

_FIRST = "[Notes for the assistant; the person did not say this]"
_LAST = "[End of notes]"
_EARLIER = "Earlier in this conversation:"
_SPEAKER = "Speaking: "
_INTENT = "Reason for the conversation: "
_FACTS = "Known about the person:"
_HANDED_BACK = "Note of the colleague who spoke with the person: "
_WHISPER = "Instruction of a colleague for the next answer, which the person must not hear of: "
_REMARKS = (
    "Remarks in square brackets are not spoken. They tell where the person stopped hearing a reply, or what "
    "was perceived. Do not write such remarks."
)
_OPENED = "The assistant spoke first."
# Notes begin a paragraph, because a message may hold several turns, each with its notes.
_BLOCK = re.compile(
    rf"(?:\A\s*|(?<=\n\n)){re.escape(_FIRST)}\n(?P<body>.*?)^{re.escape(_LAST)}\s*", re.S | re.M
)


@dataclass(frozen=True, slots=True)
class PromptNotes:
    """Notes of one message.

    Attributes:
        summary: of the turns before the first message; empty when there are none.
        facts: name -> value, the oldest first.
        intent: purpose of the caller.
        speaker: identity of the speaker, where it is known other than by a name among the facts.
        remarks: true when messages hold remarks in brackets; the notes then explain them.
        opened: true when a message of the assistant comes first.
        handed_back: note of a human who had the session before the assistant.
        whisper: instruction of a human for the next answer.
    """

    summary: str = ""
    facts: Mapping[str, str] = field(default_factory=dict)
    intent: str | None = None
    speaker: str | None = None
    remarks: bool = False
    opened: bool = False
    handed_back: str = ""
    whisper: str = ""

    def __bool__(self) -> bool:
        """Return whether there is anything to note."""
        return any(
            (
                *(self.summary, self.facts, self.intent, self.speaker, self.remarks, self.opened),
                *(self.handed_back, self.whisper),
            )
        )


def write_notes(notes: PromptNotes) -> str:
    """Return the notes as text; empty when there are none."""
    if not notes:
        return ""
    lines = [_FIRST]
    if notes.summary:
        lines += [_EARLIER, *(f"- {_line(line)}" for line in notes.summary.splitlines() if line.strip())]
    if notes.speaker:
        lines.append(f"{_SPEAKER}{_line(notes.speaker)}")
    if notes.intent:
        lines.append(f"{_INTENT}{_line(notes.intent)}")
    if notes.facts:
        lines += [
            _FACTS,
            *(f"- {_line(name.replace(':', ' '))}: {_line(value)}" for name, value in notes.facts.items()),
        ]
    if notes.handed_back:
        lines.append(f"{_HANDED_BACK}{_line(notes.handed_back)}")
    if notes.whisper:
        lines.append(f"{_WHISPER}{_line(notes.whisper)}")
    if notes.opened:
        lines.append(_OPENED)
    if notes.remarks:
        lines.append(_REMARKS)
    return "\n".join([*lines, _LAST])


def merge_notes(earlier: PromptNotes, later: PromptNotes) -> PromptNotes:
    """Return both as one: what the later ones state replaces what the earlier ones state of the same."""
    facts = {name: value for name, value in earlier.facts.items() if name not in later.facts}
    return PromptNotes(
        summary="\n".join(part for part in (earlier.summary, later.summary) if part),
        facts={**facts, **later.facts},
        intent=later.intent or earlier.intent,
        speaker=later.speaker or earlier.speaker,
        remarks=earlier.remarks or later.remarks,
        opened=earlier.opened or later.opened,
        handed_back=later.handed_back or earlier.handed_back,
        whisper=later.whisper or earlier.whisper,
    )


def parse_notes(text: str) -> tuple[PromptNotes, str]:
    """Return all notes in a message, empty when there are none, and the text without them."""
    if _FIRST not in text:
        return PromptNotes(), text
    found = PromptNotes()
    for match in _BLOCK.finditer(text):
        found = merge_notes(found, _parse_body(match["body"]))
    return found, _BLOCK.sub("", text)


def without_note_marks(words: str) -> str:
    """Return words of a person that cannot be taken for notes."""
    return words.replace(_FIRST, _FIRST.replace("[", "(").replace("]", ")"))


def _parse_body(body: str) -> PromptNotes:
    summary: list[str] = []
    facts: dict[str, str] = {}
    intent = speaker = None
    part = ""
    handed_back = whisper = ""
    opened = remarks = False
    for line in body.splitlines():
        if line in (_EARLIER, _FACTS):
            part = line
        elif line.startswith(_SPEAKER):
            speaker, part = line.removeprefix(_SPEAKER), ""
        elif line.startswith(_INTENT):
            intent, part = line.removeprefix(_INTENT), ""
        elif line.startswith(_HANDED_BACK):
            handed_back, part = line.removeprefix(_HANDED_BACK), ""
        elif line.startswith(_WHISPER):
            whisper, part = line.removeprefix(_WHISPER), ""
        elif line == _OPENED:
            opened, part = True, ""
        elif line == _REMARKS:
            remarks, part = True, ""
        elif part == _FACTS and line.startswith("- ") and ": " in line:
            name, _, value = line[2:].partition(": ")
            facts[name] = value
        elif part == _EARLIER:
            summary.append(line.removeprefix("- "))
    return PromptNotes("\n".join(summary), facts, intent, speaker, remarks, opened, handed_back, whisper)


def _line(text: str) -> str:
    return " ".join(text.split())
