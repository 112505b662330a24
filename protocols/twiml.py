"""TwiML: Twilio's instructions for a call. Pure.

Only the verbs that Parley uses. The library that writes the XML escapes text and addresses; characters that
XML does not allow are left out. The address of a stream has no query, because Twilio does not accept one.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from xml.etree import ElementTree

MOST_PARAMETER_CHARS = 500
# Twilio accepts 4,096 characters; a longer text than this is of no use to a caller.
MOST_SAID_CHARS = 1_200
# Characters that XML 1.0 (2.2) does not allow, escaped or not: control characters, halves of surrogate pairs.
_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True, slots=True)
class Verbs:
    """Names of the elements that differ between networks with documents of this shape."""

    say: str
    pause: str


TWIML = Verbs("Say", "Pause")


@dataclass(frozen=True, slots=True)
class AfterStream:
    """Request for the next instructions once the stream is over.

    Attributes:
        address: to which the request is sent.
        pause_s: silence before it.
    """

    address: str
    pause_s: int = 0


def connect(
    address: str,
    parameters: Mapping[str, str],
    *,
    status_address: str = "",
    after: AfterStream | None = None,
) -> str:
    """Return the document that connects the call to a media stream, both ways.

    Args:
        address: wss:// without a query.
        parameters: returned by Twilio in ``start``; longer values than Twilio accepts are cut.
        status_address: notified of the start and the end of the stream.
        after: where the call goes on when its socket is closed; None: the call ends with its socket.
    """
    response = ElementTree.Element("Response")
    stream = ElementTree.SubElement(ElementTree.SubElement(response, "Connect"), "Stream", url=address)
    if status_address:
        stream.set("statusCallback", status_address)
        stream.set("statusCallbackMethod", "POST")
    for name, value in parameters.items():
        room = MOST_PARAMETER_CHARS - len(name)
        ElementTree.SubElement(stream, "Parameter", name=name, value=value[:room])
    if after is not None:
        if after.pause_s:
            ElementTree.SubElement(response, "Pause", length=str(after.pause_s))
        ElementTree.SubElement(response, "Redirect", method="POST").text = after.address
    return document(response)


def relay(
    address: str,
    action: str,
    attributes: Mapping[str, str],
    languages: Mapping[str, Mapping[str, str]] | None = None,
) -> str:
    """Return the document that connects the call to a socket of text (ConversationRelay).

    Args:
        address: wss:// without a query.
        action: where Twilio asks how the call goes on when the socket is closed or the session has ended.
        attributes: of Twilio's element: language, voices, detection of keys.
        languages: to which the call may switch, with the attributes of each: voices, recogniser.
    """
    response = ElementTree.Element("Response")
    connected = ElementTree.SubElement(response, "Connect", action=action, method="POST")
    element = ElementTree.SubElement(connected, "ConversationRelay", {"url": address, **attributes})
    for code, own in (languages or {}).items():
        ElementTree.SubElement(element, "Language", {"code": code, **own})
    return document(response)


def refuse(words: str) -> str:
    """Return the document that speaks and hangs up. Without words the caller hears a busy signal."""
    if words:
        return end(words)
    response = ElementTree.Element("Response")
    ElementTree.SubElement(response, "Reject", reason="busy")
    return document(response)


def hold(words: str, pause_s: int, address: str, *, verbs: Verbs = TWIML) -> str:
    """Return the document that speaks to a waiting caller, pauses, and requests the next instructions.

    Args:
        words: may be empty.
        pause_s: after the words.
        address: to which the request is sent.
        verbs: of the network.
    """
    response = _saying(words, verbs)
    ElementTree.SubElement(response, verbs.pause, length=str(pause_s))
    ElementTree.SubElement(response, "Redirect", method="POST").text = address
    return document(response)


def offer(words: str, answer_address: str, *, wait_s: int) -> str:
    """Return the document that offers a call to a person, who accepts with any key; a machine presses none.

    Args:
        words: description of the call.
        answer_address: receives the key and returns the next instructions.
        wait_s: time for the key after the words, which are spoken twice.
    """
    response = ElementTree.Element("Response")
    gather = ElementTree.SubElement(
        response,
        "Gather",
        numDigits="1",
        # By default "#" ends the input and is not part of it.
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
    """Return the document that puts the call into a conference of two, which ends when either side leaves.

    Args:
        name: of the conference; unguessable, because the name gives access.
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


def dial(words: str, to: str, *, caller: str) -> str:
    """Return the document that speaks, and then connects the call to another number.

    Args:
        words: may be empty.
        to: number, or a SIP address.
        caller: one of the account's own numbers, which the other side sees.
    """
    response = _saying(words, TWIML)
    dialled = ElementTree.SubElement(response, "Dial", callerId=caller)
    if to.startswith("sip:"):
        ElementTree.SubElement(dialled, "Sip").text = to
    else:
        ElementTree.SubElement(dialled, "Number").text = to
    return document(response)


def end(words: str = "", *, verbs: Verbs = TWIML) -> str:
    """Return the document that hangs up after these words."""
    response = _saying(words, verbs)
    ElementTree.SubElement(response, "Hangup")
    return document(response)


def _saying(words: str, verbs: Verbs) -> ElementTree.Element:
    response = ElementTree.Element("Response")
    if words:
        ElementTree.SubElement(response, verbs.say).text = words[:MOST_SAID_CHARS]
    return response


def document(response: ElementTree.Element) -> str:
    """Return the text of a document, without characters that XML does not allow."""
    text = ElementTree.tostring(response, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>{_NO_XML.sub("", text)}'
