"""Listeners to voices over the bot, except the recogniser."""

import asyncio
from dataclasses import dataclass
from functools import partial

from parley.core.call_events import SpeechReported, VoiceEnded, VoiceStarted
from parley.core.speech_reports import OwnVoice, Spotted, Spotting
from parley.models.stt import Transcript
from parley.pipelines.builder import Background
from parley.pipelines.listeners import Listener
from parley.pipelines.stages.omni import OmniStages, close_at_end
from parley.pipelines.voice.echo import CallFrontEnd, OwnVoiceTest
from parley.processors.turns.looks import EarlyLooks, NoLooks
from parley.processors.turns.stop_words import NoStopWords, StopWordSpotter
from parley.runtime.event_stream import CallEvents

# A command that is spotted this long after the end of its voice has no effect any more.
COMMAND_LATE_S = 1.5
# Interval of the check for the bot's own voice, which looks back as far (``SelfVoiceSettings.look_ms``).
OWN_VOICE_S = 0.32


@dataclass(frozen=True)
class OverBot:
    """Listeners of one call.

    Attributes:
        stop_words: spots words that stop the bot.
        looks: classifies the sound of the beginning of a voice.
    """

    stop_words: StopWordSpotter = NoStopWords()
    looks: EarlyLooks = NoLooks()

    @property
    def listeners(self) -> list[Listener]:
        """Receivers of the caller's audio."""
        return [*self.stop_words.listeners, *self.looks.listeners]


def spotting(events: CallEvents, over_bot: OverBot, engine: OmniStages) -> Background:
    """Return the task that spots commands for a full-duplex engine."""
    return [_Spotter(events, over_bot.stop_words, engine).run]


def own_voice(events: CallEvents, front: CallFrontEnd, engine: OmniStages) -> Background:
    """Return the task that reports if an engine picks up its own voice; none without echo control."""
    return [partial(_look_for_own_voice, events, front.self_voice, engine)] if front.echo else []


class _Spotter:
    """Spotter of commands in short voices over the bot, once each has ended. ``run`` is its caller's task."""

    def __init__(self, events: CallEvents, stop_words: StopWordSpotter, engine: OmniStages) -> None:
        self._events, self._stop_words, self._engine = events, stop_words, engine
        self._number = 0
        events.subscribe(VoiceStarted, self._on_voice_started)
        events.subscribe(VoiceEnded, self._on_voice_ended)

    async def run(self) -> None:
        """Close the stop words with the call."""
        await close_at_end(self._stop_words)

    def _on_voice_started(self, event: VoiceStarted) -> None:
        if self._engine.is_over_bot():
            self._stop_words.on_voice_started(event.voiced_ms)

    def _on_voice_ended(self, _event: VoiceEnded) -> None:
        self._number += 1
        spotted = partial(self._on_spotted, self._number, asyncio.get_running_loop().time())
        if self._stop_words.on_voice_stopped(spotted):
            self._report(Spotting(self._number))

    def _on_spotted(self, number: int, stopped_s: float, heard: Transcript) -> None:
        if asyncio.get_running_loop().time() - stopped_s <= COMMAND_LATE_S:
            self._report(Spotted(number, heard.text, heard.floor_log_odds))

    def _report(self, report: Spotting | Spotted) -> None:
        self._events.publish(SpeechReported(self._events.now_ms(), report))


async def _look_for_own_voice(events: CallEvents, self_voice: OwnVoiceTest, engine: OmniStages) -> None:
    """While the bot speaks, report whether the voice received is its own, by the levels."""
    while True:
        await asyncio.sleep(OWN_VOICE_S)
        own = self_voice.is_own() if engine.is_over_bot() else None
        if own is not None:
            events.publish(SpeechReported(events.now_ms(), OwnVoice(own)))
