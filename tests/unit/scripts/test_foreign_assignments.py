"""What counts as an assignment to an attribute of a foreign object."""

import pytest

from scripts.foreign_assignments import foreign_assignments, main

OWN = """
class Record:
    count: int = 0

class Owner:
    def __init__(self):
        self.size = 0

    def work(self, record, other):
        self.size += 1
        record.count = 2
        other.size = 3
"""
FOREIGN = """
class Builder:
    def build(self, stage, call):
        stage.on_word = self.build
        call.playout.follower = stage
        self.stage.gain += 1
"""


def test_own_attributes_and_records_of_the_module_are_not_counted():
    assert foreign_assignments(OWN) == []


def test_every_way_into_another_object_is_counted():
    assert [target for _, target in foreign_assignments(FOREIGN)] == [
        "stage.on_word", "call.playout.follower", "self.stage.gain",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("made", "count"),
    [
        ("Options()", 0),
        ("library.Options(1)", 0),
        ("copy.copy(frame)", 0),
        ("options_of(1)", 1),
        ("given", 1),
    ],
)
def test_what_a_function_has_just_made_is_its_own(made: str, count: int):
    assert len(foreign_assignments(f"def f(given, frame):\n    x = {made}\n    x.threads = 1\n")) == count


def test_a_name_that_is_bound_to_something_else_as_well_is_foreign():
    assert len(foreign_assignments("def f(y):\n    x = Options()\n    x = y\n    x.threads = 1\n")) == 1


def test_the_product_has_no_more_of_them_than_allowed():
    assert main() == 0
