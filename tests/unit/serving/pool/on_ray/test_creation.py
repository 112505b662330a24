"""Pauses after failed creations of actors, and the reasons that are shown."""

from parley.runtime.ray_errors import is_failed_creation, last_line
from parley.serving.pool.on_ray.creation import FIRST_S, MOST_S, CreationPauses


def test_the_pause_after_a_failed_creation_doubles_up_to_a_bound() -> None:
    pauses, now_s, waits = CreationPauses(), 100.0, []
    for _ in range(10):
        pauses.failed("w", "no such engine", now_s)
        # A second call that waited for the same actor.
        pauses.failed("w", "no such engine", now_s)
        began_s = now_s
        while pauses.reason("w", now_s):
            now_s += 0.25
        waits.append(now_s - began_s)
    assert waits[:3] == [FIRST_S, 2 * FIRST_S, 4 * FIRST_S] and waits[-1] == MOST_S
    assert pauses.reason("other", 100.0) == ""


def test_an_answer_ends_the_pauses() -> None:
    pauses = CreationPauses()
    pauses.failed("w", "no such engine", 0.0)
    assert pauses.reason("w", 0.0) == "no such engine"
    pauses.succeeded("w")
    pauses.failed("w", "again", 10.0)
    assert pauses.reason("w", 10.0 + FIRST_S) == ""


def test_a_reason_is_the_last_line_of_a_traceback() -> None:
    began = "The actor died because of an error raised in its creation task, ray::W.__init__()"
    error = RuntimeError(f"{began}\n  File 'x.py', line 3\nModuleNotFoundError: No module named 'x'\n")
    assert last_line(error) == "ModuleNotFoundError: No module named 'x'"
    assert last_line(RuntimeError()) == "" and len(last_line(RuntimeError("x" * 9_999))) == 500
    assert is_failed_creation(error) and not is_failed_creation(RuntimeError("The actor died."))
