"""Token of the operator, where the environment has none: generated once, and kept in a file.

The operator always needs a token. The origin of a request from this machine proves nothing. A tunnel, a TLS
terminator or a reverse proxy on it forwards requests of strangers from a loopback address, with ``Host:
127.0.0.1:7860`` (nginx's default) and without any header about them. The file has the mode 0600 and lies in
the deployment's data folder. A file that other users could have read or written is refused.
"""

import os
import secrets
import stat
from dataclasses import dataclass
from pathlib import Path

from loguru import logger

from parley.core.errors import ConfigError
from parley.serving.gateway.settings import ADMIN_TOKEN_ENV

FILE = "operator_token"
MOST_BYTES = 1_000
LEAST_CHARS = 24


@dataclass(frozen=True, slots=True)
class AdminToken:
    """Token of one process.

    Attributes:
        text: the token.
        generated: true when it is not from the environment, and so must be shown to the person who starts the
            server.
        path: file that keeps it; None where it is not kept.
    """

    text: str
    generated: bool = False
    path: Path | None = None


def operator_token(data_dir: Path) -> AdminToken:
    """Return the token of the environment or of the data folder, where one is generated if there is none.

    Reads and writes files.

    Raises:
        ConfigError: other users could read or write the file, or it holds no token; in one line, with the
            remedy.
    """
    given = os.environ.get(ADMIN_TOKEN_ENV, "")
    if given:
        return AdminToken(given)
    path = data_dir / FILE
    try:
        kept = _read(path)
        if kept is None:
            kept = _create(path)
    except OSError as error:
        # The folder is not writable, as in some containers: the token lives as long as the process.
        logger.warning(
            f"cannot store the operator's token in {path}: {error.strerror or error}; set {ADMIN_TOKEN_ENV} "
            "for a token that survives a restart"
        )
        return AdminToken(secrets.token_urlsafe(32), generated=True)
    return AdminToken(kept, generated=True, path=path)


def _read(path: Path) -> str | None:
    """Return the token of a file that only this user can access; None where there is no file."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError as error:
        if path.is_symlink():
            raise ConfigError(f"{path} is a link: delete it, and a new token will be made") from error
        raise
    try:
        facts = os.fstat(file)
        if not stat.S_ISREG(facts.st_mode) or facts.st_uid != os.geteuid():
            raise ConfigError(f"{path} is not a file of this user: delete it, and a new token will be made")
        if facts.st_mode & 0o077:
            raise ConfigError(
                f"{path} can be read by other users (mode {stat.S_IMODE(facts.st_mode):04o}): delete it, "
                "and a new token will be made with mode 0600"
            )
        text = os.read(file, MOST_BYTES).decode("ascii", "replace").strip()
    finally:
        os.close(file)
    if len(text) < LEAST_CHARS or not text.isascii() or not text.isprintable():
        raise ConfigError(f"{path} contains no token: delete it, and a new one will be made")
    return text


def _create(path: Path) -> str:
    """Create the file atomically: another process may start at the same time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    token = secrets.token_urlsafe(32)
    making = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    file = os.open(making, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        try:
            os.write(file, f"{token}\n".encode())
            os.fsync(file)
        finally:
            os.close(file)
        try:
            os.link(making, path)
        except FileExistsError:
            # The other process was faster: its token is valid.
            found = _read(path)
            if found is None:
                raise
            return found
    finally:
        making.unlink(missing_ok=True)
    return token
