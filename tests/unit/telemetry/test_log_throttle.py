"""A flood of one message is logged once a second, and the suppressed ones are counted."""

from parley.telemetry.log_throttle import LogThrottle


def test_what_happens_often_is_logged_seldom_and_counted():
    seldom = LogThrottle(1.0)
    lines = [seldom.line("no", number / 100) for number in range(250)]
    assert [line for line in lines if line] == ["no", "no (99 more before it)", "no (99 more before it)"]
    assert LogThrottle().line("no", 0) == "no"
