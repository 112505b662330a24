"""Recording of a person that the repository holds, and folders of recordings made from it."""

from pathlib import Path

from parley.evals.human.recordings import RecordedUtterance, decode_wav, utterance

CLIP = Path(__file__).parent / "golden" / "speech" / "ill_disposed.wav"
TEXT = "he was not an ill disposed young man"


def clip(
    *, speaker: str = "librivox-austen", source: str = "librivox", text: str = TEXT
) -> RecordedUtterance:
    samples, rate_hz = decode_wav(CLIP.read_bytes())
    return utterance(
        f"{source}/clip", samples, rate_hz, text=text, speaker=speaker, source=source, language="en"
    )
