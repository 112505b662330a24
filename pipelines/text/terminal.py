"""A conversation typed in the terminal: turns of a session, no audio.

In a terminal this is a console (``console``). Elsewhere lines come in, and answers are printed as they
stream; ``commands`` work in both. End of input, or a farewell ("quit" is one), ends the conversation after
the last answer. A question is asked when the previous answer is complete. One that takes longer than its
deadline is given up with one line of output, and the conversation goes on.

The reader waits on the loop, which is notified when there is something to read. A thread that waits for a
terminal cannot be ended, and would hold up the end of the process.
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from functools import partial
from typing import TextIO

from parley.configs.deployment import Deployment
from parley.core.errors import ConfigError
from parley.language.intents import IntentRules
from parley.pipelines.engines.llm_runtime import LlmRuntime, plan_answering
from parley.pipelines.sessions import open_conversations
from parley.pipelines.text.commands import COMMANDS_OF_LINES, QUIT, is_command, response_to
from parley.pipelines.text.printed_answer import print_answer
from parley.serving.pool.pool import Pool
from parley.session_store.conversation import Conversation

ANSWER_TIMEOUT_S = 60.0
READ_BYTES = 65_536


async def talk_in_terminal(
    deployment: Deployment,
    source: TextIO | None = None,
    out: TextIO | None = None,
    *,
    session_id: str | None = None,
    answer_timeout_s: float = ANSWER_TIMEOUT_S,
) -> int:
    """Answer lines until the input ends.

    Args:
        deployment: the deployment.
        source: input, standard input by default. A terminal, a pipe or a file; read as UTF-8 from its
            descriptor.
        out: output, standard output by default.
        session_id: the session that goes on; None for a new one.
        answer_timeout_s: longest wait for the end of an answer.

    Returns:
        The exit status.

    Raises:
        ConfigError: see ``plan_answering`` and ``open_conversations``; or there is no standard input.
        StoreError: there is no such session, or another process took it over.
    """
    source, out = source or sys.stdin, out or sys.stdout
    if source is None or out is None:
        raise ConfigError("--mode text needs standard input and output, but one of them is closed")
    planned = await asyncio.to_thread(plan_answering, deployment)
    async with AsyncExitStack() as opened:
        streams = None
        if planned.in_workers:
            pool = Pool(deployment.workers, store=deployment.remembering.store)
            streams = (await opened.enter_async_context(pool)).streams
        answering = await LlmRuntime.load(deployment, planned, streams)
        opened.push_async_callback(answering.close)
        conversations = await opened.enter_async_context(open_conversations(deployment, answering))
        conversation = await opened.enter_async_context(conversations.open(session_id))
        greeting = deployment.bot.greeting_again if conversation.events else deployment.bot.greeting
        if greeting:
            _write(out, f"{greeting}\n")
        intents = deployment.language().intents
        if source.isatty() and out.isatty():
            # Imports prompt_toolkit, which a conversation from a file does not need.
            from parley.pipelines.text.console import converse_in_console

            await converse_in_console(conversation, answering, source, out, answer_timeout_s, intents)
        else:
            await _ask_all(conversation, answering, source, out, answer_timeout_s, intents)
    return 0


async def _ask_all(
    conversation: Conversation,
    answering: LlmRuntime,
    source: TextIO,
    out: TextIO,
    answer_timeout_s: float,
    intents: IntentRules,
) -> None:
    def prompt() -> None:
        if source.isatty():
            _write(out, "> ")

    prompt()
    async for line in _lines(source.fileno()):
        if line == QUIT:
            return
        if is_command(line):
            _write(out, response_to(line, COMMANDS_OF_LINES, conversation.session_id))
        elif line:
            await print_answer(
                conversation, answering, line, partial(_write, out), answer_timeout_s=answer_timeout_s
            )
            if intents.is_farewell(line):
                return
        prompt()


def _write(out: TextIO, text: str) -> None:
    out.write(text)
    out.flush()


async def _lines(descriptor: int) -> AsyncIterator[str]:
    """Yield lines without surrounding white space, as they come; the last one may lack its line end."""
    rest = b""
    while True:
        await _readable(descriptor)
        data = os.read(descriptor, READ_BYTES)
        *whole, rest = (rest + data).split(b"\n")
        for line in whole:
            yield line.decode(errors="replace").strip()
        if not data:
            if rest:
                yield rest.decode(errors="replace").strip()
            return


async def _readable(descriptor: int) -> None:
    """Return when reading does not block."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    try:
        loop.add_reader(descriptor, ready.set)
    except PermissionError:
        # Files and /dev/null are always ready, so epoll does not accept them.
        return
    try:
        await ready.wait()
    finally:
        loop.remove_reader(descriptor)
