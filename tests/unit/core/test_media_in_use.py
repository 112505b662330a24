"""Media by which a caller takes part."""

from parley.core.media_in_use import MediaInUse
from parley.core.tiers import Medium


def test_a_call_that_ends_takes_its_media_along_and_no_others() -> None:
    media = MediaInUse()
    for medium in (Medium.VOICE, Medium.VIDEO, Medium.SCREEN):
        media.begin(medium, "first")
    assert media.now == {Medium.VOICE, Medium.VIDEO, Medium.SCREEN}
    assert not media.end(Medium.SCREEN, "first")
    media.begin(Medium.VOICE, "second")
    assert not media.end(Medium.VOICE, "first")
    assert media.now == {Medium.VOICE}
    # The camera of the lost connection is noticed late.
    assert not media.end(Medium.VIDEO, "first")
    assert media.end(Medium.VOICE, "second") and not media.now
    assert not media.end(Medium.VOICE, "second")
