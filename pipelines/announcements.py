"""Phrases that every call begins with, and the moment at which the caller has heard one to its end.

A caller who has heard a phrase over a connection of the call that was lost does not hear it again. One who
has not hears it again as a whole.

A client that receives a speech model's units gets the audio of a phrase with the results of its chunks. So
the phrase begins when an engine takes units, and counts as heard when the engine has taken ``SENT_MS`` more
of the caller's audio after it: the results of that audio have brought the end of the phrase, and the time to
play it. Units that begin anew meanwhile (another engine, the end of a pause) may have lost a part of it: it
does not count as heard then.
"""

import asyncio
from collections.abc import Callable, Sequence

from pipecat.frames.frames import TTSSpeakFrame

from parley.configs.deployment import Bot
from parley.core.call_events import EngineFailed, PhraseChosen, ReplyFinished, UnitTaken
from parley.core.usage import Stage
from parley.pipelines.call import Call
from parley.processors.speech.phrases import protected_phrase
from parley.runtime.event_stream import CallEvents

# Audio in which two chunks of a second end, which is how long those are that these clients send.
SENT_MS = 2_000
# Longest wait for phrases that are being said. A voice that fails is noticed by its error.
SAID_S = 60.0


def disclosure_of(call: Call, bot: Bot) -> str:
    """Return the disclosure that is still to be spoken in a call; empty for none."""
    return "" if bot.disclosure in call.resumption.earlier.announced else bot.disclosure


def when_heard(
    events: CallEvents, phrase: str, on_heard: Callable[[], None], *, in_units: bool = False
) -> None:
    """Call a function once, when the caller has heard a phrase to its end.

    Args:
        events: events of the call.
        phrase: the phrase.
        on_heard: the function.
        in_units: the client receives a speech model's units.
    """
    (_PhraseInUnits if in_units else _Phrase)(events, phrase, on_heard)


class Saying:
    """Progress of the phrases that a call begins with: a model has to be silent until they have been said.

    They count as said also where the voice fails, or ``SAID_S`` after they were begun: the model begins then,
    and the caller has not heard them.

    Args:
        events: events of the call.
        phrases: the phrases.
    """

    def __init__(self, events: CallEvents, phrases: Sequence[str]) -> None:
        self._left = len(phrases)
        self._events, self._began_ms = events, events.now_ms()
        self.over = asyncio.Event()
        if phrases:
            events.subscribe(PhraseChosen, self._on_chosen)
            events.subscribe(ReplyFinished, lambda _event: self._on_finished())
            events.subscribe(EngineFailed, self._on_engine_failed)
        else:
            self.over.set()

    @property
    def is_on(self) -> bool:
        """True until they have been said, or cannot be."""
        return not self.over.is_set() and self._events.now_ms() - self._began_ms < SAID_S * 1_000

    def _on_chosen(self, event: PhraseChosen) -> None:
        self._began_ms = event.at_ms

    def _on_finished(self) -> None:
        self._left -= 1
        if self._left <= 0:
            self.over.set()

    def _on_engine_failed(self, event: EngineFailed) -> None:
        if event.stage is Stage.TTS:
            self.over.set()


def say_with_units(call: Call, phrases: Sequence[str], rest: str = "") -> None:
    """Have words said once an engine takes units: the audio of before has no way to the client.

    Args:
        call: the call.
        phrases: announcements.
        rest: of the reply that was being said when the connection of the call was lost, after them.
    """
    if phrases or rest:
        _FirstUnit(call, phrases, rest)


class _FirstUnit:
    def __init__(self, call: Call, phrases: Sequence[str], rest: str) -> None:
        self._call, self._phrases, self._rest = call, phrases, rest
        call.events.subscribe(UnitTaken, self._on_unit_taken)

    def _on_unit_taken(self, event: UnitTaken) -> None:
        phrases, self._phrases = self._phrases, ()
        for phrase in phrases:
            self._call.events.publish(PhraseChosen(event.at_ms, phrase))
            self._call.live.input.put(protected_phrase(phrase))
        rest, self._rest = self._rest, ""
        if rest:
            self._call.live.input.put(TTSSpeakFrame(rest, append_to_context=True))


class _Phrase:
    def __init__(self, events: CallEvents, phrase: str, on_heard: Callable[[], None]) -> None:
        self._phrase, self._on_heard, self._is_played = phrase, on_heard, False
        events.subscribe(ReplyFinished, self._on_reply_finished)

    def _on_reply_finished(self, event: ReplyFinished) -> None:
        heard = event.heard
        if self._is_played or heard.truncated or heard.text.split() != self._phrase.split():
            return
        self._is_played = True
        self._played()

    def _played(self) -> None:
        self._on_heard()


class _PhraseInUnits(_Phrase):
    def __init__(self, events: CallEvents, phrase: str, on_heard: Callable[[], None]) -> None:
        super().__init__(events, phrase, on_heard)
        self._is_whole, self._slot, self._left_ms = True, -1, 0
        events.subscribe(UnitTaken, self._on_unit_taken)

    def _played(self) -> None:
        self._left_ms = SENT_MS if self._is_whole else 0

    def _on_unit_taken(self, event: UnitTaken) -> None:
        tick = event.tick
        if tick.slot < self._slot or tick.slot == self._slot == 0:
            self._is_whole, self._left_ms = False, 0
        self._slot = tick.slot
        if not self._left_ms:
            return
        self._left_ms = max(0, self._left_ms - tick.heard_ms)
        if not self._left_ms:
            self._on_heard()
