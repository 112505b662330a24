"""Recordings that a browser makes of its own call, of each kind, by the beginning of their content."""

FILES: dict[str, tuple[str, bytes]] = {
    "video/webm": ("webm", bytes.fromhex("1a45dfa39f4286810142f7810142f2810442f381084282847765626d42878104")),
    "audio/webm": ("webm", bytes.fromhex("1a45dfa39f4286810142f7810142f2810442f381084282847765626d42878102")),
    "video/mp4": ("mp4", b"\0\0\0\x20ftypisom\0\0\x02\0isomiso2avc1mp41"),
    "audio/wav": (
        "wav",
        b"RIFF\x24\x80\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0\x80\x3e\0\0\0\x7d\0\0",
    ),
}
MATROSKA = bytes.fromhex("1a45dfa3a34286810142f7810142f2810442f381084282886d6174726f736b61428781044285")


def content_of(media_type: str, length: int = 200_000) -> bytes:
    """Return a recording of this kind and length."""
    _, head = FILES[media_type]
    return head + bytes(number % 251 for number in range(length - len(head)))
