"""A voice that does not load or fails has another one behind it, when the deployment says so."""

import asyncio

import pytest

from configs.deployment import Bot, Deployment, Speaking
from core.errors import ConfigError
from models.tts.fallback import FallbackTts
from models.tts.flite import FliteTts
from models.tts.phrase_cache import PhraseCache
from pipelines.engines import Engines, plan
from processors.speech.engine_tts import EngineTtsService


def speaking(**values: object) -> Deployment:
    return Deployment(speaking=Speaking.model_validate(values))


async def test_flite_has_espeak_behind_it():
    async with await Engines.load(speaking(tts={"name": "flite"}, fallback={"name": "espeak"})) as loaded:
        voice = await loaded.build_tts()
        assert isinstance(voice, EngineTtsService)
        assert isinstance(voice._engine, FallbackTts)
        assert loaded.output_rate_hz == 16_000


async def test_a_voice_that_does_not_load_leaves_the_other_one():
    # espeak-ng finds out that it has no such voice when it is loaded.
    broken = {"name": "espeak", "settings": {"voice": "martian"}}
    async with await Engines.load(speaking(tts=broken, fallback={"name": "flite"})) as loaded:
        voice = await loaded.build_tts()
        assert isinstance(voice, EngineTtsService)
        assert isinstance(voice._engine, PhraseCache)
        assert isinstance(voice._engine._engine, FliteTts)


async def test_what_the_bot_says_of_itself_and_what_the_deployment_names_is_spoken_once_per_process():
    bot = Bot(greeting="Hello there.", reprompt="")
    deployment = Deployment(
        bot=bot, speaking=Speaking.model_validate({"tts": {"name": "flite"}, "phrases": ["Let me see."]})
    )
    async with await Engines.load(deployment) as loaded:
        voice = await loaded.build_tts()
        assert isinstance(voice, EngineTtsService)
        cache = voice._engine
        assert isinstance(cache, PhraseCache)
        await asyncio.to_thread(cache.warm)
        before = cache.kept_bytes
        for phrase in ("Hello there.", "Let me see.", deployment.thinking.guard.waiting.filler):
            assert await asyncio.to_thread(cache.synthesize, phrase, lambda _piece: True)
        assert cache.kept_bytes == before > 3 * 16_000


async def test_a_service_has_no_embedded_voice_behind_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CARTESIA_API_KEY", "key")
    cartesia = {"name": "cartesia", "settings": {"voice": "x"}}
    with pytest.raises(ConfigError, match="speaking.fallback"):
        plan(speaking(tts=cartesia, fallback={"name": "espeak"}))


async def test_an_unknown_second_voice_is_refused():
    with pytest.raises(ConfigError, match="espeak"):
        plan(speaking(tts={"name": "flite"}, fallback={"name": "nobody"}))
