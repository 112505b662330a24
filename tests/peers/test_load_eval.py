"""Short runs of the load evaluation: real servers, whole reports."""

from pathlib import Path

import pytest

from tests.peers.eval_command import report_of

SECONDS = "26"


@pytest.mark.parametrize(
    "system",
    [
        "parley_faked",
        pytest.param("stock", marks=pytest.mark.slow),
        pytest.param("aiortc", marks=pytest.mark.slow),
    ],
)
async def test_browser_calls(tmp_path: Path, system: str):
    found, output = await report_of(
        "load", tmp_path, "--systems", system, "--steps", "2", "--seconds", SECONDS,
        "--picture", str(tmp_path / "load.png"),
    )  # fmt: skip
    [step] = found["systems"][system]["steps"]
    assert (step["held"], step["refused"]) == (2, []), step
    assert step["late_ms"]["count"] > 100 and step["cpu_percent"] > 0, step
    if system == "parley_faked":
        assert step["answer_ms"]["count"] >= 1 and step["unanswered"] == 0, step
    assert f"| {system} | 2 | 2 |" in output and f"browser calls kept up with: {system}" in output
    assert (tmp_path / "load.png").stat().st_size > 10_000


@pytest.mark.parametrize(
    ("kind", "system"), [("text", "parley"), pytest.param("socket", "parley_faked", marks=pytest.mark.slow)]
)
async def test_typed_turns(tmp_path: Path, kind: str, system: str):
    found, _ = await report_of(
        "load", tmp_path, "--kind", kind, "--systems", system, "--steps", "1", "--seconds", SECONDS
    )
    [step] = found["systems"][system]["steps"]
    assert (step["held"], step["unanswered"]) == (1, 0) and step["answer_ms"]["count"] >= 1, step
