"""Programs that hang, fail or print something else, and environments that cannot be made in time."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from parley.core.errors import PeerError
from parley.evals.foreign.programs import PROGRAMS, Program, Site, converse, environment


def printing(folder: Path, source: str) -> Program:
    file = folder / "program.py"
    file.write_text(source)
    return replace(PROGRAMS["agents"], file=file)


async def run(program: Program) -> object:
    site = Site("http://127.0.0.1:9", "http://127.0.0.1:8/v1")
    return await converse(program, sys.executable, site, ("question.wav", "stop.wav"))


async def test_a_program_reports_what_it_has_seen(tmp_path: Path):
    seen = await run(printing(tmp_path, "import sys, json; print(json.dumps({'arguments': sys.argv[1:]}))"))
    assert seen == {
        "arguments": ["ws://127.0.0.1:9/v1/realtime?model=parley-cascade", "question.wav", "stop.wav"]
    }


async def test_a_program_may_use_the_language_model_of_the_server(tmp_path: Path):
    source = "import os, json; print(json.dumps({'model': os.environ['PARLEY_MODEL_PEER']}))"
    assert await run(printing(tmp_path, source)) == {"model": "http://127.0.0.1:8/v1"}


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


@pytest.mark.parametrize(
    ("name", "packages"), [("agents", "openai-agents"), ("pipecat_js_webrtc", ".*esbuild")]
)
async def test_an_environment_that_is_not_made_in_time_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, packages: str
):
    program = PROGRAMS[name]
    monkeypatch.delenv(program.variable, raising=False)
    # No process starts in this time.
    with pytest.raises(PeerError, match=rf"cannot be installed here: {packages}.*: no end within 0\.001 s"):
        await environment(program, tmp_path / "environment", within_s=0.001)
    assert not (tmp_path / "environment" / ".installed").exists()
