"""Context of a session as text of its row."""

import pytest

from parley.models.llm.hosted.session_cache import NOTED_SEGMENTS, CachedDialogue, cache_of, cache_text
from parley.models.llm.kv.segments import CacheHandle

HANDLE = CacheHandle("w", "1", "d40", 400)


def test_a_context_is_read_as_it_was_written_with_its_last_segments() -> None:
    chain = tuple((f"d{number}", 10 * number) for number in range(41))
    read = cache_of(cache_text(CachedDialogue(HANDLE, chain)))
    assert read == CachedDialogue(HANDLE, chain[-NOTED_SEGMENTS:])


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "null",
        "[]",
        '{"handle": null, "chain": []}',
        '{"handle": {"worker": "w"}, "chain": []}',
        '{"handle": {"worker": "w", "incarnation": "1", "digest": "d", "kv_tokens": 1}, "chain": [1]}',
    ],
)
def test_what_another_release_may_have_written_is_no_context(text: str | None) -> None:
    assert cache_of(text) == CachedDialogue()
