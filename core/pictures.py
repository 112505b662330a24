"""Pictures of a conversation: their form in a session, and in the messages that are made from it.

A picture is stored once in its session, under a key made of its content. A message of the dialogue holds a
reference to it, as a part in the form of OpenAI's chat completions; the stage before a language model that
sees (``processors.dialogue.pictures``) puts the picture in its place. A model that does not see, and a
request that leaves older pictures out, have a remark in brackets instead. Pure.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# Sources of a picture in a call, as ``transport_source`` of its frame: a camera, a shared screen, or the
# caller, who shows it with their next turn.
CAMERA, SCREEN, SHOWN = "camera", "screen", "shown"

# Before the picture of a shared screen.
OF_SCREEN = "[shared screen]"
# In place of a picture, for a model that sees none.
UNSEEN = "[picture that this model cannot see]"
# In place of an older picture, for a model that has seen it.
NO_LONGER_SHOWN = "[picture of before, no longer shown]"
# In place of a picture that could not be read from the session.
UNREADABLE = "[picture that could not be read]"

MEDIA_TYPES = ("image/jpeg", "image/png", "image/webp")

_SCHEME = "parley:"
_KEY = re.compile(r"picture\.[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Picture:
    """Picture in the form in which it is stored and sent.

    Attributes:
        key: name in its session; the same content has the same key.
        media_type: one of ``MEDIA_TYPES``.
        width: in pixels.
        height: in pixels.
        data: the file, in base64.
        source: ``SCREEN`` for the picture of a shared screen; empty for any other.
    """

    key: str
    media_type: str
    width: int
    height: int
    data: str
    source: str = ""

    @property
    def url(self) -> str:
        """Data URL, which providers accept as a picture."""
        return f"data:{self.media_type};base64,{self.data}"


@dataclass(frozen=True, slots=True)
class PictureFile:
    """Picture as a client sends it.

    Attributes:
        data: the file, in base64.
        media_type: as the client states it; None where it does not.
    """

    data: str
    media_type: str | None = None


def picture_key(content: bytes) -> str:
    """Return the key of a picture."""
    return f"picture.{hashlib.sha256(content).hexdigest()}"


def is_picture_key(key: object) -> bool:
    """Return whether this is the key of a picture."""
    return isinstance(key, str) and _KEY.fullmatch(key) is not None


def reference(key: str) -> dict[str, Any]:
    """Return the part of a message that stands for a picture of the session."""
    return {"type": "image_url", "image_url": {"url": f"{_SCHEME}{key}"}}


def referred_key(part: object) -> str | None:
    """Return the key of the picture that a part of a message stands for; None for any other part."""
    if not is_image(part):
        return None
    assert isinstance(part, Mapping)
    given = part.get("image_url")
    url = given.get("url") if isinstance(given, Mapping) else None
    key = url.removeprefix(_SCHEME) if isinstance(url, str) and url.startswith(_SCHEME) else None
    return key if is_picture_key(key) else None


def is_image(part: object) -> bool:
    """Return whether a part of a message is a picture."""
    return isinstance(part, Mapping) and part.get("type") == "image_url"
