"""Layer of a cache that grows without a copy at every token.

transformers' own layer allocates a new tensor for the whole cache with each token: after 5,700 tokens that is
a third of the time that a small model takes for one. This layer keeps spare room after its content, a quarter
of it or ``memory.ROOM_TOKENS``; it is copied only when the room is used up. Cropping is transformers' own: a
shorter view.
"""

from typing import Any

import torch
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from parley.models.llm.kv.memory import with_room


class GrownLayer(DynamicLayer):
    """``DynamicLayer`` with spare room. Keys and values: (batch, heads, tokens, width)."""

    keys: torch.Tensor
    values: torch.Tensor

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Initialise the layer as ``DynamicLayer`` does, without spare room."""
        super().lazy_initialization(key_states, value_states)
        self._rooms: tuple[torch.Tensor, torch.Tensor] | None = None

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Append keys and values; return all of them, as ``DynamicLayer.update``."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        begins = self.get_seq_length()
        ends = begins + key_states.shape[-2]
        if self._rooms is None or ends > self._rooms[0].shape[-2]:
            self._rooms = (
                _room(self.keys, key_states, begins, ends),
                _room(self.values, value_states, begins, ends),
            )
        keys, values = self._rooms
        keys[..., begins:ends, :] = key_states
        values[..., begins:ends, :] = value_states
        self.keys, self.values = keys[..., :ends, :], values[..., :ends, :]
        return self.keys, self.values


def _room(old: torch.Tensor, new: torch.Tensor, begins: int, ends: int) -> torch.Tensor:
    room = new.new_empty((*new.shape[:-2], with_room(ends), new.shape[-1]))
    if begins:
        room[..., :begins, :] = old
    return room


def growing(cache: DynamicCache) -> DynamicCache:
    """Return the cache with its plain layers replaced by ``GrownLayer``; windows and states are unchanged."""
    cache.layers[:] = [GrownLayer() if type(layer) is DynamicLayer else layer for layer in cache.layers]
    return cache
