"""Access to private members of aiortc and Pipecat, for evaluations.

Nothing else in this folder touches a private member of a library, which ``scripts/check_foreign_members.py``
checks. ``tests/contracts/test_foreign_members.py`` lists every member that is used here and fails with its
name when a version of a library has lost it.
"""

from collections.abc import Callable, Coroutine
from typing import Any

from aiortc.rtcrtpreceiver import RTCRtpReceiver
from aiortc.rtp import RtpPacket
from pipecat.services.tts_service import TTSService
from pipecat.utils.text.simple_text_aggregator import SimpleTextAggregator


def take_packets(
    receiver: RTCRtpReceiver, take: Callable[[RtpPacket, int], Coroutine[Any, Any, None]]
) -> None:
    """Install a handler for the packets of a receiver as they arrive.

    The receiver has no event for that, and records no times.
    """
    receiver._handle_rtp_packet = take  # type: ignore[method-assign, assignment]


def set_payload(packet: RtpPacket, payload: bytes) -> None:
    """Set the payload of a packet that a jitter buffer reads, as the receiver does."""
    packet._data = payload  # type: ignore[attr-defined]


def aggregate_sentences(service: TTSService) -> None:
    """Restore the text aggregation that a voice has by default in Pipecat."""
    service._text_aggregator = SimpleTextAggregator(aggregation_type=service._text_aggregation_mode)
