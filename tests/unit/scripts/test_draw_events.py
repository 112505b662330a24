"""docs/reference/events.md agrees with the source and a simulated call."""

from scripts.draw_events import DOCUMENT, drawn, events_of_calls, uses


def test_the_document_is_current():
    assert DOCUMENT.read_text(encoding="utf-8") == drawn(), "run: python -m scripts.draw_events"


def test_every_event_is_published_and_received():
    found = uses()
    for event in events_of_calls():
        assert found[event.__name__].publishers, f"nothing publishes {event.__name__}"
        assert found[event.__name__].subscribers, f"nothing subscribes to {event.__name__}"
