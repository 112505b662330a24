"""Contract (``parley.contracts``) of all omni engines, the scripted one of the tests included."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from tempfile import NamedTemporaryFile, TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import soundfile

from parley.contracts.omni_engine import SLOW_AT, OmniEngineContract
from parley.evals.duplex_bench.baselines import Phrase, baselines
from parley.models.omni import OMNI, OmniHost
from parley.models.omni.minicpm_o.engine import MiniCpmOHost
from parley.models.omni.minicpm_o.settings import MiniCpmOSettings
from parley.models.omni.minicpm_worker.engine import MiniCpmWorkerHost, MiniCpmWorkerSettings
from parley.models.omni.moshi.settings import MoshiConversationSettings, MoshiSettings
from parley.models.omni.personaplex.settings import PersonaPlexSettings
from parley.models.omni.two_tier.content import ContentMaker
from parley.models.omni.two_tier.engine import TwoTierHost
from parley.models.tts.flite import FliteTts
from parley.models.turn.smart_turn import SmartTurn
from parley.models.vad.silero import SileroVad
from tests.fakes.omni import OmniScript, ScriptedOmniHost
from tests.fakes.scripted_llm import ScriptedLanguageModel
from tests.fakes.worker import HostedHost
from tests.peers.minicpm_server import minicpm_server


def two_tier() -> OmniHost:
    """Return a host with the recogniser and the voice that ship."""
    threads = ThreadPoolExecutor(2, thread_name_prefix="two_tier")
    maker = ContentMaker(ScriptedLanguageModel(["We are open."]), FliteTts(), executor=threads)
    return TwoTierHost(vad=SileroVad(), turn=SmartTurn(), maker=maker, executor=threads)


def moshi(name: str = "moshi", settings_type: type[MoshiSettings] = MoshiSettings, **chosen: Any) -> OmniHost:
    """Return a host of a tiny model, with the loading code, codec and steps of the real one."""
    pytest.importorskip("transformers", reason="needs the extra 'moshi'")
    from parley.evals.tiny_moshi import install_tiny_moshi

    with TemporaryDirectory() as folder:
        install_tiny_moshi(Path(folder))
        # The two hear the same and must say the same.
        talk = MoshiConversationSettings(seed=1)
        settings = settings_type(model=folder, device="cpu", threads=1, sessions=None, talk=talk, **chosen)
        return OMNI.create(name, settings)


def personaplex() -> OmniHost:
    """Return a host of the same tiny model, which is given a prompt."""
    codes = {"silence_codes": (1, 2, 3, 4), "tone_codes": (5, 6, 7, 8)}
    return moshi("personaplex", PersonaPlexSettings, max_prompt_units=30, **codes)


def minicpm_o() -> OmniHost:
    """Return the worker process of MiniCPM-o, with a stand-in for the model."""
    with NamedTemporaryFile(suffix=".wav") as voice:
        soundfile.write(voice.name, np.full(16_000, 0.1, np.float32), 16_000)
        settings = MiniCpmOSettings(model="server", device="cpu", voice=Path(voice.name))
        return MiniCpmOHost(settings, worker="tests.fakes.minicpm_child")


class Served(MiniCpmWorkerHost):
    """A server on loopback, and the host that connects to it."""

    def __init__(self) -> None:
        self._server = ExitStack()
        url = self._server.enter_context(minicpm_server()).url
        super().__init__(MiniCpmWorkerSettings(url=url, sessions=4))

    def close(self) -> None:
        self._server.close()


def baseline(name: str) -> OmniHost:
    """Return a control of the duplex bench."""
    speech = Phrase(np.full(16_000, 0.1, np.float32), 16_000)
    return baselines(speech, speech, SileroVad(), seed=1)[name]


HOSTS: dict[str, Callable[[], OmniHost]] = {
    "scripted": lambda: ScriptedOmniHost(OmniScript(cost_ms=2.0)),
    "two_tier": two_tier,
    "moshi": moshi,
    "personaplex": personaplex,
    "minicpm_o": minicpm_o,
    "minicpm_worker": Served,
    "worker": lambda: HostedHost(ScriptedOmniHost(OmniScript(cost_ms=2.0))),
    "always_talk": lambda: baseline("always_talk"),
    "timer": lambda: baseline("timer"),
    "random_backchannel": lambda: baseline("random_backchannel"),
    "scripted, slow": lambda: ScriptedOmniHost(OmniScript(hangs_at=SLOW_AT)),
    "scripted, a second": lambda: ScriptedOmniHost(OmniScript(unit_ms=1_000, sessions=1)),
}


@pytest.fixture(scope="module", params=HOSTS)
def host(request: pytest.FixtureRequest) -> Iterator[OmniHost]:
    made = HOSTS[request.param]()
    yield made
    made.close()


class TestOmniEngine(OmniEngineContract):
    """The contract, on every one."""
