"""Phrases that every call begins with, and the moment at which the caller has heard one to its end.

A caller who has heard a phrase over a connection of the call that was lost does not hear it again. One who
has not hears it again as a whole.
"""

from collections.abc import Callable

from parley.configs.deployment import Bot
from parley.core.call_events import ReplyFinished
from parley.pipelines.call import Call
from parley.runtime.event_stream import CallEvents


def disclosure_of(call: Call, bot: Bot) -> str:
    """Return the disclosure that is still to be spoken in a call; empty for none."""
    return "" if bot.disclosure in call.resumption.earlier.announced else bot.disclosure


def when_heard(events: CallEvents, phrase: str, on_heard: Callable[[], None]) -> None:
    """Call a function once, when the caller has heard a phrase to its end."""
    _Phrase(events, phrase, on_heard)


class _Phrase:
    def __init__(self, events: CallEvents, phrase: str, on_heard: Callable[[], None]) -> None:
        self._phrase, self._on_heard, self._is_heard = phrase, on_heard, False
        events.subscribe(ReplyFinished, self._on_reply_finished)

    def _on_reply_finished(self, event: ReplyFinished) -> None:
        heard = event.heard
        if self._is_heard or heard.truncated or heard.text.split() != self._phrase.split():
            return
        self._is_heard = True
        self._on_heard()
