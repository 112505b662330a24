"""Check that documented commands parse as written, and that figures of every machine are the documented ones.

A command passes when its own parser accepts its arguments; it is not run for that. Speeds are those of a
machine: ``evals.bench`` measures them, and no test compares them.
"""

import argparse
import json
import re
import runpy
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
NAMES = ("README.md", "CONTRIBUTING.md", "SECURITY.md")
DOCUMENTS = (
    *(ROOT / name for name in NAMES),
    *sorted((ROOT / "docs").glob("**/*.md")),
    *ROOT.glob("research/**/*.md"),
)
FENCED = re.compile(r"```(?:sh|bash|console)\n(.*?)```", re.DOTALL)
ANY_FENCED = re.compile(r"```.*?```", re.DOTALL)
INLINE = re.compile(r"`([^`]+)`")
# A command goes as far as the end, a comment or another command.
COMMAND = re.compile(r"(?:^|[\s/])python3? (-m ([a-z_][\w.]*)|bot\.py|runner\.py)\b([^#|;&>]*)")
PARLEY = re.compile(r"(?:^|\s)parley ((?:serve|text|call|worker|init|check|config|eval)\b[^#|;&>]*)")
SERVERS = re.compile(r"(?:^|\s)(bot\.py|runner\.py)((?: --?[\w-]+[^#|;&>]*)?)$")
MAKE_ARGUMENTS = re.compile(r"make run[^`\n]*ARGS=(\"[^\"]*\"|'[^']*')")
OURS = ("evals", "parley", "research", "scripts", "session_store")
# Placeholders, and the values that a reader would put in.
PLACEHOLDERS = {"NAME": "speculation", "...": "--help"}


def documented() -> Iterator[tuple[str, str]]:
    """Yield (document, command line) of every command that is written out."""
    for document in DOCUMENTS:
        text = document.read_text(encoding="utf-8")
        blocks = [line for block in FENCED.findall(text) for line in block.replace("\\\n", " ").splitlines()]
        spans = [" ".join(span.split()) for span in INLINE.findall(ANY_FENCED.sub("", text))]
        for line in (*blocks, *spans):
            yield str(document.relative_to(ROOT)), line


def commands() -> list[tuple[str, str, str]]:
    """Return (document, module or script, arguments), each once."""
    found: dict[tuple[str, str], str] = {}
    for document, line in documented():
        for match in COMMAND.finditer(line):
            found.setdefault((match[2] or match[1], match[3].strip()), document)
        for match in PARLEY.finditer(line):
            found.setdefault(("parley", match[1].strip()), document)
        for match in MAKE_ARGUMENTS.finditer(line):
            found.setdefault(("bot.py", match[1][1:-1]), document)
        # Without arguments the word is the name of a file.
        if (served := SERVERS.search(line)) and "python" not in line and served[2]:
            found.setdefault((served[1], served[2].strip()), document)
    return [
        (document, program, arguments)
        for (program, arguments), document in found.items()
        # Alone it is a name, and the command shows its help without reading options.
        if (program, arguments) != ("parley", "")
        and (program.endswith(".py") or program.partition(".")[0] in OURS)
    ]


class Parsed(BaseException):
    """Raised when the arguments were accepted.

    It is no ``Exception``: a program would report that as a failure of its own.
    """


def take(program: str, arguments: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a program until its parser has taken the arguments.

    Raises:
        SystemExit: the parser refuses the arguments.
        Parsed: the parser accepts the arguments.
    """
    taken = argparse.ArgumentParser.parse_args

    def parse(self: argparse.ArgumentParser, args: Sequence[str] | None = None, namespace: Any = None) -> Any:
        raise Parsed(taken(self, args, namespace))

    words = [PLACEHOLDERS.get(word, word) for word in shlex.split(arguments)]
    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse)
    monkeypatch.setattr(sys, "argv", [program, *filter(None, words)])
    if program.endswith(".py"):
        runpy.run_path(str(ROOT / program), run_name="__main__")
    else:
        runpy.run_module(program, run_name="__main__", alter_sys=True)


def has_parser(program: str) -> bool:
    if program == "parley":
        # Each of its commands has one.
        return True
    spec = find_spec(program)
    assert spec is not None and spec.origin is not None, f"there is no {program}"
    if spec.submodule_search_locations is not None:
        spec = find_spec(f"{program}.__main__")
        assert spec is not None and spec.origin is not None, f"{program} cannot be run"
    return "argparse" in Path(spec.origin).read_text(encoding="utf-8")


@pytest.mark.parametrize(("document", "program", "arguments"), commands())
def test_a_command_of_the_documents_is_taken_as_it_is_written(
    document: str, program: str, arguments: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not program.endswith(".py") and not has_parser(program):
        assert not arguments, f"{document}: {program} takes no arguments"
        return
    try:
        with pytest.raises(Parsed):
            take(program, arguments, monkeypatch)
    except SystemExit as end:
        # 0: help was requested.
        assert not end.code, f"{document}: python {program} {arguments} is refused"


def test_every_way_of_writing_a_command_is_found() -> None:
    programs = {program for _, program, _ in commands()}
    assert {"parley", "bot.py", "evals.bench", "scripts.draw_events"} <= programs


def run(*arguments: str) -> str:
    """Return what a command prints."""
    done = subprocess.run(
        [sys.executable, "-m", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def said(document: str, pattern: str) -> float:
    """Return a figure that a document gives."""
    text = " ".join((ROOT / document).read_text(encoding="utf-8").split())
    found = re.search(pattern, text)
    assert found is not None, f"{document} no longer says {pattern!r}"
    return float(found[1].replace(",", ""))


@pytest.mark.slow
def test_kept_caches_are_hit_as_often_as_their_document_says() -> None:
    pytest.importorskip("torch", reason="needs the extra 'local-llm'")
    pytest.importorskip("transformers", reason="needs the extra 'local-llm'")
    figures = json.loads(run("parley.evals.bench", "kv_cache", "trace", "--seeds", "1"))["policies"]
    for policy, name in (("verified", "verified"), ("history_hash", "a hash of the history")):
        share = said("docs/explanation/kv_cache.md", rf"\| {name}[^|]*\| (\d+) \|") / 540
        found = figures[policy]["hits"] / figures[policy]["asked"]
        # Shares do not depend on the machine: one trace of three.
        assert found == pytest.approx(share, abs=0.05), policy
    assert figures["verified"]["false_hits"] == 0
