"""Programs of other projects, their environments, and what each has to have seen at its end.

A program gets the address of a server and two recordings: a question for which its tool is called, and words
that are spoken over the answer. It prints what it has seen as one line of JSON, with the gaps that its player
had (``tests/peers/foreign/player.py``). The clients are those of the tests. A project whose packages do not
fit those of Parley has an environment of its own. A client for pages is bundled there and runs in Chromium
(``tests/peers/foreign/page_client.py``).
"""

import asyncio
import json
import os
import sys
import wave
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from parley.core.errors import PeerError
from parley.evals.foreign.model_peer import LONG, PRICE, SHORT, USER_LINES
from parley.evals.foreign.transcripts import missing_words
from parley.evals.harness.launcher import ROOT
from parley.evals.harness.socket_caller import RATE_HZ, speech

CLIENTS = ROOT / "tests" / "peers" / "foreign"
PAGES = CLIENTS / "pages"
# Sample of 16 bit that speech exceeds.
LOUD = 3_000
QUESTION, STOP = "What are your opening hours?", "Stop, please tell me the price."
# Longest run of a program, and of each step that makes its environment: some hundred packages are fetched.
LONGEST_S, INSTALL_S = 150.0, 600.0
# Origin of the pages, and the variable that names the folder of their bundle.
PAGE_ORIGIN, PAGE_VARIABLE = "http://page.localhost", "PARLEY_PAGE"
PIPECAT_JS = (
    "@pipecat-ai/client-js@1.13.1",
    "@pipecat-ai/small-webrtc-transport@1.10.8",
    "@pipecat-ai/websocket-transport@1.7.1",
)
AGENTS_JS = ("@openai/agents-realtime@0.20.0", "zod@4.6.7")
# Names the address of the language model.
MODEL_VARIABLE = "PARLEY_MODEL_PEER"
CONSOLE = (
    *PIPECAT_JS,
    "@daily-co/daily-js@0.92.2",
    "@pipecat-ai/client-react@1.8.2",
    "@pipecat-ai/voice-ui-kit@0.14.0",
    "react@19.3.1",
    "react-dom@19.3.1",
)
# Transports that the kit would load for another kind of server.
NOT_BUNDLED = tuple(f"--external:@pipecat-ai/{name}-transport" for name in ("daily", "livekit", "moq"))
PAGE_CLIENT, BUNDLER = "tests.peers.foreign.page_client", "esbuild@0.28.2"
# Longest time without any sound in an answer: longer than between its sentences.
LONGEST_PAUSE_MS = 250.0
# Full scale of the loudest sound of a page is 1.
FULL_SCALE = 0x8000
# Runs npm and Node.js of the environment of Parley, where it has them.
WITH_NODE = ("sh", str(ROOT / "scripts" / "with_node.sh"), sys.prefix)


class Runtime(Enum):
    """Interpreter of a program."""

    OURS = "Parley's own interpreter"
    PYTHON = "an interpreter with the packages"
    NODE = "Node.js with the packages"
    PAGE = "Chromium, with a page into which the packages are bundled"


@dataclass(frozen=True, slots=True)
class Site:
    """Addresses of the server and of its language model, which programs may use as well."""

    url: str
    model_url: str


@dataclass(frozen=True, slots=True)
class Program:
    """A program.

    Attributes:
        name: of it.
        file: of the program; of one for pages, the module that is bundled.
        address: returns the address that it gets, of that of the server.
        faults: returns what is wrong with what it has seen.
        runtime: runs it.
        packages: with their versions, of an environment of its own.
        variable: of the environment, which may name an interpreter or a folder of modules that has them.
    """

    name: str
    file: Path
    address: Callable[[str], str]
    faults: Callable[[Mapping[str, Any]], list[str]]
    runtime: Runtime = Runtime.OURS
    packages: tuple[str, ...] = ()
    variable: str = ""


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


def openai_faults(seen: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with a conversation of OpenAI's own client."""
    faults = [f"error: {error}" for error in seen["errors"]]
    if seen["called"] != ["Paris"]:
        faults.append(f"the tool was called with {seen['called']}")
    if len(seen["heard"]) != 2 or missing_words(QUESTION, seen["heard"][:1]):
        faults.append(f"heard: {seen['heard']}")
    answers = [(state, kinds, words) for state, kinds, words, _ in seen["answers"]]
    cut_off = seen["cut_off"]
    expected = [
        ("completed", ["message"], PRICE),
        # On the side, in text.
        ("completed", ["message"], PRICE),
        ("completed", ["function_call"], ""),
        ("cancelled", ["message"], cut_off["words"]),
        ("completed", ["message"], PRICE),
    ]
    if [answer[:2] for answer in answers] != [each[:2] for each in expected]:
        return [*faults, f"answers: {answers}"]
    for number, (answer, wanted) in enumerate(zip(answers, expected, strict=True)):
        # Of the one that was cut off, the item has the words that its client has played.
        if number != 3 and answer[2] != wanted[2]:
            faults.append(f"answer {number}: {answer[2]}")
    if seen["answers"][1][3] != {"topic": "aside"}:
        faults.append(f"the metadata came back as {seen['answers'][1][3]}")
    if cut_off["truncated"] != [True] or "sunny in Paris" not in cut_off["words"]:
        faults.append(f"what was cut off: {cut_off}")
    return faults


def pipecat_faults(seen: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with a conversation of Pipecat's OpenAI realtime service."""
    faults = [f"error: {error}" for error in seen["errors"]]
    if seen["called"] != ["Paris"]:
        faults.append(f"the tool was called with {seen['called']}")
    if not seen["interrupted"]:
        faults.append("the answer was not interrupted")
    if len(seen["heard"]) != 2 or missing_words(QUESTION, seen["heard"][:1]):
        faults.append(f"heard: {seen['heard']}")
    if "sunny in Paris" not in seen["words"] or not seen["words"].endswith(PRICE):
        faults.append(f"said: {seen['words']}")
    if seen["loudest"] < LOUD:
        faults.append(f"the loudest sample is {seen['loudest']}")
    return faults


def unmute_faults(seen: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with a conversation of Unmute's load test."""
    faults = [f"error: {error}" for error in seen["errors"]]
    history = seen["history"]
    if [role for role, _ in history] != ["assistant", "user", "assistant", "user", "assistant"]:
        return [*faults, f"the history is {history}"]
    if missing_words(QUESTION, [history[1][1]]):
        faults.append(f"the question was heard as {history[1][1]}")
    if not LONG.startswith(history[2][1]) or history[2][1] == LONG:
        faults.append(f"the answer that the caller spoke over is {history[2][1]}")
    if history[4][1] != PRICE:
        faults.append(f"the last answer is {history[4][1]}")
    if seen["turns"][-2:] != [history[3], history[4]]:
        faults.append(f"the turns, read when they are over: {seen['turns']}")
    if seen["phases"] != ["audio_start", "response_created", "text_start"]:
        faults.append(f"the phases of the last answer: {seen['phases']}")
    return faults


def minicpm_realtime_faults(seen: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with a conversation of the MiniCPM-o server's realtime dialect.

    That has no event for an interruption: the answer that is cut off and the next one may be one text.
    """
    faults = [f"error: {error}" for error in seen["errors"]]
    said = " ".join(seen["turns"])
    if LONG in said or not said.startswith(LONG[:12]) or not said.endswith(PRICE):
        faults.append(f"answers: {seen['turns']}")
    return faults


def minicpm_duplex_faults(seen: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with a conversation of that server's pages in full duplex.

    A second may hold the last words of the answer that is cut off, and the first ones of the next.
    """
    faults = minicpm_realtime_faults(seen)
    return faults if seen["cuts"] == 1 else [*faults, f"the answer was cut off {seen['cuts']} times"]


def half_duplex_faults(seen: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with a conversation of the MiniCPM-o server's half-duplex page."""
    faults = [f"error: {error}" for error in seen["errors"]]
    return faults if seen["turns"] == [LONG, PRICE] else [*faults, f"answers: {seen['turns']}"]


def streamdouble_faults(seen: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with a phone call of streamdouble."""
    faults = [*seen["late"], *(f"violation: {each}" for each in seen["violations"])]
    if len(seen["heard"]) != 2 or missing_words(QUESTION, seen["heard"][:1]):
        faults.append(f"heard: {seen['heard']}")
    if not seen["clears"]:
        faults.append("the answer was not interrupted")
    said = seen["said"]
    if [was_cut for _, was_cut in said] != [False, True, False] or said[-1][0] != PRICE:
        faults.append(f"said: {said}")
    return faults


def scenario_faults(seen: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with a conversation of Scenario's simulated user."""
    faults = [f"error: {error}" for error in seen["errors"]]
    answers = [text for role, text in seen["messages"] if role == "assistant"]
    # The one that was cut off is not among them.
    if answers != [PRICE, SHORT]:
        faults.append(f"answers: {answers}")
    said = seen["said"]
    if len(said) != 3 or not LONG.startswith(said[0]) or said[0] == LONG:
        faults.append(f"said: {said}")
    heard = seen["heard"]
    for number, asked in enumerate((USER_LINES[0], STOP, USER_LINES[1])):
        if missing_words(asked, heard[number : number + 1]):
            faults.append(f"heard: {heard}")
            break
    return faults


def voicebench_faults(seen: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with a conversation of voicebench, by its own judgement."""
    faults = [
        f"{name}: {' '.join(notes) or 'failed'} ({trigger})"
        for name, has_passed, trigger, notes in seen["turns"]
        # A turn that began after its longest wait is one for which the bot did not speak.
        if not has_passed or trigger != "anchor"
    ]
    return [*faults, "it took too long"] if seen["truncated"] else faults


def pipecat_js_faults(seen: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with a conversation of Pipecat's client for JavaScript."""
    faults = [f"error: {error}" for error in seen["errors"]]
    if faults:
        return faults
    if not seen["microphones"]:
        faults.append("no microphone is listed")
    if seen["heard_while_muted"]:
        faults.append(f"heard while the microphone was off: {seen['heard_while_muted']}")
    if seen["typed"] != PRICE:
        faults.append(f"typed: {seen['typed']}")
    # What of the reply before the call ended had not been heard for certain is said first.
    if not seen["again"].endswith(PRICE) or seen["again"].removesuffix(PRICE).strip() not in PRICE:
        faults.append(f"again: {seen['again']}")
    heard = seen["heard"]
    # A transcript is final at a pause, of which the interruption has one.
    if missing_words(QUESTION, heard[:1]) or missing_words(STOP, [" ".join(heard[1:])]):
        faults.append(f"heard: {heard}")
    spoken = seen["spoken"]
    if not seen["interruptions"] or LONG in spoken or not spoken.startswith(LONG[:12]):
        faults.append(f"the answer that the caller spoke over is {spoken}")
    if len(seen["sessions"]) != 2 or len(set(seen["sessions"])) != 1:
        faults.append(f"the sessions of both calls: {seen['sessions']}")
    if seen["state"] != "disconnected":
        faults.append(f"at the end the client is {seen['state']}")
    return faults + _sound_faults(seen)


def agents_page_faults(seen: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with a conversation of OpenAI's agents SDK in a page, over WebRTC."""
    faults = [f"error: {error}" for error in seen["errors"]]
    if faults:
        return faults
    if seen["called"] != ["Paris"]:
        faults.append(f"the tool was called with {seen['called']}")
    if seen["interrupted"] != 1:
        faults.append(f"the answer was interrupted {seen['interrupted']} times")
    history = seen["history"]
    if [role for role, _ in history] != ["user", "assistant", "user", "assistant"]:
        return [*faults, f"the history is {history}"]
    if missing_words(QUESTION, history[0][1]):
        faults.append(f"the question was heard as {history[0][1]}")
    answer = " ".join(history[1][1])
    # The page does not report what it has played: the server knows.
    if "sunny in Paris" not in answer or LONG in answer:
        faults.append(f"the answer that the caller spoke over is {answer}")
    if history[3][1] != [PRICE]:
        faults.append(f"the last answer is {history[3][1]}")
    if (seen["hung_up"], seen["state"]) != (200, "disconnected"):
        faults.append(f"the call ended with {seen['hung_up']}, and the client is {seen['state']}")
    return faults + _sound_faults(seen)


def console_faults(seen: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with a conversation in the console of Pipecat's voice UI kit."""
    faults = [f"error: {error}" for error in seen["errors"]]
    steps = ("question", "answer", "price", "over")
    faults += [f"not shown: {step}" for step in steps if not seen.get(step)]
    return faults or _sound_faults(seen)


def _sound_faults(seen: Mapping[str, Any]) -> list[str]:
    faults = []
    if seen["loudest"] < LOUD / FULL_SCALE:
        faults.append(f"the loudest sound is {seen['loudest']:.3f}")
    if seen["pause_ms"] > LONGEST_PAUSE_MS:
        faults.append(f"no sound for {seen['pause_ms']:.0f} ms in an answer")
    return faults


def _realtime(url: str) -> str:
    return f"{url.replace('http', 'ws', 1)}/v1/realtime"


PROGRAMS: Mapping[str, Program] = {
    program.name: program
    for program in (
        Program(
            "agents",
            CLIENTS / "agents_client.py",
            lambda url: f"{_realtime(url)}?model=parley-cascade",
            agents_faults,
            Runtime.PYTHON,
            ("openai-agents==0.24.0",),
            "PARLEY_AGENTS_PYTHON",
        ),
        Program(
            "agents_js",
            CLIENTS / "agents_js_client.cjs",
            lambda url: f"{_realtime(url)}?model=parley-cascade",
            agents_faults,
            Runtime.NODE,
            AGENTS_JS,
            "PARLEY_AGENTS_NODE_PATH",
        ),
        Program(
            "agents_js_webrtc",
            PAGES / "agents_page.mjs",
            str,
            agents_page_faults,
            Runtime.PAGE,
            AGENTS_JS,
            "PARLEY_AGENTS_PAGE_NODE_PATH",
        ),
        Program(
            "livekit",
            CLIENTS / "livekit_client.py",
            lambda url: f"{url}/v1",
            livekit_faults,
            Runtime.PYTHON,
            ("livekit-agents==1.8.9", "livekit-plugins-openai==1.8.9"),
            "PARLEY_LIVEKIT_PYTHON",
        ),
        Program("openai", CLIENTS / "openai_client.py", str, openai_faults),
        Program("pipecat", CLIENTS / "pipecat_client.py", str, pipecat_faults),
        Program("unmute", CLIENTS / "unmute_client.py", _realtime, unmute_faults),
        Program(
            "minicpm_duplex",
            CLIENTS / "minicpm_client.py",
            lambda url: f"{url.replace('http', 'ws', 1)}/ws/duplex/adx_foreign",
            minicpm_duplex_faults,
        ),
        Program(
            "minicpm_realtime",
            CLIENTS / "minicpm_client.py",
            lambda url: f"{_realtime(url)}?mode=audio",
            minicpm_realtime_faults,
        ),
        Program("minicpm_half_duplex", CLIENTS / "half_duplex_client.py", str, half_duplex_faults),
        Program("streamdouble", CLIENTS / "streamdouble_client.py", str, streamdouble_faults),
        Program(
            "scenario",
            CLIENTS / "scenario_client.py",
            str,
            scenario_faults,
            Runtime.PYTHON,
            ("langwatch-scenario==1.6.0",),
            "PARLEY_SCENARIO_PYTHON",
        ),
        Program(
            "voicebench",
            CLIENTS / "voicebench_client.py",
            lambda url: f"{url.replace('http', 'ws', 1)}/ws",
            voicebench_faults,
            Runtime.PYTHON,
            ("voicebench[pipecat]==0.2.0", "pipecat-ai==1.14.0"),
            "PARLEY_VOICEBENCH_PYTHON",
        ),
        Program(
            "pipecat_js_webrtc",
            PAGES / "pipecat_page.mjs",
            str,
            pipecat_js_faults,
            Runtime.PAGE,
            PIPECAT_JS,
            "PARLEY_PIPECAT_JS_NODE_PATH",
        ),
        Program(
            "pipecat_js_websocket",
            PAGES / "pipecat_page.mjs",
            lambda url: f"{url.replace('http', 'ws', 1)}/ws",
            pipecat_js_faults,
            Runtime.PAGE,
            PIPECAT_JS,
            "PARLEY_PIPECAT_JS_NODE_PATH",
        ),
        Program(
            "pipecat_console",
            PAGES / "console_page.mjs",
            str,
            console_faults,
            Runtime.PAGE,
            CONSOLE,
            "PARLEY_CONSOLE_NODE_PATH",
        ),
    )
}


async def environment(program: Program, folder: Path, *, within_s: float = INSTALL_S) -> str:
    """Return what has the packages of a program: an interpreter, or a folder of modules or of a page.

    Args:
        program: the program.
        folder: of its environment, which is made where it is not there yet.
        within_s: longest time for each step of that.

    Raises:
        PeerError: the packages cannot be installed here, or not in time.
    """
    if program.runtime is Runtime.OURS:
        return sys.executable
    given = os.environ.get(program.variable)
    if program.runtime is Runtime.PYTHON:
        return given or await install(program.packages, folder, within_s=within_s)
    is_page = program.runtime is Runtime.PAGE
    packages = (*program.packages, BUNDLER) if is_page else program.packages
    options = ("--ignore-scripts", "--no-audit", "--no-fund", "--prefix", str(folder))
    if not given:
        await _install(packages, [[*WITH_NODE, "npm", "install", *options, *packages]], folder, within_s)
    modules = Path(given or folder / "node_modules")
    if not is_page:
        return str(modules)
    # Again each time: the module may have changed.
    bundle = [
        str(modules / ".bin" / "esbuild"),
        str(program.file),
        "--bundle",
        f"--outfile={folder / 'page.js'}",
    ]
    variables = {"NODE_PATH": str(modules)}
    await output_of([*WITH_NODE, *bundle], "the bundler", within_s=within_s, variables=variables)
    return str(folder)


async def install(packages: Sequence[str], folder: Path, *, within_s: float = INSTALL_S) -> str:
    """Make an environment of Python with packages, where it is not there yet; return its interpreter.

    Raises:
        PeerError: the packages cannot be installed here, or not in time.
    """
    python = str(folder / "bin" / "python")
    # The pip of this interpreter: a copy of it for each environment took as long as most packages.
    pip = [sys.executable, "-m", "pip", "--python", python]
    steps = [
        [sys.executable, "-m", "venv", "--without-pip", str(folder)],
        [*pip, "install", "-q", "--no-compile", *packages],
    ]
    await _install(packages, steps, folder, within_s)
    return python


async def _install(
    packages: Sequence[str], steps: Sequence[Sequence[str]], folder: Path, within_s: float
) -> None:
    """Run the commands that make an environment in a folder, unless that was done."""
    done = folder / ".installed"
    if done.exists():
        return
    await asyncio.to_thread(folder.mkdir, parents=True, exist_ok=True)
    for command in steps:
        try:
            await output_of(command, "the installation", within_s=within_s)
        except PeerError as error:
            raise PeerError(f"cannot be installed here: {', '.join(packages)}: {error}") from error
    done.touch()


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


async def converse(program: Program, at: str, site: Site, sounds: tuple[str, str]) -> dict[str, Any]:
    """Run a program once; return what it has seen.

    Args:
        program: the program.
        at: its ``environment``.
        site: with which it talks.
        sounds: question and interruption.

    Raises:
        PeerError: it failed, took too long, or printed something else.
    """
    variables = {MODEL_VARIABLE: site.model_url}
    match program.runtime:
        case Runtime.OURS:
            start = [at, "-m", ".".join(program.file.relative_to(ROOT).with_suffix("").parts)]
        case Runtime.PYTHON:
            start = [at, str(program.file)]
        case Runtime.NODE:
            start = [*WITH_NODE, "node", str(program.file)]
            variables["NODE_PATH"] = at
        case Runtime.PAGE:
            start = [sys.executable, "-m", PAGE_CLIENT]
            variables[PAGE_VARIABLE] = at
    command = [*start, program.address(site.url), *sounds]
    out = await output_of(command, program.name, within_s=LONGEST_S, variables=variables)
    try:
        seen = json.loads(out)
    except (ValueError, RecursionError) as error:
        raise PeerError(f"{program.name} printed no JSON: {type(error).__name__}") from error
    if not isinstance(seen, dict):
        raise PeerError(f"{program.name} printed no object: {type(seen).__name__}")
    return seen


async def output_of(
    command: Sequence[str], name: str, *, within_s: float, variables: Mapping[str, str] | None = None
) -> bytes:
    """Run a command in the root of the checkout, to its end; return what it printed.

    Args:
        command: the whole command line.
        name: of it, for errors.
        within_s: longest time for it.
        variables: of its environment in addition to ours.

    Raises:
        PeerError: it failed, or took too long.
    """
    try:
        child = await asyncio.create_subprocess_exec(
            *command,
            cwd=ROOT,
            env={**os.environ, **(variables or {})},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
    except FileNotFoundError as error:
        raise PeerError(f"{name} cannot be started: {command[0]} is not there") from error
    try:
        async with asyncio.timeout(within_s):
            out, said = await child.communicate()
    except TimeoutError:
        raise PeerError(f"{name}: no end within {within_s:g} s") from None
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    if child.returncode:
        lines = said.decode(errors="replace").strip().splitlines()
        raise PeerError(f"{name} ended with {child.returncode}: {lines[-1] if lines else 'no output'}")
    return out
