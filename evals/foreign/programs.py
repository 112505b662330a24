"""Programs of other projects, their environments, and what each has to have seen at its end.

A program gets the address of a server and two recordings: a question for which its tool is called, and words
that are spoken over the answer. It prints what it has seen as one line of JSON.
"""

import asyncio
import json
import os
import sys
import wave
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from parley.core.errors import PeerError
from parley.evals.foreign.model_peer import LONG, PRICE
from parley.evals.foreign.transcripts import missing_words
from parley.evals.harness.launcher import ROOT
from parley.evals.harness.socket_caller import RATE_HZ, speech

CLIENTS = ROOT / "tests" / "peers" / "foreign"
QUESTION, STOP = "What are your opening hours?", "Stop, please tell me the price."
# Longest run of a program, and of each step that makes its environment: some hundred packages are fetched.
LONGEST_S, INSTALL_S = 150.0, 600.0


@dataclass(frozen=True, slots=True)
class Program:
    """A program.

    Attributes:
        name: of it.
        packages: with their versions.
        variable: of the environment, which may name an interpreter that has them.
        file: of the program.
        address: returns the address that it gets, of that of the server.
        faults: returns what is wrong with what it has seen.
    """

    name: str
    packages: tuple[str, ...]
    variable: str
    file: Path
    address: Callable[[str], str]
    faults: Callable[[Mapping[str, Any]], list[str]]


def agents_faults(seen: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with a conversation of OpenAI's agents SDK."""
    faults = [f"error: {error}" for error in seen["errors"]]
    if seen["called"] != ["Paris"]:
        faults.append(f"the tool was called with {seen['called']}")
    if seen["interrupted"] < 1:
        faults.append("the answer was not interrupted")
    history = seen["history"]
    # Both sides, in the order in which they spoke, as the SDK has joined them.
    if [role for role, _ in history] != ["user", "assistant", "user", "assistant"]:
        faults.append(f"the history is {history}")
    elif missing_words(QUESTION, history[0][1]):
        faults.append(f"the question was heard as {history[0][1]}")
    if seen["audio_bytes"] <= 2 * RATE_HZ * 2:
        faults.append(f"only {seen['audio_bytes']} bytes of audio came")
    return faults


def livekit_faults(seen: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with a conversation of LiveKit's ``AgentSession``."""
    faults = [f"error: {error}" for error in seen["errors"]]
    expected = {"instructed": LONG, "typed": PRICE, "after_barge_in": PRICE}
    for step, words in expected.items():
        found = seen["steps"].get(step, {"words": [], "error": "it was not reached"})
        if found["error"] or found["words"] != [words]:
            faults.append(f"{step}: {found['words']} {found['error']}".strip())
    if seen["called"] != ["Paris"]:
        faults.append(f"the tool was called with {seen['called']}")
    if len(seen["heard"]) != 2 or missing_words(QUESTION, seen["heard"][:1]):
        faults.append(f"heard: {seen['heard']}")
    said = seen["said"]
    about = [place for place, (_, text, _) in enumerate(said) if "sunny in Paris" in text]
    if len(about) != 1:
        return [*faults, f"the weather was reported {len(about)} times"]
    if not said[about[0]][2]:
        faults.append("the answer that the caller spoke over is not marked as interrupted")
    # What the caller said is there once, in order, and the words after the interruption were answered.
    after = said[about[0] + 1 : about[0] + 3]
    if [role for role, *_ in after] != ["user", "assistant"] or after[1][1] != PRICE:
        faults.append(f"after the interruption: {after}")
    return faults


PROGRAMS: Mapping[str, Program] = {
    "agents": Program(
        "agents",
        ("openai-agents==0.24.0",),
        "PARLEY_AGENTS_PYTHON",
        CLIENTS / "agents_client.py",
        lambda url: f"{url.replace('http', 'ws', 1)}/v1/realtime?model=parley-cascade",
        agents_faults,
    ),
    "livekit": Program(
        "livekit",
        ("livekit-agents==1.8.9", "livekit-plugins-openai==1.8.9"),
        "PARLEY_LIVEKIT_PYTHON",
        CLIENTS / "livekit_client.py",
        lambda url: f"{url}/v1",
        livekit_faults,
    ),
}


async def environment(program: Program, folder: Path, *, within_s: float = INSTALL_S) -> str:
    """Return an interpreter that has the packages of a program.

    Args:
        program: the program.
        folder: of its environment, which is made where it is not there yet.
        within_s: longest time for each step of that.

    Raises:
        PeerError: the packages cannot be installed here, or not in time.
    """
    given = os.environ.get(program.variable)
    if given:
        return given
    python, done = folder / "bin" / "python", folder / ".installed"
    if done.exists():
        return str(python)
    for command in (
        [sys.executable, "-m", "venv", str(folder)],
        [str(python), "-m", "pip", "install", "-q", *program.packages],
    ):
        try:
            await _output_of(command, "the installation", within_s=within_s)
        except PeerError as error:
            raise PeerError(f"cannot be installed here: {', '.join(program.packages)}: {error}") from error
    done.touch()
    return str(python)


def recordings(folder: Path) -> tuple[str, str]:
    """Write the speech of the programs' callers; return the paths of question and interruption."""
    return _wav(folder / "question.wav", QUESTION), _wav(folder / "stop.wav", STOP)


def _wav(path: Path, text: str) -> str:
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE_HZ)
        file.writeframes(speech(text))
    return str(path)


async def converse(program: Program, python: str, url: str, sounds: tuple[str, str]) -> dict[str, Any]:
    """Run a program once; return what it has seen.

    Raises:
        PeerError: it failed, took too long, or printed something else.
    """
    command = [python, str(program.file), program.address(url), *sounds]
    out = await _output_of(command, program.name, within_s=LONGEST_S)
    try:
        seen = json.loads(out)
    except (ValueError, RecursionError) as error:
        raise PeerError(f"{program.name} printed no JSON: {type(error).__name__}") from error
    if not isinstance(seen, dict):
        raise PeerError(f"{program.name} printed no object: {type(seen).__name__}")
    return seen


async def _output_of(command: Sequence[str], name: str, *, within_s: float) -> bytes:
    """Run a command to its end; return what it printed.

    Raises:
        PeerError: it failed, or took too long.
    """
    child = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        async with asyncio.timeout(within_s):
            out, _ = await child.communicate()
    except TimeoutError:
        raise PeerError(f"{name}: no end within {within_s:g} s") from None
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    if child.returncode:
        raise PeerError(f"{name} ended with {child.returncode}")
    return out
