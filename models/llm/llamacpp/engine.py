"""Child's side of ``server``: loads the GGUF file and serves it on a loopback port.

llama.cpp's own HTTP server runs in threads of this process, which is hosted by ``runtime.engine_host``. The
address of the server is in the engine's ``offers`` once it is loaded. A key that only the owner gets keeps
other users of the machine out of it. Prompts are neither logged nor shown by the server's inspection routes.
"""

import http.client
import json
import secrets
from dataclasses import asdict
from typing import Any
from urllib.parse import urlsplit

from xllamacpp import CommonParams, Server

from parley.core.errors import EngineError
from parley.models.llm.llamacpp.settings import ENGINE, LlamaCppSettings, ServerAddress

LOOPBACK = "127.0.0.1"
# Logs errors only, and no content of a request.
VERBOSITY = 1
PROPERTIES_TIMEOUT_S = 10
# A batch runs to its end. With a smaller one, an interruption ends the reading of a prompt sooner, and other
# conversations continue sooner. llama.cpp's own is 2,048.
BATCH_TOKENS = 128


class LlamaCppEngine:
    """Server of one file until the process ends.

    Args:
        settings: model and bounds.

    Raises:
        EngineError: the file does not load.
    """

    # Required by the host, which divides audio by it; this engine receives no audio.
    rate_hz = 16_000

    def __init__(self, settings: LlamaCppSettings) -> None:
        params = CommonParams()
        params.model.path = str(settings.file)
        if settings.chat_template is not None:
            params.chat_template = settings.chat_template.read_text(encoding="utf-8")
        params.use_jinja = True
        params.n_parallel = settings.conversations
        # Shared evenly, so that a long conversation takes nothing from another one.
        params.n_ctx = settings.context_tokens * settings.conversations
        params.kv_unified = False
        # A full context must be an error that the service handles: a shifted context would be another prompt
        # than the one that was sent.
        params.ctx_shift = False
        params.cpuparams.n_threads = settings.cpu_threads
        params.cpuparams_batch.n_threads = settings.cpu_threads
        params.n_batch = params.n_ubatch = BATCH_TOKENS
        params.cache_prompt = True
        params.cache_ram_mib = settings.prompt_cache_mib
        params.hostnames = [LOOPBACK]
        params.port = 0
        key = secrets.token_urlsafe(32)
        params.api_keys = [key]
        params.ui = False
        params.endpoint_slots = False
        params.offline = True
        params.verbosity = VERBOSITY
        try:
            self._server = Server(params)
        except RuntimeError as error:
            raise EngineError(
                f"{settings.file} does not load: not enough memory, or no model that llama.cpp knows",
                engine=ENGINE,
                retryable=False,
            ) from error
        self.offers = asdict(_endpoint(self._server.listening_address, key))


def _endpoint(address: str, key: str) -> ServerAddress:
    """Return the endpoint of a running server.

    Raises:
        EngineError: the server does not answer as expected.
    """
    connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=PROPERTIES_TIMEOUT_S)
    try:
        connection.request("GET", "/props", headers={"Authorization": f"Bearer {key}"})
        properties: dict[str, Any] = json.loads(connection.getresponse().read())
        uses_tools = bool(properties["chat_template_caps"]["supports_tools"])
        context_tokens = int(properties["default_generation_settings"]["n_ctx"])
    except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError) as error:
        raise EngineError(f"cannot read the server's properties: {error}", engine=ENGINE) from error
    finally:
        connection.close()
    return ServerAddress(f"{address.rstrip('/')}/v1", key, uses_tools, context_tokens)
