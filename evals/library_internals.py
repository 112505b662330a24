"""The door to private members of aiortc and Pipecat, for what measures.

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
    """Have the packets of a receiver taken as they come: it has no event for that, and takes no times."""
    receiver._handle_rtp_packet = take  # type: ignore[method-assign, assignment]


def set_payload(packet: RtpPacket, payload: bytes) -> None:
    """Give a packet the payload that a jitter buffer reads, as the receiver does."""
    packet._data = payload  # type: ignore[attr-defined]


def aggregate_sentences(service: TTSService) -> None:
    """Give a voice the text aggregation back that Pipecat has by default."""
    service._text_aggregator = SimpleTextAggregator(aggregation_type=service._text_aggregation_mode)
