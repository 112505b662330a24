"""Listeners to voices over the bot, except the recogniser."""

import asyncio
from dataclasses import dataclass
from functools import partial

from parley.core.call_events import SpeechReported, VoiceEnded, VoiceStarted
from parley.core.speech_reports import OwnVoice, Spotted, Spotting
from parley.models.stt import Transcript
from parley.pipelines.builder import Background
from parley.pipelines.stages.omni import OmniStages, close_at_end
from parley.pipelines.stages.shared import Listener, fan_out
from parley.processors.turns.looks import VoiceLooks
from parley.processors.turns.stop_words import StopWords
from parley.runtime.event_stream import CallEvents
from parley.turn_taking.barge_in.self_voice import SelfVoice

# A command that is spotted this long after the end of its voice has no effect any more.
COMMAND_LATE_S = 1.5
# Interval of the check for the bot's own voice, which looks back as far (``SelfVoiceSettings.look_ms``).
OWN_VOICE_S = 0.32


@dataclass(frozen=True)
class OverBot:
    """Listeners of one call; each is None where the deployment has none.

    Attributes:
        stop_words: spots words that stop the bot.
        looks: classifies the sound of the beginning of a voice.
    """

    stop_words: StopWords | None = None
    looks: VoiceLooks | None = None

    @property
    def listeners(self) -> list[Listener]:
        """Receivers of the caller's audio."""
        return [each.hear for each in (self.stop_words, self.looks) if each is not None]

    @property
    def hear(self) -> Listener | None:
        """Receiver that passes audio to all of them; None where there are none."""
        listeners = self.listeners
        return fan_out(listeners) if listeners else None


def spotting(events: CallEvents, over_bot: OverBot, engine: OmniStages) -> Background:
    """Return the task that spots commands for a full-duplex engine; none without stop words."""
    return [] if over_bot.stop_words is None else [_Spotter(events, over_bot.stop_words, engine).run]


def own_voice(events: CallEvents, self_voice: SelfVoice | None, engine: OmniStages) -> Background:
    """Return the task that reports if an engine picks up its own voice; none without echo control."""
    return [] if self_voice is None else [partial(_look_for_own_voice, events, self_voice, engine)]


class _Spotter:
    """Spotter of commands in short voices over the bot, once each has ended. ``run`` is its caller's task."""

    def __init__(self, events: CallEvents, stop_words: StopWords, engine: OmniStages) -> None:
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


async def _look_for_own_voice(events: CallEvents, self_voice: SelfVoice, engine: OmniStages) -> None:
    """While the bot speaks, report whether the voice received is its own, by the levels."""
    while True:
        await asyncio.sleep(OWN_VOICE_S)
        own = self_voice.is_own() if engine.is_over_bot() else None
        if own is not None:
            events.publish(SpeechReported(events.now_ms(), OwnVoice(own)))
