"""Formats of an audio file with speech, by the names of OpenAI's speech API."""

from typing import Literal, get_args

# ``pcm`` is 16-bit, little-endian, mono, without a header.
SpeechFormat = Literal["mp3", "opus", "aac", "flac", "wav", "pcm"]
SPEECH_FORMATS: tuple[SpeechFormat, ...] = get_args(SpeechFormat)
MEDIA_TYPES: dict[SpeechFormat, str] = {
    "mp3": "audio/mpeg",
    "opus": "audio/ogg",
    "aac": "audio/aac",
    "flac": "audio/flac",
    "wav": "audio/wav",
    "pcm": "audio/pcm",
}
