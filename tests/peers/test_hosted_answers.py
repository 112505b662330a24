"""A causal model in a worker, started by the command.

The tests cover what its conversations read again, and what happens when the worker is killed, stopped, full
or interrupted.
"""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, aclosing, asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

pytest.importorskip("torch", reason="needs the extra 'local-llm'")
pytest.importorskip("transformers", reason="needs the extra 'local-llm'")

# ruff: noqa: E402
from parley.configs.load import load_deployment
from parley.core.errors import CapacityError, ConfigError, EngineBusyError, EngineError
from parley.evals.tiny_qwen3 import install_tiny_qwen3
from parley.models.hosted.link import ConversationLink
from parley.models.hosted.worker import OneWorker
from parley.models.llm import Message
from parley.models.llm.hosted.codec import of_asked, to_answered
from parley.models.llm.hosted.engine import HostedReplies, WorkerLlm, WorkerLlmSettings
from parley.models.llm.kv.causal import CausalLm, CausalSettings
from parley.models.llm.kv.dialogue import GenerationRequest, Prefilled
from parley.models.llm.kv.dialogue import GenerationResult as ModelAnswered
from parley.models.llm.kv.replies import CausalReplies
from parley.models.llm.kv.segments import CacheHandle
from parley.pipelines.engines.llm_runtime import LlmRuntime, plan_answering
from parley.pipelines.sessions import open_conversations
from parley.pipelines.text.typed_turns import AnswerCommitted, AnswerPiece, ask
from parley.runtime.engine_hosting.messages import MessageType
from parley.runtime.engine_thread import EngineThread
from tests.fakes.worker import SECRET, SECRET_ENV, shared_secret
from tests.peers.minicpm_page import page
from tests.peers.server import free_port, running_server
from tests.peers.test_chat_sockets import answer, turn
from tests.worker_process import Worker, worker_process

ROOT = Path(__file__).parents[2]
HELLO = Message("user", "Hello?")
NEXT = Message("user", "And now?")
# Documents of the product answer it.
QUESTION = "What are your opening hours on Saturday?"
ANSWER_TOKENS = 40
# The next sign of any live worker comes sooner; a worker that is stopped is given up after this time.
WITHIN_S = 1.5
LOADED_WITHIN_S = 60
# Longest time until a worker has cleaned up a connection that was closed.
CLEAN_S = 30.0
# Packages that a worker does not need: importing one of them ends the process.
UNWANTED = ("pipecat", "fastapi", "aiortc")
PROGRAM = (
    "import runpy, sys\n"
    f"sys.modules.update(dict.fromkeys({UNWANTED}))\n"
    "sys.argv[0] = 'runner.py'\n"
    "runpy.run_path('runner.py', run_name='__main__')\n"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install_tiny_qwen3(tmp_path_factory.mktemp("qwen3"), is_ascii=True)


@contextmanager
def started(
    folder: Path, *arguments: str, port: int = 0, answer_tokens: int = ANSWER_TOKENS
) -> Iterator[Worker]:
    """Start a worker by its command, with a loaded model."""
    settings = {"model": folder, "device": "cpu", "threads": 1, "answer_tokens": answer_tokens}
    command = [
        *(sys.executable, "-c", PROGRAM, "--role", "worker", "--kind", "llm", "--engine", "transformers"),
        *(part for name, value in settings.items() for part in ("--set", f"{name}={value}")),
        *("--port", str(port), "--print-url", *arguments),
    ]
    with worker_process(command, {**os.environ, "PARLEY_WORKER_SECRET": SECRET}) as (process, url):
        llm(url).wait_until_loaded()
        yield process, url


@pytest.fixture(scope="module")
def url(folder: Path) -> Iterator[str]:
    with started(folder) as (_, url):
        yield url


class Talkative:
    """A worker whose answers are thousands of tokens long: another one when a test has killed it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running = ExitStack()
        self._worker: Worker | None = None

    def worker(self) -> Worker:
        if self._worker is not None:
            # A stopped worker is continued, and finds that its client is gone.
            self._worker[0].send_signal(signal.SIGCONT)
            with suppress(subprocess.TimeoutExpired):
                self._worker[0].wait(0.2)
        if self._worker is None or self._worker[0].poll() is not None:
            self.close()
            self._worker = self._running.enter_context(started(self._folder, answer_tokens=6_000))
        return self._worker

    def close(self) -> None:
        self._running.close()


@pytest.fixture(scope="module")
def talkative(folder: Path) -> Iterator[Talkative]:
    workers = Talkative(folder)
    yield workers
    workers.close()


def llm(url: str) -> WorkerLlm:
    limits = {"request_timeout_s": WITHIN_S, "load_timeout_s": LOADED_WITHIN_S}
    return WorkerLlm(WorkerLlmSettings(url=url, secret_env=shared_secret(), **limits))


@contextmanager
def conversation(url: str) -> Iterator[HostedReplies]:
    replies = llm(url).open_replies()
    try:
        yield replies
    finally:
        replies.close()


def embedded(folder: Path, answer_tokens: int = ANSWER_TOKENS) -> CausalReplies:
    settings = CausalSettings(model=folder, device="cpu", threads=1, answer_tokens=answer_tokens)
    return CausalReplies(CausalLm(settings), "s", thread=EngineThread("causal"))


async def said(replies: HostedReplies | CausalReplies, messages: Sequence[Message]) -> str:
    async with asyncio.timeout(60), aclosing(replies.reply(messages)) as pieces:  # type: ignore[type-var]
        return "".join([piece async for piece in pieces])


def read(replies: HostedReplies | CausalReplies) -> Prefilled:
    assert replies.prefilled is not None
    return replies.prefilled


async def test_the_second_turn_reads_what_is_new_and_says_what_the_model_says_in_process(
    url: str, folder: Path
) -> None:
    own = embedded(folder)
    with conversation(url) as replies:
        dialogue = [HELLO]
        for turn in range(3):
            expected = await said(own, dialogue)
            assert expected and await said(replies, dialogue) == expected
            assert read(replies) == read(own)
            assert not read(replies).refused and (read(replies).cached_tokens > 0) is (turn > 0)
            assert replies.answered is not None and own.answered is not None
            assert replies.answered.char_ends == own.answered.char_ends
            # The handle belongs to another session and must not be taken for the same.
            assert replies.answered.digest != own.answered.digest
            dialogue += [Message("assistant", expected), NEXT]


class Raw:
    """A session of a worker that sends any condition."""

    def __init__(self, url: str, session_id: str) -> None:
        leasing = OneWorker(WorkerLlmSettings(url=url, secret_env=shared_secret()))
        first = leasing.lease_of(session_id, 0, None)[1]
        self.link = ConversationLink(url, first, open_s=2, write_s=2, engine="worker")

    def answer(
        self, *dialogue: Message, condition: CacheHandle | None = None, append: int = 0
    ) -> tuple[dict[str, Any], ModelAnswered, CacheHandle]:
        """Return the counts, the answer, and the handle to continue from."""
        full = tuple(dialogue)
        asked = GenerationRequest(full, condition and condition.digest, append=full[len(full) - append :])
        number = self.link.put(MessageType.GENERATE, *of_asked(asked, condition))
        counts: list[dict[str, Any]] = []
        while True:
            message = self.link.heard(number, within_s=60)
            assert message is not None
            if message.type is MessageType.DONE:
                assert len(counts) == 1
                return counts[0], *to_answered(message.facts)
            if "prefilled" in message.facts:
                counts.append(message.facts["prefilled"])


def connected(url: str, session_id: str) -> Raw:
    """Return a connection, once the worker has cleaned up the one of this session before."""
    until_s = time.monotonic() + CLEAN_S
    while True:
        try:
            return Raw(url, session_id)
        except CapacityError:
            if time.monotonic() > until_s:
                raise
            time.sleep(0.05)


@contextmanager
def raw(url: str, session_id: str) -> Iterator[Raw]:
    session = connected(url, session_id)
    try:
        yield session
    finally:
        session.link.close()


async def test_a_handle_is_appended_to_cropped_to_or_refused(url: str, folder: Path) -> None:
    with raw(url, "conditions") as session:
        counts, first, handle = session.answer(HELLO)
        assert counts["condition"] == "none" and counts["cached_tokens"] == 0
        assert handle.kv_tokens == counts["input_tokens"] + len(first.char_ends)
        dialogue = (HELLO, Message("assistant", first.text), NEXT)
        counts, second, later = session.answer(*dialogue, condition=handle, append=1)
        assert counts["condition"] == "equal" and counts["cached_tokens"] == handle.kv_tokens
        # The same again, from the handle of the turn before: the answer is dropped, the tokens read before it
        # stay.
        counts, again, last = session.answer(*dialogue, condition=handle, append=1)
        assert counts["condition"] == "cropped" and counts["input_tokens"] == 0
        assert counts["cropped_tokens"] == len(second.char_ends)
        assert counts["cached_tokens"] == later.kv_tokens - len(second.char_ends)
        assert (again.text, last) == (second.text, later)
        # The template renders an older answer otherwise than it was generated: other tokens, another text.
        read_in_full = await said(embedded(folder), dialogue)
        for wrong in ({"digest": "0" * 64}, {"incarnation": "another"}, {"worker": "another"}):
            # Only this field keeps the handle from holding.
            _, _, handle = session.answer(HELLO)
            counts, cold, handle_of_cold = session.answer(
                *dialogue, condition=replace(handle, **wrong), append=1
            )
            assert counts["condition"] == "refused" and counts["cached_tokens"] == 0
            assert cold.text == read_in_full
            # Read as one segment it is another context, so the old handle does not hold.
            counts, *_ = session.answer(*dialogue, condition=handle, append=1)
            assert counts["condition"] == "refused" and handle_of_cold.digest != last.digest


def test_what_is_kept_of_a_session_outlives_its_link_and_is_no_one_elses(url: str) -> None:
    with raw(url, "mine") as session:
        _, first, handle = session.answer(HELLO)
    dialogue = (HELLO, Message("assistant", first.text), NEXT)
    with raw(url, "somebody elses") as session:
        counts, other, theirs = session.answer(HELLO)
        assert counts["cached_tokens"] == 0 and other.text == first.text and theirs.digest != handle.digest
        counts, *_ = session.answer(*dialogue, condition=handle, append=1)
        assert counts["condition"] == "refused" and counts["cached_tokens"] == 0
    with raw(url, "mine") as session:
        counts, *_ = session.answer(*dialogue, condition=handle, append=1)
        assert counts["condition"] == "equal" and counts["cached_tokens"] == handle.kv_tokens
        session.link.ask(MessageType.DISCARD, within_s=2)
        counts, *_ = session.answer(*dialogue, condition=handle, append=1)
        assert counts["condition"] == "refused"


async def test_a_process_drops_the_context_of_a_deleted_session(url: str) -> None:
    with raw(url, "kept") as session:
        session.answer(HELLO)
    with raw(url, "deleted") as session:
        _, first, handle = session.answer(HELLO)
    assert await llm(url).forget("deleted") == 1
    assert await llm(url).forget("deleted") == 0
    dialogue = (HELLO, Message("assistant", first.text), NEXT)
    with raw(url, "deleted") as session:
        counts, *_ = session.answer(*dialogue, condition=handle, append=1)
        assert counts["condition"] == "refused" and counts["cached_tokens"] == 0
    with raw(url, "kept") as session:
        assert session.answer(HELLO)[0]["cached_tokens"] > 0


def test_a_dialogue_that_is_none_is_refused_and_the_next_one_is_answered(url: str) -> None:
    with raw(url, "wrong") as session:
        facts, payload = of_asked(GenerationRequest((HELLO,)), None)
        for wrong in ({**facts, "append": 9}, {**facts, "keep": -1}, {**facts, "condition": {}}, {}):
            with pytest.raises(EngineError, match="unreadable"):
                session.link.ask(MessageType.GENERATE, wrong, payload, within_s=60)
        for nothing in (b"", b"[]", b'[["nobody", "Hello"]]', b"[" * 10_000):
            with pytest.raises(EngineError, match="unreadable"):
                session.link.ask(MessageType.GENERATE, facts, nothing, within_s=60)
        with pytest.raises(EngineError, match="does not support speak"):
            session.link.ask(MessageType.SPEAK, {"text": "Hello"}, within_s=60)
        assert session.answer(HELLO)[1].text


async def test_a_history_that_was_edited_is_read_from_where_it_differs(url: str, folder: Path) -> None:
    edited = [Message("user", "Good day."), Message("assistant", "Good day."), NEXT]
    with conversation(url) as replies:
        await said(replies, [HELLO])
        assert await said(replies, edited) == await said(embedded(folder), edited)
        assert read(replies).cached_tokens == len("Suser\n")


async def test_who_interrupts_stops_the_model_and_goes_on_from_what_was_heard(talkative: Talkative) -> None:
    _, url = talkative.worker()
    with conversation(url) as replies:
        heard = ""
        async with asyncio.timeout(60), aclosing(replies.reply([HELLO])) as pieces:
            async for piece in pieces:
                heard += piece
                if len(heard) > 20:
                    break
        asked_tokens = read(replies).input_tokens
        dialogue = [HELLO, Message("assistant", f"{heard} [interrupted]"), Message("user", "No, wait.")]
        async with asyncio.timeout(60), aclosing(replies.reply(dialogue)) as pieces:
            await anext(pieces)
        now = read(replies)
        assert not now.refused and now.cached_tokens >= asked_tokens + 20
        # The text that it had written beyond the heard part is dropped: little, because it stopped at once.
        assert now.cropped_tokens < 1_000 and now.input_tokens < 200


async def test_two_conversations_are_answered_at_once_and_one_too_many_is_refused(folder: Path) -> None:
    with (
        started(folder, "--limit", "streams=2", answer_tokens=400) as (_, url),
        conversation(url) as one,
        conversation(url) as other,
    ):
        first_s, ended_s = list[float](), list[float]()

        async def answer(replies: HostedReplies, messages: list[Message]) -> str:
            pieces = []
            async for piece in replies.reply(messages):
                if not pieces:
                    first_s.append(time.monotonic())
                pieces.append(piece)
            ended_s.append(time.monotonic())
            return "".join(pieces)

        async with asyncio.timeout(60):
            received = await asyncio.gather(answer(one, [HELLO]), answer(other, [NEXT]))
        # Neither answer waited for the end of the other.
        assert max(first_s) < min(ended_s)
        assert received[0] == await said(embedded(folder, 400), [HELLO])
        assert received[1] == await said(embedded(folder, 400), [NEXT])
        with conversation(url) as third:
            with pytest.raises(EngineBusyError, match="all 2 slots are in use"):
                await said(third, [HELLO])
            one.close()
            async with asyncio.timeout(60):
                while True:
                    try:
                        assert await said(third, [HELLO]) == received[0]
                        break
                    except EngineBusyError:
                        await asyncio.sleep(0.02)
            assert read(third).cached_tokens == 0


async def test_after_a_kill_the_handle_is_refused_and_the_conversation_goes_on(folder: Path) -> None:
    port = free_port()
    with started(folder, port=port) as (process, url), conversation(url) as replies:
        first = await said(replies, [HELLO])
        dialogue = [HELLO, Message("assistant", first), NEXT]
        await said(replies, dialogue)
        assert read(replies).cached_tokens > 0
        before = replies.handle
        os.kill(process.pid, signal.SIGKILL)
        process.wait(10)
        with pytest.raises(EngineError):
            await said(replies, dialogue)
        with started(folder, port=port):
            second = await said(replies, dialogue)
            assert second == await said(embedded(folder), dialogue)
            assert read(replies).refused and read(replies).cached_tokens == 0
            assert before is not None and replies.handle is not None
            assert replies.handle.incarnation != before.incarnation
            # From here on everything works as before.
            await said(replies, [*dialogue, Message("assistant", second), NEXT])
            assert not read(replies).refused and read(replies).cached_tokens > 0


@pytest.mark.parametrize("blow", [signal.SIGSTOP, signal.SIGKILL])
async def test_a_worker_that_ends_in_the_middle_of_an_answer_is_noticed_in_time(
    talkative: Talkative, blow: signal.Signals
) -> None:
    process, url = talkative.worker()
    with conversation(url) as replies:
        pieces = replies.reply([HELLO])
        async with asyncio.timeout(20):
            await anext(pieces)
            os.kill(process.pid, blow)
            with pytest.raises(EngineError):
                while True:
                    await anext(pieces)
        # The next question is not left waiting either.
        async with asyncio.timeout(20):
            with pytest.raises(EngineError):
                await said(replies, [HELLO])


def test_a_model_that_is_not_there_is_said_before_anything_is_served(folder: Path) -> None:
    with pytest.raises(EngineError, match="not reached"):
        llm(f"ws://127.0.0.1:{free_port()}").wait_until_loaded()


# A deployment whose model is in a worker.


def own(folder: Path, url: str, fallback: str = "") -> Path:
    shared_secret()
    settings = f"{{url: '{url}', secret_env: {SECRET_ENV}, request_timeout_s: {WITHIN_S}}}"
    (folder / "own.yaml").write_text(
        f"thinking:\n  llm: {{name: worker, settings: {settings}}}\n{fallback}"
        f"remembering: {{store: {{url: 'sqlite:///{folder}/sessions.db'}}}}\n"
    )
    return folder / "own.yaml"


@asynccontextmanager
async def typing(config: Path) -> AsyncIterator[Callable[[str], Awaitable[str]]]:
    """Return a function that sends typed turns to a session of a deployment."""
    deployment = load_deployment(config)
    answering = await LlmRuntime.load(deployment, plan_answering(deployment))

    async def typed(text: str) -> str:
        async with asyncio.timeout(60):
            async for event in ask(held, answering, text):
                last = event
        assert isinstance(last, AnswerCommitted)

        return str(last.turn.payload["text"])

    try:
        async with open_conversations(deployment, answering) as opened, opened.open() as held:
            yield typed
    finally:
        await answering.close()


async def test_typed_turns_are_answered_by_the_worker_and_by_the_fallback_when_it_is_killed(
    folder: Path, tmp_path: Path
) -> None:
    fallback = "  fallback: {name: documents}\n"
    with started(folder) as (process, url):
        async with typing(own(tmp_path, url, fallback)) as typed:
            assert await typed("Hello?")
            assert "ten until two" not in await typed(QUESTION)
            os.kill(process.pid, signal.SIGKILL)
            process.wait(10)
            assert "ten until two" in await typed(QUESTION)
    # A deployment starts without its worker when another model can answer, and fails when none can.
    async with typing(own(tmp_path, url, fallback)) as typed:
        assert "ten until two" in await typed(QUESTION)
    with pytest.raises(EngineError, match="not reached"):
        async with typing(own(tmp_path, url)):
            pass


@pytest.mark.parametrize("blow", [pytest.param(signal.SIGSTOP, marks=pytest.mark.slow), signal.SIGKILL])
async def test_a_typed_answer_whose_worker_ends_in_the_middle_is_not_left_open(
    talkative: Talkative, tmp_path: Path, blow: signal.Signals
) -> None:
    process, url = talkative.worker()
    config = own(tmp_path, url, "  fallback: {name: documents}\n")
    deployment = load_deployment(config)
    answering = await LlmRuntime.load(deployment, plan_answering(deployment))
    try:
        async with open_conversations(deployment, answering) as opened, opened.open() as held:
            async with asyncio.timeout(60):
                async for event in ask(held, answering, QUESTION):
                    if isinstance(event, AnswerPiece):
                        os.kill(process.pid, blow)
                    last = event
            assert isinstance(last, AnswerCommitted)
            # What was said of it stays said, and the documents go on.
            text = str(last.turn.payload["text"])
            assert "I lost my connection" in text and "ten until two" in text
    finally:
        await answering.close()


async def test_a_socket_of_turns_says_what_the_worker_had_in_its_cache(url: str, tmp_path: Path) -> None:
    hello = {"role": "user", "content": "Hello there, how are you today?"}
    config = own(tmp_path, url)
    async with (
        running_server("--config", str(config)) as server,
        page(server.url, "/ws/streaming/n") as client,
    ):
        first_read, first = await turn(client, hello)
        assert first_read["cached_tokens"] == 0 and first_read["input_tokens"] > 40
        assert 0 < first["token_stats"]["generated_tokens"] <= ANSWER_TOKENS
        second_read, _ = await turn(client, hello, answer(first), {"role": "user", "content": "And now?"})
        assert second_read["cached_tokens"] >= first_read["input_tokens"]
        assert 0 < second_read["input_tokens"] < first_read["input_tokens"]


async def test_the_workers_of_a_deployment_answer_what_is_typed(folder: Path, tmp_path: Path) -> None:
    settings = f"{{model: {folder}, device: cpu, threads: 1, answer_tokens: {ANSWER_TOKENS}}}"
    (tmp_path / "own.yaml").write_text(
        f"thinking: {{llm: {{name: pool, settings: {{request_timeout_s: {WITHIN_S}}}}}}}\n"
        f"workers: {{workers: [{{name: brain, engine: transformers, kind: llm, settings: {settings}}}]}}\n"
        f"remembering: {{store: {{url: 'sqlite:///{tmp_path}/sessions.db'}}}}\n"
    )
    command = [sys.executable, "bot.py", "--mode", "text", "--config", str(tmp_path / "own.yaml")]
    child = await asyncio.create_subprocess_exec(
        *command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        async with asyncio.timeout(90):
            out, _ = await child.communicate(b"Hello?\n")
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    assert child.returncode == 0
    deployment = load_deployment(tmp_path / "own.yaml")
    dialogue = [Message("system", deployment.bot.system_prompt), HELLO]
    greeting = deployment.bot.greeting
    if greeting:
        assert out.decode().startswith(greeting)
    assert (
        out.decode().removeprefix(f"{greeting}\n").strip() == (await said(embedded(folder), dialogue)).strip()
    )


def test_a_pool_without_workers_is_told_so(tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text("thinking: {llm: {name: pool}}\n")
    with pytest.raises(ConfigError, match="workers.workers names none"):
        plan_answering(load_deployment(tmp_path / "own.yaml"))


def test_a_deployment_without_the_secret_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = own(tmp_path, "ws://127.0.0.1:1")
    monkeypatch.delenv(SECRET_ENV)
    with pytest.raises(ConfigError, match=SECRET_ENV):
        plan_answering(load_deployment(config))


async def test_the_deletion_of_a_session_says_that_its_worker_has_dropped_the_context(
    url: str, tmp_path: Path
) -> None:
    config = own(tmp_path, url)
    # A busy machine keeps the worker from its first message for seconds.
    patient = config.read_text().replace("request_timeout_s", "open_timeout_s: 30, request_timeout_s")
    config.write_text(patient)
    async with (
        running_server("--config", str(config)) as server,
        httpx.AsyncClient(base_url=server.url, timeout=60) as client,
    ):
        path = f"/api/sessions/{(await client.post('/api/sessions')).json()['id']}"
        typed = await client.post(f"{path}/messages", json={"text": "Hello?"})
        assert "event: done" in typed.text
        deleted = await client.delete(path)
    assert deleted.status_code == 200 and deleted.json()["pending"] == []
    removed = deleted.json()["removed"]
    assert (removed["sessions"], removed["contexts"]) == (1, 1) and removed["events"] >= 2
