"""Contract (``parley.contracts``) of all voice activity detectors, the fake included."""

from collections.abc import Callable

import pytest

from parley.contracts.voice_activity import VoiceActivityContract
from parley.models.vad import VAD, VoiceActivityDetector
from parley.models.vad.silero import SileroSettings, SileroVad
from tests.fakes.vad import EnergyVad

DETECTORS: dict[str, Callable[[], VoiceActivityDetector]] = {
    "silero": SileroVad,
    "silero-8k": lambda: SileroVad(SileroSettings(rate_hz=8_000)),
    "energy": EnergyVad,
}


@pytest.fixture(scope="module", params=list(DETECTORS))
def detector(request: pytest.FixtureRequest) -> VoiceActivityDetector:
    return DETECTORS[request.param]()


def test_every_row_of_the_registry_is_covered() -> None:
    assert set(VAD.names()) <= {name.partition("-")[0] for name in DETECTORS}


class TestVoiceActivity(VoiceActivityContract):
    """The contract, on every one."""
