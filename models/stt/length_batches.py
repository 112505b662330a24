"""Choice of the pieces of recordings that are decoded together: those of similar length, since each batch is
padded to its longest. Pure.
"""

from collections.abc import Iterator, Sequence

# A piece that is shorter by more would be decoded mostly as padding.
LEAST_SHARE = 0.6


def length_batches(lengths: Sequence[int], most: int) -> Iterator[list[int]]:
    """Yield batches of places, longest pieces first.

    The same lengths always give the same batches, so that a recording is transcribed alike each time.

    Args:
        lengths: length of each piece.
        most: pieces of a batch.
    """
    batch: list[int] = []
    for place in sorted(range(len(lengths)), key=lambda place: (-lengths[place], place)):
        if batch and (len(batch) >= most or lengths[place] < LEAST_SHARE * lengths[batch[0]]):
            yield batch
            batch = []
        batch.append(place)
    if batch:
        yield batch
