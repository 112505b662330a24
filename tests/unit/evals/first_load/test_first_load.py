"""Figures of pages in new browsers."""

from parley.evals.first_load.__main__ import Load, parser, summarized, table


def test_a_page_has_its_largest_size_and_the_median_and_slowest_time():
    figures = summarized(
        {
            "local": [
                Load(100_000, 50, 300.4, 200.0),
                Load(101_000, 51, 500.0, None),
                Load(99_000, 50, 420.0, 240.0),
            ],
            "line": [Load(100_500, 50, 700.0, 400.0)],
        }
    )
    assert figures == {
        "wire_kb": 101.0,
        "requests": 51,
        "painted_ms": 220,
        "local": {"usable_ms": {"p50": 420, "max": 500}},
        "line": {"usable_ms": {"p50": 700, "max": 700}},
    }
    assert table({"pages": {"/": figures}}).splitlines()[-1] == "| `/` | 101.0 | 51 | 420, 500 | 700, 700 |"


def test_every_page_is_opened_unless_others_are_named():
    assert "/" in parser().parse_args([]).pages
    assert parser().parse_args(["--pages", "/admin"]).pages == ["/admin"]
