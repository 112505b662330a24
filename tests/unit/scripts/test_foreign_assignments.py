"""Detection of assignments to attributes of foreign objects."""

import pytest

from scripts.foreign_assignments import foreign_assignments

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


CALLBACKS = """
from collections.abc import Callable
from library import OnPlace

Then = Callable[[], None] | None

class Waiter:
    on_place: OnPlace | None
    count: int

class Stage:
    def __init__(self, on_word: Callable[[str], None], *, then: Then = None, size: int = 0) -> None:
        self.on_word, self.size = on_word, size
        self.then = then
        self.on_end: Callable[[], None] | None = None

def build(stage, waiter):
    {}.{} = 1
"""


@pytest.mark.parametrize(
    ("owner", "attribute", "count"),
    [
        ("waiter", "on_place", 1),
        ("waiter", "count", 0),
        ("stage", "on_word", 1),
        ("stage", "then", 1),
        ("stage", "on_end", 1),
        ("stage", "size", 0),
    ],
)
def test_a_callback_of_an_object_of_the_module_is_counted(owner: str, attribute: str, count: int):
    assert len(foreign_assignments(CALLBACKS.format(owner, attribute))) == count


@pytest.mark.parametrize(
    ("made", "count"),
    [
        ("Options()", 0),
        ("library.Options(1)", 0),
        ("copy.copy(frame)", 0),
        ("library.Frame.from_array(frame)", 0),
        ("Codec.create('opus')", 0),
        ("codecs.create('opus')", 1),
        ("CODECS.create('opus')", 1),
        ("Registry.get('opus')", 1),
        ("options_of(1)", 1),
        ("given", 1),
    ],
)
def test_what_a_function_has_just_made_is_its_own(made: str, count: int):
    assert len(foreign_assignments(f"def f(given, frame):\n    x = {made}\n    x.threads = 1\n")) == count


@pytest.mark.parametrize(
    ("made", "count"),
    [("Options()", 0), ("copy.deepcopy(given)", 0), ("Options(given)", 1), ("copy.copy(given)", 1)],
)
def test_parts_are_a_functions_own_where_it_made_the_whole_of_nothing(made: str, count: int):
    assert len(foreign_assignments(f"def f(given):\n    x = {made}\n    x.part.threads = 1\n")) == count


@pytest.mark.parametrize(
    ("head", "count"),
    [
        ("import ctypes", 0),
        ("from ctypes import c_int", 0),
        ("import types", 1),
        ("from .ctypes import x", 1),
    ],
)
def test_what_a_library_has_set_by_assignment_is_not_counted_where_it_is_imported(head: str, count: int):
    source = f"{head}\n\ndef f(function):\n    function.restype = None\n"
    assert len(foreign_assignments(source)) == count


def test_fields_of_a_structure_of_the_module_are_its_own():
    fields = "class Info(ctypes.Structure):\n    _fields_ = [('size', c_int), ('call', c_int)]\n"
    assert foreign_assignments(f"{fields}\ndef f(info):\n    info.contents.size = 1\n") == []
    assert len(foreign_assignments(f"{fields}\ndef f(info):\n    info.contents.length = 1\n")) == 1


def test_a_name_that_is_bound_to_something_else_as_well_is_foreign():
    assert len(foreign_assignments("def f(y):\n    x = Options()\n    x = y\n    x.threads = 1\n")) == 1
