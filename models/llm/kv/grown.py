"""A layer of a cache that grows without being copied at every token.

transformers' own layer makes a new tensor of everything for each token that comes: behind 5,700 tokens that
is a third of the time that a small model takes for one. Here there is room behind what is there, a quarter of
it or ``ROOM_TOKENS``; it is copied when the room is used up. Cropping is transformers' own: a shorter view.
"""

from typing import Any

import torch
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

ROOM_TOKENS = 256


class GrownLayer(DynamicLayer):
    """See ``DynamicLayer``, and the module. Keys and values: (batch, heads, tokens, width)."""

    keys: torch.Tensor
    values: torch.Tensor

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """See ``DynamicLayer``."""
        super().lazy_initialization(key_states, value_states)
        self._rooms: tuple[torch.Tensor, torch.Tensor] | None = None

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See ``DynamicLayer``."""
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
    room = new.new_empty((*new.shape[:-2], ends + max(ROOM_TOKENS, ends // 4), new.shape[-1]))
    if begins:
        room[..., :begins, :] = old
    return room


def growing(cache: DynamicCache) -> DynamicCache:
    """The same cache, whose plain layers are of this kind. Others (windows, states) stay what they are."""
    cache.layers[:] = [GrownLayer() if type(layer) is DynamicLayer else layer for layer in cache.layers]
    return cache
