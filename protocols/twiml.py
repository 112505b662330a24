"""TwiML: what Twilio is told to do with a call. Pure.

Only the verbs that Parley uses. Text and addresses are escaped by the library that writes the XML; an address
of a stream has no query, which Twilio does not take.
"""

from collections.abc import Mapping
from xml.etree import ElementTree

MOST_PARAMETER_CHARS = 500


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
    return _text(response)


def refuse(words: str) -> str:
    """Say something, and hang up; without words the caller hears that the line is engaged."""
    response = ElementTree.Element("Response")
    if words:
        ElementTree.SubElement(response, "Say").text = words
        ElementTree.SubElement(response, "Hangup")
    else:
        ElementTree.SubElement(response, "Reject", reason="busy")
    return _text(response)


def _text(response: ElementTree.Element) -> str:
    return '<?xml version="1.0" encoding="UTF-8"?>' + ElementTree.tostring(response, encoding="unicode")
