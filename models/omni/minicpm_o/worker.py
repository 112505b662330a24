"""Child's side of ``engine``: loads the model in its own Python environment and answers requests.

Input: messages on a socket that the engine handed over. Output: one answer to each question
(``engine_hosting.child_server``).

Signals that reach a whole group are ignored: the parent ends this process by closing the socket. The model
prints its text; that output is discarded, and so is its log below warnings.
"""

import gc
import logging
import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from PIL import Image

from parley.core.errors import AgentError, ConfigError, EngineError
from parley.models.omni.hosted.codec import to_preparation, to_unit
from parley.models.omni.minicpm_o.binding import DuplexBinding
from parley.runtime.engine_hosting.child_server import ChildServer
from parley.runtime.engine_hosting.messages import EngineMessage, MessageType

ENGINE = "minicpm_o"
INPUT_RATE_HZ = 16_000
# Duration of the voice with which a model is warmed up: a hum, quiet enough for any vocoder.
VOICE_S = 2
# Version of transformers from which the option for a model's number format has another name.
DTYPE_SINCE = (4, 56)

Load = Callable[[Mapping[str, Any]], DuplexBinding]


def load_model(facts: Mapping[str, Any]) -> DuplexBinding:
    """Return the model of a directory or hub id, with the code next to it, of any size.

    Raises:
        EngineError: its code has no duplex mode.
    """
    import torch
    import transformers

    version = tuple(int(part) for part in transformers.__version__.split(".")[:2])
    options: dict[str, Any] = {
        "dtype" if version >= DTYPE_SINCE else "torch_dtype": getattr(torch, facts["dtype"]),
        "attn_implementation": facts["attn_implementation"],
        "trust_remote_code": True,
    }
    if facts["revision"] is not None:
        options["revision"] = facts["revision"]
    if not facts["sees"]:
        options["init_vision"] = False
    model = transformers.AutoModel.from_pretrained(facts["model"], **options)
    model.eval().to(facts["device"])
    duplex = _duplex(model, facts["device"], facts["duplex"])
    return DuplexBinding(duplex, model, has_voice=facts["duplex"]["generate_audio"])


def _duplex(model: Any, device: str, config: Mapping[str, Any]) -> Any:
    if hasattr(model, "init_unified"):
        model.init_unified(duplex_config=dict(config), device=device)
        return model.duplex
    if hasattr(model, "as_duplex"):
        return model.as_duplex(device=device, **config)
    raise EngineError("the model's code has no duplex mode", engine=ENGINE, retryable=False)


class EngineSocketServer:
    """Server of one engine on one connected socket, until it is closed.

    Args:
        connection: socket to the engine.
        load: creates the model that the first request describes.
    """

    def __init__(self, connection: socket.socket, load: Load) -> None:
        self._load = load
        self._model: DuplexBinding | None = None
        self._server = ChildServer(connection, self._carry_out, name=ENGINE, stop=self._stop)

    def serve(self) -> None:
        """Serve requests. Never returns: the process ends with the socket."""
        self._server.serve()

    def _stop(self) -> None:
        if self._model is not None:
            self._model.stop()

    def _carry_out(self, request: EngineMessage) -> tuple[dict[str, Any], bytes]:
        if request.type is MessageType.LOAD:
            self._model = self._loaded(request.facts)
            # The weights live as long as the process: keep the collector from scanning them.
            gc.freeze()
            return {"takes": list(self._model.takes)}, b""
        model = self._model
        if model is None:
            raise EngineError("no model is loaded", engine=ENGINE, retryable=False)
        match request.type:
            case MessageType.PREPARE:
                given = to_preparation(request.facts, request.payload)
                model.prepare(
                    given.system_prompt,
                    llm_voice=given.llm_ref_audio,
                    tts_voice=given.tts_ref_audio,
                    settings=given.settings,
                )
            case MessageType.PREFILL:
                audio, pictures = unit_of(request)
                return {"cost_prefill_ms": model.prefill(audio, pictures)}, b""
            case MessageType.GENERATE:
                result, audio = model.generate(forced=request.facts["force_listen"])
                return result | {"shape": list(audio.shape)}, audio.astype("<f4").tobytes()
            case MessageType.FINALIZE:
                model.finalize()
            case MessageType.CLEANUP:
                model.cleanup()
                _empty_cache()
            case _:
                raise EngineError(f"unexpected {request.type}", engine=ENGINE, retryable=False)
        return {}, b""

    def _loaded(self, facts: Mapping[str, Any]) -> DuplexBinding:
        """Return the model; errors keep the text of its code, which contains nothing of a
        conversation yet.
        """
        try:
            model = self._load(facts)
            if "warm_up" in facts:
                warm_up(model, facts["warm_up"], facts["duplex"]["first_chunk_ms"])
            return model
        except AgentError:
            raise
        except ImportError as error:
            traceback.print_exc()
            raise ConfigError(f"the worker's environment lacks a package: {error}") from error
        except Exception as error:
            traceback.print_exc()
            said = f"the model does not load: {type(error).__name__}: {error}"
            raise EngineError(said, engine=ENGINE, retryable=False) from error


def warm_up(model: DuplexBinding, conversation: Mapping[str, Any], first_unit_ms: int) -> None:
    """Hold a conversation of one silent unit, so that the first one of a caller finds everything in place.

    Args:
        model: loaded.
        conversation: ``prompt`` and ``session``, the settings of a conversation.
        first_unit_ms: length of its unit.
    """
    at_s = np.arange(VOICE_S * INPUT_RATE_HZ) / INPUT_RATE_HZ
    voice = (0.05 * np.sin(2 * np.pi * 150 * at_s)).astype(np.float32)
    model.prepare(conversation["prompt"], llm_voice=voice, tts_voice=voice, settings=conversation["session"])
    model.prefill(np.zeros(first_unit_ms * INPUT_RATE_HZ // 1000, np.float32), [])
    model.generate(forced=True)
    model.finalize()
    model.cleanup()
    _empty_cache()


def unit_of(request: EngineMessage) -> tuple[np.ndarray, list[Image.Image]]:
    """Return the content of a PREFILL request: float32, (samples,), and pictures as the model requires."""
    audio, frames = to_unit(request.facts, request.payload)
    return audio, [Image.fromarray(frame) for frame in frames]


def _empty_cache() -> None:
    gc.collect()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        torch.cuda.empty_cache()


def main(arguments: list[str], load: Load = load_model) -> None:
    """Run ``python -m models.omni.minicpm_o.worker SOCKET_FD``."""
    for signal_number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signal_number, signal.SIG_IGN)
    logging.basicConfig(level=logging.WARNING)
    with socket.socket(fileno=int(arguments[0])) as connection:
        try:
            EngineSocketServer(connection, load).serve()
        except OSError:
            # The engine is gone, so no error can be reported.
            os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
