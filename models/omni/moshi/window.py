"""Cache of the large transformer: the last positions, in memory that does not grow beyond them.

The library's own sliding cache copies the whole window at each step. Here a new position replaces the oldest.
Keys contain their absolute position before they are kept, and a single query attends to all kept positions,
so their order does not matter.
"""

from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin

# Memory is allocated for this many positions, then for twice as many, up to the window.
FIRST_POSITIONS = 64


class _RingLayer(CacheLayerMixin):
    """Keys and values of one layer; takes one position at a time."""

    is_sliding = True

    def __init__(self, window: int) -> None:
        super().__init__()
        self._window = window
        self._seen = 0

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        room = min(FIRST_POSITIONS, self._window)
        self.keys = key_states.new_empty(*key_states.shape[:2], room, key_states.shape[-1])
        self.values = value_states.new_empty(*value_states.shape[:2], room, value_states.shape[-1])
        self.is_initialized = True

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: object, **kwargs: object
    ) -> tuple[Tensor, Tensor]:
        if key_states.shape[-2] != 1:
            raise ValueError(f"expected one position, got {key_states.shape[-2]}")
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        room = self.keys.shape[-2]
        if self._seen == room < self._window:
            self.keys = _widened(self.keys, min(2 * room, self._window))
            self.values = _widened(self.values, min(2 * room, self._window))
        place = self._seen % self._window
        self.keys[:, :, place] = key_states[:, :, 0]
        self.values[:, :, place] = value_states[:, :, 0]
        self._seen += 1
        kept = min(self._seen, self._window)
        return self.keys[:, :, :kept], self.values[:, :, :kept]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        seen = self._seen + query_length
        kept = min(seen, self._window)
        return kept, seen - kept

    def get_seq_length(self) -> int:
        """Return the number of positions so far, including dropped ones: the number of the next one."""
        return self._seen

    def get_max_length(self) -> int:
        return self._window


class RingCache(Cache):
    """Cache of one conversation.

    Args:
        layers: number of layers of the transformer.
        positions: number of positions that are kept.
    """

    def __init__(self, layers: int, positions: int) -> None:
        super().__init__(layers=[_RingLayer(positions) for _ in range(layers)])
        self._positions = positions

    @property
    def kept(self) -> int:
        """Number of positions that are kept."""
        result: int = min(self.get_seq_length(), self._positions)
        return result

    @property
    def size_bytes(self) -> int:
        """Allocated memory in bytes."""
        return sum(
            part.numel() * part.element_size()
            for layer in self.layers
            if layer.is_initialized
            for part in (layer.keys, layer.values)
        )


def _widened(kept: Tensor, room: int) -> Tensor:
    wider = kept.new_empty(*kept.shape[:2], room, kept.shape[-1])
    wider[:, :, : kept.shape[-2]] = kept
    return wider
