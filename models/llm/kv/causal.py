"""Any causal language model of transformers, with a cache for each conversation that is proved before use.

In: a question on a condition (``dialogue.Asked``) and the scope of the conversation. Out: how much of it was
in the cache (``Prefilled``), pieces of the answer, and what to go on from (``dialogue.Answered``). The digest
of what a context has really read decides (``segments``): the same as the condition, append; an earlier one,
crop; anything else, refuse and read everything. Behind that, what the context has read already is not read
again, as far as it is token for token what is asked: a question may be read while it is being said, and what
is left of it at its end is what nobody could know before. A question that was read to its end has its first
token at once. Of an answer those tokens count that went through the model, however much of it anybody heard;
each is told before it goes through.

Blocks. Threads that each have a conversation take turns, a token or ``prefill_tokens`` at a time; who asks of
the same conversation twice at once has two contexts, of which the later is kept. ``is_stopped`` is asked once
a token and once in ``prefill_tokens``. Contexts that nobody uses are kept up to ``kept_tokens`` and
``kept_bytes`` in all; the one that goes is the least loss: cheap to read again, or not used for long. Full: a
dialogue of more than ``context_tokens`` is refused. A model whose cache cannot be cropped (a sliding window,
a recurrent state) is asked everything anew where a crop would be needed.
"""

import hashlib
import secrets
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from jinja2 import TemplateError
from loguru import logger
from pydantic import Field
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache

from core.errors import ConfigError, EngineError
from core.strict_model import StrictModel
from models.library_internals import attention_of
from models.llm import Message
from models.llm.kv.dialogue import Answered, Asked, Prefilled
from models.llm.kv.grown import growing
from models.llm.kv.segments import Fed, Scope, extended
from runtime.fair_lock import FairLock

ENGINE = "causal"
CONFIG_FILE = "config.json"
# What is in front of a bot that speaks first, where a template wants somebody else to.
BEGINS = "(The call begins.)"
# A cache that was not used for so long is worth half.
HALF_LIFE_S = 60.0


class CausalSettings(StrictModel):
    """The weights, where they run, how they answer."""

    model: Path = Field(description="directory with the weights, the tokenizer and its chat template")
    device: str = Field("auto", pattern=r"^(auto|cpu|cuda(:\d+)?)$")
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        "auto", description="auto: bfloat16 on CUDA, float32 elsewhere"
    )
    threads: int | None = Field(None, ge=1, le=256, description="of torch on the CPU, for all of the process")
    context_tokens: int = Field(8_192, ge=16, le=1_048_576, description="a longer dialogue is refused")
    answer_tokens: int = Field(512, ge=1, le=32_768, description="longest answer")
    prefill_tokens: int = Field(512, ge=1, le=32_768, description="read at a time, between looks at a stop")
    kept_tokens: int = Field(
        65_536, ge=0, le=16_777_216, description="of contexts that nobody uses at the moment, in all"
    )
    kept_bytes: int = Field(
        8_589_934_592, ge=0, le=1_099_511_627_776, description="the same, of their keys and values"
    )
    temperature: float = Field(0.0, ge=0, le=5, description="0: the likeliest token")
    seed: int | None = Field(None, ge=0, lt=2**63, description="the same draws again; None: others each time")
    template: dict[str, bool | int | str] = Field(
        {"enable_thinking": False}, description="what the chat template is told beside the messages"
    )

    def check(self) -> None:
        """See ``core.files.Checked``."""
        if not (self.model / CONFIG_FILE).is_file():
            raise ConfigError(f"{ENGINE!r} needs {self.model / CONFIG_FILE}, which is not there")


class _Context:
    def __init__(self, fed: Fed, cache: DynamicCache) -> None:
        self.fed = fed
        self.cache = cache
        self.used_s = time.monotonic()
        # The digest behind the last question, and the logits there.
        self._behind_question: tuple[str, Any] | None = None

    @property
    def logits(self) -> Any | None:
        """Where the context ends with the last question that was read: what follows it; else None."""
        return self.behind(self.fed.digest)

    def behind(self, digest: str) -> Any | None:
        """What follows the question that ends with this digest, if it was the last to be read; else None."""
        behind = self._behind_question
        return behind[1] if behind is not None and behind[0] == digest else None

    def asked(self, logits: Any) -> None:
        """A question ends here."""
        if self.logits is None:
            # A view of it would hold what the model gives for all that it read.
            self._behind_question = self.fed.digest, logits.clone()

    @property
    def kv_bytes(self) -> int:
        """Of keys, values, the room behind them and logits; what else a layer keeps is not known."""
        tensors = (getattr(layer, name, None) for layer in self.cache.layers for name in ("keys", "values"))
        logits = [self._behind_question[1]] if self._behind_question is not None else []
        return sum(int(each.untyped_storage().nbytes()) for each in (*tensors, *logits) if each is not None)

    def worth(self, now_s: float) -> float:
        return float(self.fed.tokens * 0.5 ** ((now_s - self.used_s) / HALF_LIFE_S))


class CausalLm:
    """See the module. Loading blocks.

    Args:
        settings: see the model.

    Raises:
        ConfigError: the files are not there, or there is no chat template.
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
            raise EngineError(f"{ENGINE}: the model does not load: {error}", engine=ENGINE) from error
        if self._tokenizer.chat_template is None:
            raise ConfigError(f"{ENGINE!r}: the tokenizer in {settings.model} has no chat template")
        self._model.to(device).eval()
        self._device = device
        self._ends = _end_tokens(self._model, self._tokenizer)
        # The longest first: one may be a part of another.
        self._special = sorted(map(str, self._tokenizer.all_special_tokens), key=len, reverse=True)
        self._draws = torch.Generator(device).manual_seed(
            settings.seed if settings.seed is not None else secrets.randbits(63)
        )
        self._identity = _identity(settings.model)
        self._template = hashlib.sha256(
            f"{self._tokenizer.chat_template}{sorted(settings.template.items())}".encode()
        ).hexdigest()
        self._layout = f"{dtype}, {attention_of(self._model)}"
        # Those that nobody uses at the moment.
        self._contexts: dict[str, _Context] = {}
        self._lock = threading.Lock()
        # Whose turn it is to have the device, and the tokenizer, whose library is not made for threads.
        self._turn = FairLock()

    @property
    def kept_tokens(self) -> int:
        """Of all contexts that nobody uses."""
        return sum(context.fed.tokens for context in self._contexts.values())

    @property
    def kept_bytes(self) -> int:
        """The same, of their keys and values."""
        return sum(context.kv_bytes for context in self._contexts.values())

    def scope(self, session: str, *, salt: str = "") -> Scope:
        """Of a conversation with this model. ``salt``: of its tenant."""
        return Scope(salt, session, self._identity, self._template, layout=self._layout)

    def can_crop(self, scope: Scope) -> bool:
        """Whether what a conversation has read, and reads next, can be taken back.

        A state cannot be, nor a window that has let tokens go.
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
        """What the context of a conversation has read; for tests and measurements."""
        context = self._contexts.get(scope.root)
        return [] if context is None else context.fed.token_ids

    def text_of(self, scope: Scope) -> str:
        """The same as text, special tokens included."""
        return str(self._tokenizer.decode(self.token_ids(scope)))

    def plain(self, text: str) -> str:
        """A text without special tokens."""
        return str(self._tokenizer.decode(self._tokens(text), skip_special_tokens=True))

    def forget_all(self) -> None:
        """As if it had been started again."""
        with self._lock:
            self._contexts.clear()

    def forget(self, scope: Scope) -> None:
        """The conversation is over."""
        with self._lock:
            self._contexts.pop(scope.root, None)

    def answer(
        self, scope: Scope, asked: Asked, *, is_stopped: Callable[[], bool] = lambda: False
    ) -> Generator[Prefilled | str | Answered, None, None]:
        """Read the question, answer it piece by piece, and say what to go on from.

        Stopped, or closed by whoever iterates: the context has what went through the model by then.

        Raises:
            EngineError: the dialogue is longer than the context, or the model failed.
        """
        with self._lock:
            # Whatever fails in the middle, what is left of it is not known: it comes back when it is.
            known = self._contexts.pop(scope.root, None)
        had = 0 if known is None else known.fed.tokens
        with self._turn:
            context, ids, same, refused = self._begun(scope, asked, known)
        begins = context.fed.tokens
        cached = begins + same
        cropped = had - cached if context is known else 0
        if begins + len(ids) + 1 > self.settings.context_tokens:
            raise EngineError(
                f"{ENGINE}: {begins + len(ids)} tokens do not fit in {self.settings.context_tokens}",
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
            # Whoever asked has gone, between two tokens.
            is_known = True
            raise
        finally:
            if is_known:
                if writing.fed:
                    context.fed.append(writing.fed)
                self._keep(scope, context)
        fed = context.fed
        yield Answered(
            asked_digest, fed.digest, fed.tokens, writing.text, tuple(writing.char_ends), fed.chain
        )

    def _begun(
        self, scope: Scope, asked: Asked, known: _Context | None
    ) -> tuple[_Context, list[int], int, bool]:
        """The context to go on from, what is to stand behind it, and whether the condition was refused.

        The third number is how many tokens of that its cache has already: they are in its books again when
        the rest is read, as one segment, however often it was begun.
        """
        whole: list[int] | None = None
        if known is not None:
            if asked.condition is None:
                # A question that was read ahead, or a dialogue that was begun anew.
                whole = self._tokens(self.rendered(asked.full))
            begins = 0 if whole is not None else _stands_at(known.fed, asked)
            ids = whole if whole is not None else self._behind(asked)
            if begins is not None and ids is not None:
                same = _same(ids, known.fed.token_ids[begins:])
                if self._is_cropped(known, begins, ids, same):
                    return known, ids, same, False
        if whole is None:
            whole = self._tokens(self.rendered(asked.full))
        fresh = _Context(Fed(scope), growing(DynamicCache(config=self._model.config)))
        return fresh, whole, 0, asked.condition is not None

    def _is_cropped(self, context: _Context, begins: int, ids: list[int], same: int) -> bool:
        """Whether the cache ends where it is to; one that does not is used no more.

        Args:
            context: of the conversation; its books end at ``begins``.
            begins: tokens that stay, whatever follows.
            ids: what is to follow.
            same: tokens of it that are there.
        """
        fed = context.fed
        had = fed.tokens
        fed.crop(begins)
        behind = extended(fed.digest, ids) if ids else fed.digest
        # All of it was read: the last token is read once more, unless it is known what follows it.
        leaves_one = same == len(ids) and context.behind(behind) is None
        tokens = begins + same
        removed = had - tokens + leaves_one
        try:
            if removed and not context.cache.is_croppable:
                return False
            if removed:
                with torch.inference_mode():
                    context.cache.crop(-removed)
        except Exception as error:  # of some layers' own: a window or a state that is past it
            logger.debug(f"{ENGINE}: a cache cannot be cropped: {type(error).__name__}: {error}")
            return False
        return self._holds(context, tokens - leaves_one)

    @staticmethod
    def _holds(context: _Context, tokens: int) -> bool:
        """Whether every layer that counts has read as much as is said of it."""
        counts = [
            int(layer.get_seq_length()) for layer in context.cache.layers if hasattr(layer, "get_seq_length")
        ]
        return all(count == tokens for count in counts)

    def _behind(self, asked: Asked) -> list[int] | None:
        """What is read behind the condition: the rest of an answer, messages, the begin of the next one.

        None: the template does not say what stands behind an answer.
        """
        if asked.rest is None and not asked.append and asked.full[-1].role != "assistant":
            # The answer is made anew.
            return []
        mark = f"\u241e{secrets.token_hex(8)}\u241e"
        text = self.rendered((*_before(asked), Message("assistant", mark), *asked.append))
        if text.count(mark) != 1:
            return None
        return self._tokens(self._said(asked.rest or "") + text.split(mark)[1])

    def rendered(self, messages: Sequence[Message]) -> str:
        """A dialogue as the model reads it in full, up to where it answers.

        Raises:
            EngineError: the template takes no such dialogue.
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
        raise EngineError(f"{ENGINE}: the template refuses: {refused}", engine=ENGINE, retryable=False)

    def _said(self, text: str) -> str:
        """A text in which nothing is structure: what people write is read as what they wrote."""
        for special in self._special:
            text = text.replace(special, f"{special[:1]} {special[1:]}")
        return text

    def _tokens(self, text: str) -> list[int]:
        return list(self._tokenizer(text, add_special_tokens=False)["input_ids"])

    def _read(self, context: _Context, ids: list[int], same: int, is_stopped: Callable[[], bool]) -> Any:
        """The logits behind them, of which the cache has the first ``same``; None: stopped."""
        if same == len(ids):
            if ids:
                context.fed.append(ids)
            if context.logits is not None:
                return context.logits
            # It was taken out.
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
        room = self.settings.context_tokens - context.fed.tokens
        for _ in range(min(self.settings.answer_tokens, room)):
            if is_stopped():
                return
            token = self._drawn(logits)
            if token in self._ends:
                break
            piece = writing.add(token)
            try:
                if piece:
                    yield piece
            except GeneratorExit:
                # Told, and never read by the model.
                writing.fed.pop()
                raise
            logits = self._forward(context, [token])
        if piece := writing.end():
            yield piece

    def _drawn(self, logits: Any) -> int:
        temperature = self.settings.temperature
        if not temperature:
            return int(logits.argmax())
        shares = torch.softmax(logits.float() / temperature, -1)
        return int(torch.multinomial(shares, 1, generator=self._draws))

    def _forward(self, context: _Context, ids: list[int]) -> Any:
        """Logits behind the last of them: (vocabulary,)."""
        with self._turn, torch.inference_mode():
            inputs = torch.tensor([ids], device=self._device)
            result = self._model(
                input_ids=inputs, past_key_values=context.cache, use_cache=True, logits_to_keep=1
            )
            return result.logits[0, -1]

    def _keep(self, scope: Scope, context: _Context) -> None:
        with self._lock:
            self._contexts[scope.root] = context
            now_s = time.monotonic()
            context.used_s = now_s
            while self._is_too_much() and len(self._contexts) > 1:
                others = {root: each for root, each in self._contexts.items() if each is not context}
                del self._contexts[min(others, key=lambda root: others[root].worth(now_s))]

    def _is_too_much(self) -> bool:
        settings = self.settings
        return self.kept_tokens > settings.kept_tokens or self.kept_bytes > settings.kept_bytes


class _Writing:
    """Tokens to text, piece by piece: of half a character nothing is said yet."""

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
        """What is left is no character, and is said as that."""
        whole = str(self._tokenizer.decode(self.fed, skip_special_tokens=True))
        piece = whole[len(self.text) :]
        self.text = whole
        if self.char_ends:
            self.char_ends[-1] = len(whole)
        return piece


def _stands_at(fed: Fed, asked: Asked) -> int | None:
    """How many tokens the condition of a question stands for; None: it does not hold."""
    begins = fed.ends_at(asked.condition or "")
    if begins is None or not asked.keep:
        return begins
    # The answer that tokens are kept of has to be the one that they were counted in.
    following = next((each for each in fed.segments if each.end_tokens > begins), None)
    if following is None or not following.begins(asked.answer or ""):
        return None
    return begins + asked.keep if begins + asked.keep <= following.end_tokens else None


def _same(mine: Sequence[int], theirs: Sequence[int]) -> int:
    """How many tokens at the beginning of two runs are equal."""
    return next(
        (place for place, (one, other) in enumerate(zip(mine, theirs, strict=False)) if one != other),
        min(len(mine), len(theirs)),
    )


def _before(asked: Asked) -> tuple[Message, ...]:
    """The dialogue in front of the answer that the condition is about."""
    behind = len(asked.append)
    before = asked.full[: len(asked.full) - behind]
    return before[:-1] if before and before[-1].role == "assistant" else before


def _alternating(messages: Sequence[Message]) -> list[Message]:
    """The dialogue for a template that wants user and assistant in turns, and no system."""
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
    """Which weights: the names, sizes and times of the files, which nobody changes in place."""
    whole = hashlib.sha256()
    for file in sorted(folder.iterdir()):
        if file.is_file():
            stat = file.stat()
            whole.update(f"{file.name} {stat.st_size} {stat.st_mtime_ns}\n".encode())
    return whole.hexdigest()
