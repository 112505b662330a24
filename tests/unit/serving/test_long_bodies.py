"""Places for requests with long bodies."""

import re

import pytest

from parley.core.errors import CapacityError
from parley.serving.gateway.http.middleware import LongerBodies


def test_an_address_has_a_quarter_of_the_places():
    bodies = LongerBodies(re.compile("/x"), max_bytes=1_000, at_once=8, trusted_proxies=())

    def scope(host: str) -> dict[str, object]:
        return {"type": "http", "headers": [], "client": (host, 1)}

    first, _second = bodies.take(scope("10.0.0.1")), bodies.take(scope("10.0.0.1"))
    with pytest.raises(CapacityError, match="this address"):
        bodies.take(scope("10.0.0.1"))
    bodies.take(scope("10.0.0.2"))
    first.give_back()
    bodies.take(scope("10.0.0.1"))
