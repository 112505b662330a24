"""The server of a GGUF file, as its owner sees it: a child process that is started again when it dies.

Owns an ``EngineProcess``, whose child loads the file and listens on a loopback port (``engine``). The child
ends with its owner, also with one that is killed, and runs at lower priority than media pacing. Each life of
it has another port and another key: ``endpoint`` is asked before each request, and waits while the file is
loaded again.
"""

from collections.abc import Mapping

from core.errors import EngineError
from models.llm.llamacpp.settings import ENGINE, Endpoint, LlamaCppSettings
from runtime.engine_hosting.messages import EngineMessage, MessageType
from runtime.engine_process import EngineProcess, EngineProcessSettings

FACTORY = "models.llm.llamacpp.engine:LlamaCppEngine"


class LlamaCppServer:
    """Serve one file to all calls of the process.

    Args:
        settings: see the model.
        limits: of the child; None for its own with the loading time of ``settings``.
    """

    def __init__(self, settings: LlamaCppSettings, *, limits: EngineProcessSettings | None = None) -> None:
        limits = limits or EngineProcessSettings(start_timeout_s=settings.load_timeout_s)
        self._process: EngineProcess[None] = EngineProcess(
            FACTORY, settings, decode=_no_results, limits=limits, name=ENGINE
        )
        self._endpoint: Endpoint | None = None
        self._restarts = -1

    @property
    def pid(self) -> int | None:
        """Return the process id of the child while there is one."""
        return self._process.pid

    @property
    def uses_tools(self) -> bool:
        """Return whether the model's chat template has a place for tools. False before ``start``."""
        return self._endpoint is not None and self._endpoint.uses_tools

    def most_tokens(self, max_tokens: int) -> int:
        """Return the longest dialogue that leaves room for such an answer; 0 before ``start``."""
        return self._endpoint.most_tokens(max_tokens) if self._endpoint is not None else 0

    async def start(self) -> None:
        """Load the file.

        Raises:
            EngineError: it does not load, or not in time. Nothing is left running.
        """
        await self._process.start()
        try:
            await self.endpoint()
        except BaseException:
            await self.close()
            raise

    async def endpoint(self) -> Endpoint:
        """Return where the server listens now; waits for one that is started again.

        Raises:
            EngineError: it does not become ready within ``load_timeout_s``, or was closed.
        """
        known = self._endpoint
        if known is not None and self._process.is_ready and self._restarts == self._process.restarts:
            return known
        stream = await self._process.open_stream(_ignore_partial, _ignore_failure)
        restarts = self._process.restarts
        try:
            answer = await stream.ask(EngineMessage(MessageType.ENDPOINT))
            self._endpoint = Endpoint(**answer.facts)
        finally:
            stream.close()
        self._restarts = restarts
        return self._endpoint

    async def close(self) -> None:
        """End the child. Requests that it has open fail."""
        await self._process.close()


def _no_results(fields: Mapping[str, object]) -> None:
    """Decode nothing: this engine hears no utterances."""


def _ignore_partial(result: None) -> None:
    """Ignore a partial result, of which there are none."""


def _ignore_failure(error: EngineError) -> None:
    """Leave a failure to the question that is open, whose future carries it."""
