"""Console for a typed conversation in a terminal: history, commands, and answers that can be interrupted.

The terminal is in raw mode during an answer too, so that Ctrl-C is a key and not a signal: it ends the answer
and not the process. Keys that are typed during an answer go to the next prompt.
"""

import asyncio
import base64
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TextIO

from loguru import logger
from prompt_toolkit import PromptSession
from prompt_toolkit.completion import WordCompleter
from prompt_toolkit.data_structures import Size
from prompt_toolkit.enums import DEFAULT_BUFFER
from prompt_toolkit.filters import has_focus
from prompt_toolkit.formatted_text import FormattedText
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.input import Input, create_input
from prompt_toolkit.input.typeahead import store_typeahead
from prompt_toolkit.key_binding import KeyBindings, KeyPress, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.output import Output, create_output
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.shortcuts import CompleteStyle

from parley.core.errors import AgentError, MediaError
from parley.core.pictures import Picture
from parley.language.intents import IntentRules
from parley.pipelines.engines.llm_runtime import LlmRuntime
from parley.pipelines.text.commands import COMMANDS, IMAGE, QUIT, is_command, response_to
from parley.pipelines.text.printed_answer import print_answer, printable
from parley.runtime.atomic_file import replace_file
from parley.session_store.conversation import Conversation

# In colour, so that typed lines stand out from answers in a long conversation.
PROMPT = FormattedText([("ansigreen", "> ")])
KEYS = "Up and Down recall earlier lines, Ctrl-C interrupts an answer, Ctrl-D ends the conversation."

# Entries of the history that stay when it is opened.
KEPT_ENTRIES = 2_000
# Pictures of one line, and bytes of a file that is read for one.
MOST_PICTURES = 8
MOST_FILE_BYTES = 50_000_000
# Each entry of a history file begins with such a line; the lines that were typed begin with "+".
_ENTRY = re.compile(rb"^# ", re.MULTILINE)


class TypedLines(FileHistory):
    """History in a file, which a conversation goes on without once the file cannot be written."""

    _is_failing = False

    def store_string(self, string: str) -> None:
        """Write a line to the file; a failure is logged once."""
        try:
            super().store_string(string)
        except OSError as error:
            if not self._is_failing:
                logger.warning(f"typed lines are not kept for later: {error}")
            self._is_failing = True


def history_path() -> Path | None:
    """Return the file of the lines that this user has typed; None for a user without a home directory."""
    state = os.environ.get("XDG_STATE_HOME")
    try:
        return Path(state or Path.home() / ".local" / "state") / "parley" / "history"
    except RuntimeError:
        return None


def open_history(path: Path | None) -> History:
    """Open the history of typed lines and cut it to the last ``KEPT_ENTRIES``.

    It is not kept where there is no file for it to be written to.
    """
    if path is None:
        logger.warning("typed lines are not kept for later: this user has no home directory")
        return InMemoryHistory()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Only this user may read what was typed.
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600))
        content = path.read_bytes()
    except OSError as error:
        logger.warning(f"typed lines are not kept for later: {error}")
        return InMemoryHistory()
    entries = [found.start() for found in _ENTRY.finditer(content)]
    if len(entries) > KEPT_ENTRIES:
        try:
            # The file may be a link to one that is kept elsewhere.
            replace_file(path.resolve(), content[entries[-KEPT_ENTRIES] :])
        except OSError as error:
            logger.warning(f"the history of typed lines is not cut: {error}")
    return TypedLines(path)


class Console:
    """Console of one conversation.

    Args:
        conversation: the session.
        answering: language models and tools.
        answer_timeout_s: longest wait for the end of an answer.
        source: the terminal's keys.
        output: the terminal's screen.
        history: lines that were typed before.
        intents: rules that recognise a farewell.
    """

    def __init__(
        self,
        conversation: Conversation,
        answering: LlmRuntime,
        *,
        answer_timeout_s: float,
        source: Input,
        output: Output,
        history: History,
        intents: IntentRules,
    ) -> None:
        self._conversation, self._answering = conversation, answering
        self._answer_timeout_s = answer_timeout_s
        self._source, self._output = source, output
        self._intents = intents
        # Shown with the next line.
        self._pictures: list[Picture] = []
        self._prompt: PromptSession[str] = PromptSession(
            PROMPT,
            input=source,
            output=output,
            history=history,
            key_bindings=_key_bindings(),
            completer=WordCompleter(list(COMMANDS), sentence=True),
            complete_while_typing=False,
            complete_style=CompleteStyle.READLINE_LIKE,
        )

    async def converse(self) -> None:
        """Answer lines until the user ends the conversation.

        Raises:
            KeyboardInterrupt: Ctrl-C on an empty line.
        """
        self.write("/help lists the commands.\n")
        while True:
            try:
                line = (await self._prompt.prompt_async()).strip()
            except EOFError:
                return
            if line == QUIT:
                return
            if is_command(line):
                await self._run(line)
            elif line:
                await self._answer(line)
                if self._intents.is_farewell(line):
                    return

    def write(self, text: str) -> None:
        """Write text to the screen."""
        self._output.write(text)
        self._output.flush()

    async def _run(self, command: str) -> None:
        name, _, argument = command.partition(" ")
        if name == IMAGE:
            await self._show(argument.strip())
            return
        self.write(response_to(command, COMMANDS, self._conversation.session_id))
        if command == "/help":
            self.write(f"{KEYS}\n")

    async def _show(self, path: str) -> None:
        """Read a picture, which the next line shows."""
        if not path:
            self.write("Which file? /image PATH\n")
        elif not self._answering.sees:
            self.write("This deployment's language model sees no pictures.\n")
        elif len(self._pictures) >= MOST_PICTURES:
            self.write(f"The next line shows {MOST_PICTURES} pictures already.\n")
        else:
            try:
                data = await asyncio.to_thread(_read_file, path)
                self._pictures.append(await self._answering.pictures.read(data))
            except OSError as error:
                self.write(f"{printable(path)}: {error.strerror or type(error).__name__}\n")
            except AgentError as error:
                self.write(f"{printable(path)}: {printable(str(error))}\n")
            else:
                self.write("It is shown with your next line.\n")

    async def _answer(self, line: str) -> None:
        pictures, self._pictures = self._pictures, []
        printing = asyncio.create_task(
            print_answer(
                self._conversation,
                self._answering,
                line,
                self.write,
                answer_timeout_s=self._answer_timeout_s,
                pictures=pictures,
                cites=True,
            ),
            name="console.answer",
        )
        try:
            with self._interrupting(printing.cancel):
                await asyncio.wait({printing})
        finally:
            # This process may be ending: the part of the answer that was shown is recorded first.
            printing.cancel()
            await asyncio.wait({printing})
        if printing.cancelled():
            self.write("\n(interrupted)\n")
        else:
            printing.result()

    @contextmanager
    def _interrupting(self, interrupt: Callable[[], object]) -> Iterator[None]:
        """Call ``interrupt`` for Ctrl-C; keep other keys for the next prompt."""
        later: list[KeyPress] = []
        read = partial(self._read_keys, interrupt, later)
        try:
            with self._source.raw_mode(), self._source.attach(read):
                yield
        finally:
            store_typeahead(self._source, later)

    def _read_keys(self, interrupt: Callable[[], object], later: list[KeyPress]) -> None:
        for press in self._source.read_keys():
            if press.key == Keys.ControlC:
                interrupt()
            else:
                later.append(press)


def _read_file(name: str) -> str:
    """Return a file in base64.

    Raises:
        OSError: it cannot be read.
        MediaError: it is longer than any picture.
    """
    path = Path(os.path.expanduser(name))
    if path.stat().st_size > MOST_FILE_BYTES:
        raise MediaError(f"the file is too large: over {MOST_FILE_BYTES:,} bytes")
    return base64.b64encode(path.read_bytes()).decode("ascii")


def _open_output(out: TextIO) -> Output:
    """Return the terminal for the console to write to."""
    if sys.platform == "win32" or not out.isatty():
        return create_output(out)

    def size() -> Size:
        columns, rows = shutil.get_terminal_size()
        return Size(rows=rows, columns=columns)

    # Without a menu below the prompt the position of the cursor is not needed. Some terminals do not report
    # it, and each prompt would wait for a second.
    return Vt100_Output(out, size, term=os.environ.get("TERM"), enable_cpr=False)


async def converse_in_console(
    conversation: Conversation,
    answering: LlmRuntime,
    source: TextIO,
    out: TextIO,
    answer_timeout_s: float,
    intents: IntentRules,
) -> None:
    """Hold a conversation in the console of a terminal."""
    output = _open_output(out)
    history = await asyncio.to_thread(open_history, history_path())
    console = Console(
        conversation,
        answering,
        answer_timeout_s=answer_timeout_s,
        source=create_input(source),
        output=output,
        history=history,
        intents=intents,
    )
    await console.converse()


def _key_bindings() -> KeyBindings:
    bindings = KeyBindings()
    bindings.add(Keys.ControlC, filter=has_focus(DEFAULT_BUFFER))(_clear_or_end)
    return bindings


def _clear_or_end(event: KeyPressEvent) -> None:
    """Discard the line; with an empty line end the process, as Ctrl-C does everywhere."""
    if event.current_buffer.text:
        event.current_buffer.reset()
    else:
        event.app.exit(exception=KeyboardInterrupt)
