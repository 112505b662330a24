"""Host and engine of PersonaPlex: Moshi's, with a prompt before each conversation.

A conversation that is renewed because its context is full begins with the same prompt, so that the bot keeps
its role and its voice. The history is left out, as in Moshi.
"""

from collections.abc import Sequence

from loguru import logger

from parley.core.call_choices import CLONING
from parley.models.omni import Preparation
from parley.models.omni.moshi.engine import MoshiEngine
from parley.models.omni.moshi.host import MoshiHost, Weights
from parley.models.omni.moshi.steps import PromptFrame
from parley.models.omni.personaplex.prompt import PromptMaker
from parley.models.omni.personaplex.settings import PersonaPlexSettings


class PersonaPlexHost(MoshiHost):
    """Host with shared weights; implements ``OmniHost``.

    Args:
        settings: model, device, bounds and prompt.

    Raises:
        ConfigError: see ``Weights`` and ``PromptMaker``.
        EngineError: see ``Weights``.
    """

    choices = CLONING

    def __init__(self, settings: PersonaPlexSettings) -> None:
        super().__init__(settings)
        self._prompt_settings = settings
        # Codes that do not fit the model are found before the first call.
        self.open_engine().cleanup()

    def _engine_of(self, weights: Weights) -> "PersonaPlexEngine":
        return PersonaPlexEngine(self, weights, self._prompt_settings)


class PersonaPlexEngine(MoshiEngine):
    """Engine of one conversation with PersonaPlex; implements ``OmniEngine``.

    Args:
        host: notified when a conversation begins and ends.
        weights: shared.
        settings: prompt, and settings that a preparation does not set.

    Raises:
        ConfigError: see ``PromptMaker``.
    """

    def __init__(self, host: PersonaPlexHost, weights: Weights, settings: PersonaPlexSettings) -> None:
        super().__init__(host, weights, settings.talk)
        self._maker = PromptMaker(weights, settings)
        # The engine forgets its oldest units, which are the prompt: it is renewed before.
        self.context_units = weights.window - settings.max_prompt_units

    def _prompt_of(self, preparation: Preparation) -> Sequence[PromptFrame]:
        if preparation.history:
            logger.info(f"{self.name} takes no history: it is left out")
        voice = preparation.llm_ref_audio
        if voice is None:
            voice = preparation.tts_ref_audio
        with self._computing("the prompt"):
            return self._maker.frames(preparation.system_prompt, voice)
