"""Facts about the maker of a reply: release, deployment, engines and prompt, as digests where they are long.

A reply whose session is signed (``session_store.evidence``) has them in its payload (``made_by``). Pure.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from parley.core.usage import Stage

LLM = Stage.LLM.value


@dataclass(frozen=True, slots=True)
class Provenance:
    """Maker of the replies of a process.

    Attributes:
        release: version of Parley.
        deployment: digest of the effective deployment.
    """

    release: str
    deployment: str

    def of_reply(
        self,
        engines: Mapping[str, str],
        prompt: str,
        *,
        models: Mapping[str, str] = MappingProxyType({}),
        writers: Sequence[str] = (),
    ) -> dict[str, Any]:
        """Return the facts of one reply as JSON.

        Args:
            engines: name of the engine of each stage.
            prompt: system prompt of its request, with the additions of its client.
            models: name of the model of each stage whose engine has reported it.
            writers: authors of the text in their order, where another than the language model wrote a part;
                empty for the language model.
        """
        engines, models = dict(engines), dict(models)
        begun_by = [engines[LLM] if not writer else writer for writer in writers[:-1]]
        if writers and writers[-1]:
            engines[LLM] = writers[-1]
            # That of the engine which did not answer, or did not finish the answer.
            models.pop(LLM, None)
        facts: dict[str, Any] = {
            "release": self.release,
            "deployment": self.deployment,
            "prompt": digest_of(prompt),
        }
        facts |= {"engines": engines, "models": models}
        return {**facts, "begun_by": begun_by} if begun_by else facts


def digest_of(text: str) -> str:
    """Return the SHA-256 of a text in UTF-8, in hexadecimal digits."""
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def canonical_json(facts: Mapping[str, Any]) -> str:
    """Return JSON that is the same for equal facts: keys in order, no white space, ASCII."""
    return json.dumps(facts, sort_keys=True, separators=(",", ":"), allow_nan=False)
