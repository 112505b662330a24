"""Server of a GGUF file, from its owner's side: a child process that is restarted when it dies.

Owns an ``EngineProcess``, whose child loads the file and listens on a loopback port (``engine``). The child
ends with its owner, also with one that is killed, and runs at lower priority than media pacing. Each life of
it has another port and another key. ``endpoint`` must therefore be called before each request; it waits while
the file is loaded again.
"""

from parley.models.llm.llamacpp.settings import ENGINE, LlamaCppSettings, ServerAddress
from parley.protocols.facts import from_facts
from parley.runtime.engine_process import EngineProcess, EngineProcessSettings

FACTORY = "parley.models.llm.llamacpp.engine:LlamaCppEngine"


class LlamaCppServer:
    """Server of one file for all calls of the process.

    Args:
        settings: model and bounds.
        limits: limits of the child; None for the defaults with the loading time of ``settings``.
    """

    def __init__(self, settings: LlamaCppSettings, *, limits: EngineProcessSettings | None = None) -> None:
        limits = limits or EngineProcessSettings(start_timeout_s=settings.load_timeout_s)
        # The engine takes no utterances, so nothing is decoded.
        self._process: EngineProcess[object] = EngineProcess(
            FACTORY, settings, decode=dict, limits=limits, name=ENGINE
        )

    @property
    def pid(self) -> int | None:
        """Process id of the child; None without one."""
        return self._process.pid

    @property
    def uses_tools(self) -> bool:
        """True when the model's chat template supports tools. False before ``start``."""
        return self._newest is not None and self._newest.uses_tools

    def most_tokens(self, max_tokens: int) -> int:
        """Return the longest dialogue, in tokens, that leaves room for an answer of ``max_tokens``.

        0 before ``start``.
        """
        return self._newest.most_tokens(max_tokens) if self._newest is not None else 0

    async def start(self) -> None:
        """Load the file.

        Raises:
            EngineError: it does not load, or not in time. No process remains.
        """
        await self._process.start()

    async def endpoint(self) -> ServerAddress:
        """Return the present address of the server; wait for a restart that is under way.

        Raises:
            EngineError: it does not become ready within ``load_timeout_s``, or was closed.
        """
        await self._process.wait_ready()
        return from_facts(ServerAddress, self._process.loaded)

    async def close(self) -> None:
        """End the child. Its open requests fail."""
        await self._process.close()

    @property
    def _newest(self) -> ServerAddress | None:
        loaded = self._process.loaded
        return from_facts(ServerAddress, loaded) if loaded else None
