"""The console of a terminal, with typed keys and a screen of text."""

import asyncio
import io
import shutil
import stat
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.input import PipeInput, create_pipe_input
from prompt_toolkit.output.plain_text import PlainTextOutput

from parley.configs.deployment import Deployment
from parley.pipelines.engines.llm_runtime import AnsweringPlan, LlmRuntime
from parley.pipelines.text.console import KEPT_ENTRIES, Console, history_path, open_history
from parley.processors.dialogue.services import Documents, DocumentsSettings
from parley.session_store.compaction import CompactionTuning, Compactor
from parley.session_store.conversation import Conversation
from parley.session_store.conversations import Conversations
from parley.session_store.events import Kind
from parley.session_store.settings import StoreTuning
from parley.session_store.store import SessionStore
from tests.fakes.scripted_llm import HANG, Script, ScriptedLanguageModel

WITHIN_S = 20
CTRL_C, CTRL_D, UP, ENTER = "\x03", "\x04", "\x1b[A", "\r"


class Screen(io.StringIO):
    """Text that was written, and a wait for more of it."""

    async def shows(self, text: str, times: int = 1) -> None:
        async with asyncio.timeout(WITHIN_S):
            while self.getvalue().count(text) < times:
                await asyncio.sleep(0.005)


@dataclass
class Terminal:
    """A console that runs, with its keyboard and its screen."""

    keys: PipeInput
    screen: Screen
    conversation: Conversation
    model: ScriptedLanguageModel
    running: "asyncio.Task[str]"

    def type(self, *lines: str) -> None:
        self.keys.send_text("".join(line + ENTER for line in lines))

    async def ends(self, outcome: str = "ended") -> str:
        async with asyncio.timeout(WITHIN_S):
            assert await self.running == outcome
        return self.screen.getvalue()

    def asked(self) -> list[str]:
        return [request[-1].text for request in self.model.asked]


@pytest.fixture
def keys() -> Iterator[PipeInput]:
    with create_pipe_input() as made:
        yield made


async def outcome(console: Console) -> str:
    try:
        await console.converse()
    except KeyboardInterrupt:
        # It would end the event loop of the tests.
        return "interrupted"
    return "ended"


@asynccontextmanager
async def console(
    folder: Path, keys: PipeInput, *scripts: Script, history: History | None = None
) -> AsyncIterator[Terminal]:
    store = await SessionStore.open(StoreTuning(url=f"sqlite:///{folder}/sessions.db"))
    compactor = Compactor(CompactionTuning(), budget_tokens=4_000)
    conversations = Conversations(store, compactor=compactor)
    model, screen = ScriptedLanguageModel(*scripts), Screen()
    plan = AnsweringPlan(Documents(DocumentsSettings()), None, guarded=False)
    answering = LlmRuntime(Deployment(), plan, model)
    try:
        async with conversations.open() as conversation:
            made = Console(
                conversation,
                answering,
                answer_timeout_s=WITHIN_S,
                source=keys,
                output=PlainTextOutput(screen),
                history=history or InMemoryHistory(),
                intents=Deployment().language().intents,
            )
            running = asyncio.create_task(outcome(made))
            try:
                yield Terminal(keys, screen, conversation, model, running)
            finally:
                running.cancel()
                await asyncio.wait({running})
    finally:
        await conversations.close()
        await answering.close()
        await store.close()


async def test_answers_stream_and_ctrl_d_ends(tmp_path: Path, keys: PipeInput):
    async with console(tmp_path, keys, ("We open ", "at ten."), ("Four euros.",)) as terminal:
        terminal.type("When do you open?", "", "   ", "What does it cost?")
        await terminal.screen.shows("Four euros.\n")
        keys.send_text(CTRL_D)
        shown = await terminal.ends()
    assert "We open at ten.\n" in shown
    assert terminal.asked() == ["When do you open?", "What does it cost?"]


async def test_control_characters_of_an_answer_do_not_reach_the_terminal(tmp_path: Path, keys: PipeInput):
    script = ("We\x1b[2J open\x07 \x9b31m", "\rat\b\tten,\nnot\x7f at n\u00efne.")
    async with console(tmp_path, keys, script) as terminal:
        terminal.type("When do you open?", "/quit")
        shown = await terminal.ends()
    assert "We[2J open 31mat\tten,\nnot at n\u00efne.\n" in shown


async def test_a_model_that_sees_nothing_is_shown_nothing(tmp_path: Path, keys: PipeInput):
    async with console(tmp_path, keys) as terminal:
        terminal.type("/image", "/image photo.png", "/quit")
        shown = await terminal.ends()
    assert "Which file? /image PATH\n" in shown
    assert "This deployment's language model sees no pictures.\n" in shown


async def test_the_commands(tmp_path: Path, keys: PipeInput):
    async with console(tmp_path, keys, ("Hello.",)) as terminal:
        terminal.type("/help", "/session", "/sesion", "/quit")
        shown = await terminal.ends()
    for text in ("/help ", "/session ", "/quit ", "Ctrl-C interrupts an answer"):
        assert text in shown
    assert f"{terminal.conversation.session_id}\n" in shown
    assert "Unknown command /sesion; /help lists the commands.\n" in shown
    assert terminal.asked() == []


async def test_tab_completes_a_command(tmp_path: Path, keys: PipeInput):
    async with console(tmp_path, keys, ("Hello.",)) as terminal:
        terminal.type("/se\t")
        await terminal.screen.shows(terminal.conversation.session_id)


async def test_ctrl_c_interrupts_the_answer_and_the_conversation_goes_on(tmp_path: Path, keys: PipeInput):
    async with console(tmp_path, keys, ("We open ", HANG), ("At ten.",)) as terminal:
        terminal.type("When do you open?")
        await terminal.screen.shows("We open ")
        keys.send_text(CTRL_C)
        await terminal.screen.shows("(interrupted)\n")
        terminal.type("When?")
        await terminal.screen.shows("At ten.\n")
        keys.send_text(CTRL_D)
        await terminal.ends()
        await terminal.conversation.flushed()
        answers = [event for event in terminal.conversation.events if event.kind is Kind.BOT_TURN]
    assert [(each.payload["text"], each.payload["truncated"]) for each in answers] == [
        ("We open", True),
        ("At ten.", False),
    ]


async def test_what_is_typed_during_an_answer_is_the_next_line(tmp_path: Path, keys: PipeInput):
    async with console(tmp_path, keys, ("We open ", 0.3, "at ten."), ("Four euros.",)) as terminal:
        terminal.type("When do you open?")
        await terminal.screen.shows("We open ")
        terminal.type("What does it cost?", "/quit")
        shown = await terminal.ends()
    assert shown.index("at ten.\n") < shown.index("Four euros.\n")
    assert terminal.asked() == ["When do you open?", "What does it cost?"]


async def test_ctrl_c_discards_the_line_and_on_an_empty_one_ends_the_process(tmp_path: Path, keys: PipeInput):
    async with console(tmp_path, keys, ("Hello.",)) as terminal:
        keys.send_text("When do" + CTRL_C)
        terminal.type("Hi")
        await terminal.screen.shows("Hello.\n")
        assert terminal.asked() == ["Hi"]
        keys.send_text(CTRL_C)
        await terminal.ends("interrupted")


async def test_a_farewell_ends_the_conversation(tmp_path: Path, keys: PipeInput):
    async with console(tmp_path, keys, ("Goodbye.",)) as terminal:
        terminal.type("quit", "What does it cost?")
        await terminal.ends()
    assert terminal.asked() == ["quit"]


async def test_a_failed_answer_is_one_line(tmp_path: Path, keys: PipeInput):
    async with console(tmp_path, keys, (), ("At ten.",)) as terminal:
        terminal.type("When?", "When then?")
        await terminal.screen.shows("At ten.\n")
    assert "No model answered.\n" in terminal.screen.getvalue()


async def test_lines_of_an_earlier_conversation_can_be_recalled(tmp_path: Path, keys: PipeInput):
    path = tmp_path / "state" / "parley" / "history"
    async with console(tmp_path, keys, ("At ten.",), history=open_history(path)) as terminal:
        terminal.type("When do you open?", "/quit")
        await terminal.ends()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with create_pipe_input() as later:
        async with console(tmp_path, later, ("At ten.",), history=open_history(path)) as terminal:
            await terminal.screen.shows("> ")
            # The file is read while the prompt is shown.
            await asyncio.sleep(0.2)
            later.send_text(UP + UP + ENTER)
            await terminal.screen.shows("At ten.\n")
        assert terminal.asked() == ["When do you open?"]


def test_the_history_is_a_file_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert history_path() == tmp_path / "parley" / "history"
    assert isinstance(open_history(history_path()), FileHistory)


def test_without_a_home_directory_the_history_lasts_as_long_as_the_process(monkeypatch: pytest.MonkeyPatch):
    def without_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", without_home)
    assert isinstance(open_history(history_path()), InMemoryHistory)


def test_without_a_place_for_it_the_history_lasts_as_long_as_the_process(tmp_path: Path):
    (tmp_path / "parley").write_text("a file, where a folder is needed")
    assert isinstance(open_history(tmp_path / "parley" / "history"), InMemoryHistory)


async def test_the_conversation_goes_on_when_the_history_cannot_be_written(tmp_path: Path, keys: PipeInput):
    path = tmp_path / "state" / "history"
    history = open_history(path)
    shutil.rmtree(path.parent)
    async with console(tmp_path, keys, ("At ten.",), ("Four euros.",), history=history) as terminal:
        terminal.type("When do you open?", "What does it cost?", "/quit")
        shown = await terminal.ends()
    assert "At ten.\n" in shown and "Four euros.\n" in shown


def test_a_long_history_is_cut_to_its_last_entries_when_it_is_opened(tmp_path: Path):
    path = tmp_path / "history"
    (tmp_path / "elsewhere").touch(0o600)
    path.symlink_to(tmp_path / "elsewhere")
    earlier = FileHistory(path)
    for number in range(KEPT_ENTRIES + 10):
        earlier.store_string(f"# line {number}\n# and more")
    kept = list(open_history(path).load_history_strings())
    assert (len(kept), kept[0], kept[-1]) == (
        KEPT_ENTRIES,
        f"# line {KEPT_ENTRIES + 9}\n# and more",
        "# line 10\n# and more",
    )
    assert path.is_symlink()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    # What is short enough is left as it is.
    content = path.read_bytes()
    open_history(path)
    assert path.read_bytes() == content


def test_a_history_that_is_linked_to_nowhere_keeps_nothing(tmp_path: Path):
    path = tmp_path / "history"
    path.symlink_to("/dev/null")
    open_history(path).store_string("When do you open?")
    assert list(open_history(path).load_history_strings()) == []
