"""The voice of one call: the choice with which it began, or the last one of its client since."""

from parley.core.call_events import VoiceChosen
from parley.pipelines.call import Call
from parley.pipelines.engines.engines import Engines


class CallVoice:
    """Voice that says the phrases of one call.

    Args:
        engines: engines of the process.
        call: the call.
    """

    def __init__(self, engines: Engines, call: Call) -> None:
        self._engines, self._name = engines, call.choices.voice
        call.events.subscribe(VoiceChosen, self._on_voice_chosen)

    def kept(self, phrase: str) -> bytes | None:
        """Return the audio of a phrase in this voice; None unless cached (``Engines.kept_speech``)."""
        return self._engines.kept_speech(phrase, voice=self._name)

    def _on_voice_chosen(self, event: VoiceChosen) -> None:
        self._name = event.voice
