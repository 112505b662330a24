"""Answers from the deployment's own documents: retrieval instead of a large model, no key, no network.

Loads the documents, runs each answer in a thread and streams it in clauses; ``document_answer`` decides the
content. Input: the messages of a dialogue. Output: pieces of text that a voice can begin with. The
constructor reads files and embeds every sentence, so it blocks. It is called once per process, in a thread,
and all calls share the object afterwards.

Owns no task and no thread; a cancelled ``reply`` leaves at most one look-up of about 10 ms in the executor.
An executor that stays full for ``timeout_s`` causes an ``EngineError``.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import TypeVar

from pydantic import Field

from parley.core.errors import EngineError
from parley.core.files import MODELS_DIR
from parley.core.passage_notes import CitedPassage, is_passages
from parley.core.strict_model import StrictModel
from parley.language import Language, find_language
from parley.models.llm import Message
from parley.models.llm.document_answer import DocumentAnswer
from parley.models.llm.spoken_text import clauses
from parley.models.retrieval import Embedder
from parley.models.retrieval.index import PassageIndex
from parley.models.retrieval.library import DocumentLibrary
from parley.models.retrieval.minilm import MiniLm, MiniLmSettings
from parley.models.retrieval.nearest import VectorSearch

P = TypeVar("P")
T = TypeVar("T")


def _shipped_documents() -> Path:
    return Path(__file__).resolve().parents[2] / "knowledge"


def user_cache() -> Path:
    """Return the folder for vectors of documents between starts."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "parley" / "vectors"


class DocumentLlmSettings(StrictModel):
    """Documents, and limits of the answers from them.

    Attributes:
        folder: markdown files, read with their sub-folders; default: the shipped examples.
        name: the agent's name.
        greeting: used before the caller has spoken; None makes one from the name and some topics.
        threshold: score of the best passage, likeness and words in common, below which the answer is "I don't
            know". Out-of-scope questions score less, with few exceptions; see tests/golden/questions.json.
        max_words: longest answer; a single statement is spoken whole.
        max_sentences: statements in one answer, without the items of a list that was requested.
        timeout_s: longest wait for a look-up.
        cache_folder: folder for sentence vectors between starts; None computes them at every start.
        embedder: the sentence embedder.
        models_dir: folder in which ``parley models`` puts its weights.
    """

    folder: Path = Field(default_factory=_shipped_documents)
    name: str = Field(default="Parley", min_length=1, max_length=60)
    greeting: str | None = Field(default=None, min_length=1, max_length=500)
    threshold: float = Field(default=0.42, ge=-1.0, le=2.0)
    max_words: int = Field(default=45, ge=5, le=200)
    max_sentences: int = Field(default=3, ge=1, le=10)
    timeout_s: float = Field(default=5.0, gt=0.0, le=60.0)
    cache_folder: Path | None = Field(default_factory=user_cache)
    embedder: MiniLmSettings = MiniLmSettings()
    models_dir: Path = MODELS_DIR


class DocumentLlm:
    """Implementation of ``LanguageModel`` over a folder of documents. Thread-safe and shared by all calls.

    Args:
        settings: default: the shipped documents.
        embedder: replaces the MiniLM of the settings.
        executor: runs look-ups; None is the default executor of the running loop.
        language: that of the documents; None for the default language.
        vector_search: names the vectors nearest to a question; None compares with all.

    Attributes:
        library: the documents, which may change; answers follow it.

    Raises:
        ConfigError: no documents, or the embedder is not installed.
    """

    def __init__(
        self,
        settings: DocumentLlmSettings | None = None,
        *,
        embedder: Embedder | None = None,
        executor: Executor | None = None,
        language: Language | None = None,
        vector_search: VectorSearch | None = None,
    ) -> None:
        language = language or find_language()
        self.settings = settings or DocumentLlmSettings()
        embedder = embedder or MiniLm(self.settings.embedder, models_dir=self.settings.models_dir)
        self._known_words = embedder.known_words
        self.library = DocumentLibrary(
            self.settings.folder,
            embedder,
            phrases=language.small_talk.phrases(),
            cache_folder=self.settings.cache_folder,
            language=language,
            vector_search=vector_search,
        )
        self.library.follow(self._answer_from)
        self._executor = executor

    @property
    def index(self) -> PassageIndex:
        """Passages with their vectors, for a search without an answer."""
        return self.library.index

    def _answer_from(self, index: PassageIndex) -> None:
        self._answer = DocumentAnswer(
            index,
            known_words=self._known_words,
            name=self.settings.name,
            threshold=self.settings.threshold,
            max_words=self.settings.max_words,
            max_sentences=self.settings.max_sentences,
            greeting=self.settings.greeting,
        )

    async def reply(self, messages: Sequence[Message]) -> AsyncIterator[str]:
        """Stream the answer in clauses; the pieces join to the whole text.

        Raises:
            EngineError: no thread of the executor took the look-up in time.
        """
        # Passages were found for the model whose place this one takes.
        said = tuple(message for message in messages if not is_passages(message.text))
        for piece in clauses(await self._looked_up(self._answer.answer, said)):
            yield piece

    async def cited(self, answer: str) -> tuple[CitedPassage, ...]:
        """Return the passages of an answer (``CitingModel``).

        Raises:
            EngineError: no thread of the executor took the look-up in time.
        """
        return await self._looked_up(self._answer.cited, answer)

    async def _looked_up(self, look_up: Callable[[P], T], given: P) -> T:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self.settings.timeout_s):
                return await loop.run_in_executor(self._executor, look_up, given)
        except TimeoutError as error:
            raise EngineError("the document search timed out", engine="documents") from error
