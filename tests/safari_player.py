"""Requests of Safari's player for a file of sound or pictures."""

import httpx


async def played_as_by_safari(client: httpx.AsyncClient, address: str) -> bytes:
    """Read a file as Safari's player does, and return it.

    It requests two bytes to learn the length, then everything, which it breaks off, then the rest.
    """
    first = await client.get(address, headers={"range": "bytes=0-1", "accept-encoding": "identity"})
    assert first.status_code == 206
    unit, _, span = first.headers["content-range"].partition(" ")
    given, _, length = span.partition("/")
    assert (unit, given, first.headers["content-length"]) == ("bytes", "0-1", "2")
    assert first.headers["accept-ranges"] == "bytes" and "content-encoding" not in first.headers
    size = int(length)
    parts = []
    for begin in (0, 2, size // 2, size - 1):
        span = {"range": f"bytes={begin}-{size - 1}", "if-range": first.headers["etag"]}
        part = await client.get(address, headers=span)
        assert part.status_code == 206
        assert part.headers["content-range"] == f"bytes {begin}-{size - 1}/{size}"
        assert int(part.headers["content-length"]) == len(part.content) == size - begin
        assert part.headers["content-type"] == first.headers["content-type"]
        parts.append(part.content)
    assert first.content == parts[0][:2]
    assert all(parts[0].endswith(part) for part in parts)
    beyond = await client.get(address, headers={"range": f"bytes={size}-{size + 1}"})
    assert (beyond.status_code, beyond.headers["content-range"]) == (416, f"bytes */{size}")
    return parts[0]
