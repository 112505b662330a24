"""Every route of the application is attacked, and each has a well-formed request."""

from fastapi.openapi.utils import get_openapi

from parley.evals.abuse.proxies import Proxy, rewritten
from parley.evals.abuse.registry import attacks
from parley.evals.abuse.routes import application, entries, sockets
from parley.evals.abuse.samples import body_of, path_of

READING = ("", "GET", "HEAD", "DELETE")
HEAD = b"GET /a HTTP/1.1\r\nHost: talk.example.org\r\nConnection: keep-alive\r\nX-A: 1\r\n\r\n"


def test_the_routes_are_those_that_the_application_declares():
    described = get_openapi(title="", version="", routes=application().routes)["paths"]
    expected = {(path, method.upper()) for path, methods in described.items() for method in methods}
    # Routes that serve files are not part of a description.
    found = {
        (each.path, each.method) for each in entries() if each.kind == "http" and "{file}" not in each.path
    }
    assert found == expected


def test_every_socket_has_slow_readers_and_half_open_peers():
    known = attacks()
    for entry in sockets():
        assert f"slow:{entry.path}" in known
        assert f"half-open:{entry.path}" in known


def test_no_parameter_of_a_path_is_left_open():
    assert all("{" not in path_of(entry) for entry in entries())


def test_what_reads_asks_with_no_body():
    assert all(body_of(entry) == (b"", "") for entry in entries() if entry.method in READING)


def test_nginx_gives_its_own_host_and_closes():
    head = rewritten(HEAD, Proxy.NGINX, "127.0.0.1:7860")
    assert b"Host: 127.0.0.1:7860\r\n" in head
    assert head.count(b"Connection: close") == 1
    assert b"keep-alive" not in head
    assert b"X-A: 1" in head


def test_node_keeps_the_host_and_a_tunnel_everything():
    assert b"Host: talk.example.org" in rewritten(HEAD, Proxy.NODE, "127.0.0.1:7860")
    assert rewritten(HEAD, Proxy.TUNNEL, "127.0.0.1:7860") == HEAD


def test_an_upgrade_passes():
    head = HEAD.replace(b"Connection: keep-alive", b"Connection: Upgrade\r\nUpgrade: websocket")
    assert b"Connection: Upgrade" in rewritten(head, Proxy.NGINX, "127.0.0.1:7860")
