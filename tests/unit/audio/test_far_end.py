import numpy as np

from parley.audio.far_end import Arrival, FarEnd, NearAxis

RATE_HZ = 16_000
BEGAN_US = 5_000_000
SOUND = np.random.default_rng(3).standard_normal(8_000).astype(np.float32)
FIRST = BEGAN_US * RATE_HZ // 1_000_000


def place_us(sample: int) -> int:
    return BEGAN_US + sample * 1_000_000 // RATE_HZ


def played(pieces: list[int], *, late_us: int = 0) -> FarEnd:
    far = FarEnd(RATE_HZ, keep_ms=1_000)
    at = 0
    for number, size in enumerate(pieces):
        far.played(SOUND[at : at + size], place_us(at) + late_us * (number % 2))
        at += size
    return far


def test_what_was_played_is_read_where_it_was_played() -> None:
    far = played([320] * 10)
    assert np.array_equal(far.read(FIRST + 100, 500), SOUND[100:600])


def test_late_pieces_join_without_a_seam() -> None:
    far = played([320] * 10, late_us=15_000)
    assert np.array_equal(far.read(FIRST, 3_200), SOUND[:3_200])


def test_a_pause_is_silence_of_its_length() -> None:
    far = FarEnd(RATE_HZ, keep_ms=1_000)
    far.played(SOUND[:320], BEGAN_US)
    far.played(SOUND[320:640], BEGAN_US + 200_000)
    assert np.array_equal(far.read(FIRST, 320), SOUND[:320])
    assert not far.read(FIRST + 320, 3_200 - 320).any()
    assert np.array_equal(far.read(FIRST + 3_200, 320), SOUND[320:640])


def test_what_was_not_played_or_not_kept_is_silence() -> None:
    far = FarEnd(RATE_HZ, keep_ms=100)
    assert not far.read(FIRST, 160).any()
    for at in range(0, 8_000, 320):
        far.played(SOUND[at : at + 320], place_us(at))
    assert not far.read(FIRST, 1_600).any()
    assert np.array_equal(far.read(FIRST + 6_400, 1_600), SOUND[6_400:8_000])
    assert not far.read(FIRST + 8_000, 160).any()


def test_a_pause_of_hours_costs_no_memory_and_keeps_its_place() -> None:
    far = FarEnd(RATE_HZ, keep_ms=100)
    far.played(SOUND[:320], BEGAN_US)
    later_us = BEGAN_US + 7_200_000_000
    far.played(SOUND[320:640], later_us)
    assert np.array_equal(far.read(later_us * RATE_HZ // 1_000_000, 320), SOUND[320:640])


def test_another_pace_is_read_from_the_same_sound() -> None:
    far = FarEnd(RATE_HZ, keep_ms=1_000)
    tone = np.sin(2 * np.pi * 500 * np.arange(8_000) / RATE_HZ).astype(np.float32)
    far.played(tone, BEGAN_US)
    made = far.read(FIRST + 1_000.25, 160, 1 - 200e-6)
    wanted = np.sin(2 * np.pi * 500 * (1_000.25 + (1 - 200e-6) * np.arange(160)) / RATE_HZ)
    assert np.max(np.abs(made - wanted)) < 0.005


def test_arrivals_that_are_late_by_chance_do_not_move_the_microphone() -> None:
    axis = NearAxis(RATE_HZ)
    late = np.random.default_rng(4).integers(0, 30_000, 200)
    late[0] = 0
    for number in range(200):
        arrival = axis.arrived(320, place_us(320 * (number + 1)) + int(late[number]))
        assert arrival == Arrival(FIRST + 320 * number)


def test_a_stream_that_begins_late_is_put_where_it_is_by_the_first_piece_in_time() -> None:
    axis = NearAxis(RATE_HZ)
    # Three pieces wait for a reader, and come at once.
    arrivals = [axis.arrived(320, place_us(960)) for _ in range(3)]
    arrivals += [axis.arrived(320, place_us(320 * (number + 1))) for number in range(3, 6)]
    assert [one.earlier for one in arrivals] == [0, 320, 320, 0, 0, 0]
    assert [one.place - FIRST for one in arrivals] == [640, 640, 640, 960, 1_280, 1_600]
    assert not any(one.parted for one in arrivals)


def test_a_stream_that_stood_is_late_and_then_where_it_was() -> None:
    axis = NearAxis(RATE_HZ)
    places = [axis.arrived(320, place_us(320 * (number + 1))).place for number in range(10)]
    places += [axis.arrived(320, place_us(320 * 35)).place for _ in range(25)]
    assert places == [FIRST + 320 * number for number in range(35)]


def test_lost_audio_moves_the_microphone_to_where_it_is() -> None:
    axis = NearAxis(RATE_HZ, window=10)
    for number in range(20):
        axis.arrived(320, place_us(320 * (number + 1)))
    lost = 320 * 25
    moved = [axis.arrived(320, place_us(lost + 320 * (21 + number))) for number in range(20)]
    assert [one.parted for one in moved].count(True) == 1
    assert moved[-1].place == FIRST + lost + 320 * 39
