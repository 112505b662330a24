"""Nearest vectors in Chroma, in this process or on a server.

Input: the vectors of an index with their keys. Output: the rows nearest to a question. The collection is kept
between starts and changed in place: only vectors whose keys it lacks are added, and those that no document
has any more are deleted. While the index of changed documents is built, the old one goes on with the same
collection; keys that it does not know are left out of its results.

Chroma's index is approximate (HNSW). With the ``ef_search`` set here it finds at least 98 % of the nearest
random vectors (tests/unit/models/retrieval/test_chroma.py). Blocking; owns no thread of its own, but a client
in this process has threads of Chroma's.
"""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import chromadb
import numpy as np
from chromadb.config import Settings
from pydantic import Field, model_validator

from parley.core.errors import ConfigError, EngineError, one_line
from parley.core.strict_model import StrictModel

LOG = logging.getLogger(__name__)

_TIMEOUT_S = 5
# Of the graph. More cost time once, and memory.
_HNSW = {"space": "cosine", "ef_construction": 200, "ef_search": 400, "max_neighbors": 32}
_BATCH = 1_000
_PORTS = {"http": 80, "https": 443}


class ChromaSettings(StrictModel):
    """Place of the vectors.

    Attributes:
        folder: of a client in this process; a relative path starts at the folder of the deployment's file.
        url: of a server, in place of a folder.
        collection: name of the collection, which belongs to one deployment alone: vectors that its documents
            do not have are deleted from it.
    """

    folder: Path | None = None
    url: str | None = Field(None, pattern=r"^https?://[^/]+/?$")
    collection: str = Field("parley", min_length=3, max_length=60)

    @model_validator(mode="after")
    def _has_one_place(self) -> Self:
        if (self.folder is None) == (self.url is None):
            raise ValueError("either folder, for a client in this process, or url, for a server")
        return self


class ChromaSearch:
    """``VectorSearch`` over a collection of Chroma.

    Args:
        settings: place of the vectors.

    Raises:
        EngineError: the folder cannot be used, or the server is unreachable.
    """

    def __init__(self, settings: ChromaSettings) -> None:
        self._settings = settings
        options = Settings(anonymized_telemetry=False, chroma_query_request_timeout_seconds=_TIMEOUT_S)
        try:
            self._client = self._open(options)
            self._collection: Any = self._client.get_or_create_collection(
                self._settings.collection, embedding_function=None, configuration={"hnsw": _HNSW}
            )
        except Exception as error:
            # The client raises errors of many types.
            raise EngineError(f"Chroma cannot be used: {one_line(error)}", engine="chroma") from error

    def _open(self, options: Settings) -> Any:
        if self._settings.url is None:
            return chromadb.PersistentClient(path=str(self._settings.folder), settings=options)
        parts = urlsplit(self._settings.url)
        if parts.hostname is None:
            raise ConfigError(f"thinking.vector_search: {self._settings.url!r} names no host")
        port = parts.port or _PORTS[parts.scheme]
        return chromadb.HttpClient(
            host=parts.hostname, port=port, ssl=parts.scheme == "https", settings=options
        )

    def hold(self, keys: Sequence[str], vectors: np.ndarray) -> "ChromaVectors":
        """Bring the collection up to date, and return its search (``VectorSearch``)."""
        rows = {key: row for row, key in enumerate(keys)}
        try:
            present = set(self._collection.get(include=[])["ids"])
            missing = [key for key in keys if key not in present]
            for first in range(0, len(missing), _BATCH):
                batch = missing[first : first + _BATCH]
                self._collection.add(ids=batch, embeddings=vectors[[rows[key] for key in batch]])
            gone = sorted(present - rows.keys())
            for first in range(0, len(gone), _BATCH):
                self._collection.delete(ids=gone[first : first + _BATCH])
        except Exception as error:
            raise EngineError(
                f"Chroma cannot hold the vectors: {one_line(error)}", engine="chroma"
            ) from error
        LOG.info("Chroma holds %d vectors, %d of them new", len(keys), len(missing))
        return ChromaVectors(self._collection, rows)


class ChromaVectors:
    """``NearestVectors`` of one index.

    Args:
        collection: Chroma's collection.
        rows: key -> number of the row.
    """

    def __init__(self, collection: Any, rows: dict[str, int]) -> None:
        self._collection = collection
        self._rows = rows

    def find(self, vector: np.ndarray, count: int) -> np.ndarray:
        """Return the nearest rows (``NearestVectors``)."""
        try:
            found = self._collection.query(
                query_embeddings=vector[None, :], n_results=min(count, len(self._rows)), include=[]
            )
        except Exception as error:
            raise EngineError(f"Chroma cannot be searched: {one_line(error)}", engine="chroma") from error
        known = (self._rows.get(key) for key in found["ids"][0])
        return np.array([row for row in known if row is not None], dtype=np.int64)
