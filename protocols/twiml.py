"""TwiML: what Twilio is told to do with a call. Pure.

Only the verbs that Parley uses. Text and addresses are escaped by the library that writes the XML; characters
that no XML may have are left out. An address of a stream has no query, which Twilio does not take.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from xml.etree import ElementTree

MOST_PARAMETER_CHARS = 500
# Twilio takes 4,096 characters of words; nobody listens to more than this.
MOST_SAID_CHARS = 1_200
# What XML 1.0 (2.2) has no place for, escaped or not: control characters, halves of surrogate pairs.
_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True, slots=True)
class Verbs:
    """Names of the elements in which networks with documents of this shape differ."""

    say: str
    pause: str


TWIML = Verbs("Say", "Pause")


def connect(address: str, parameters: Mapping[str, str], *, status_address: str = "") -> str:
    """Connect the call to a media stream, both ways; when its socket is closed the call is over.

    Args:
        address: wss:// without a query.
        parameters: come back with ``start``; what is too long for Twilio is cut.
        status_address: is told how the stream began and ended.
    """
    response = ElementTree.Element("Response")
    stream = ElementTree.SubElement(ElementTree.SubElement(response, "Connect"), "Stream", url=address)
    if status_address:
        stream.set("statusCallback", status_address)
        stream.set("statusCallbackMethod", "POST")
    for name, value in parameters.items():
        room = MOST_PARAMETER_CHARS - len(name)
        ElementTree.SubElement(stream, "Parameter", name=name, value=value[:room])
    return document(response)


def refuse(words: str) -> str:
    """Say something, and hang up; without words the caller hears that the line is engaged."""
    if words:
        return end(words)
    response = ElementTree.Element("Response")
    ElementTree.SubElement(response, "Reject", reason="busy")
    return document(response)


def hold(words: str, pause_s: int, address: str, *, verbs: Verbs = TWIML) -> str:
    """Say something to a caller who waits, pause, and ask again what to do.

    Args:
        words: may be none.
        pause_s: after them.
        address: that is asked.
        verbs: of the network.
    """
    response = _saying(words, verbs)
    ElementTree.SubElement(response, verbs.pause, length=str(pause_s))
    ElementTree.SubElement(response, "Redirect", method="POST").text = address
    return document(response)


def offer(words: str, answer_address: str, *, wait_s: int) -> str:
    """Ask whoever answers to take a call with a key, any key; a machine presses none.

    Args:
        words: what it is about.
        answer_address: is told the key, and says what follows.
        wait_s: for the key, behind the words; they are said twice.
    """
    response = ElementTree.Element("Response")
    gather = ElementTree.SubElement(
        response,
        "Gather",
        numDigits="1",
        # By default "#" ends what is gathered and is none of it.
        finishOnKey="",
        timeout=str(wait_s),
        action=answer_address,
        method="POST",
    )
    for _ in range(2):
        ElementTree.SubElement(gather, "Say").text = words[:MOST_SAID_CHARS]
        ElementTree.SubElement(gather, "Pause", length="1")
    ElementTree.SubElement(response, "Hangup")
    return document(response)


def confer(name: str) -> str:
    """Put the call into a conference of two, which is over when either goes.

    Args:
        name: of the conference; unguessable, since who knows it is in.
    """
    response = ElementTree.Element("Response")
    conference = ElementTree.SubElement(
        ElementTree.SubElement(response, "Dial"),
        "Conference",
        beep="false",
        startConferenceOnEnter="true",
        endConferenceOnExit="true",
        maxParticipants="2",
    )
    conference.text = name
    return document(response)


def end(words: str = "", *, verbs: Verbs = TWIML) -> str:
    """Hang up after these words."""
    response = _saying(words, verbs)
    ElementTree.SubElement(response, "Hangup")
    return document(response)


def _saying(words: str, verbs: Verbs) -> ElementTree.Element:
    response = ElementTree.Element("Response")
    if words:
        ElementTree.SubElement(response, verbs.say).text = words[:MOST_SAID_CHARS]
    return response


def document(response: ElementTree.Element) -> str:
    """Return the text of a document, without characters that no XML may have."""
    text = ElementTree.tostring(response, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>{_NO_XML.sub("", text)}'
