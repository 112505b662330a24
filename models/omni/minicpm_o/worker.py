"""The other end of the link: loads the model in its own Python environment and does what it is asked.

In: frames on a socket that the engine handed over. Out: one answer to each. One thread reads, one works: a
``STOP``, and the end of the engine's process, are seen while the model computes. At most ``WAITING`` requests
wait, and the engine has one on its way; more is a bug of it, and the end of this process.

Signals that reach a whole group are ignored: whoever started this process ends it, by closing the socket. The
model prints what is said; that goes nowhere, and its log below warnings neither.
"""

import gc
import logging
import os
import queue
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from PIL import Image

from core.errors import AgentError, ConfigError, EngineError
from models.omni.minicpm_o.binding import DuplexBinding
from models.omni.minicpm_o.wire import RECEIVE_BYTES, FrameReader, Kind, WireFrame, encode

ENGINE = "minicpm_o"
WAITING = 8
# From this version on a model's number format is asked for by another name.
DTYPE_SINCE = (4, 56)

Load = Callable[[Mapping[str, Any]], DuplexBinding]


def load_model(facts: Mapping[str, Any]) -> DuplexBinding:
    """The model of a directory or hub id, with the code beside it, of any size.

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
    raise EngineError(f"{ENGINE}: the model's code has no duplex mode", engine=ENGINE, retryable=False)


class Worker:
    """Serves one engine on one connected socket until it is closed.

    Args:
        connection: to the engine.
        load: makes the model of what the first request says.
    """

    def __init__(self, connection: socket.socket, load: Load) -> None:
        self._connection = connection
        self._load = load
        self._requests: queue.Queue[WireFrame] = queue.Queue(WAITING)
        self._model: DuplexBinding | None = None

    def serve(self) -> None:
        """Never returns: the process ends with the socket."""
        threading.Thread(target=self._read, name="link", daemon=True).start()
        while True:
            request = self._requests.get()
            try:
                facts, payload = self._carry_out(request)
                answer = encode(Kind.DONE, request.number, facts, payload)
            except AgentError as error:
                answer = self._failed(request, error)
            except Exception as error:
                # The edge of the process: whatever the model's code raises, the engine must learn of it.
                traceback.print_exc()
                name = type(error).__name__
                answer = self._failed(request, EngineError(f"the model raised {name}", engine=ENGINE))
            self._connection.sendall(answer)

    def _read(self) -> None:
        frames = FrameReader()
        code = 0
        try:
            while data := self._connection.recv(RECEIVE_BYTES):
                for frame in frames.feed(data):
                    if frame.kind is not Kind.STOP:
                        self._requests.put_nowait(frame)
                    elif self._model is not None:
                        self._model.stop()
        except (OSError, ValueError, queue.Full):
            code = 1
        # At once, in the middle of whatever the model computes: nobody is left to take it.
        os._exit(code)

    def _carry_out(self, request: WireFrame) -> tuple[Mapping[str, Any], bytes]:
        facts = request.facts
        if request.kind is Kind.LOAD:
            self._model = self._loaded(facts)
            # The weights live as long as the process: keep the collector from walking them.
            gc.freeze()
            return {"takes": list(self._model.takes)}, b""
        model = self._model
        if model is None:
            raise EngineError("nothing is loaded", engine=ENGINE, retryable=False)
        match request.kind:
            case Kind.PREPARE:
                self._prepare(model, request)
            case Kind.PREFILL:
                audio, pictures = unit_of(request)
                return {"cost_prefill_ms": model.prefill(audio, pictures)}, b""
            case Kind.GENERATE:
                result, audio = model.generate(forced=facts["force_listen"])
                return result | {"shape": list(audio.shape)}, audio.astype("<f4").tobytes()
            case Kind.FINALIZE:
                model.finalize()
            case Kind.CLEANUP:
                model.cleanup()
                _empty_cache()
            case _:
                raise EngineError(f"unexpected {request.kind.name}", engine=ENGINE, retryable=False)
        return {}, b""

    def _loaded(self, facts: Mapping[str, Any]) -> DuplexBinding:
        """The model; whatever its code raises, in its words: nothing of a conversation is in them yet."""
        try:
            return self._load(facts)
        except AgentError:
            raise
        except ImportError as error:
            traceback.print_exc()
            raise ConfigError(
                f"{ENGINE}: a package is missing in the worker's environment: {error}"
            ) from error
        except Exception as error:
            traceback.print_exc()
            said = f"{ENGINE}: the model does not load: {type(error).__name__}: {error}"
            raise EngineError(said, engine=ENGINE, retryable=False) from error

    @staticmethod
    def _prepare(model: DuplexBinding, request: WireFrame) -> None:
        voices = np.frombuffer(request.payload, dtype="<f4").astype(np.float32)
        facts, lengths = request.facts, (request.facts["llm_samples"], request.facts["tts_samples"])
        model.prepare(
            facts["prompt"],
            llm_voice=voices[: lengths[0]] if lengths[0] else None,
            tts_voice=voices[lengths[0] : sum(lengths)] if lengths[1] else None,
            settings=facts["settings"],
        )

    @staticmethod
    def _failed(request: WireFrame, error: AgentError) -> bytes:
        facts = {
            "class": "ConfigError" if isinstance(error, ConfigError) else "EngineError",
            "message": str(error),
            "retryable": getattr(error, "retryable", False),
        }
        return encode(Kind.FAILED, request.number, facts)


def unit_of(request: WireFrame) -> tuple[np.ndarray, list[Image.Image]]:
    """What a request to prefill carries: float32, (samples,), and pictures as the model wants them."""
    at = 4 * request.facts["samples"]
    audio = np.frombuffer(request.payload[:at], dtype="<f4").astype(np.float32)
    pictures = []
    for height, width in request.facts["frames"]:
        end = at + height * width * 3
        pictures.append(Image.frombytes("RGB", (width, height), request.payload[at:end]))
        at = end
    return audio, pictures


def _empty_cache() -> None:
    gc.collect()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        torch.cuda.empty_cache()


def main(arguments: list[str], load: Load = load_model) -> None:
    """``python -m models.omni.minicpm_o.worker SOCKET_FD``."""
    for signal_number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signal_number, signal.SIG_IGN)
    logging.basicConfig(level=logging.WARNING)
    with socket.socket(fileno=int(arguments[0])) as connection:
        try:
            Worker(connection, load).serve()
        except OSError:
            # Nobody is left to be told anything.
            os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
