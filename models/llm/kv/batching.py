"""Batching of the steps of several conversations: one pass of the model gives each its next token.

A step of one conversation reads all weights for a single token, and so does a step of eight. Threads that
write answers meet here (``StepBatcher.step``). The first of them becomes the leader: it waits until every
answer that is being written has its token here, for at most ``GATHER_S``, and makes one pass. Those that
come meanwhile are in the next one.

The caches stay those of the conversations, of different lengths and without copies or padding: what is
computed for one token at a time (projections, feed-forward layers) is one matrix product for all rows, and
attention runs row by row on the row's own cache. So a row has the numbers of its own conversation only, and
nothing of another one can leak into it. Such continuous batching is that of Orca (Yu et al., OSDI 2022,
"selective batching").

A model is batched when all layers of its cache are plain ones with attention through transformers' interface;
others take turns, as before. A pass that fails, fails for all its rows.
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from loguru import logger
from transformers import AttentionInterface, AttentionMaskInterface, DynamicCache
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from parley.core.errors import EngineError
from parley.models.llm.kv.growable_cache import GrownLayer

ENGINE, ATTENTION = "causal", "parley_rows"
# Longest wait of a leader for the other answers' tokens: a tenth of a step of a small model.
GATHER_S = 0.002


class RowKeys(list[torch.Tensor]):
    """Keys or values of a batch, one tensor for each row: (1, heads, tokens, width)."""


def rows_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: "torch.Tensor | RowKeys",
    value: "torch.Tensor | RowKeys",
    attention_mask: torch.Tensor | None,
    **settings: Any,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Attend as transformers' ``sdpa``, and to rows of different lengths one by one.

    Args:
        module: layer of the model.
        query: (rows, heads, tokens, width).
        key, value: of all rows, or those of each one.
        attention_mask: for tensors; the single token of a row sees all of its cache.
        settings: as for ``sdpa``.
    """
    if not isinstance(key, RowKeys):
        whole: tuple[torch.Tensor, torch.Tensor | None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, **settings
        )
        return whole
    outputs = [
        torch.nn.functional.scaled_dot_product_attention(
            query[row : row + 1], key[row], value[row], scale=settings.get("scaling"), enable_gqa=True
        )
        for row in range(len(key))
    ]
    # (rows, tokens, heads, width), as ``sdpa`` returns it.
    return torch.cat(outputs).transpose(1, 2).contiguous(), None


AttentionInterface.register(ATTENTION, rows_attention)
AttentionMaskInterface.register(ATTENTION, sdpa_mask)


class RowCache(DynamicCache):  # type: ignore[misc]
    """Cache of a batch whose rows are the caches of conversations.

    Args:
        caches: one for each row, with plain layers (``is_batchable``).
    """

    def __init__(self, caches: Sequence[DynamicCache]) -> None:
        super().__init__()
        self._caches = caches

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Any, Any]:
        """Append each row's token to its own cache; return the rows' keys and values."""
        keys, values = RowKeys(), RowKeys()
        for row, cache in enumerate(self._caches):
            both = cache.layers[layer_idx].update(key_states[row : row + 1], value_states[row : row + 1])
            keys.append(both[0])
            values.append(both[1])
        return keys, values

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Return 0: rows have lengths of their own, and positions are given with them."""
        return 0


def is_batchable(cache: DynamicCache) -> bool:
    """Return whether all layers of a cache only grow: no window, no recurrent state."""
    return all(type(layer) is GrownLayer for layer in cache.layers)


def has_fixed_positions(model: Any) -> bool:
    """Return whether the position of a token means the same in every row of a pass.

    Rotary embeddings that depend on the longest row (dynamic NTK, LongRoPE) do not.
    """
    parameters = getattr(model.config, "rope_parameters", None) or getattr(model.config, "rope_scaling", None)
    return not any(name in str(parameters) for name in ("dynamic", "longrope"))


@dataclass(slots=True, eq=False)
class _Step:
    """Step of one conversation.

    Attributes:
        cache: of the conversation.
        token: the token that is read.
        done: set when there is a result.
        logits: after the token, (vocabulary,).
        failure: reason for which there are none; empty where there are.
        leads: it makes the next pass.
    """

    cache: DynamicCache
    token: int
    done: threading.Event
    logits: torch.Tensor | None = None
    failure: str = ""
    leads: bool = False


class StepBatcher:
    """Meeting point of the threads that write answers with one model.

    Args:
        model: a causal model of transformers whose attention is ``ATTENTION``.
        turn: lock of the device.
        device: where the model is.
        most_rows: rows of a pass.
    """

    def __init__(self, model: Any, turn: Any, device: str, *, most_rows: int) -> None:
        self._model, self._turn, self._device = model, turn, device
        self._most_rows = most_rows
        self._changed = threading.Condition()
        self._waiting: list[_Step] = []
        self._is_led = False
        # Answers that are being written.
        self._writers = 0
        self._passes = self._steps = 0

    @property
    def has_several(self) -> bool:
        """True while several answers are being written; a single one needs no batch."""
        return self._writers > 1

    @property
    def mean_rows(self) -> float:
        """Mean number of rows of a pass; 0 before the first one."""
        return self._steps / self._passes if self._passes else 0.0

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Count an answer as being written while the block runs: a leader waits for its tokens."""
        with self._changed:
            self._writers += 1
        try:
            yield
        finally:
            with self._changed:
                self._writers -= 1
                self._changed.notify_all()

    def step(self, cache: DynamicCache, token: int) -> torch.Tensor:
        """Read a token of a conversation; return the logits after it, (vocabulary,). Blocks.

        Raises:
            EngineError: the model failed, with all rows of the pass.
        """
        mine = _Step(cache, token, threading.Event())
        with self._changed:
            self._waiting.append(mine)
            mine.leads = not self._is_led
            self._is_led = True
            self._changed.notify_all()
        if not mine.leads:
            mine.done.wait()
        if mine.leads:
            self._lead()
        if mine.failure:
            raise EngineError(f"{ENGINE}: the model failed: {mine.failure}", engine=ENGINE)
        assert mine.logits is not None
        return mine.logits

    def _lead(self) -> None:
        """Make one pass, with the leader's own step in it, and hand on the lead."""
        with self._changed:
            self._changed.wait_for(self._is_complete, timeout=GATHER_S)
            rows, self._waiting = self._waiting[: self._most_rows], self._waiting[self._most_rows :]
        try:
            logits = self._pass(rows)
            for row, step in enumerate(rows):
                step.logits = logits[row]
        except Exception as error:  # the edge of a library, which may raise any error
            logger.opt(exception=error).error(f"{ENGINE}: a pass over {len(rows)} answers failed")
            for step in rows:
                # Not the error itself, which holds the tensors of the pass.
                step.failure = f"{type(error).__name__}: {error}"
        with self._changed:
            self._is_led = bool(self._waiting)
            following = self._waiting[0] if self._waiting else None
        if following is not None:
            following.leads = True
            following.done.set()
        for step in rows:
            step.done.set()

    def _is_complete(self) -> bool:
        return len(self._waiting) >= min(self._writers, self._most_rows)

    def _pass(self, rows: Sequence[_Step]) -> torch.Tensor:
        """Return the logits of all rows, (rows, vocabulary)."""
        with self._turn, torch.inference_mode():
            self._passes, self._steps = self._passes + 1, self._steps + len(rows)
            places = [[step.cache.get_seq_length()] for step in rows]
            result = self._model(
                input_ids=torch.tensor([[step.token] for step in rows], device=self._device),
                position_ids=torch.tensor(places, device=self._device),
                past_key_values=RowCache([step.cache for step in rows]),
                use_cache=True,
                logits_to_keep=1,
            )
            logits: torch.Tensor = result.logits[:, -1]
            return logits
