"""Pipecat's Moonshine service on files that are already there.

Pipecat's own loader asks Moonshine for the model by name, which fetches what is missing. This one opens a
folder and never uses the network. Everything else is Pipecat's.
"""

from pathlib import Path

from moonshine_voice import Transcriber, string_to_model_arch
from pipecat.services.moonshine.stt import MoonshineSTTService
from pipecat.transcriptions.language import Language


class LocalMoonshineService(MoonshineSTTService):
    """Args: folder: the model's files; model: its architecture; language: ISO 639-1."""

    def __init__(self, *, folder: Path, model: str, language: str) -> None:
        self._folder = folder
        self._architecture = string_to_model_arch(model)
        super().__init__(settings=self.Settings(model=model, language=Language(language)))

    def _load(self) -> Transcriber:
        return Transcriber(str(self._folder), self._architecture)
