"""Taps of the two sides of a call, for those who follow its media: a recording, an operator who listens.

* The bot: the packets that the transport reports when they leave or are played (``LiveCall.on_packet``). A
  reply that is cut has no further packets, so that its followers hear it end where the client does. A room's
  transport reports none; there a tap after the output takes what the output has accepted.
* The caller: a tap after the transport's input, before echo control. It is in the task that pushes the audio,
  as in every mode: cascade, full duplex and a realtime service.
"""

from collections.abc import Sequence
from functools import partial

from pipecat.frames.frames import Frame, InputAudioRawFrame, InputImageRawFrame, OutputAudioRawFrame
from pipecat.processors.frame_processor import FrameProcessor
from pipecat.transports.base_transport import BaseTransport

from parley.core.pictures import SCREEN, SHOWN
from parley.pipelines.call import LiveCall
from parley.processors.taps.notice import NoticeTap
from parley.processors.turns.hold import HeldMedia


def tapped(
    processors: Sequence[FrameProcessor], transport: BaseTransport, live: LiveCall
) -> list[FrameProcessor]:
    """Return the processors of a call with its taps."""
    chain = list(processors)
    at = chain.index(transport.input()) + 1
    # A caller who has put the call on hold is silent for those who follow it too.
    at += isinstance(chain[at], HeldMedia)
    chain.insert(at, NoticeTap(partial(_notice_input, live)))
    if not live.playout.follows_packets:
        chain.insert(chain.index(transport.output()) + 1, NoticeTap(partial(_notice_output, live)))
    return chain


def _notice_input(live: LiveCall, frame: Frame) -> None:
    if isinstance(frame, InputAudioRawFrame):
        live.on_caller_audio(frame.audio, frame.sample_rate)
    elif isinstance(frame, InputImageRawFrame) and _is_of_camera(frame):
        live.on_caller_picture(frame.image, frame.size)


def _is_of_camera(frame: InputImageRawFrame) -> bool:
    """Return whether a frame is a raw picture of the camera, the only one that a recording has a track for.

    What the caller shows with a turn is in the session, and so is a screen as the model saw it.
    """
    return frame.format == "RGB" and frame.transport_source not in (SHOWN, SCREEN)


def _notice_output(live: LiveCall, frame: Frame) -> None:
    if isinstance(frame, OutputAudioRawFrame):
        live.on_accepted(frame.audio, frame.sample_rate)
