"""Voice of a deployment, loaded once more to compare the heard audio with the spoken text."""

from parley.configs.deployment import Deployment
from parley.models.tts import TTS, TextToSpeech
from parley.pipelines.engines.choices import engine_settings


def deployed_voice(deployment: Deployment) -> TextToSpeech:
    """Load the first voice of a deployment, as its server does.

    Raises:
        AgentError: it is a service or a worker's, or does not load.
    """
    choice = deployment.speaking.tts
    given = {"models_dir": deployment.models_dir}
    return TTS.create(choice.name, engine_settings(TTS, choice, given, where="speaking.tts"))
