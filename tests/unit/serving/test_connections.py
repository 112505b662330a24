"""Open connections: those that make room, and those that are cut."""

from parley.serving.gateway.http.connections import (
    ADDRESS_RESERVE,
    CLOSE_S,
    MOST_CONNECTIONS,
    RESERVE,
    ConnectionPhase,
    ConnectionTable,
    Deadlines,
    connection_limit,
    counted_address,
)

DEADLINES = Deadlines(head_s=10, kept_s=75, stall_s=30)


class Line:
    """Transport with the bytes that its peer has not read, and how it was ended."""

    def __init__(self) -> None:
        self.unsent = 0
        self.is_closed = self.is_cut = False

    def abort(self) -> None:
        self.is_cut = True

    def is_closing(self) -> bool:
        return self.is_closed

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def get_protocol(self) -> object:
        return self


def opened(
    table: ConnectionTable, count: int, address: str, phase: ConnectionPhase = ConnectionPhase.HEAD
) -> list[Line]:
    lines = [Line() for _ in range(count)]
    for line in lines:
        table.opened(line, address, 0)
        if phase is not ConnectionPhase.HEAD:
            table.moved(line, phase, 0)
    return lines


def test_a_flood_of_half_requests_of_one_address_makes_room_for_itself_alone():
    table = ConnectionTable(100, DEADLINES)
    [other] = opened(table, 1, "198.51.100.7")
    flood = opened(table, 1_500, "192.0.2.1")
    assert len(table) == 1 + 50 + ADDRESS_RESERVE
    assert not other.is_cut
    assert sum(line.is_cut for line in flood) == 1_500 - 50 - ADDRESS_RESERVE
    # The oldest first.
    assert not flood[-1].is_cut
    assert flood[0].is_cut


def test_a_flood_from_many_addresses_closes_what_waits_longest_and_no_request():
    table = ConnectionTable(100, DEADLINES)
    [request] = opened(table, 1, "198.51.100.7", ConnectionPhase.REQUEST)
    [kept] = opened(table, 1, "198.51.100.7", ConnectionPhase.KEPT)
    for number in range(1_000):
        opened(table, 1, f"10.0.{number // 250}.{number % 250}")
    assert len(table) == 100 + RESERVE
    assert not request.is_cut
    assert kept.is_cut
    assert table.take_evicted() == 1_002 - 100 - RESERVE


def test_requests_fill_the_table_and_one_more_connection_may_still_ask():
    table = ConnectionTable(4, DEADLINES)
    lines = [opened(table, 1, f"10.0.0.{number}", ConnectionPhase.REQUEST)[0] for number in range(4)]
    assert not any(table.is_full(line) for line in lines)
    [more] = opened(table, 1, "10.0.1.1", ConnectionPhase.REQUEST)
    assert table.is_full(more)
    assert not more.is_cut
    table.closed(lines[0])
    assert not table.is_full(more)


def test_one_address_has_half_and_a_trusted_proxy_has_all():
    table = ConnectionTable(8, DEADLINES, trusted_proxies=("10.0.0.0/8",))
    *_, fifth = opened(table, 5, "192.0.2.1", ConnectionPhase.REQUEST)
    assert table.is_full(fifth)
    table = ConnectionTable(8, DEADLINES, trusted_proxies=("10.0.0.0/8",))
    *_, eighth = opened(table, 8, "10.1.2.3", ConnectionPhase.REQUEST)
    assert not table.is_full(eighth)


def test_a_request_head_has_its_time_and_a_kept_connection_another():
    table = ConnectionTable(8, DEADLINES)
    [half] = opened(table, 1, "192.0.2.1")
    [kept] = opened(table, 1, "192.0.2.1", ConnectionPhase.KEPT)
    opened(table, 1, "192.0.2.1", ConnectionPhase.REQUEST)
    assert not table.late(9.9)
    assert [each.transport for each in table.late(10)] == [half]
    assert {each.transport for each in table.late(85)} == {half, kept}


def test_a_reader_that_takes_nothing_in_is_cut_and_a_slow_one_is_not():
    table = ConnectionTable(8, DEADLINES)
    stalled, slow = opened(table, 2, "192.0.2.1", ConnectionPhase.REQUEST)
    stalled.unsent = slow.unsent = 1_000
    assert not table.look(0)
    slow.unsent = 999
    assert not table.look(29)
    assert [each.transport for each in table.look(30)] == [stalled]


def test_a_peer_that_does_not_confirm_the_end_is_cut():
    table = ConnectionTable(8, DEADLINES)
    [line] = opened(table, 1, "192.0.2.1", ConnectionPhase.REQUEST)
    line.is_closed = True
    assert not table.look(0)
    assert [each.transport for each in table.look(CLOSE_S)] == [line]


def test_nothing_is_kept_of_connections_that_have_ended():
    table = ConnectionTable(8, DEADLINES)
    for line in opened(table, 6, "192.0.2.1"):
        table.closed(line)
        table.closed(line)
    assert len(table) == table.waiting == 0
    assert not table._clients


def test_an_ipv6_client_is_counted_by_its_network():
    assert counted_address("2001:db8::1") == counted_address("2001:db8::ffff")
    assert counted_address("::ffff:192.0.2.1") == "192.0.2.1"
    assert counted_address("") == ""


def test_the_limit_stays_below_the_descriptors_of_the_process():
    assert connection_limit(1_024, max_calls=32) < 1_024 - RESERVE
    assert connection_limit(65_536, max_calls=32) == MOST_CONNECTIONS
    assert 10_000 < connection_limit(65_536, max_calls=10_000) < 65_536


def no_tenant() -> None:
    return None


def test_two_addresses_cannot_fill_the_table_and_a_tenant_gets_in():
    table = ConnectionTable(16, DEADLINES)
    refused = []
    for number in range(16):
        [line] = opened(table, 1, f"10.0.0.{number % 2}", ConnectionPhase.REQUEST)
        refused.append(table.is_full(line, no_tenant))
    assert refused == [False] * 12 + [True] * 4
    [tenant] = opened(table, 1, "10.0.0.1", ConnectionPhase.REQUEST)
    assert not table.is_full(tenant, lambda: "a")


def test_a_tenant_has_half_of_the_reserve_and_leaves_the_rest_to_others():
    table = ConnectionTable(16, DEADLINES)
    for number in range(12):
        [line] = opened(table, 1, f"10.0.0.{number}", ConnectionPhase.REQUEST)
        assert not table.is_full(line, lambda: "a")
    first, second, third, other = opened(table, 4, "192.0.2.1", ConnectionPhase.REQUEST)
    table.moved(third, ConnectionPhase.KEPT, 0)
    table.moved(other, ConnectionPhase.KEPT, 0)
    assert not table.is_full(first, lambda: "a")
    assert not table.is_full(second, lambda: "a")
    table.moved(third, ConnectionPhase.REQUEST, 0)
    assert table.is_full(third, lambda: "a")
    table.moved(other, ConnectionPhase.REQUEST, 0)
    assert not table.is_full(other, lambda: "b")
    # An answered request returns its place.
    table.moved(first, ConnectionPhase.KEPT, 0)
    table.moved(third, ConnectionPhase.REQUEST, 0)
    assert not table.is_full(third, lambda: "a")


def test_a_tenant_gets_in_though_its_address_has_its_share():
    table = ConnectionTable(16, DEADLINES)
    for line in opened(table, 8, "192.0.2.1", ConnectionPhase.REQUEST):
        assert not table.is_full(line, no_tenant)
    stranger, tenant = opened(table, 2, "192.0.2.1", ConnectionPhase.REQUEST)
    assert table.is_full(stranger, no_tenant)
    assert not table.is_full(tenant, lambda: "a")
    table.closed(tenant)
    table.closed(stranger)
    assert len(table) == 8
    assert not table._tenants


def test_a_flood_of_refused_requests_does_not_look_like_a_full_table():
    table = ConnectionTable(16, DEADLINES)
    for number in range(100):
        [line] = opened(table, 1, f"10.0.0.{number}", ConnectionPhase.REQUEST)
        assert table.is_full(line, no_tenant) == (number >= 12)
    [tenant] = opened(table, 1, "192.0.2.1", ConnectionPhase.REQUEST)
    assert not table.is_full(tenant, lambda: "a")
    assert not tenant.is_cut


def test_credentials_are_compared_only_where_no_other_request_gets_in():
    compared = []

    def tenant_of() -> str:
        compared.append(1)
        return "a"

    table = ConnectionTable(16, DEADLINES)
    for number in range(12):
        [line] = opened(table, 1, f"10.0.0.{number}", ConnectionPhase.REQUEST)
        assert not table.is_full(line, tenant_of)
    assert not compared
