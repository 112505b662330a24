from parley.models.stt.length_batches import LEAST_SHARE, length_batches


def test_every_piece_is_in_one_batch_with_pieces_of_similar_length():
    lengths = [10, 200, 180, 15, 190, 12, 170, 11]
    batches = list(length_batches(lengths, 3))
    assert sorted(place for batch in batches for place in batch) == list(range(len(lengths)))
    for batch in batches:
        inside = [lengths[place] for place in batch]
        assert len(batch) <= 3
        assert min(inside) >= LEAST_SHARE * max(inside)


def test_the_longest_come_first_and_equal_ones_in_their_order():
    assert list(length_batches([5, 5, 9, 5], 2)) == [[2], [0, 1], [3]]


def test_no_pieces_are_no_batches():
    assert list(length_batches([], 8)) == []
