"""Selection of calls that get echo control."""

import asyncio
import os
import signal
from pathlib import Path

import psutil
import pytest

from parley.configs.deployment import Choice, Deployment, EchoMode, Hearing, Speaking
from parley.configs.load import load_deployment
from parley.core.errors import ConfigError
from parley.evals.abuse.footprint import FRONT_END, engine_children
from parley.models.echo.control import EchoControlSettings
from parley.models.echo.webrtc import WebRtcEchoSettings
from parley.pipelines.engines.engines import Engines
from parley.pipelines.engines.plan import plan
from parley.pipelines.voice.echo import wants_echo_control
from parley.processors.front_end.hosted import HostedFrontEnd
from parley.transports.registry import TRANSPORTS
from tests.voices import silence

# The voice that loads soonest: none is heard here.
FLITE = Speaking(tts=Choice(name="flite"))


@pytest.mark.parametrize(
    ("transport", "peer_cancels", "wanted"),
    [
        ("local", None, True),
        ("twilio", None, True),
        ("webrtc", False, True),
        ("webrtc", True, False),
        # Browsers cancel unless a page disables it: Pipecat's own client does not cancel, and does not report
        # so.
        ("webrtc", None, False),
        ("file", None, False),
        ("eval", None, False),
    ],
)
def test_a_call_gets_it_where_no_one_else_cancels(transport: str, peer_cancels: bool | None, wanted: bool):
    row = TRANSPORTS.row(transport).capabilities
    assert wants_echo_control("auto", row, peer_cancels=peer_cancels) is wanted
    assert wants_echo_control("on", row, peer_cancels=peer_cancels)
    assert not wants_echo_control("off", row, peer_cancels=peer_cancels)


def test_the_default_is_webrtcs():
    assert isinstance(plan(Deployment()).echo, WebRtcEchoSettings)


@pytest.mark.parametrize("hearing", [Hearing(echo=None), Hearing(echo_mode="off")])
def test_what_no_call_uses_is_not_loaded(hearing: Hearing):
    assert plan(Deployment(hearing=hearing)).echo is None


def test_an_unknown_canceller_lists_the_known_ones():
    with pytest.raises(ConfigError, match="unknown echo 'speex' .known: webrtc"):
        plan(Deployment(hearing=Hearing(echo=Choice(name="speex"))))


@pytest.mark.parametrize("mode", ["auto", "off"])
def test_an_unknown_setting_is_refused_whether_it_is_used_or_not(mode: EchoMode):
    choice = Choice(name="webrtc", settings={"gain": 3})
    with pytest.raises(ConfigError, match=r"hearing.echo \(webrtc\): unknown field 'gain' .known: echo_canc"):
        plan(Deployment(hearing=Hearing(echo=choice, echo_mode=mode)))


def test_a_canceller_that_is_wanted_and_not_named_is_refused():
    with pytest.raises(
        ConfigError, match="hearing.echo_mode is on, but hearing.echo names no echo canceller"
    ):
        plan(Deployment(hearing=Hearing(echo=None, echo_mode="on")))


async def test_a_canceller_of_another_rate_is_refused_before_any_call():
    choice = Choice(name="webrtc", settings={"rate_hz": 48_000})
    with pytest.raises(ConfigError, match="hearing.echo works at 48000 Hz, but hearing.vad .* 16000"):
        await Engines.load(Deployment(speaking=FLITE, hearing=Hearing(echo=choice)))


async def test_a_server_has_a_process_for_it_and_a_deployment_may_have_none():
    async with await Engines.load(Deployment(speaking=FLITE)) as engines:
        assert engines.open_front_end() is None
        # Other tests may have left some of the interpreter's own.
        before = {child.pid for child in psutil.Process().children()}
        engines.host_front_end()
        # A call that begins before the processes are ready has threads until then.
        caller = engines.open_front_end()
        assert caller is not None and caller.is_in_threads
        caller.close()
        async with asyncio.timeout(20):
            caller = await hosted_caller(engines)
        await caller.open_echo(EchoControlSettings())
        caller.close()
        children = [child for child in psutil.Process().children() if child.pid not in before]
        assert len(children) == 1
    assert not any(child.is_running() and child.status() != psutil.STATUS_ZOMBIE for child in children)
    async with await Engines.load(Deployment(speaking=FLITE, hearing=Hearing(own_process=False))) as engines:
        engines.host_front_end()
        await asyncio.sleep(0)
        assert engines.open_front_end() is None


async def test_a_server_keeps_a_second_process_for_it_loaded_and_calls_go_over_to_it():
    before = engine_children(os.getpid(), FRONT_END)
    async with await Engines.load(Deployment(speaking=FLITE)) as engines:
        engines.host_front_end()
        engines.stand_by()
        async with asyncio.timeout(30):
            while len(children := engine_children(os.getpid(), FRONT_END) - before) < 2:
                await asyncio.sleep(0.01)
            caller = await hosted_caller(engines)
            # The older process serves the caller.
            os.kill(min(children), signal.SIGKILL)
            while not caller.is_in_threads:
                assert len(await caller.measure(silence(32), 1)) == 1
            while caller.is_in_threads:
                assert len(await caller.measure(silence(32), 1)) == 1
                await asyncio.sleep(0.001)
        caller.close()
    assert not engine_children(os.getpid(), FRONT_END) - before


async def hosted_caller(engines: Engines) -> HostedFrontEnd:
    """Open a caller once a process has loaded."""
    while True:
        caller = engines.open_front_end()
        assert caller is not None
        if not caller.is_in_threads:
            return caller
        caller.close()
        await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("written", "mode"), [("on", "on"), ("off", "off"), ("auto", "auto"), ('"off"', "off")]
)
def test_a_bare_on_or_off_in_yaml_is_meant_as_written(tmp_path: Path, written: str, mode: str):
    path = tmp_path / "one.yaml"
    path.write_text(f"hearing: {{echo_mode: {written}}}\n")
    assert load_deployment(str(path)).hearing.echo_mode == mode


def test_another_mode_is_refused_with_the_known_ones(tmp_path: Path):
    path = tmp_path / "one.yaml"
    path.write_text("hearing: {echo_mode: sometimes}\n")
    with pytest.raises(ConfigError, match="echo_mode.*'auto', 'on' or 'off'"):
        load_deployment(str(path))
