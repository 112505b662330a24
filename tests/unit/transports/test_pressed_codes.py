from parley.transports.twilio.codes import PressedCodes


def codes(**changed: int) -> PressedCodes:
    return PressedCodes(**({"digits": 4, "pause_ms": 5_000, "tries": 3} | changed))


def press(keys: str, line: PressedCodes, *, from_ms: int = 0, every_ms: int = 300) -> list[str]:
    pressed = [line.press(key, from_ms + number * every_ms) for number, key in enumerate(keys)]
    return [code for code in pressed if code is not None]


def test_a_code_is_found_among_the_keys():
    assert press("1234", codes()) == ["1234"]


def test_a_longer_row_of_keys_is_one_code_after_the_other():
    assert press("1234567890", codes()) == ["1234", "5678"]


def test_a_star_a_hash_and_a_pause_begin_anew():
    line = codes()
    assert press("12*34#1234", line) == ["1234"]
    assert press("12", line, from_ms=10_000) == []
    assert press("3456", line, from_ms=20_000) == ["3456"]


def test_after_the_last_try_no_key_means_anything():
    line = codes(tries=2)
    for place in range(2):
        assert press("1234", line, from_ms=place * 10_000) == ["1234"]
        line.was_wrong()
    assert line.is_over
    assert press("1234", line, from_ms=60_000) == []
