"""Records of the connections that a call has lost: announcements that were heard, and its beginning."""

from parley.pipelines.call import EarlierStreams
from parley.pipelines.earlier_streams import earlier_streams
from parley.session_store.events import Kind
from tests.fakes.timeline import Timeline

PHRASE = "This call is recorded."


def joined(line: Timeline, call_id: str, name: str = "c") -> int:
    return line.add(Kind.JOINED, {"call_id": call_id, "line": name}).seq


def announced(line: Timeline, call_id: str) -> None:
    line.add(Kind.RECORDING, {"call_id": call_id, "state": "announced", "text": PHRASE})


def test_an_announcement_over_any_stream_of_the_call_was_heard() -> None:
    line = Timeline()
    line.said("typed", transport="text")
    began = joined(line, "1")
    announced(line, "1")
    joined(line, "2")
    read = earlier_streams(reversed(line.events), "c", is_whole=True)
    assert read == EarlierStreams(frozenset({PHRASE}), began)


def test_the_first_connection_of_a_page_has_the_name_of_the_call_as_its_id() -> None:
    line = Timeline()
    began = line.add(Kind.JOINED, {"call_id": "1"}).seq
    announced(line, "1")
    joined(line, "2", "1")
    read = earlier_streams(reversed(line.events), "1", is_whole=True)
    assert read == EarlierStreams(frozenset({PHRASE}), began)


def test_an_announcement_in_another_call_of_the_session_was_not_heard_in_this_one() -> None:
    line = Timeline()
    joined(line, "1", "yesterday")
    announced(line, "1")
    began = joined(line, "2")
    read = earlier_streams(reversed(line.events), "c", is_whole=True)
    assert read == EarlierStreams(frozenset(), began)


def test_a_stream_that_left_no_record_has_said_nothing() -> None:
    line = Timeline()
    last = joined(line, "1", "yesterday")
    assert earlier_streams(line.events, "c", is_whole=True) == EarlierStreams(since_seq=last)
    assert earlier_streams([], "c", is_whole=True) == EarlierStreams(since_seq=0)
    # Its records may be among the events that were not read.
    assert earlier_streams(line.events, "c", is_whole=False) == EarlierStreams()
