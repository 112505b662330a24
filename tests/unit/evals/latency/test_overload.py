"""Figures of crowds that speak at the same time."""

from parley.evals.latency.overload import busy_share, slower, spans_ms


def test_each_span_has_its_percentiles_in_the_order_in_which_they_happen():
    turns = [{"stt_final": 40_000, "endpoint_wait": 300_000}, {"endpoint_wait": 700_000}]
    found = spans_ms(turns)
    assert list(found) == ["endpoint_wait", "stt_final"]
    assert found["endpoint_wait"] == {"p50": 300, "p95": 700, "p99": 700}
    assert found["stt_final"]["p50"] == 40


def test_a_crowd_is_compared_with_one_call_where_both_have_answers():
    assert slower({"p50": 600, "p95": 900, "p99": None}, {"p50": 400, "p95": None, "p99": 500}) == {
        "p50": 1.5
    }


def test_the_share_of_the_processors_is_that_of_the_time_between():
    assert busy_share((1_000, 400), (1_200, 450)) == 0.75
    assert busy_share(None, (1_200, 450)) is None
    assert busy_share((1_000, 400), (1_000, 400)) is None
