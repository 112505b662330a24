"""Table of the private members of libraries that the code uses, with the version of the last review.

A version of a library that has lost a member fails here with its name. So does a module that uses a member
which this table does not have. After an upgrade: docs/how-to/upgrade_pipecat.md.
"""

import ast
import importlib
import inspect
from dataclasses import dataclass
from importlib.metadata import version

import pytest

from scripts.check_foreign_members import PACKAGE, ROOT, Project, is_door, used_in

PIPECAT, AIORTC, AIOICE = "pipecat-ai 1.14.0", "aiortc 1.16.0", "aioice 0.13.0"
PYEE, OPENSSL, UVICORN = "pyee 13.0.1", "pyOpenSSL 26.4.0", "uvicorn 0.54.0"
TRANSFORMERS = "transformers 5.23.0"
# It reads the modules of libraries that a question is about; those of the product are not needed for that.
LIBRARIES = Project({}, frozenset())


@dataclass(frozen=True)
class Depended:
    """Private members of one owner.

    Attributes:
        seen: the package, and its version when the members were reviewed.
        owner: a class (``module:Class``), or a module that sets the member on another module's objects.
        members: their names.
    """

    seen: str
    owner: str
    members: tuple[str, ...]

    @property
    def package(self) -> str:
        return self.seen.partition(" ")[0]

    def missing(self) -> list[str]:
        module, _, owner = self.owner.partition(":")
        there = LIBRARIES.members(module, owner.split(".")) if owner else _assigned(module)
        if there is None:
            return [f"class {owner}"]
        return [name for name in self.members if name not in there]


def _assigned(module: str) -> set[str]:
    """Return the attributes that a module assigns, on any object."""
    tree = ast.parse(inspect.getsource(importlib.import_module(module)))
    attributes = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    return {node.attr for node in attributes if isinstance(node.ctx, ast.Store)}


DOORS: dict[str, tuple[Depended, ...]] = {
    "transports/pipecat_internals.py": (
        Depended(
            PIPECAT,
            "pipecat.utils.base_object:BaseObject",
            ("_register_event_handler", "_call_event_handler", "_event_handlers", "_event_tasks"),
        ),
        Depended(PIPECAT, "pipecat.transports.base_output:BaseOutputTransport", ("_media_senders",)),
        Depended(
            PIPECAT,
            "pipecat.transports.base_output:BaseOutputTransport.MediaSender",
            (
                "_next_frame",
                "_internal_write_audio_frame",
                "_bot_stopped_speaking",
                "_filter_audio",
                "_apply_volume",
                "_audio_queue",
                "_mixer",
                "_transport",
                "_params",
            ),
        ),
        Depended(
            PIPECAT,
            "pipecat.transports.smallwebrtc.connection:SmallWebRTCConnection",
            (
                "_last_received_time",
                "_pending_app_messages",
                "_renegotiation_task",
                "_track_map",
                "_data_channel",
                "_track_getters",
            ),
        ),
        Depended(PIPECAT, "pipecat.transports.smallwebrtc.connection:SmallWebRTCTrack", ("_receiver",)),
        Depended(
            AIORTC,
            "aiortc.rtcrtpreceiver:RTCRtpReceiver",
            (
                "_enabled",
                "_RTCRtpReceiver__codecs",
                "_RTCRtpReceiver__remote_streams",
                "_RTCRtpReceiver__decoder_thread",
                "_RTCRtpReceiver__decoder_queue",
            ),
        ),
        Depended(
            AIORTC,
            "aiortc.rtcrtpsender:RTCRtpSender",
            (
                "_enabled",
                "_RTCRtpSender__rtp_history",
                "_RTCRtpSender__rtp_header_extensions_map",
                "_RTCRtpSender__ntp_timestamp",
                "_RTCRtpSender__rtp_timestamp",
                "_RTCRtpSender__packet_count",
                "_RTCRtpSender__octet_count",
            ),
        ),
        Depended(
            AIORTC,
            "aiortc.rtcsctptransport:RTCSctpTransport",
            (
                "_handle_data",
                "_data_channel_receive",
                "_advertised_rwnd",
                "_sack_misordered",
                "_send_chunk",
                "_data_channels",
                "_data_channel_queue",
            ),
        ),
        Depended(
            AIORTC,
            "aiortc.rtcpeerconnection:RTCPeerConnection",
            ("_RTCPeerConnection__iceTransports", "_RTCPeerConnection__dtlsTransports"),
        ),
        Depended(AIORTC, "aiortc.rtcicetransport:RTCIceTransport", ("_connection",)),
        Depended(
            AIORTC,
            "aiortc.rtcdtlstransport:RTCDtlsTransport",
            (
                "_ssl",
                "_rx_srtp",
                "_tx_srtp",
                "_rtp_router",
                "_state",
                "_RTCDtlsTransport__tx_bytes",
                "_RTCDtlsTransport__tx_packets",
            ),
        ),
        Depended(AIOICE, "aioice.ice:Connection", ("_check_list", "_nominated")),
        Depended(AIOICE, "aioice.stun:Transaction", ("_Transaction__request", "_Transaction__addr")),
        Depended(PYEE, "pyee.asyncio:AsyncIOEventEmitter", ("_waiting",)),
        Depended(OPENSSL, "OpenSSL.SSL:Connection", ("_context",)),
        Depended(OPENSSL, "OpenSSL.SSL:Context", ("_verify_helper",)),
    ),
    "processors/pipecat_internals.py": (
        Depended(PIPECAT, "pipecat.utils.base_object:BaseObject", ("_call_event_handler",)),
        Depended(PIPECAT, "pipecat.pipeline.worker:PipelineWorker", ("_observer",)),
        Depended(PIPECAT, "pipecat.processors.audio.vad_processor:VADProcessor", ("_vad_controller",)),
        Depended(PIPECAT, "pipecat.audio.vad.vad_controller:VADController", ("_vad_state",)),
        Depended(PIPECAT, "pipecat.services.websocket_service:WebsocketService", ("_reconnect_on_error",)),
        Depended(PIPECAT, "pipecat.services.llm_service:LLMService", ("_push_llm_text",)),
        Depended(PIPECAT, "pipecat.services.anthropic.llm:AnthropicLLMService", ("_client",)),
        Depended(
            PIPECAT,
            "pipecat.services.stt_service:STTService",
            (
                "_handle_vad_user_started_speaking",
                "_handle_vad_user_stopped_speaking",
                "_record_stt_audio_usage",
            ),
        ),
        Depended(
            PIPECAT,
            "pipecat.services.stt_service:WebsocketSTTService",
            (
                "_websocket",
                "_websocket_connect",
                "_connect",
                "_disconnect",
                "_connect_websocket",
                "_disconnect_websocket",
                "_receive_task_handler",
                "_receive_messages",
                "_report_error",
                "_send_keepalive",
            ),
        ),
        Depended(
            PIPECAT,
            "pipecat.services.tts_service:TTSService",
            (
                "_handle_aggregated_text",
                "_announce_text",
                "_text_aggregator",
                "_aggregated_frame_sequencer",
                "_word_timestamp_tracker",
                "_is_yielding_frames_synchronously",
                "_refresh_audio_context",
                "_tts_contexts",
            ),
        ),
        Depended(
            PIPECAT,
            "pipecat.processors.aggregators.llm_response_universal:LLMAssistantAggregator",
            ("_handle_text", "_aggregation", "_paired_user_aggregator"),
        ),
        Depended(PIPECAT, "pipecat.classifiers.base_classifier:BaseClassifier", ("_ask",)),
        Depended(
            PIPECAT,
            "pipecat.processors.frameworks.rtvi:RTVIProcessor",
            (
                "_handle_send_text",
                "_handle_send_file",
                "_handle_function_call_result",
                "_send_error_response",
            ),
        ),
        Depended(
            PIPECAT,
            "pipecat.services.openai.realtime.llm:OpenAIRealtimeLLMService",
            (
                "_handle_evt_speech_started",
                "_handle_evt_response_created",
                "_handle_evt_audio_delta",
                "_handle_messages_append",
                "_api_session_ready",
                "_llm_needs_conversation_setup",
                "_send_message_item",
                "_results_awaiting_response",
                "_receive_task_handler",
                "_disconnecting",
            ),
        ),
    ),
    "serving/uvicorn_internals.py": (
        Depended(UVICORN, "uvicorn.protocols.http.httptools_impl:HttpToolsProtocol", ("_start_asgi_task",)),
    ),
    "models/library_internals.py": (
        Depended(
            TRANSFORMERS, "transformers.configuration_utils:PreTrainedConfig", ("_attn_implementation",)
        ),
        Depended(
            TRANSFORMERS, "transformers.modeling_utils:PreTrainedModel", ("_keep_in_fp32_modules_strict",)
        ),
    ),
    "evals/library_internals.py": (
        Depended(AIORTC, "aiortc.rtcrtpreceiver:RTCRtpReceiver", ("_handle_rtp_packet",)),
        Depended(AIORTC, "aiortc.rtcrtpreceiver", ("_data",)),
        Depended(AIORTC, "aiortc.rtcrtpsender:RTCRtpSender", ("_ssrc",)),
        Depended(AIORTC, "aiortc.rtcicetransport:RTCIceTransport", ("_connection",)),
        Depended(AIORTC, "aiortc.rtcdtlstransport:RTCDtlsTransport", ("_tx_srtp",)),
        Depended(AIOICE, "aioice.ice:Connection", ("_nominated",)),
        Depended(
            PIPECAT,
            "pipecat.services.tts_service:TTSService",
            ("_text_aggregator", "_text_aggregation_mode"),
        ),
    ),
}
# Belongs to code that comes with a model's weights and is not installed here.
WITH_WEIGHTS = {"models/library_internals.py": {"_reset_token2wav_for_new_turn"}}


@pytest.mark.parametrize(
    "depended", [each for rows in DOORS.values() for each in rows], ids=lambda each: each.owner
)
def test_members_of_libraries_that_are_depended_on_exist(depended: Depended):
    missing = depended.missing()
    assert not missing, (
        f"{depended.package} {version(depended.package)} has no {', '.join(missing)} in {depended.owner} "
        f"(seen in {depended.seen})"
    )


def test_a_member_that_is_gone_is_named():
    gone = Depended(PIPECAT, "pipecat.utils.base_object:BaseObject", ("_event_tasks", "_once_here"))
    assert gone.missing() == ["_once_here"]
    assert Depended(PIPECAT, "pipecat.utils.base_object:Gone", ("_any",)).missing()


def test_every_member_that_a_door_uses_is_listed():
    folder = ROOT / PACKAGE
    paths = {path.relative_to(folder).as_posix(): path for path in folder.glob("*/*.py")}
    sources = {name: path.read_text(encoding="utf-8") for name, path in paths.items() if is_door(name)}
    doors = {module.path: used_in(module) for module in Project(sources, frozenset()).modules.values()}
    listed = {
        door: {name for row in rows for name in row.members} | WITH_WEIGHTS.get(door, set())
        for door, rows in DOORS.items()
    }
    assert doors == listed
