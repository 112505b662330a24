"""Cache of computed sentence vectors.

Inputs: a folder, and a key that identifies every text and the model. Output: the stored matrix, or None. A
damaged, foreign or half-written file is a miss, never an error; a folder that cannot be written costs a
warning and the time to compute again. Files are replaced atomically, so several processes may share the
folder. Blocking; owns no state and no thread.
"""

import hashlib
import logging
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np

LOG = logging.getLogger(__name__)

# A deployment has one set of documents; other files remain from earlier edits. 16 files of the shipped
# documents' size are 14 MB.
_FILES_KEPT = 16
_SUFFIX = ".vectors.npy"


def vectors_key(identity: str, texts: Iterable[str]) -> str:
    """Return a digest of the model's identity and of every text in order."""
    digest = hashlib.sha256(identity.encode())
    for text in texts:
        digest.update(b"\0" + text.encode())
    return digest.hexdigest()[:40]


def read_vectors(folder: Path, key: str, shape: tuple[int, int]) -> np.ndarray | None:
    """Return the stored matrix, float32, of ``shape`` with rows of length 1; None without a valid one."""
    path = folder / f"{key}{_SUFFIX}"
    try:
        matrix = np.load(path, allow_pickle=False)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, EOFError) as error:
        LOG.warning("ignoring the damaged vector cache %s: %s", path, error)
        return None
    if matrix.dtype != np.float32 or matrix.shape != shape:
        LOG.warning("ignoring the vector cache %s: it belongs to another matrix", path)
        return None
    # Also detects a file whose blocks never reached the disk: zeros and noise are not of length 1.
    if not np.allclose(np.linalg.norm(matrix, axis=1), 1.0, atol=1e-3):
        LOG.warning("ignoring the damaged vector cache %s", path)
        return None
    return np.asarray(matrix)


def write_vectors(folder: Path, key: str, matrix: np.ndarray) -> None:
    """Store ``matrix`` under ``key`` and delete the oldest files; an error of the folder is only logged."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor, partial = tempfile.mkstemp(dir=folder, suffix=".partial")
        try:
            with os.fdopen(descriptor, "wb") as file:
                np.save(file, matrix, allow_pickle=False)
            os.replace(partial, folder / f"{key}{_SUFFIX}")
        except BaseException:
            Path(partial).unlink(missing_ok=True)
            raise
        stored = sorted(folder.glob(f"*{_SUFFIX}"), key=lambda path: path.stat().st_mtime, reverse=True)
        for path in stored[_FILES_KEPT:]:
            path.unlink(missing_ok=True)
    except OSError as error:
        LOG.warning("cannot store sentence vectors in %s: %s", folder, error)
