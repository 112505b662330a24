"""A voice that does not load or fails is replaced by another, when the deployment says so."""

import asyncio
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from parley.configs.deployment import Bot, Deployment, Speaking
from parley.core.errors import ConfigError
from parley.models.tts.espeak import EspeakTts
from parley.models.tts.fallback import FallbackTts, ResampledTts
from parley.models.tts.flite import FliteTts
from parley.models.tts.hibari import HibariTts
from parley.models.tts.phrase_cache import PhraseCache
from parley.pipelines.engines.engines import Engines
from parley.pipelines.engines.plan import plan
from parley.processors.speech.engine_tts import EngineTtsService
from parley.processors.speech.failover_tts import FailoverTtsService


def speaking(**values: object) -> Deployment:
    return Deployment(speaking=Speaking.model_validate(values))


# Starts the engines of a deployment that names no voice, and prints the voice that it has.
STARTED = """
import asyncio
from parley.configs.deployment import Deployment
from parley.pipelines.engines.engines import Engines

async def start():
    async with await Engines.load(Deployment()) as loaded:
        voice = await loaded.build_tts()
        engine = voice._engine._first._engine
        pieces = []
        take = lambda piece: pieces.append(piece) is None
        assert await asyncio.to_thread(voice._engine.synthesize, "Hello there.", take)
        print(type(engine).__name__, engine.rate_hz, sum(len(piece.pcm) for piece in pieces) > 8_000)

asyncio.run(start())
"""


def altered(package: Path, folder: Path) -> None:
    """Copy the voice's package with one byte of a lexicon changed."""
    shutil.copytree(package, folder / "hibari")
    lexicon = folder / "hibari" / "assets" / "lexicon_us_gold.json.gz"
    content = bytearray(lexicon.read_bytes())
    content[1000] ^= 1
    lexicon.write_bytes(content)


def absent(_package: Path, folder: Path) -> None:
    """Write a package of the voice's name that cannot be imported, as if the voice were not installed."""
    (folder / "hibari.py").write_text("raise ImportError('no such package')")


@pytest.mark.parametrize(
    ("breaks", "reason"),
    [(altered, "lexicon_us_gold.json.gz is not the file of hibari-tts==0.2.1"), (absent, "is not installed")],
)
def test_a_missing_or_altered_default_voice_leaves_flite_and_one_line_in_the_log(breaks, reason, tmp_path):
    import hibari

    breaks(Path(hibari.__file__).parent, tmp_path)
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    ran = subprocess.run(
        [sys.executable, "-c", STARTED],
        env={**os.environ, "PYTHONPATH": path},
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ran.stdout.split() == ["FliteTts", "16000", "True"], ran.stderr
    lines = [line for line in ran.stderr.splitlines() if "hibari" in line]
    assert len(lines) == 1
    assert "WARNING" in lines[0] and "flite speaks instead" in lines[0] and reason in lines[0]


async def test_a_deployment_that_names_no_voice_has_hibari_with_flite_and_espeak_after_it():
    async with await Engines.load(Deployment()) as loaded:
        voice = await loaded.build_tts()
        assert isinstance(voice, EngineTtsService)
        chain = voice._engine
        assert isinstance(chain, FallbackTts)
        assert isinstance(chain._first, PhraseCache) and isinstance(chain._first._engine, HibariTts)
        assert isinstance(chain._second, ResampledTts)
        second = chain._second._voice
        assert isinstance(second, FallbackTts) and isinstance(second._first, FliteTts)
        assert isinstance(second._second, ResampledTts) and isinstance(second._second._voice, EspeakTts)
        assert loaded.output_rate_hz == 24_000


def test_another_voice_has_none_after_it_unless_they_are_named():
    assert speaking(tts={"name": "flite"}).speaking.fallback == ()
    assert speaking(fallback=None).speaking.fallback == ()
    assert [choice.name for choice in speaking().speaking.fallback] == ["flite", "espeak"]
    assert [choice.name for choice in speaking(fallback={"name": "espeak"}).speaking.fallback] == ["espeak"]


async def test_flite_has_espeak_after_it():
    async with await Engines.load(speaking(tts={"name": "flite"}, fallback={"name": "espeak"})) as loaded:
        voice = await loaded.build_tts()
        assert isinstance(voice, EngineTtsService)
        assert isinstance(voice._engine, FallbackTts)
        assert loaded.output_rate_hz == 16_000


async def test_a_voice_that_does_not_load_leaves_the_other_one():
    # espeak-ng reports a missing voice only when it is loaded.
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


CARTESIA = {"name": "cartesia", "settings": {"voice": "x"}}


@pytest.mark.parametrize("tts", [{"name": "flite"}, CARTESIA])
async def test_a_service_after_an_embedded_voice_is_refused(
    tts: dict[str, object], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("CARTESIA_API_KEY", "key")
    with pytest.raises(ConfigError, match="put the services first"):
        plan(speaking(tts=tts, fallback=[{"name": "espeak"}, CARTESIA]))


@pytest.mark.parametrize("fallback", [[CARTESIA, {"name": "flite"}, {"name": "espeak"}], [CARTESIA]])
async def test_a_service_has_other_voices_after_it(
    fallback: list[dict[str, object]], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("CARTESIA_API_KEY", "key")
    async with await Engines.load(speaking(tts=CARTESIA, fallback=fallback)) as loaded:
        voice = await loaded.build_tts()
        assert isinstance(voice, FailoverTtsService)
        assert loaded.voice is None
        assert loaded.output_rate_hz == 24_000


async def test_an_unknown_second_voice_is_refused():
    with pytest.raises(ConfigError, match="espeak"):
        plan(speaking(tts={"name": "flite"}, fallback={"name": "nobody"}))
