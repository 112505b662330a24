"""Facts about the maker of a reply: release, deployment, engines and prompt, as digests where they are long.

A reply whose session is signed (``session_store.evidence``) has them in its payload (``made_by``). Pure.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Provenance:
    """Maker of the replies of a process.

    Attributes:
        release: version of Parley.
        deployment: digest of the effective deployment.
    """

    release: str
    deployment: str

    def of_reply(self, engines: Mapping[str, str], prompt: str) -> dict[str, Any]:
        """Return the facts of one reply as JSON.

        Args:
            engines: name of the engine of each stage.
            prompt: system prompt of its request, with the additions of its client.
        """
        facts = {"release": self.release, "deployment": self.deployment, "prompt": digest_of(prompt)}
        return {**facts, "engines": dict(engines)}


def digest_of(text: str) -> str:
    """Return the SHA-256 of a text in UTF-8, in hexadecimal digits."""
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def canonical_json(facts: Mapping[str, Any]) -> str:
    """Return JSON that is the same for equal facts: keys in order, no white space, ASCII."""
    return json.dumps(facts, sort_keys=True, separators=(",", ":"), allow_nan=False)
