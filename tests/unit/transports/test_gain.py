"""Every transport of the product can be ducked; each is tested where its audio leaves."""

import pytest
from pipecat.transports.base_transport import BaseTransport

from parley.transports.gain import SupportsGain
from parley.transports.local.file import FileTransport
from parley.transports.local.microphone import LocalTransport
from parley.transports.webrtc.transport import PacedWebRTCTransport


@pytest.mark.parametrize("transport", [FileTransport, LocalTransport, PacedWebRTCTransport])
def test_the_volume_of_every_transport_can_be_set(transport: type[BaseTransport]):
    assert issubclass(transport, SupportsGain)
