"""The operator table: it is read back as it was written, and each difference is named."""

from parley.evals.abuse.exposure import COLUMNS, as_table, differences, from_table
from parley.evals.abuse.proxies import Proxy

EVERY, NONE = frozenset(Proxy), frozenset[Proxy]()
CELLS = {("GET /a", column): EVERY for column in COLUMNS} | {
    ("GET /b", column): frozenset({Proxy.NGINX, Proxy.DIRECT}) if place else NONE
    for place, column in enumerate(COLUMNS)
}


def test_a_table_is_read_as_it_was_made():
    assert from_table(as_table(CELLS)) == CELLS


def test_a_table_names_the_proxies_that_differ():
    assert "yes: direct, nginx" in as_table(CELLS)


def test_nothing_differs_from_itself():
    assert not differences(CELLS, CELLS, Proxy)


def test_a_cell_that_is_open_is_named():
    opened = {**CELLS, ("GET /b", COLUMNS[0]): EVERY}
    [line] = differences(CELLS, opened, Proxy)
    assert "GET /b" in line and COLUMNS[0].title in line


def test_a_route_that_is_new_or_gone_is_named():
    new = {("GET /c", column): EVERY for column in COLUMNS}
    assert differences(CELLS, {**CELLS, **new}, Proxy) == ["GET /c: is not in the table"]
    gone = {place: cell for place, cell in CELLS.items() if place[0] != "GET /b"}
    assert differences(CELLS, gone, Proxy) == ["GET /b: is in the table and no route"]


def test_proxies_that_were_not_asked_do_not_count():
    asked = (Proxy.DIRECT,)
    found = {place: cell & frozenset(asked) for place, cell in CELLS.items()}
    assert not differences(CELLS, found, asked)
