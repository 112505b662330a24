"""Settings of the engines that a deployment names, with their defaults, for users who look them up."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, cast

from pydantic import BaseModel

from parley.configs.deployment import Choice, Deployment
from parley.configs.engines import settings_model
from parley.configs.load import parse_settings
from parley.core.errors import ConfigError
from parley.core.registry import Registry
from parley.models.echo import ECHO
from parley.models.keyword_spotting import COMMANDS
from parley.models.llm import LLM
from parley.models.omni import OMNI
from parley.models.retrieval.nearest import VECTOR_SEARCH
from parley.models.specialists import SPECIALISTS
from parley.models.stt import STT
from parley.models.tools import TOOLS
from parley.models.tts import TTS
from parley.models.turn import TURN
from parley.models.vad import VAD
from parley.pipelines.engines.tool_plan import tool_defaults, tool_settings_model
from parley.processors.dialogue.services import LLM_SERVICES
from parley.processors.duplex.services import REALTIME_SERVICES
from parley.processors.perception.services import STT_SERVICES
from parley.processors.service_rows import ServiceRow
from parley.processors.speech.services import TTS_SERVICES
from parley.runtime.observers import OBSERVERS

# Place in a deployment to the registries in which its names are looked up, embedded engines first.
REGISTRIES: Mapping[str, tuple[Registry[Any], ...]] = MappingProxyType(
    {
        "hearing.echo": (ECHO,),
        "hearing.vad": (VAD,),
        "hearing.turn": (TURN,),
        "hearing.stop_words": (COMMANDS,),
        "hearing.stt": (STT, STT_SERVICES),
        "hearing.specialists": (SPECIALISTS,),
        "hearing.fallback": (STT,),
        "hearing.second_opinion": (STT,),
        "thinking.llm": (LLM, LLM_SERVICES),
        "thinking.fallback": (LLM,),
        "thinking.tools": (TOOLS,),
        "thinking.vector_search": (VECTOR_SEARCH,),
        "speaking.tts": (TTS, TTS_SERVICES),
        "speaking.fallback": (TTS, TTS_SERVICES),
        "duplex.engine": (OMNI, REALTIME_SERVICES),
        "duplex.fallback": (OMNI,),
        "observers": (OBSERVERS,),
    }
)


def effective_settings(deployment: Deployment, place: str, choice: Choice) -> BaseModel | str:
    """Return the settings of a named engine with their defaults, or the reason for which they are unknown.

    Args:
        deployment: deployment that names the engine.
        place: path of the choice; that of a list item includes its number.
        choice: name and settings.
    """
    try:
        model = _model(REGISTRIES[place.rstrip(".0123456789")], choice.name)
        if model is None:
            return f"{choice.name}: its settings are checked at the start"
        known = {
            "models_dir": deployment.models_dir,
            "folder": deployment.bot.knowledge,
            "name": deployment.bot.name,
        }
        if place.startswith("thinking.tools"):
            known = tool_defaults(choice.name, TOOLS.factory(choice.name))
        given = {name: value for name, value in known.items() if name in model.model_fields}
        return parse_settings(model, {**given, **choice.settings}, where=f"{place} ({choice.name})")
    except ConfigError as error:
        return str(error)


def _model(registries: tuple[Registry[Any], ...], name: str) -> type[BaseModel] | None:
    for registry in registries:
        if name in registry:
            factory = registry.factory(name)
            if isinstance(factory, type) and issubclass(factory, ServiceRow):
                return cast(type[BaseModel], factory.settings_type)
            if registry is TOOLS:
                return tool_settings_model(factory)
            return settings_model(factory)
    return None
