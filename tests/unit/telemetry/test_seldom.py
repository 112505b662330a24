"""A flood of one thing is a line a second, and none of it is forgotten."""

from telemetry.seldom import Seldom


def test_what_happens_often_is_logged_seldom_and_counted():
    seldom = Seldom(1.0)
    lines = [seldom.line("no", number / 100) for number in range(250)]
    assert [line for line in lines if line] == ["no", "no (99 more before it)", "no (99 more before it)"]
    assert Seldom().line("no", 0) == "no"
