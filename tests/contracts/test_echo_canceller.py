"""Contract (``parley.contracts``) of all echo cancellers, the attenuation of the real ones."""

from collections.abc import Callable

import numpy as np
import pytest

from parley.contracts.echo_canceller import EchoCancellerContract, run, speech
from parley.models.echo import ECHO, EchoCanceller
from parley.models.echo.webrtc import WebRtcEcho, WebRtcEchoSettings
from tests.fakes.echo import PassingEcho

CANCELLERS: dict[str, Callable[[], EchoCanceller]] = {
    "webrtc": WebRtcEcho,
    "webrtc-8k": lambda: WebRtcEcho(WebRtcEchoSettings(rate_hz=8_000)),
    "webrtc-48k": lambda: WebRtcEcho(WebRtcEchoSettings(rate_hz=48_000)),
    "passing": PassingEcho,
}
REAL = [name for name in CANCELLERS if name != "passing"]


@pytest.fixture(params=list(CANCELLERS))
def canceller(request: pytest.FixtureRequest) -> EchoCanceller:
    return CANCELLERS[request.param]()


def test_every_row_of_the_registry_is_covered() -> None:
    assert set(ECHO.names()) <= {name.partition("-")[0] for name in CANCELLERS}


@pytest.mark.parametrize("name", REAL)
def test_a_simple_echo_is_taken_away(name: str) -> None:
    canceller = CANCELLERS[name]()
    lines = "you can block a lost card in the app or at any branch", "it costs five dollars and comes by post"
    far = 0.5 * np.concatenate([speech(canceller.rate_hz, line, "slt") for line in lines * 2])
    late = canceller.rate_hz * 30 // 1000
    near = np.concatenate((np.zeros(late, np.float32), 0.3 * far))[: len(far)]
    left = run(canceller, near, far)
    half = slice(len(left) // 2, len(left))
    assert np.mean(near[half] ** 2) > 300 * np.mean(left[half] ** 2)


@pytest.mark.parametrize("name", REAL)
def test_its_suppressor_takes_no_echo_away(name: str) -> None:
    suppressor = CANCELLERS[name]().suppressor()
    assert suppressor.rate_hz == CANCELLERS[name]().rate_hz
    quiet = 3e-4 * np.random.default_rng(1).standard_normal(suppressor.rate_hz).astype(np.float32)
    far = 0.5 * speech(suppressor.rate_hz, "you can block a lost card in the app", "slt")
    near = np.concatenate((quiet, far))
    left = run(suppressor, near, near)
    assert np.mean(left[len(quiet) :] ** 2) > 0.5 * np.mean(far**2)


class TestEchoCanceller(EchoCancellerContract):
    """The contract, on every one."""
