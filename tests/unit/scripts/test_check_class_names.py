"""The check of class names, on small modules."""

from scripts.check_class_names import shared_names


def test_a_name_of_two_public_classes_is_found_and_private_ones_may_repeat() -> None:
    sources = {
        "a.py": "class Event: ...\nclass _Step: ...\nclass Call: ...\n",
        "b.py": "class _Step: ...\nif True:\n    class Event: ...\n",
    }
    assert shared_names(sources) == {"Event": ["a.py", "b.py"]}
    assert shared_names({"a.py": sources["a.py"]}) == {}
