"""Reports of the specialists of speech, for the tier of a full-duplex engine that decides about turns."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TranscriptWords:
    """Transcript of a recogniser.

    Attributes:
        text: the words, of the present voice so far or of the one that ended last.
        is_final: no later transcript of that voice comes.
        confidences: confidences of the words, as in ``Utterance``.
    """

    text: str
    is_final: bool
    confidences: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Spotting:
    """Notice that a voice over the bot, which just ended, is checked for commands; ``Spotted`` follows.

    Attributes:
        number: shared with the ``Spotted`` that follows.
    """

    number: int


@dataclass(frozen=True, slots=True)
class Spotted:
    """Result of a check for commands.

    Attributes:
        number: number of the ``Spotting`` before.
        text: the command; empty when it was none.
        floor_log_odds: log odds that the voice claims the floor, by its sound; None when unknown.
    """

    number: int
    text: str
    floor_log_odds: float | None = None


@dataclass(frozen=True, slots=True)
class OwnVoice:
    """Notice that the present voice, by its level, is the bot's own, or certainly is not."""

    is_own: bool


SpeechReport = TranscriptWords | Spotting | Spotted | OwnVoice
