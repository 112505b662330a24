"""Budget of a client, without a clock: the tests give the times."""

from parley.core.token_bucket import TokenBucket
from parley.transports.client_budget import ClientBudget, ClientShare

S = 1_000_000


def budget(burst_messages: int = 20) -> ClientBudget:
    return ClientBudget(
        ClientShare(
            messages_per_s=10,
            burst_messages=burst_messages,
            bytes_per_s=100_000,
            burst_bytes=500_000,
            busy_ms_per_s=50,
        )
    )


def test_messages_over_the_burst_are_dropped_and_come_back_with_time():
    client = budget()
    assert [client.take(1, 0) for _ in range(25)] == [True] * 20 + [False] * 5
    assert client.dropped == 5
    assert [client.take(1, S // 2) for _ in range(6)] == [True] * 5 + [False]
    assert [client.take(1, 60 * S) for _ in range(21)] == [True] * 20 + [False]


def test_a_client_that_sends_more_bytes_than_its_share_is_not_read_for_a_while():
    client = budget()
    client.take(500_000, 0)
    assert client.wait_us(0) == 0
    client.take(200_000, 0)
    assert client.wait_us(0) == 2 * S
    assert client.wait_us(S) == S
    assert client.wait_us(2 * S) == 0


def test_a_message_that_is_dropped_counts_its_bytes():
    client = budget(burst_messages=1)
    for _ in range(3):
        client.take(300_000, 0)
    assert client.dropped == 2 and client.wait_us(0) == 4 * S


def test_a_client_that_keeps_the_loop_busy_is_not_read_until_its_share_has_come_back():
    client = budget()
    client.spend(250_000, 0)
    assert client.wait_us(0) == 0
    client.spend(50_000, 0)
    assert client.wait_us(0) == S
    # In ten seconds it gets ten shares and the burst, whatever the pattern of requests.
    busy_us, now_us = 0, S
    while now_us < 11 * S:
        client.spend(10_000, now_us)
        busy_us += 10_000
        now_us += client.wait_us(now_us)
    assert busy_us <= 10 * 50_000 + 10_000


def test_a_clock_that_stands_gives_nothing_back():
    tokens = TokenBucket(10, 1)
    assert tokens.take(1, 5) and not tokens.take(1, 5) and not tokens.take(1, 4)
    assert tokens.take(1, 5 + S // 10)
