"""Search in the deployment's documents for models that do not hold them: its plan and its loading."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pydantic import BaseModel

from parley.configs.deployment import Deployment
from parley.configs.engines import checked_settings
from parley.core.errors import ConfigError
from parley.core.installation import SHIPPED_DIR
from parley.language import Language
from parley.models.llm import LanguageModel
from parley.models.llm.documents import DocumentLlm, user_cache
from parley.models.retrieval.files import document_files, read_document
from parley.models.retrieval.finder import FinderTuning, PassageFinder
from parley.models.retrieval.library import DocumentLibrary
from parley.models.retrieval.minilm import MiniLm, MiniLmSettings, weights_folder
from parley.models.retrieval.nearest import VECTOR_SEARCH, VectorSearch

# Name of the embedded answerer.
DOCUMENTS = "documents"

# Examples for trying Parley out: a deployment that names no documents of its own must not be a bank.
_EXAMPLES = SHIPPED_DIR / "knowledge"


@dataclass(frozen=True)
class VectorPlan:
    """Checked choice of a search for the nearest vectors.

    Attributes:
        name: row of the registry.
        settings: of the row.
    """

    name: str
    settings: BaseModel

    def open(self) -> VectorSearch:
        """Return the search. Blocks.

        Raises:
            EngineError: it cannot be used.
        """
        return VECTOR_SEARCH.create(self.name, self.settings)


def plan_vectors(deployment: Deployment) -> VectorPlan:
    """Return the search for the nearest vectors of a deployment.

    Raises:
        ConfigError: an unknown name or field, or a missing package.
    """
    chosen = deployment.thinking.vector_search
    settings = checked_settings(VECTOR_SEARCH, chosen.name, chosen.settings, where="thinking.vector_search")
    return VectorPlan(chosen.name, settings)


@dataclass(frozen=True)
class DocumentSearch:
    """Checked choice of documents whose passages precede each question; nothing is loaded.

    Attributes:
        folder: the documents.
        count: most passages of a question.
        models_dir: folder of weights.
        vectors: search for the nearest vectors.
    """

    folder: Path
    count: int
    models_dir: Path
    vectors: "VectorPlan"

    def load(
        self, documents: LanguageModel | None, *, language: Language | None
    ) -> tuple[PassageFinder, DocumentLibrary]:
        """Return the finder and its documents. Blocks: reads the files, and embeds them where they are new.

        Args:
            documents: the fallback of the model, whose documents are shared when it answers from them.
            language: that of the documents; None for the default.

        Raises:
            ConfigError: the folder holds no passage, or weights are missing.
            EngineError: the search for the nearest vectors cannot be used.
        """
        if isinstance(documents, DocumentLlm):
            library = documents.library
        else:
            embedder = MiniLm(MiniLmSettings(), models_dir=self.models_dir)
            library = DocumentLibrary(
                self.folder,
                embedder,
                cache_folder=user_cache(),
                language=language,
                vector_search=self.vectors.open(),
            )
        finder = PassageFinder(library.index, FinderTuning(count=self.count))
        library.follow(finder.use)
        return finder, library


def plan_search(deployment: Deployment) -> DocumentSearch | None:
    """Return the search of a deployment; None where it has no documents of its own, or wants no passages.

    Raises:
        ConfigError: the folder or the embedder's weights are missing.
    """
    folder, count = deployment.bot.knowledge, deployment.thinking.passages
    if not count or is_example(folder):
        return None
    check_folder(folder)
    weights_folder(MiniLmSettings(), deployment.models_dir)
    return DocumentSearch(folder, count, deployment.models_dir, plan_vectors(deployment))


def answers_from_documents(deployment: Deployment) -> bool:
    """Return whether callers of a deployment ask about the documents of ``bot.knowledge``."""
    thinking = deployment.thinking
    names = {thinking.llm.name, thinking.fallback.name if thinking.fallback else ""}
    return DOCUMENTS in names or not is_example(deployment.bot.knowledge)


def checks_of_documents(deployment: Deployment) -> Iterator[Callable[[], object]]:
    """Yield a check of each document of a deployment; each reads it and raises ConfigError where it cannot.

    The documents that are shipped need none. A missing folder has no documents (``check_folder``).
    """
    folder = deployment.bot.knowledge
    if not is_example(folder) and answers_from_documents(deployment):
        for path in document_files(folder):
            yield partial(read_document, path)


def is_example(folder: Path) -> bool:
    """Return whether a folder of documents is the one that is shipped."""
    return folder.resolve() == _EXAMPLES.resolve() or folder == Path(_EXAMPLES.name)


def check_folder(folder: Path) -> None:
    """Check that a folder of documents exists.

    Raises:
        ConfigError: it does not.
    """
    if not folder.is_dir():
        raise ConfigError(
            f"bot.knowledge: there is no folder {str(folder)!r}; a relative path starts at the folder of "
            "the deployment's file"
        )
