"""Find what lasts in a camera's frames: beginnings, ends and flickers."""

import random

import pytest

from parley.core.timeline import VisionPayload
from parley.processors.fusion.seen_states import OPEN_US, SeenStatement, SeenStates

FRAME_US = 200_000
POINTING = "pointing up"


class Camera:
    """Frames of a camera, five a second, and all that was reported of them."""

    def __init__(self) -> None:
        self.states = SeenStates()
        self.now_us = 1_000_000
        self.reports: list[SeenStatement] = []

    def show(self, count: int = 1, *, confidence: float = 0.8, **seen: object) -> list[SeenStatement]:
        """Show frames; return the reports about them."""
        fresh: list[SeenStatement] = []
        for _ in range(count):
            given = {"faces": 1, "looking": "here"} | seen
            payload = VisionPayload(self.now_us, self.now_us, **given)  # type: ignore[arg-type]
            fresh += self.states.take(payload, confidence)
            self.now_us += FRAME_US
        self.reports += fresh
        return fresh


def spans(reports: list[SeenStatement]) -> dict[str, tuple[int, int]]:
    """Return the last stretch of each statement."""
    return {each.identity: (each.payload.start_us, each.payload.end_us) for each in reports}


def test_a_gesture_is_reported_with_its_first_frame_and_again_with_its_end():
    camera = Camera()
    camera.show(3)
    began_us = camera.now_us
    (begin,) = camera.show(gesture=POINTING)
    assert begin.payload.gesture == POINTING and not begin.final and begin.revision == 0
    assert begin.event_us == begin.payload.start_us == began_us
    assert begin.payload.end_us == began_us + OPEN_US
    assert camera.show(3, gesture=POINTING) == []
    ended_us = camera.now_us
    end, after = camera.show(2)
    assert end.identity == begin.identity and (end.revision, end.final) == (1, True)
    assert (end.payload.start_us, end.payload.end_us) == (began_us, ended_us)
    assert after.payload.gesture is None and after.final and after.identity != begin.identity


def test_one_blurred_frame_does_not_end_a_gesture():
    camera = Camera()
    camera.show(gesture=POINTING)
    assert camera.show(1) + camera.show(2, gesture=POINTING) == []


def test_a_finger_that_moves_on_points_at_something_else():
    camera = Camera()
    (first,) = camera.show(gesture=POINTING, at=(0.2, 0.5))
    assert camera.show(gesture=POINTING, at=(0.25, 0.5)) == []
    moved_us = camera.now_us
    end, second = camera.show(gesture=POINTING, at=(0.6, 0.5))
    assert end.identity == first.identity and end.payload.end_us == moved_us
    assert second.payload.at == (0.6, 0.5) and second.payload.start_us == moved_us


def test_faces_change_when_frames_agree_for_a_while_and_from_the_first_of_them():
    camera = Camera()
    camera.show(2)
    turned_us = camera.now_us
    assert camera.show(2, looking="away") == []
    (away,) = camera.show(looking="away")
    assert away.payload.looking == "away" and away.payload.start_us == turned_us
    # The report itself is about the frame that made it certain.
    assert away.event_us == turned_us + 2 * FRAME_US
    # A face that is missed once is still there.
    assert camera.show(faces=0, looking=None) + camera.show(looking="away") == []


def test_a_state_that_says_nothing_is_a_moment():
    camera = Camera()
    (first,) = camera.show(5)
    assert first.final and first.payload.start_us == first.payload.end_us
    (empty,) = camera.show(3, faces=0, looking=None)
    assert empty.final and empty.payload.start_us == empty.payload.end_us


def test_two_people_are_reported_for_as_long_as_they_are_there():
    camera = Camera()
    (begin,) = camera.show(3, faces=2)
    assert begin.payload.faces == 2 and not begin.final


def test_what_lasts_longer_than_it_was_reported_is_reported_again():
    camera = Camera()
    camera.show(200, gesture=POINTING)
    first, *again = camera.reports
    assert 3 <= len(again) <= 6
    assert [each.revision for each in camera.reports] == list(range(len(camera.reports)))
    # At every moment the newest report reached further than the present.
    assert spans(camera.reports)[first.identity][1] > camera.now_us


def test_a_gesture_during_a_look_away_keeps_the_look():
    camera = Camera()
    camera.show(3, looking="away")
    _, both = camera.show(looking="away", gesture=POINTING)
    assert (both.payload.looking, both.payload.gesture) == ("away", POINTING)


def test_a_camera_that_ends_closes_what_was_seen_with_its_last_frame():
    camera = Camera()
    (begin,) = camera.show(3, gesture=POINTING)
    (end,) = camera.states.end()
    assert end.identity == begin.identity and end.final
    assert end.payload.end_us == camera.now_us - FRAME_US
    assert camera.states.end() == []
    # After that everything is new.
    (again,) = camera.show(gesture=POINTING)
    assert again.identity != begin.identity and again.revision == 0


@pytest.mark.parametrize("seed", range(20))
def test_statements_never_move_back_and_never_end_before_they_begin(seed: int):
    drawn = random.Random(seed)
    camera = Camera()
    for _ in range(300):
        camera.show(
            faces=drawn.choice((0, 1, 2)),
            looking=drawn.choice(("here", "away", None)),
            gesture=drawn.choice((None, None, POINTING, "thumbs up")),
            at=drawn.choice((None, (0.1, 0.1), (0.9, 0.9))),
        )
    camera.reports += camera.states.end()
    newest: dict[str, SeenStatement] = {}
    last_us = 0
    for each in camera.reports:
        before = newest.get(each.identity)
        assert each.revision == (0 if before is None else before.revision + 1)
        assert before is None or not before.final
        assert each.event_us >= last_us and each.payload.start_us <= each.payload.end_us
        assert each.payload.start_us <= each.event_us
        last_us, newest[each.identity] = each.event_us, each
    assert all(each.final for each in newest.values())


def test_an_expression_counts_once_it_has_lasted_and_from_its_first_frame():
    camera = Camera()
    camera.show(3)
    began_us = camera.now_us
    assert camera.show(4, facial_affect="smiling") == []
    (begin,) = camera.show(facial_affect="smiling")
    assert (begin.payload.facial_affect, begin.payload.start_us, begin.final) == ("smiling", began_us, False)
    # A syllable between is no end of it.
    assert camera.show(2) + camera.show(2, facial_affect="smiling") == []
    ended_us = camera.now_us
    assert camera.show(4) == []
    end, after = camera.show()
    assert (end.identity, end.payload.end_us, end.final) == (begin.identity, ended_us, True)
    assert after.payload.facial_affect is None and after.final


def test_an_expression_that_passes_is_none():
    camera = Camera()
    camera.show(3)
    for _ in range(5):
        assert camera.show(3, facial_affect="smiling") + camera.show() == []


def test_a_gesture_is_reported_at_once_while_an_expression_is_not_certain():
    camera = Camera()
    camera.show(3)
    camera.show(2, facial_affect="smiling")
    (begin,) = camera.show(facial_affect="smiling", gesture=POINTING)
    assert (begin.payload.gesture, begin.payload.facial_affect) == (POINTING, None)


@pytest.mark.parametrize("gone", [{"faces": 0, "looking": None}, {"looking": "away"}])
def test_an_expression_ends_with_the_face_that_had_it(gone: dict[str, object]):
    camera = Camera()
    (*_, smile) = camera.show(6, facial_affect="smiling")
    assert smile.payload.facial_affect == "smiling"
    gone_us = camera.now_us
    end, after = camera.show(3, **gone)
    assert (end.identity, end.payload.end_us, end.final) == (smile.identity, gone_us, True)
    assert after.payload.facial_affect is None and after.payload.looking == gone["looking"]
    # Frames without it that follow change nothing more.
    assert camera.show(4, **gone) == []
