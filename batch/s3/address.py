"""Address of objects in a bucket: ``s3://BUCKET/PREFIX``.

The server and the credentials are those of AWS's own environment variables: ``AWS_ENDPOINT_URL``,
``AWS_REGION``, ``AWS_ACCESS_KEY_ID`` and others.
"""

import os
import re
from dataclasses import dataclass

from parley.core.errors import ConfigError
from parley.runtime.object_store import ObjectStore, RequestLimits

SCHEME = "s3://"
# Other kinds of a cloud's credentials have such names too: web identity, container roles.
ENVIRONMENT_BEGINNING = "AWS_"
# Way to the server: certificates and proxies.
_WAY = frozenset({"SSL_CERT_FILE", "SSL_CERT_DIR", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"})
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
# Of the long work of a job: a bucket that slows down is waited for longer than by a reader of a page.
RETRIES = 10


@dataclass(frozen=True, slots=True)
class ObjectAddress:
    """Bucket, and the beginning of the names of objects in it, without slashes at its ends."""

    bucket: str
    prefix: str

    @classmethod
    def parse(cls, text: str, *, option: str) -> "ObjectAddress":
        """Return the address in a command line.

        Raises:
            ConfigError: it is none.
        """
        bucket, _, prefix = text.removeprefix(SCHEME).partition("/")
        if not text.startswith(SCHEME) or not _BUCKET.fullmatch(bucket):
            raise ConfigError(f"{option}: {text!r} is no address like s3://BUCKET/PREFIX")
        prefix = prefix.strip("/")
        if any(part in ("", ".", "..") for part in prefix.split("/")) and prefix:
            raise ConfigError(f"{option}: {text!r} has a part of a name that is empty or has dots only")
        return cls(bucket, prefix)

    def __str__(self) -> str:
        return SCHEME + "/".join(filter(None, (self.bucket, self.prefix)))

    def key(self, name: str) -> str:
        """Return the whole name of an object below the prefix."""
        return f"{self.prefix}/{name}" if self.prefix else name

    def open(self, *, option: str, retry_s: float) -> ObjectStore:
        """Return the bucket.

        Args:
            option: that names it, for messages.
            retry_s: time during which a failed request is tried again.

        Raises:
            ConfigError: the package is not installed, or a variable of the environment is wrong.
        """
        return ObjectStore(self.bucket, option=option, limits=RequestLimits(retries=RETRIES, retry_s=retry_s))


def is_address(text: str) -> bool:
    """Return whether a source or a destination is in a bucket."""
    return text.startswith(SCHEME)


def storage_environment() -> dict[str, str]:
    """Return the variables of the environment that a process needs to reach a bucket."""
    return {
        name: value
        for name, value in os.environ.items()
        if name.startswith(ENVIRONMENT_BEGINNING) or name.upper() in _WAY
    }
