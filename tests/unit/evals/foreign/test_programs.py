"""Programs that hang, fail or print something else, and environments that cannot be made in time."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from parley.core.errors import PeerError
from parley.evals.foreign.programs import PROGRAMS, Program, converse, environment


def printing(folder: Path, source: str) -> Program:
    file = folder / "program.py"
    file.write_text(source)
    return replace(PROGRAMS["agents"], file=file)


async def run(program: Program) -> object:
    return await converse(program, sys.executable, "http://127.0.0.1:9", ("question.wav", "stop.wav"))


async def test_a_program_reports_what_it_has_seen(tmp_path: Path):
    seen = await run(printing(tmp_path, "import sys, json; print(json.dumps({'arguments': sys.argv[1:]}))"))
    assert seen == {
        "arguments": ["ws://127.0.0.1:9/v1/realtime?model=parley-cascade", "question.wav", "stop.wav"]
    }


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("print('Traceback')", "agents printed no JSON: JSONDecodeError"),
        ("print('[' * 200000)", "agents printed no JSON: RecursionError"),
        ("print('[1]')", "agents printed no object: list"),
        ("raise SystemExit(3)", "agents ended with 3"),
    ],
)
async def test_a_program_that_reports_nothing_is_a_fault_and_no_end_of_the_evaluation(
    tmp_path: Path, source: str, expected: str
):
    with pytest.raises(PeerError, match=expected):
        await run(printing(tmp_path, source))


async def test_an_environment_that_is_not_made_in_time_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    program = PROGRAMS["agents"]
    monkeypatch.delenv(program.variable, raising=False)
    # No process starts in this time.
    with pytest.raises(PeerError, match=r"cannot be installed here: openai-agents.*: no end within 0\.001 s"):
        await environment(program, tmp_path / "environment", within_s=0.001)
    assert not (tmp_path / "environment" / ".installed").exists()
