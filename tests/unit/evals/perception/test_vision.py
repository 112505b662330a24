"""Figures of the measurement of the camera's specialist."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from parley.configs.load import load_deployment
from parley.core.errors import PeerError
from parley.evals.perception.vision import ARMS, delay_of, deployment_of, summary
from parley.models.specialists import SPECIALISTS
from parley.sequencer.merge import SequencerSettings
from parley.sequencer.operations import Advance, Heartbeat, Join, Operation, Report, to_json

SHOWN_US, CAPTURED_US, ARRIVED_US, WORDS_US = 10_000_000, 10_120_000, 10_150_000, 10_400_000


def journal(*operations: Operation[None]) -> dict[str, Any]:
    lines = [to_json(each, lambda _body: None) for each in operations]
    settings = SequencerSettings().model_dump(mode="json")
    return {
        "kind": "journal",
        "source": "system",
        "seq": 1,
        "payload": {"settings": settings, "operations": lines},
    }


def annotation(gesture: str | None) -> dict[str, Any]:
    body = {"start_us": CAPTURED_US, "gesture": gesture}
    payload = {"identity": "seen.1", "revision": 0, "body": body}
    return {
        "kind": "annotation",
        "source": "vision",
        "seq": 2,
        "arrival_us": ARRIVED_US,
        "payload": payload,
    }


# Words hold the report back until they have passed it.
OPERATIONS = (
    Join("stt", 80_000, 10_000_000),
    Join("vision", 200_000, 10_000_000),
    Report("vision", ARRIVED_US, None, CAPTURED_US, "seen.1", 0, False),
    Heartbeat("vision", ARRIVED_US, CAPTURED_US + 1),
    Advance(ARRIVED_US),
    Heartbeat("stt", WORDS_US, CAPTURED_US + 1),
    Advance(WORDS_US),
)


def test_a_gesture_is_followed_from_the_picture_to_its_place_in_the_order():
    found = delay_of([annotation("pointing up"), journal(*OPERATIONS)], SHOWN_US)
    assert found == {"captured": 120, "reported": 150, "ordered": 400}


@pytest.mark.parametrize("shown_us", [SHOWN_US - 5_000_000, CAPTURED_US + 1])
def test_a_gesture_of_another_time_does_not_count(shown_us: int):
    assert delay_of([annotation("pointing up"), journal(*OPERATIONS)], shown_us) == {}
    assert delay_of([annotation(None), journal(*OPERATIONS)], SHOWN_US) == {}


def test_a_report_without_a_place_in_the_journal_is_an_error():
    with pytest.raises(PeerError):
        delay_of([annotation("pointing up"), journal(*OPERATIONS[:-2])], SHOWN_US)


def test_what_was_seen_is_compared_with_what_is_there():
    def judged(**pairs: list[object]) -> dict[str, object]:
        given = {"faces": [0, 0], "looking": [None, None], "gesture": [None, None]}
        return {**given, "smiling": [False, False], "cpu_ms": 5.0} | pairs

    figures = summary(
        [
            judged(faces=[2, 1], looking=["here", "here"], gesture=["pointing up", "pointing up"]),
            judged(faces=[1, 3], looking=["away", "here"], gesture=["pointing up", None]),
            judged(gesture=[None, "thumbs up"]),
            judged(faces=[1, 0], looking=["here", None], smiling=[True, False]),
            judged(faces=[1, 1], smiling=[True, True]),
            judged(faces=[1, 1], smiling=[False, True]),
        ]
    )
    assert (figures["faces_there"], figures["faces_seen"], figures["faces_too_many"]) == (6, 4, 2)
    assert (figures["looks_judged"], figures["looks_right"]) == (2, 1)
    assert (figures["gestures_there"], figures["gestures_right"]) == (2, 1)
    assert (figures["without_gesture"], figures["gestures_invented"]) == (4, 1)
    assert (figures["smiles_there"], figures["smiles_seen"]) == (2, 1)
    assert (figures["faces_without_smile"], figures["smiles_invented"]) == (3, 1)


@pytest.mark.parametrize("arm", ARMS)
def test_the_deployment_of_an_arm_has_its_specialists(arm: str, tmp_path: Path):
    config = tmp_path / "arm.yaml"
    config.write_text(yaml.safe_dump(deployment_of(ARMS[arm], tmp_path)))
    assert tuple(each.name for each in load_deployment(config).hearing.specialists) == ARMS[arm]


def test_the_last_arm_has_all_specialists_and_the_first_none():
    first, *_, last = ARMS.values()
    assert (set(first), set(last)) == (set(), set(SPECIALISTS.names()))
