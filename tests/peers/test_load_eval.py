"""Short runs of the load evaluation: real servers, whole reports."""

from pathlib import Path

from tests.peers.eval_command import report_of


async def test_browser_calls_on_every_system(tmp_path: Path):
    systems = ("parley_faked", "stock", "aiortc")
    found, output = await report_of(
        "load", tmp_path, "--systems", *systems, "--steps", "2", "--seconds", "26",
        "--picture", str(tmp_path / "load.png"),
    )  # fmt: skip
    for system in systems:
        [step] = found["systems"][system]["steps"]
        assert (step["held"], step["refused"]) == (2, []), step
        assert step["late_ms"]["count"] > 100 and step["cpu_percent"] > 0, step
    [product] = found["systems"]["parley_faked"]["steps"]
    assert product["answer_ms"]["count"] >= 1 and product["unanswered"] == 0, product
    assert "| aiortc | 2 | 2 |" in output and "browser calls kept up with: parley_faked" in output
    assert (tmp_path / "load.png").stat().st_size > 10_000


async def test_typed_turns_over_http_and_over_a_socket(tmp_path: Path):
    for kind, system in (("text", "parley"), ("socket", "parley_faked")):
        found, _ = await report_of(
            "load", tmp_path, "--kind", kind, "--systems", system, "--steps", "1", "--seconds", "26"
        )
        [step] = found["systems"][system]["steps"]
        assert (step["held"], step["unanswered"]) == (1, 0) and step["answer_ms"]["count"] >= 1, step
