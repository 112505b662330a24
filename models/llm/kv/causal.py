"""Causal language models of transformers, with a verified cache for each conversation.

Inputs: a question on a condition (``dialogue.Asked``) and the scope of the conversation. Outputs: its cache
use (``Prefilled``), pieces of the answer, and the state to continue from (``dialogue.Answered``).

The digest of the tokens that a context has really read decides how it is reused (``segments``). If it equals
the condition, tokens are appended. If an earlier segment does, the context is cropped to it. Otherwise the
condition is refused and everything is read. Beyond the condition, tokens that the context has already read
are reused as far as they equal the question token for token. A question may thus be read while the caller is
still speaking, and at its end only the new tokens remain. A question that was read to its end has its first
token at once. Of an answer, the tokens that went through the model count, however much of it the caller
heard; each token's text is yielded before the token goes through.

Blocks. Threads with a conversation each take turns, a token or ``prefill_tokens`` at a time; answers that are
written at the same time get their tokens from one pass of the model (``batching``). Two concurrent questions
of the same conversation have two contexts, of which the later is kept. ``is_stopped`` is called once a token
and once in ``prefill_tokens``.

Unused contexts are kept up to ``kept_tokens`` and ``kept_bytes`` in all. The context that is dropped is the
least loss: cheap to read again, or not used for long. Full: a dialogue of more than ``context_tokens`` is
refused. A model whose cache cannot be cropped (a sliding window, a recurrent state) reads everything again
where a crop would be needed.
"""

import hashlib
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Literal

import torch
from jinja2 import TemplateError
from loguru import logger
from pydantic import Field
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache

from parley.core.bounded_dict import BoundedDict
from parley.core.errors import ConfigError, EngineError
from parley.core.strict_model import StrictModel
from parley.models.library_internals import attention_of
from parley.models.llm import Message
from parley.models.llm.kv.batching import ATTENTION, ENGINE, StepBatcher, has_fixed_positions, is_batchable
from parley.models.llm.kv.dialogue import GenerationRequest, GenerationResult, Prefilled
from parley.models.llm.kv.growable_cache import growing
from parley.models.llm.kv.memory import token_bytes, with_room
from parley.models.llm.kv.segments import Fed, Scope, extended
from parley.runtime.fair_lock import FairLock

CONFIG_FILE = "config.json"
# Inserted before a bot's opening message for templates that need a user message first.
BEGINS = "(The call begins.)"
# Time without use after which a cache is worth half.
HALF_LIFE_S = 60.0
# Deleted conversations that may still be open; ids are not used again.
MOST_DROPPED = 10_000


class CausalSettings(StrictModel):
    """Weights, device and sampling of a causal model."""

    model: Path = Field(description="directory with the weights, the tokenizer and its chat template")
    device: str = Field("auto", pattern=r"^(auto|cpu|cuda(:\d+)?)$")
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        "auto", description="auto: bfloat16 on CUDA, float32 elsewhere"
    )
    threads: int | None = Field(
        None, ge=1, le=256, description="threads of torch on the CPU, for the whole process"
    )
    context_tokens: int = Field(
        8_192, ge=16, le=1_048_576, description="longest dialogue; a longer one is refused"
    )
    answer_tokens: int = Field(512, ge=1, le=32_768, description="longest answer")
    prefill_tokens: int = Field(
        512, ge=1, le=32_768, description="tokens read at a time, between checks for a stop"
    )
    kept_tokens: int = Field(
        65_536, ge=0, le=16_777_216, description="tokens of all cached contexts that are not in use"
    )
    kept_bytes: int = Field(
        8_589_934_592,
        ge=0,
        le=1_099_511_627_776,
        description="bytes of the keys and values of all cached contexts that are not in use",
    )
    left_s: float = Field(
        600.0,
        ge=0,
        le=86_400,
        description="time for which the context of a session is kept after its last stream, for the next one",
    )
    batch_rows: int = Field(
        16,
        ge=1,
        le=256,
        description="answers that get a token from one pass of the model; 1: each on its own",
    )
    temperature: float = Field(0.0, ge=0, le=5, description="sampling temperature; 0: the likeliest token")
    seed: int | None = Field(
        None, ge=0, lt=2**63, description="seed of the sampling; null: different samples each time"
    )
    template: dict[str, bool | int | str] = Field(
        {"enable_thinking": False}, description="variables of the chat template, in addition to the messages"
    )

    def check(self) -> None:
        """Check that the model's files exist, as ``core.files.Checked`` requires."""
        if not (self.model / CONFIG_FILE).is_file():
            raise ConfigError(f"{ENGINE!r} needs {self.model / CONFIG_FILE}, which does not exist")


class _Context:
    def __init__(self, fed: Fed, cache: DynamicCache) -> None:
        self.fed = fed
        self.cache = cache
        self.used_s = time.monotonic()
        # Time since which no client has the conversation open; None while one has.
        self.left_s: float | None = None
        # Digest after the last question, and the logits there.
        self._after_question: tuple[str, Any] | None = None

    @property
    def logits(self) -> Any | None:
        """Logits after the last question, if the context ends there; else None."""
        return self.logits_after(self.fed.digest)

    def logits_after(self, digest: str) -> Any | None:
        """Return the logits after the question that ends with ``digest``, if it was the last one read; else
        None.
        """
        found = self._after_question
        return found[1] if found is not None and found[0] == digest else None

    def asked(self, logits: Any) -> None:
        """Record that a question ends here, with its logits."""
        if self.logits is None:
            # A view would keep the model's output for all tokens that it read.
            self._after_question = self.fed.digest, logits.clone()

    @property
    def kv_bytes(self) -> int:
        """Bytes of keys, values, their spare room and logits; other state of a layer is not counted."""
        tensors = (getattr(layer, name, None) for layer in self.cache.layers for name in ("keys", "values"))
        logits = [self._after_question[1]] if self._after_question is not None else []
        return sum(int(each.untyped_storage().nbytes()) for each in (*tensors, *logits) if each is not None)

    def worth(self, now_s: float) -> tuple[bool, float]:
        # A conversation that is open has its memory: none that was left may cost it.
        return self.left_s is None, float(self.fed.tokens * 0.5 ** ((now_s - self.used_s) / HALF_LIFE_S))


class CausalLm:
    """Causal model of transformers with a cache for each conversation. Loading blocks.

    Args:
        settings: weights, device and sampling.

    Raises:
        ConfigError: the files are missing, or there is no chat template.
        EngineError: the weights do not load.
    """

    def __init__(self, settings: CausalSettings) -> None:
        settings.check()
        self.settings = settings
        if settings.threads is not None:
            torch.set_num_threads(settings.threads)
        is_cuda = settings.device.startswith("cuda") or (
            settings.device == "auto" and torch.cuda.is_available()
        )
        device = ("cuda" if is_cuda else "cpu") if settings.device == "auto" else settings.device
        dtype = ("bfloat16" if is_cuda else "float32") if settings.dtype == "auto" else settings.dtype
        try:
            self._tokenizer = AutoTokenizer.from_pretrained(settings.model, local_files_only=True)
            self._model = AutoModelForCausalLM.from_pretrained(
                settings.model, dtype=getattr(torch, dtype), local_files_only=True
            )
        except (OSError, ValueError) as error:
            raise EngineError(f"{ENGINE}: cannot load the model: {error}", engine=ENGINE) from error
        if self._tokenizer.chat_template is None:
            raise ConfigError(f"{ENGINE!r}: the tokenizer in {settings.model} has no chat template")
        self._model.to(device).eval()
        self._device = device
        self._ends = _end_tokens(self._model, self._tokenizer)
        # Longest first: one special token may be a part of another.
        self._special = sorted(map(str, self._tokenizer.all_special_tokens), key=len, reverse=True)
        self._draws = torch.Generator(device).manual_seed(
            settings.seed if settings.seed is not None else secrets.randbits(63)
        )
        self._identity = _identity(settings.model)
        self._template = hashlib.sha256(
            f"{self._tokenizer.chat_template}{sorted(settings.template.items())}".encode()
        ).hexdigest()
        attention = attention_of(self._model)
        self._layout = f"{dtype}, {attention}"
        # Contexts that are not in use.
        self._contexts: dict[str, _Context] = {}
        # Roots of conversations that are being answered, and of those whose context is never kept again.
        self._answering: Counter[str] = Counter()
        self._dropped: BoundedDict[str, None] = BoundedDict(MOST_DROPPED)
        self._lock = threading.Lock()
        # Grants turns on the device, and on the tokenizer, whose library is not thread-safe.
        self._turn = FairLock()
        self._batcher: StepBatcher | None = None
        if settings.batch_rows > 1 and attention == "sdpa" and has_fixed_positions(self._model):
            self._model.set_attn_implementation(ATTENTION)
            # A class that does not use transformers' interface keeps its own.
            if attention_of(self._model) == ATTENTION:
                self._batcher = StepBatcher(self._model, self._turn, device, most_rows=settings.batch_rows)

    @property
    def mean_rows(self) -> float:
        """Mean number of answers in a pass of the model that had several; 0 before there was one."""
        return self._batcher.mean_rows if self._batcher is not None else 0.0

    @property
    def token_bytes(self) -> int:
        """Bytes of the keys and values of one token, by the model's configuration (``memory``)."""
        return token_bytes(self._model.config.get_text_config(), number_bytes=self._model.dtype.itemsize)

    @property
    def memory_bytes(self) -> int:
        """Bytes of the contexts that are kept between questions at most."""
        return min(self.settings.kept_bytes, self.token_bytes * with_room(self.settings.kept_tokens))

    @property
    def kept_tokens(self) -> int:
        """Tokens of all unused contexts."""
        return sum(context.fed.tokens for context in self._contexts.values())

    @property
    def kept_bytes(self) -> int:
        """Bytes of all unused contexts, as ``_Context.kv_bytes`` counts them."""
        return sum(context.kv_bytes for context in self._contexts.values())

    def scope(self, session: str, *, salt: str = "") -> Scope:
        """Return the scope of a conversation with this model; ``salt`` is its tenant's."""
        return Scope(salt, session, self._identity, self._template, layout=self._layout)

    def can_crop(self, scope: Scope) -> bool:
        """Return whether tokens of a conversation, including the next ones, can be taken back.

        They cannot in a recurrent state, nor in a window that has dropped tokens.
        """
        context = self._contexts.get(scope.root)
        cache = DynamicCache(config=self._model.config) if context is None else context.cache
        room = self.settings.prefill_tokens
        return all(
            layer.is_croppable
            and (not layer.is_sliding or layer.get_seq_length() + room < layer.sliding_window)
            for layer in cache.layers
        )

    def token_ids(self, scope: Scope) -> list[int]:
        """Return the tokens that the context of a conversation has read; for tests and measurements."""
        context = self._contexts.get(scope.root)
        return [] if context is None else context.fed.token_ids

    def text_of(self, scope: Scope) -> str:
        """Return the tokens of ``token_ids`` as text, special tokens included."""
        return str(self._tokenizer.decode(self.token_ids(scope)))

    def plain(self, text: str) -> str:
        """Return a text without special tokens."""
        return str(self._tokenizer.decode(self._tokens(text), skip_special_tokens=True))

    def forget_all(self) -> None:
        """Drop all contexts, as a restart would."""
        with self._lock:
            self._contexts.clear()

    def forget(self, scope: Scope) -> None:
        """Drop the context of a conversation that is over."""
        with self._lock:
            self._contexts.pop(scope.root, None)

    def drop(self, scope: Scope) -> bool:
        """Drop the context of a deleted conversation, for good; return whether there was one.

        A context that is in use is not kept when its answer ends. The conversation may still be open, and
        reads everything again then.
        """
        with self._lock:
            self._dropped[scope.root] = None
            return self._contexts.pop(scope.root, None) is not None or scope.root in self._answering

    def leave(self, scope: Scope) -> None:
        """Keep the context of a conversation without a client for ``left_s``, unless memory is needed."""
        with self._lock:
            context = self._contexts.get(scope.root)
            if context is not None:
                context.left_s = time.monotonic()

    def forget_left(self) -> None:
        """Drop the contexts that have had no client for ``left_s``."""
        with self._lock:
            since_s = time.monotonic() - self.settings.left_s
            self._contexts = {
                root: each
                for root, each in self._contexts.items()
                if each.left_s is None or each.left_s > since_s
            }

    def answer(
        self, scope: Scope, asked: GenerationRequest, *, is_stopped: Callable[[], bool] = lambda: False
    ) -> Generator[Prefilled | str | GenerationResult, None, None]:
        """Read the question and yield its counts, pieces of the answer, and the state to continue from.

        When it is stopped or the generator is closed, the context has what went through the model by then.

        Raises:
            EngineError: the dialogue is longer than the context, or the model failed.
        """
        with self._lock:
            # A failure leaves the context in an unknown state, so it is removed and put back only when it is
            # known.
            known = self._contexts.pop(scope.root, None)
            self._answering[scope.root] += 1
        try:
            yield from self._answered(scope, asked, known, is_stopped)
        finally:
            with self._lock:
                self._answering -= Counter((scope.root,))

    def _answered(
        self,
        scope: Scope,
        asked: GenerationRequest,
        known: _Context | None,
        is_stopped: Callable[[], bool],
    ) -> Generator[Prefilled | str | GenerationResult, None, None]:
        """Answer from a known context, which is put back; None: there is none."""
        had = 0 if known is None else known.fed.tokens
        with self._turn:
            context, ids, same, refused = self._begun(scope, asked, known)
        begins = context.fed.tokens
        cached = begins + same
        cropped = had - cached if context is known else 0
        if begins + len(ids) + 1 > self.settings.context_tokens:
            raise EngineError(
                f"{ENGINE}: a dialogue of {begins + len(ids)} tokens does not fit into "
                f"{self.settings.context_tokens}",
                engine=ENGINE,
                retryable=False,
            )
        logits = self._read(context, ids, same, is_stopped)
        if logits is None:
            self._keep(scope, context)
            return
        context.asked(logits)
        asked_digest = context.fed.digest
        writing = _Writing(self._tokenizer)
        is_known = False
        try:
            yield Prefilled(cached, len(ids) - same, refused, cropped)
            yield from self._write(context, logits, writing, is_stopped)
            is_known = True
        except GeneratorExit:
            # The consumer closed the generator, between two tokens.
            is_known = True
            raise
        finally:
            if is_known:
                if writing.fed:
                    context.fed.append(writing.fed)
                self._keep(scope, context)
        fed = context.fed
        yield GenerationResult(
            asked_digest, fed.digest, fed.tokens, writing.text, tuple(writing.char_ends), fed.chain
        )

    def _begun(
        self, scope: Scope, asked: GenerationRequest, known: _Context | None
    ) -> tuple[_Context, list[int], int, bool]:
        """Return the context to continue from, the tokens that follow, a count, and whether the condition
        failed.

        The count is the number of those tokens that the cache already has. They are recorded again as one
        segment when the rest is read, however often the segment was begun.
        """
        whole: list[int] | None = None
        if known is not None:
            if asked.condition is None:
                # A question that was read ahead, or a dialogue that was begun anew.
                whole = self._tokens(self.rendered(asked.full))
            begins = 0 if whole is not None else _stands_at(known.fed, asked)
            ids = whole if whole is not None else self._tokens_after(asked)
            if begins is not None and ids is not None:
                same = _same(ids, known.fed.token_ids[begins:])
                if self._is_cropped(known, begins, ids, same):
                    return known, ids, same, False
        if whole is None:
            whole = self._tokens(self.rendered(asked.full))
        fresh = _Context(Fed(scope), growing(DynamicCache(config=self._model.config)))
        return fresh, whole, 0, asked.condition is not None

    def _is_cropped(self, context: _Context, begins: int, ids: list[int], same: int) -> bool:
        """Crop the cache to its new end; return whether it ends there. A context that does not is discarded.

        Args:
            context: context of the conversation; its record is cropped to ``begins``.
            begins: number of tokens that stay in any case.
            ids: tokens that follow.
            same: number of them that the cache already has.
        """
        fed = context.fed
        had = fed.tokens
        fed.crop(begins)
        digest = extended(fed.digest, ids) if ids else fed.digest
        # If all tokens were read, the last one is read again, unless the logits after it are known.
        leaves_one = same == len(ids) and context.logits_after(digest) is None
        tokens = begins + same
        removed = had - tokens + leaves_one
        try:
            if removed and not context.cache.is_croppable:
                return False
            if removed:
                with torch.inference_mode():
                    context.cache.crop(-removed)
        except Exception as error:  # raised by some layers: a window or a state that is past the place
            logger.debug(f"{ENGINE}: cannot crop a cache: {type(error).__name__}: {error}")
            return False
        return self._holds(context, tokens - leaves_one)

    @staticmethod
    def _holds(context: _Context, tokens: int) -> bool:
        """Return whether every layer that counts tokens has read exactly ``tokens``."""
        counts = [
            int(layer.get_seq_length()) for layer in context.cache.layers if hasattr(layer, "get_seq_length")
        ]
        return all(count == tokens for count in counts)

    def _tokens_after(self, asked: GenerationRequest) -> list[int] | None:
        """Return the tokens after the condition: the rest of an answer, messages, the start of the next
        answer.

        None when the template does not show what follows an answer.
        """
        if asked.rest is None and not asked.append and asked.full[-1].role != "assistant":
            # The answer is generated again.
            return []
        mark = f"\u241e{secrets.token_hex(8)}\u241e"
        text = self.rendered((*_before(asked), Message("assistant", mark), *asked.append))
        if text.count(mark) != 1:
            return None
        return self._tokens(self._said(asked.rest or "") + text.split(mark)[1])

    def rendered(self, messages: Sequence[Message]) -> str:
        """Return a dialogue as the model reads it in full, up to the start of its answer.

        Raises:
            EngineError: the template rejects the dialogue.
        """
        for shown in (messages, _alternating(messages)):
            try:
                return str(
                    self._tokenizer.apply_chat_template(
                        [{"role": each.role, "content": self._said(each.text)} for each in shown],
                        tokenize=False,
                        add_generation_prompt=True,
                        **self.settings.template,
                    )
                )
            except TemplateError as error:
                refused = error
        raise EngineError(
            f"{ENGINE}: the chat template rejects the dialogue: {refused}", engine=ENGINE, retryable=False
        )

    def _said(self, text: str) -> str:
        """Return a text with special tokens broken up, so that user text cannot act as structure."""
        for special in self._special:
            text = text.replace(special, f"{special[:1]} {special[1:]}")
        return text

    def _tokens(self, text: str) -> list[int]:
        return list(self._tokenizer(text, add_special_tokens=False)["input_ids"])

    def _read(self, context: _Context, ids: list[int], same: int, is_stopped: Callable[[], bool]) -> Any:
        """Read ``ids``, of which the cache has the first ``same``; return the logits after them, None if
        stopped.
        """
        if same == len(ids):
            if ids:
                context.fed.append(ids)
            if context.logits is not None:
                return context.logits
            # The last token was removed by a crop.
            return self._forward(context, context.fed.token_ids[-1:])
        logits = None
        size = self.settings.prefill_tokens
        read = same
        for at in range(same, len(ids), size):
            if is_stopped():
                break
            logits = self._forward(context, ids[at : at + size])
            read = min(at + size, len(ids))
        if read:
            context.fed.append(ids[:read])
        return logits if read == len(ids) else None

    def _write(
        self, context: _Context, logits: Any, writing: "_Writing", is_stopped: Callable[[], bool]
    ) -> Iterator[str]:
        batcher = self._batcher if is_batchable(context.cache) else None
        with batcher.writing() if batcher is not None else nullcontext():
            is_whole = yield from self._tokens_of(context, logits, writing, is_stopped, batcher)
        if is_whole and (piece := writing.end()):
            yield piece

    def _tokens_of(
        self,
        context: _Context,
        logits: Any,
        writing: "_Writing",
        is_stopped: Callable[[], bool],
        batcher: StepBatcher | None,
    ) -> Generator[str, None, bool]:
        """Yield the pieces of an answer; return False when it was stopped."""
        room = self.settings.context_tokens - context.fed.tokens
        for _ in range(min(self.settings.answer_tokens, room)):
            if is_stopped():
                return False
            token = self._drawn(logits)
            if token in self._ends:
                return True
            piece = writing.add(token)
            try:
                if piece:
                    yield piece
            except GeneratorExit:
                # The piece was yielded, but its token was never read by the model.
                writing.fed.pop()
                raise
            if batcher is not None and batcher.has_several:
                logits = batcher.step(context.cache, token)
            else:
                logits = self._forward(context, [token])
        return True

    def _drawn(self, logits: Any) -> int:
        temperature = self.settings.temperature
        if not temperature:
            return int(logits.argmax())
        shares = torch.softmax(logits.float() / temperature, -1)
        return int(torch.multinomial(shares, 1, generator=self._draws))

    def _forward(self, context: _Context, ids: list[int]) -> Any:
        """Return the logits after the last of ``ids``: (vocabulary,)."""
        with self._turn, torch.inference_mode():
            inputs = torch.tensor([ids], device=self._device)
            result = self._model(
                input_ids=inputs, past_key_values=context.cache, use_cache=True, logits_to_keep=1
            )
            return result.logits[0, -1]

    def _keep(self, scope: Scope, context: _Context) -> None:
        """Put a context back, unless its conversation was deleted meanwhile."""
        with self._lock:
            if scope.root in self._dropped:
                return
            self._contexts[scope.root] = context
            now_s = time.monotonic()
            context.used_s, context.left_s = now_s, None
            while self._is_too_much() and len(self._contexts) > 1:
                others = {root: each for root, each in self._contexts.items() if each is not context}
                del self._contexts[min(others, key=lambda root: others[root].worth(now_s))]

    def _is_too_much(self) -> bool:
        settings = self.settings
        return self.kept_tokens > settings.kept_tokens or self.kept_bytes > settings.kept_bytes


class _Writing:
    """Converter of tokens to text, piece by piece; an incomplete character is held back."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self.fed: list[int] = []
        self.char_ends: list[int] = []
        self.text = ""

    def add(self, token: int) -> str:
        self.fed.append(token)
        whole = str(self._tokenizer.decode(self.fed, skip_special_tokens=True))
        piece = "" if whole.endswith("\ufffd") else whole[len(self.text) :]
        self.text += piece
        self.char_ends.append(len(self.text))
        return piece

    def end(self) -> str:
        """Return the text that is left, with a replacement for an incomplete character."""
        whole = str(self._tokenizer.decode(self.fed, skip_special_tokens=True))
        piece = whole[len(self.text) :]
        self.text = whole
        if self.char_ends:
            self.char_ends[-1] = len(whole)
        return piece


def _stands_at(fed: Fed, asked: GenerationRequest) -> int | None:
    """Return the number of tokens up to the condition of a question; None if the condition does not hold."""
    begins = fed.ends_at(asked.condition or "")
    if begins is None or not asked.keep:
        return begins
    # The answer of which tokens are kept must be the one in which they were counted.
    following = next((each for each in fed.segments if each.end_tokens > begins), None)
    if following is None or not following.begins(asked.answer or ""):
        return None
    return begins + asked.keep if begins + asked.keep <= following.end_tokens else None


def _same(mine: Sequence[int], theirs: Sequence[int]) -> int:
    """Return the number of equal tokens at the beginning of two sequences."""
    return next(
        (place for place, (one, other) in enumerate(zip(mine, theirs, strict=False)) if one != other),
        min(len(mine), len(theirs)),
    )


def _before(asked: GenerationRequest) -> tuple[Message, ...]:
    """Return the dialogue before the answer that the condition refers to."""
    appended = len(asked.append)
    before = asked.full[: len(asked.full) - appended]
    return before[:-1] if before and before[-1].role == "assistant" else before


def _alternating(messages: Sequence[Message]) -> list[Message]:
    """Return the dialogue for a template that requires alternating user and assistant, and no system."""
    shown: list[Message] = []
    system = ""
    for message in messages:
        if message.role == "system":
            system = f"{system}{message.text}\n\n"
            continue
        if message.role == "assistant" and not shown:
            shown.append(Message("user", BEGINS))
        if shown and shown[-1].role == message.role:
            message = Message(message.role, f"{shown.pop().text}\n{message.text}")
        shown.append(message)
    if not shown:
        return [Message("user", system.strip())]
    return [Message("user", f"{system}{shown[0].text}"), *shown[1:]]


def _end_tokens(model: Any, tokenizer: Any) -> frozenset[int]:
    ends = model.generation_config.eos_token_id
    several = ends if isinstance(ends, list) else [ends]
    return frozenset(each for each in (*several, tokenizer.eos_token_id) if each is not None)


def _identity(folder: Path) -> str:
    """Return a digest of the names, sizes and times of the weights' files, which never change in place."""
    whole = hashlib.sha256()
    for file in sorted(folder.iterdir()):
        if file.is_file():
            stat = file.stat()
            whole.update(f"{file.name} {stat.st_size} {stat.st_mtime_ns}\n".encode())
    return whole.hexdigest()
