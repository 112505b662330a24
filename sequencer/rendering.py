"""Render tokens for a language model.

In ``this is fine [tense; pointing at the fee]`` the words are followed by the annotations in square brackets.
A bracket describes the words before it, back to the previous bracket. Only salient annotations are written: a
model that reads "calm, sure, looking ahead" after every sentence learns to skip the brackets. A mood whose
specialist is not sure of it is marked: ``[seems tense]``.

Only this module writes square brackets: those in the user's words, in what a camera read or in a name become
round ones. So a caller can type "[angry]" and the model sees "(angry)". Nothing else of the user's words is
changed.
"""

from collections.abc import Iterable, Sequence
from itertools import groupby

from pydantic import Field

from parley.core.strict_model import StrictModel
from parley.core.timeline import EnrichedToken, ProsodyPayload, VisionPayload

ANGRY, TENSE, HAPPY, UNSURE = "angry", "tense", "happy", "unsure"
# Before a mood whose specialist is not sure of it.
SEEMS = "seems "
# Moods that contradict words of consent, stated or supposed.
UNHAPPY = (ANGRY, TENSE, f"{SEEMS}{ANGRY}", f"{SEEMS}{TENSE}")
# Characters that a tokeniser or a reader may take for a square bracket: the ASCII one, its full-width and
# small forms and the lenticular, tortoise-shell, white and mathematical ones (Unicode, category Ps/Pe, names
# with BRACKET).
_OPENING = "[［﹝【〔〖〘〚❲⟦⦋⦍⦏⁅⎡⎢⎣"
_CLOSING = "]］﹞】〕〗〙〛❳⟧⦌⦎⦐⁆⎤⎥⎦"
_PLAIN = str.maketrans({**dict.fromkeys(_OPENING, "("), **dict.fromkeys(_CLOSING, ")")})


class RenderingSettings(StrictModel):
    """Thresholds from which an annotation is salient."""

    anger: float = Field(0.6, ge=0, le=1, description="score from which words are marked as angry")
    joy: float = Field(0.7, ge=0, le=1, description="score from which words are marked as happy")
    stress: float = Field(0.6, ge=0, le=1, description="score from which words are marked as tense")
    louder_db: float = Field(
        6.0, gt=0, le=60, description="loudness over the speaker's own from which words are marked as louder"
    )
    higher_semitones: float = Field(
        7.0, gt=0, le=48, description="pitch over the speaker's own from which words are marked as higher"
    )
    uncertain: float = Field(
        0.3, ge=0, le=1, description="confidence up to which a label is marked as unsure"
    )
    sure: float = Field(
        0.8,
        ge=0,
        le=1,
        description="confidence of a specialist of the voice below which its moods are marked with `seems`",
    )
    plain_affects: tuple[str, ...] = Field(
        ("neutral", "calm"),
        description="facial expressions that carry no information; compared in lower case",
    )
    faces: int = Field(2, ge=1, le=100, description="faces in the picture from which their number is shown")
    max_chars: int = Field(
        80, ge=8, le=1_000, description="longest description of one seen object, and longest name"
    )


def render(
    tokens: Iterable[EnrichedToken], settings: RenderingSettings | None = None, *, named: bool = False
) -> str:
    """Return the prompt view of some tokens, in their order.

    The text is one line. With more than one known speaker it has a line for each change of speaker, which
    begins with the name in brackets. Neighbours with the same annotations are written together.

    Args:
        tokens: of one turn.
        settings: None for the defaults.
        named: name a single speaker too, because the conversation has others.
    """
    chosen = settings or RenderingSettings()
    said = [token for token in tokens if token.text.strip()]
    if len({token.speaker_id for token in said} - {None}) < (1 if named else 2):
        return _line(said, chosen)
    return "\n".join(
        f"[{_name(speaker_id, chosen)}] {_line(list(turn), chosen)}"
        for speaker_id, turn in groupby(said, key=lambda token: token.speaker_id)
    )


def tags(token: EnrichedToken, settings: RenderingSettings | None = None) -> tuple[str, ...]:
    """Return the salient annotations of a token, the voice first."""
    chosen = settings or RenderingSettings()
    is_sure = token.mood_confidence is None or token.mood_confidence >= chosen.sure
    voice = () if token.prosody is None else _voice(token.prosody, chosen, is_sure=is_sure)
    sight = () if token.visual is None else _sight(token.visual, chosen)
    other = () if token.also is None else (f"{_own(token.also, chosen.max_chars)} speaks at the same time",)
    return (*voice, *other, *sight, *(("cut off",) if token.truncated else ()))


def _line(turn: Sequence[EnrichedToken], settings: RenderingSettings) -> str:
    parts: list[str] = []
    for labels, group in groupby(turn, key=lambda token: tags(token, settings)):
        parts.extend(_words(token.text) for token in group)
        if labels:
            parts.append(f"[{'; '.join(labels)}]")
    return " ".join(parts)


def _name(speaker_id: str | None, settings: RenderingSettings) -> str:
    return "unknown speaker" if speaker_id is None else _own(speaker_id, settings.max_chars)


def _voice(prosody: ProsodyPayload, settings: RenderingSettings, *, is_sure: bool) -> tuple[str, ...]:
    """Return the salient moods, the strongest first, then what was measured of the voice."""
    scores = (
        (ANGRY, prosody.anger, settings.anger),
        (TENSE, prosody.stress, settings.stress),
        (HAPPY, prosody.joy, settings.joy),
    )
    strong = [(score, name) for name, score, least in scores if score is not None and score >= least]
    if prosody.certainty is not None and prosody.certainty <= settings.uncertain:
        strong.append((1 - prosody.certainty, UNSURE))
    # Stable: of two that are equally strong the first of the list above comes first.
    hedge = "" if is_sure else SEEMS
    moods = (f"{hedge}{name}" for _, name in sorted(strong, key=lambda pair: -pair[0]))
    # Measured, and no judgement: stated also where no mood is certain.
    louder = (prosody.level_offset_db or 0.0) >= settings.louder_db
    higher = (prosody.pitch_offset_semitones or 0.0) >= settings.higher_semitones
    return (*moods, *(("louder than before",) if louder else ()), *(("in a higher voice",) if higher else ()))


def _sight(visual: VisionPayload, settings: RenderingSettings) -> tuple[str, ...]:
    gesture, ref, affect = (
        None if part is None else _own(part, settings.max_chars) or None
        for part in (visual.gesture, visual.ref, visual.facial_affect)
    )
    labels: list[str] = []
    if gesture and ref:
        # "holding the card", but "pointing at the fee".
        labels.append(f"{gesture} {AT.get(gesture.lower(), '')}{ref}")
    elif ref:
        labels.append(f"showing {ref}")
    elif gesture:
        labels.append(gesture)
    if affect and affect.lower() not in settings.plain_affects:
        # "Seems to be smiling", but "looks annoyed".
        labels.append(f"{'seems to be' if affect.endswith('ing') else 'looks'} {affect}")
    if visual.looking == "away":
        labels.append("looking away")
    if visual.faces is not None and visual.faces >= settings.faces:
        labels.append(f"{visual.faces} people in the picture")
    return tuple(labels)


# Gestures that need a word before what they refer to; all others take it directly ("holding the card").
AT = {"pointing": "at ", "point": "at ", "looking": "at ", "nodding": "at ", "waving": "at "}


def _words(text: str) -> str:
    """Return the user's own words; only characters that could pass for our brackets are changed."""
    return text.translate(_PLAIN)


def _own(text: str, max_chars: int) -> str:
    """Return foreign text for use inside our brackets: no brackets or separators, one bounded line."""
    plain = " ".join(text.translate(_PLAIN).replace(";", ",").split())
    return plain if len(plain) <= max_chars else plain[: max_chars - 1].rstrip() + "…"
