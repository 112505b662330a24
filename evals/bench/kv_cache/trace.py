"""Conversations over a few workers that keep one context each: hits, false hits, tokens read again.

The trace consists of sessions of some turns, a few of them live at a time. Some answers are interrupted, some
made anew, and now and then a worker is restarted. Every session has the same system prompt, and some have the
same messages; finished sessions leave. Three policies answer the same trace, each with workers of its own
(tiny random models):

* ``verified``: the product's proof. The scheduler chooses by handles and digests for each question, which in
  calls it does for each stream; the worker verifies them.
* ``clairvoyant``: has the true state of each worker and all future requests. It hits whenever possible, and
  evicts the context whose session returns last. The bound.
* ``history_hash``: a hash of the history picks the worker, which keeps its cache without verifying it, as the
  MiniCPM-o demo server did.

A hit saved tokens that would have been read again. It is false when the answer's context is not the requested
dialogue.
"""

import hashlib
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from parley.models.llm import Message
from parley.models.llm.kv.causal import CausalLm, CausalSettings
from parley.models.llm.kv.dialogue import GenerationRequest, GenerationResult, Prefilled, Remembered
from parley.models.llm.kv.segments import CacheHandle
from parley.serving.scheduler.scheduler import Scheduler
from parley.serving.scheduler.types import LeaseGranted, Task, WorkerCapacity, WorkerRequest

SYSTEM = Message("system", "You are the help line of Northwind Bank. Be brief.")
# Common first messages.
OPENERS = ("Hello.", "What are your opening hours?", "I lost my card.")
WORKERS = ("a", "b", "c", "d")
NO_THOUGHT = "<think>\n\n</think>\n\n"
CUT = " [interrupted]"


@dataclass(frozen=True, slots=True)
class Step:
    """A question, or the restart of a worker.

    Attributes:
        session: of the question. None for the restart of a worker.
        text: of the question. None repeats the last one.
        heard: share of the answer that is heard.
        worker: the one that is restarted.
    """

    session: int | None
    text: str | None = None
    heard: float = 1.0
    worker: str = ""


def trace(seed: int, *, sessions: int = 30, turns: int = 6, live: int = 3) -> list[Step]:
    """Return the steps of a trace, in order."""
    draw = random.Random(seed)
    waiting, steps = list(range(sessions)), []
    left: dict[int, int] = {}
    while waiting or left:
        while waiting and len(left) < live:
            left[waiting.pop(0)] = turns
        session = draw.choice(list(left))
        is_first = left[session] == turns
        again = not is_first and draw.random() < 0.1
        text = None if again else draw.choice(OPENERS) if is_first else f"Question {draw.randrange(1_000)}?"
        steps.append(Step(session, text, heard=draw.random() if draw.random() < 0.2 else 1.0))
        left[session] -= 1
        if not left[session]:
            del left[session]
        if draw.random() < 0.02:
            steps.append(Step(None, worker=draw.choice(WORKERS)))
    return steps


@dataclass(slots=True)
class Talk:
    """A session's state at its client."""

    dialogue: list[Message] = field(default_factory=lambda: [SYSTEM])
    remembered: Remembered = field(default_factory=Remembered)
    handle: CacheHandle | None = None
    chain: tuple[tuple[str, int], ...] = ()


@dataclass(slots=True)
class Counts:
    """Counts of a policy."""

    asked: int = 0
    hits: int = 0
    false_hits: int = 0
    refused: int = 0
    read_tokens: int = 0
    all_tokens: int = 0


class Policy(Protocol):
    """Policy that answers questions at a chosen worker."""

    counts: Counts

    def ask(self, session: int, talk: Talk, step: int) -> str:
        """Return the answer to a session's dialogue."""
        ...

    def restart(self, worker: str) -> None:
        """Take the restart of a worker, which has lost its context."""
        ...

    def left(self, session: int) -> None:
        """Take the end of a session."""
        ...


class Workers:
    """Models that keep one context each."""

    def __init__(self, folder: Path) -> None:
        self._settings = CausalSettings(
            model=folder, device="cpu", threads=1, answer_tokens=16, temperature=1.0, seed=7, kept_tokens=0
        )
        self.models = {worker: CausalLm(self._settings) for worker in WORKERS}
        self.incarnations = dict.fromkeys(WORKERS, 0)

    def restart(self, worker: str) -> None:
        """Drop all contexts of a worker."""
        self.models[worker].forget_all()
        self.incarnations[worker] += 1

    def answer(
        self, worker: str, session: int, asked: GenerationRequest, counts: Counts
    ) -> tuple[GenerationResult, Prefilled]:
        """Answer at a worker, and count."""
        model = self.models[worker]
        scope = model.scope(str(session))
        prefilled, *_, answered = model.answer(scope, asked)
        assert isinstance(prefilled, Prefilled) and isinstance(answered, GenerationResult)
        counts.asked += 1
        counts.hits += prefilled.cached_tokens > 0
        counts.refused += prefilled.refused
        counts.read_tokens += prefilled.input_tokens
        counts.all_tokens += prefilled.input_tokens + prefilled.cached_tokens
        if prefilled.cached_tokens and not stands_on(model, scope_text(model, session), asked, answered):
            counts.false_hits += 1
        return answered, prefilled


def scope_text(model: CausalLm, session: int) -> str:
    """Return the text that the context of a session has read."""
    return model.text_of(model.scope(str(session)))


def stands_on(model: CausalLm, text: str, asked: GenerationRequest, answered: GenerationResult) -> bool:
    """Return whether an answer's context is the requested dialogue and nothing else."""
    # A random model writes special tokens as well; the answer's text has none of them.
    wanted = model.plain(model.rendered(asked.full)) + answered.text
    return model.plain(text).replace(NO_THOUGHT, "") == wanted.replace(NO_THOUGHT, "")


class Verified:
    """The product's proof: see the module."""

    def __init__(self, folder: Path, _steps: Sequence[Step]) -> None:
        self.counts = Counts()
        self._workers = Workers(folder)
        self._scheduler = Scheduler()
        self._now_ms = 0
        for worker in WORKERS:
            self._scheduler.worker_up(WorkerCapacity(worker, "0"), 0)

    def ask(self, session: int, talk: Talk, step: int) -> str:
        """Answer at the worker that the scheduler grants."""
        self._now_ms += 5_000
        asked = talk.remembered.ask(talk.dialogue)
        want = WorkerRequest(f"{step}", f"{session}", Task.CHAT, digests=talk.chain, handle=talk.handle)
        [granted] = self._scheduler.ask(want, self._now_ms)
        assert isinstance(granted, LeaseGranted)
        worker = granted.lease.worker
        answered, _ = self._workers.answer(worker, session, asked, self.counts)
        talk.remembered.answered(asked, answered)
        talk.chain = answered.chain
        talk.handle = CacheHandle(worker, granted.lease.incarnation, answered.digest, answered.kv_tokens)
        self._scheduler.release(f"{step}", self._now_ms, well=True, kept=answered.chain)
        return answered.text

    def restart(self, worker: str) -> None:
        """Restart a worker and announce its new incarnation to the scheduler."""
        self._workers.restart(worker)
        self._scheduler.worker_up(
            WorkerCapacity(worker, str(self._workers.incarnations[worker])), self._now_ms
        )

    def left(self, session: int) -> None:
        """Notify the scheduler of the end of a session."""
        self._scheduler.left(f"{session}")


class Clairvoyant:
    """The bound: see the module."""

    def __init__(self, folder: Path, steps: Sequence[Step]) -> None:
        self.counts = Counts()
        self._workers = Workers(folder)
        self._steps = steps
        self._has: dict[str, int | None] = dict.fromkeys(WORKERS)

    def ask(self, session: int, talk: Talk, step: int) -> str:
        """Answer at the worker with the session's context, or at the one whose session returns last."""
        worker = next((name for name, has in self._has.items() if has == session), None)
        if worker is None:
            worker = max(WORKERS, key=lambda name: self._next_use(self._has[name], step))
        asked = talk.remembered.ask(talk.dialogue)
        answered, _ = self._workers.answer(worker, session, asked, self.counts)
        talk.remembered.answered(asked, answered)
        self._has[worker] = session
        return answered.text

    def _next_use(self, session: int | None, step: int) -> int:
        if session is None:
            return len(self._steps) + 1
        later = (at for at in range(step + 1, len(self._steps)) if self._steps[at].session == session)
        return next(later, len(self._steps))

    def restart(self, worker: str) -> None:
        """Restart a worker; its context is gone."""
        self._workers.restart(worker)
        self._has[worker] = None

    def left(self, session: int) -> None:
        """Ignore it: the policy has the whole trace."""


class HistoryHash:
    """The demo server's policy: see the module. A hash is recorded for each worker and never verified."""

    def __init__(self, folder: Path, _steps: Sequence[Step]) -> None:
        self.counts = Counts()
        self._workers = Workers(folder)
        self._noted: dict[str, tuple[str, int]] = {}
        # Session and content of each worker's one context.
        self._holds: dict[str, tuple[int, GenerationResult]] = {}

    def ask(self, session: int, talk: Talk, step: int) -> str:
        """Answer at the worker with the same hash of the history, a free one, or the least
        recently used one.
        """
        full = tuple(talk.dialogue)
        history = _hash(full[:-1])
        hit = next((name for name, (noted, _) in self._noted.items() if noted == history), None)
        free = [name for name in WORKERS if name not in self._noted]
        worker = hit or (free[0] if free else min(self._noted, key=lambda name: self._noted[name][1]))
        asked, named = GenerationRequest(full), session
        if hit is not None and hit in self._holds:
            named, last = self._holds[hit]
            # The last message alone, appended to the present context.
            asked = GenerationRequest(full, last.digest, append=full[-1:])
        else:
            # The worker drops its context and reads everything.
            self._workers.models[worker].forget_all()
        answered, _ = self._workers.answer(worker, named, asked, self.counts)
        self._holds[worker] = named, answered
        self._noted[worker] = history, step
        return answered.text

    def restart(self, worker: str) -> None:
        """Restart a worker. The recorded hash stays, because the gateway is not notified."""
        self._workers.restart(worker)
        self._holds.pop(worker, None)

    def left(self, session: int) -> None:
        """Ignore it: the policy does not use it."""


POLICIES: dict[str, Callable[[Path, Sequence[Step]], Policy]] = {
    "verified": Verified,
    "clairvoyant": Clairvoyant,
    "history_hash": HistoryHash,
}


def run(policy: Policy, steps: Sequence[Step]) -> Counts:
    """Run a trace; return the counts."""
    talks: dict[int, Talk] = {}
    for number, step in enumerate(steps):
        if step.session is None:
            policy.restart(step.worker)
            continue
        talk = talks.setdefault(step.session, Talk())
        if step.text is None and talk.dialogue[-1].role == "assistant":
            # Repeat the last question.
            talk.dialogue.pop()
        elif step.text is not None:
            talk.dialogue.append(Message("user", step.text))
        answer = policy.ask(step.session, talk, number)
        if not any(later.session == step.session for later in steps[number + 1 :]):
            policy.left(step.session)
        heard = answer if step.heard == 1 else answer[: int(len(answer) * step.heard)] + CUT
        talk.dialogue.append(Message("assistant", heard))
    return policy.counts


def _hash(messages: Sequence[Message]) -> str:
    return hashlib.sha256("".join(each.role + each.text for each in messages).encode()).hexdigest()
