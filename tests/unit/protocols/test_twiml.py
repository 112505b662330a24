"""TwiML is well-formed for any text in it."""

from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from parley.protocols import plivo, twiml

ANYTHING = st.text(st.characters(), max_size=50)


@given(ANYTHING, ANYTHING, ANYTHING)
def test_whatever_is_said_or_called_it_is_xml(words: str, name: str, number: str) -> None:
    for text in (
        twiml.connect("wss://talk.example.org/m", {"caller": number}, status_address=name),
        twiml.connect("wss://talk.example.org/m", {}, after=twiml.AfterStream(name)),
        twiml.dial(words, number, caller=name),
        twiml.refuse(words),
        twiml.offer(words, "https://talk.example.org/a", wait_s=8),
        twiml.hold(words, 5, name),
        twiml.confer(name),
        twiml.end(words),
    ):
        ElementTree.fromstring(text.encode())


def test_what_xml_has_no_place_for_is_left_out() -> None:
    said = ElementTree.fromstring(twiml.end("a\x00b\x1bc\ud800\ufffed <&> \u00e9")).findtext("Say")
    assert said == "abcd <&> \u00e9"


def test_plivo_has_its_own_names_in_documents_of_the_same_shape() -> None:
    start = '<?xml version="1.0" encoding="UTF-8"?><Response>'
    asked = '<Redirect method="POST">https://talk.example.org/a</Redirect></Response>'
    held = plivo.hold("One moment.", 5, "https://talk.example.org/a")
    assert held == f'{start}<Speak>One moment.</Speak><Wait length="5" />{asked}'
    assert twiml.hold("", 5, "https://talk.example.org/a") == f'{start}<Pause length="5" />{asked}'
    assert plivo.end("Goodbye.") == f"{start}<Speak>Goodbye.</Speak><Hangup /></Response>"
    assert plivo.end() == twiml.end() == f"{start}<Hangup /></Response>"


def test_a_call_goes_on_after_its_stream_where_it_is_asked_to() -> None:
    after = twiml.AfterStream("https://talk.example.org/again", pause_s=2)
    connected = ElementTree.fromstring(twiml.connect("wss://talk.example.org/m", {}, after=after))
    assert [each.tag for each in connected] == ["Connect", "Pause", "Redirect"]
    assert connected.findtext("Redirect") == after.address
    assert [each.tag for each in ElementTree.fromstring(twiml.connect("wss://h/m", {}))] == ["Connect"]


def test_a_call_is_passed_on_to_a_number_or_a_sip_address() -> None:
    dialled = ElementTree.fromstring(twiml.dial("Sorry.", "+15550123", caller="+15550199"))
    assert dialled.findtext("Say") == "Sorry." and dialled.findtext("Dial/Number") == "+15550123"
    assert dialled.find("Dial").attrib == {"callerId": "+15550199"}  # type: ignore[union-attr]
    to_sip = ElementTree.fromstring(twiml.dial("", "sip:help@example.org", caller="+15550199"))
    assert to_sip.findtext("Dial/Sip") == "sip:help@example.org"
