"""Payloads of a fuzzed conversation: valid messages, and messages that differ in one or a few respects. Pure.

``evals.abuse.mutations`` changes the structure of a message. This module adds what depends on its encoding
(duplicate keys, literals that are no JSON, byte order marks), on base64 within it, and on other messages of
the same protocol (fields that belong to another type).

The same dice give the same payloads. Identifiers that a server has given (``known``) take the place of those
of the samples; the dice do not depend on how many there are.
"""

import base64
import copy
import json
import random
from collections.abc import Callable, Sequence
from typing import Any

from parley.evals.abuse.mutations import mutated, mutated_bytes, paths_of, replaced, value_at

Dice = random.Random
Payload = str | bytes

# Shares of the kinds of payloads; the rest is bytes.
VALID, MUTATED, SPLICED, MISSPELT, RECODED = 0.30, 0.35, 0.10, 0.10, 0.10
KNOWN = 0.3
# Texts of JSON's grammar, and of what lenient parsers take for it.
LITERALS = (
    "NaN",
    "Infinity",
    "-Infinity",
    "1e400",
    "-0",
    "01",
    ".5",
    "1.",
    "0x10",
    "'a'",
    "undefined",
    "True",
    '"\\ud800"',
    '"\\udc00\\ud800"',
    '"\\u0000"',
    '"\ufeff"',
    '"\\x41"',
    "1" * 5_000,
    "1e-400",
    "[,]",
    '{"a"}',
)
# Texts from this length on are taken for base64.
BASE64_CHARS = 8
# Audio of other formats: odd bytes, floats that are not finite, a WAV's head, another codec's pages.
WRONG_AUDIO = (
    b"",
    b"\0",
    b"\xff" * 3,
    b"\0\0\xc0\x7f" * 400,
    b"\0\0\x80\x7f" * 400,
    b"\xff\xff\x7f\x7f" * 400,
    b"RIFF\xff\xff\xff\xffWAVEfmt \x10\0\0\0",
    b"OggS" + b"\xff" * 60,
    b"\xff\xd8\xff\xe0" + bytes(64),
    b"\x89PNG\r\n\x1a\n" + b"\xff" * 40,
    b"\x1aE\xdf\xa3" + bytes(40),
    bytes(7_777),
)


def payload(messages: Sequence[Any], dice: Dice, known: Sequence[str] = ()) -> Payload:
    """Return the next payload of a conversation.

    Args:
        messages: well-formed messages of the protocol.
        dice: decide.
        known: identifiers that the server has given.
    """
    message = named(copy.deepcopy(dice.choice(messages)), dice, known)
    kind = dice.random()
    for share, make in _KINDS:
        kind -= share
        if kind < 0:
            return make(message, messages, dice)
    return mutated_bytes(json.dumps(message).encode(), dice)


def named(message: Any, dice: Dice, known: Sequence[str]) -> Any:
    """Return a message in which identifiers of the samples are, now and then, those of the server."""
    for path in paths_of(message):
        name = path[-1] if path else ""
        if not (isinstance(name, str) and name.endswith(("id", "Id", "Sid", "name"))):
            continue
        draw, place = dice.random(), dice.random()
        if draw < KNOWN and known:
            message = replaced(message, path, known[int(place * len(known))])
    return message


def identifiers(message: Any) -> list[str]:
    """Return the identifiers in a message of the server."""
    found = []
    for path in paths_of(message):
        value = value_at(message, path)
        is_name = path and isinstance(path[-1], str) and path[-1].endswith(("id", "Id", "Sid", "name"))
        if is_name and isinstance(value, str) and value:
            found.append(value[:200])
    return found


def _valid(message: Any, _messages: Sequence[Any], _dice: Dice) -> Payload:
    return json.dumps(message)


def _mutated(message: Any, _messages: Sequence[Any], dice: Dice) -> Payload:
    return mutated(message, dice)


def spliced(message: Any, messages: Sequence[Any], dice: Dice) -> Payload:
    """Return a message with a part of another one, at a place where the protocol does not have it."""
    other = copy.deepcopy(dice.choice(messages))
    part = value_at(other, dice.choice(paths_of(other)))
    if isinstance(message, dict) and isinstance(other, dict) and dice.random() < 0.5:
        return json.dumps({**other, **message} if dice.random() < 0.5 else {**message, **other})
    return json.dumps(replaced(message, dice.choice(paths_of(message)), part))


def misspelt(message: Any, _messages: Sequence[Any], dice: Dice) -> Payload:
    """Return a text that resembles the JSON of a message."""
    text = json.dumps(message)
    match dice.randrange(6):
        case 0:
            # Each key twice, with different values.
            return text.replace("{", '{"type": null, ', dice.randint(1, 3))
        case 1:
            return text.replace("{", "{" + text[1:-1] + ", ", 1) if text.startswith("{") else text * 2
        case 2:
            place = dice.choice([at for at, char in enumerate(text) if char in ":,["] or [0])
            return text[: place + 1] + dice.choice(LITERALS) + text[place + 1 :]
        case 3:
            return json.dumps(replaced(message, dice.choice(paths_of(message)), "@@")).replace(
                '"@@"', dice.choice(LITERALS)
            )
        case 4:
            return dice.choice(("\ufeff", "\x1e", "// x\n", "\0", "\u2028")) + text
        case _:
            return "".join(f"\\u{ord(char):04x}" if char.isalpha() else char for char in text)


def recoded(message: Any, _messages: Sequence[Any], dice: Dice) -> Payload:
    """Return a message in which a text, base64 where there is one, is other or broken base64."""
    texts = [path for path in paths_of(message) if isinstance(value_at(message, path), str)]
    longest = [path for path in texts if len(value_at(message, path)) >= BASE64_CHARS] or texts
    if not longest:
        return json.dumps(message)
    path = dice.choice(longest)
    old = value_at(message, path)
    match dice.randrange(6):
        case 0:
            new = base64.b64encode(dice.choice(WRONG_AUDIO)).decode()
        case 1:
            new = base64.b64encode(dice.randbytes(dice.randrange(4_000))).decode()
        case 2:
            new = old[: dice.randrange(len(old) + 1)]
        case 3:
            new = base64.urlsafe_b64encode(dice.randbytes(300)).decode().rstrip("=")
        case 4:
            place = dice.randrange(len(old) + 1)
            new = old[:place] + dice.choice((" ", "\n", "=", "\u00e9", "\0", "%", "\U0001f600")) + old[place:]
        case _:
            new = "data:audio/wav;base64," + old
    return json.dumps(replaced(message, path, new))


_KINDS: Sequence[tuple[float, Callable[[Any, Sequence[Any], Dice], Payload]]] = (
    (VALID, _valid),
    (MUTATED, _mutated),
    (SPLICED, spliced),
    (MISSPELT, misspelt),
    (RECODED, recoded),
)
