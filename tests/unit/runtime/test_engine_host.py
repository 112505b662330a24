import pytest

from runtime.engine_host import HEADER, FrameReader, Kind, WireFrame, encode


def test_messages_survive_any_cutting() -> None:
    sent = [WireFrame(Kind.AUDIO, 7, 3, b"\1\2" * 300), WireFrame(Kind.FINISH, 7, 3, b"")]
    data = b"".join(encode(f.kind, f.stream, f.utterance, f.payload) for f in sent)
    for size in (1, 5, 13, 14, 400, len(data)):
        reader = FrameReader()
        got = [frame for at in range(0, len(data), size) for frame in reader.feed(data[at : at + size])]
        assert got == sent


def test_a_monstrous_length_is_refused() -> None:
    with pytest.raises(ValueError, match="bytes"):
        list(FrameReader().feed(HEADER.pack(2**31, Kind.AUDIO, 0, 0)))


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ValueError):
        list(FrameReader().feed(HEADER.pack(0, 99, 0, 0)))
