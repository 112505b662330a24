"""Recordings that packages ship: files, speakers, languages, texts and licences.

A row turns the members of its archives into utterances, in a fixed order. Prompts of fewer than
``FEWEST_WORDS`` words are left out, and so are tones, spelt letters and prompts whose text has a stage
direction, which is not spoken. A few of the remaining prompts differ from their text by a word or two. They
stay, because leaving out the words that a recogniser misses would flatter it.
"""

import gzip
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from parley.core.errors import MediaError
from parley.evals.human.archives import ARCHIVES, members
from parley.evals.human.recordings import (
    RecordedUtterance,
    decode_g722,
    decode_raw,
    decode_wav,
    plain_words,
    utterance,
)

FEWEST_WORDS = 3
# Folders of the prompts that hold single letters, digits and silence.
_NO_SPEECH = {"digits", "letters", "phonetic", "silence"}
_DIRECTION = re.compile(r"[\[\](){}<>*]")
_SPHINX = "usr/share/pocketsphinx/test/data/"
_MOONSHINE = "moonshine_voice/assets/"
_CODEC2 = "usr/share/codec2/"
_EXCLAMATIONS = "usr/share/games/hedgewars/Data/Sounds/voices/"
# Folder of the voice, its speaker and the language. The speakers are not documented: two folders that share
# recordings are one speaker, and those of one series, which one person may have acted, are on one side of the
# split. "Robot" is no person's voice.
_EXCLAIMING: Mapping[str, tuple[str, str]] = {
    "British": ("exclaims-british", "en"),
    "Mobster": ("exclaims-mobster", "en"),
    "Pirate": ("exclaims-pirate", "en"),
    "Russian": ("exclaims-accent", "en"),
    "Singer": ("exclaims-singer", "en"),
    "Surfer": ("exclaims-surfer", "en"),
    "Classic": ("exclaims-default", "en"),
    "Default": ("exclaims-default", "en"),
    "HillBilly": ("exclaims-hillbilly", "en"),
    "Default_es": ("exclaims-es", "es"),
    "Default_pl": ("exclaims-pl", "pl"),
    "Default_ru": ("exclaims-ru", "ru"),
    "Default_uk": ("exclaims-uk", "uk"),
    "Russian_pl": ("exclaims-accent-pl", "pl"),
}

# The opening of A Tale of Two Cities (1859), as far as the recording goes.
_TWO_CITIES = (
    "It was the best of times, it was the worst of times, it was the age of wisdom, it was the age of "
    "foolishness, it was the epoch of belief, it was the epoch of incredulity, it was the season of "
    "Light, it was the season of Darkness, it was the spring of hope, it was the winter of despair, we "
    "had everything before us, we had nothing before us, we were all going direct to Heaven, we were "
    "all going direct the other way, in short, the period was so far like the present period, that some "
    "of its noisiest authorities insisted on its being received, for good or for evil, in the "
    "superlative degree of comparison only."
)
_BECKETT = "Ever tried. Ever failed. No matter. Try again. Fail again. Fail better."


@dataclass(frozen=True, slots=True)
class SpeechSource:
    """Set of recordings with one licence.

    Attributes:
        name: of the row.
        archives: names in ``ARCHIVES``.
        licence: as the package states it.
        credit: author and publisher, for the attribution that the licence requires.
        what: description of the content.
        read: yields the utterances from a folder of archives.
    """

    name: str
    archives: tuple[str, ...]
    licence: str
    credit: str
    what: str
    read: Callable[["SpeechSource", Path], Iterator[RecordedUtterance]]

    def utterances(self, folder: Path) -> tuple[RecordedUtterance, ...]:
        """Decode all recordings.

        Raises:
            ConfigError: an archive was not fetched or has another hash.
            MediaError: a file cannot be decoded.
        """
        return tuple(self.read(self, folder))


def _prompts(language: str, speaker: str) -> Callable[[SpeechSource, Path], Iterator[RecordedUtterance]]:
    def read(source: SpeechSource, folder: Path) -> Iterator[RecordedUtterance]:
        texts_archive, audio_archive = (ARCHIVES[name] for name in source.archives)
        texts: dict[str, str] = {}
        for name, data in members(texts_archive, folder):
            if name.endswith(f"core-sounds-{language}.txt.gz"):
                texts = _prompt_texts(gzip.decompress(data).decode("utf-8-sig"))
        files = {_prompt_name(name): data for name, data in members(audio_archive, folder)}
        for name in sorted(texts.keys() & files.keys()):
            text = texts[name]
            if PurePosixPath(name).parts[0] in _NO_SPEECH or _DIRECTION.search(text):
                continue
            if len(plain_words(text)) < FEWEST_WORDS:
                continue
            samples, rate_hz = decode_g722(files[name])
            yield utterance(
                f"{source.name}/{name}",
                samples,
                rate_hz,
                text=text,
                speaker=speaker,
                source=source.name,
                language=language,
            )

    return read


def _prompt_texts(lines: str) -> dict[str, str]:
    texts = {}
    for line in lines.splitlines():
        name, colon, text = line.partition(":")
        if colon and not name.startswith(";"):
            texts[name.strip()] = " ".join(text.split())
    return texts


def _prompt_name(path: str) -> str:
    """Return the name of a prompt: ``.../sounds/en_US_f_Allison/vm-intro.g722`` gives ``vm-intro``."""
    parts = PurePosixPath(path).parts
    return "/".join(parts[5:]).removesuffix(".g722") if path.endswith(".g722") else path


def _librivox(source: SpeechSource, folder: Path) -> Iterator[RecordedUtterance]:
    files = _below(source, folder, _SPHINX)
    texts = _sphinx_texts(files["librivox/transcription"])
    for name in sorted(texts):
        samples, rate_hz = decode_wav(files[f"librivox/{name}.wav"])
        yield utterance(
            f"{source.name}/{name}",
            samples,
            rate_hz,
            text=texts[name],
            speaker="librivox-austen",
            source=source.name,
            language="en",
        )


def _cards(source: SpeechSource, folder: Path) -> Iterator[RecordedUtterance]:
    files = _below(source, folder, _SPHINX)
    clips = {
        name: (decode_wav(files[f"cards/{name}.wav"]), text)
        for name, text in _sphinx_texts(files["cards/cards.transcription"]).items()
    }
    clips["goforward"] = decode_raw(files["goforward.raw"], 16_000), "go forward ten meters"
    for name in sorted(clips):
        (samples, rate_hz), text = clips[name]
        yield utterance(
            f"{source.name}/{name}",
            samples,
            rate_hz,
            text=text,
            speaker="cmu-commands",
            source=source.name,
            language="en",
        )


def _readings(source: SpeechSource, folder: Path) -> Iterator[RecordedUtterance]:
    files = _below(source, folder, _MOONSHINE)
    # The first one is fluent, the second one has an accent, the third one is spontaneous and has no text.
    for name, text in (("two_cities", _TWO_CITIES), ("beckett", _BECKETT), ("clone-test", "")):
        samples, rate_hz = decode_wav(files[f"{name}.wav"])
        yield utterance(
            f"{source.name}/{name}",
            samples,
            rate_hz,
            text=text,
            speaker=f"moonshine-{name}",
            source=source.name,
            language="en",
        )


def _meeting(source: SpeechSource, folder: Path) -> Iterator[RecordedUtterance]:
    for name, data in members(ARCHIVES["pocketsphinx"], folder):
        if name.endswith("test/regression/chan3.wav"):
            samples, rate_hz = decode_wav(data)
            yield utterance(
                f"{source.name}/chan3",
                samples,
                rate_hz,
                text="",
                speaker="meeting-chan3",
                source=source.name,
                language="en",
            )
            return
    raise MediaError("the source archive of pocketsphinx has no chan3.wav")


# The speakers of the clips are not documented; the same name in two formats is the same clip.
_CODEC2_CLIPS: Mapping[str, str] = {
    "wav/hts1a.wav": "codec2-hts1",
    "wav/hts2a.wav": "codec2-hts2",
    "wav/mmt1.wav": "codec2-mmt1",
    "wav/morig.wav": "codec2-morig",
    "wav/forig.wav": "codec2-forig",
    "wav/cross.wav": "codec2-cross",
    "wav/david4.wav": "codec2-david",
    "wav/ve9qrp.wav": "codec2-ve9qrp",
    "wav/vk5qi.wav": "codec2-vk5qi",
    "wav/vk2tpm_004.wav": "codec2-vk2tpm",
    "raw/speech_orig_16k.wav": "codec2-harvard",
}


def _codec2(source: SpeechSource, folder: Path) -> Iterator[RecordedUtterance]:
    files = _below(source, folder, _CODEC2)
    for name, speaker in sorted(_CODEC2_CLIPS.items()):
        samples, rate_hz = decode_wav(files[name])
        yield utterance(
            f"{source.name}/{PurePosixPath(name).stem}",
            samples,
            rate_hz,
            text="",
            speaker=speaker,
            source=source.name,
            language="en",
        )


def _exclamations(source: SpeechSource, folder: Path) -> Iterator[RecordedUtterance]:
    for name, data in sorted(_below(source, folder, _EXCLAMATIONS).items()):
        voice, _, word = name.removesuffix(".ogg").partition("/")
        if voice not in _EXCLAIMING or not name.endswith(".ogg"):
            continue
        speaker, language = _EXCLAIMING[voice]
        samples, rate_hz = decode_wav(data)
        # The spoken words are not documented: the name gives the meaning.
        yield utterance(
            f"{source.name}/{voice}/{word}",
            samples,
            rate_hz,
            text="",
            speaker=speaker,
            source=source.name,
            language=language,
        )


def _below(source: SpeechSource, folder: Path, prefix: str) -> dict[str, bytes]:
    archive = ARCHIVES[source.archives[0]]
    return {
        name.removeprefix(prefix): data
        for name, data in members(archive, folder)
        if name.startswith(prefix) and not name.endswith("/")
    }


def _sphinx_texts(data: bytes) -> dict[str, str]:
    """Parse lines of ``<s> the words </s> (name)`` to texts by name."""
    texts = {}
    for line in data.decode().splitlines():
        words, _, name = line.rpartition("(")
        texts[name.rstrip(") ")] = " ".join(words.replace("<s>", "").replace("</s>", "").split())
    return texts


_SOUNDS = "CC-BY-SA-3.0"


def _sound_set(language: str, speaker: str, person: str, what: str, licence: str = _SOUNDS) -> SpeechSource:
    package = f"asterisk-core-sounds-{language}"
    return SpeechSource(
        f"prompts-{language}",
        (package, f"{package}-g722"),
        licence,
        f"{person}, Asterisk core sounds (Digium and contributors)",
        what,
        _prompts(language, speaker),
    )


_ALL = (
    _sound_set("en", "allison", "Allison Smith", "telephone prompts, studio, US English"),
    _sound_set("es", "allison", "Allison Smith", "telephone prompts, studio, Mexican Spanish"),
    _sound_set("fr", "june", "June Wallack", "telephone prompts, studio, Canadian French"),
    _sound_set("it", "carlo", "Carlo Flora", "telephone prompts, studio, Italian"),
    _sound_set("ru", "ivrvoice-ru", "Maxim Topal", "telephone prompts, studio, Russian", "CC-BY-3.0"),
    SpeechSource(
        "librivox",
        ("pocketsphinx-testdata",),
        "public domain (LibriVox)",
        "LibriVox volunteers, in the test data of CMU Sphinx",
        "read speech: Sense and Sensibility",
        _librivox,
    ),
    SpeechSource(
        "commands",
        ("pocketsphinx-testdata",),
        "BSD-2-Clause",
        "Carnegie Mellon University",
        "card names and a command",
        _cards,
    ),
    SpeechSource(
        "readings",
        ("moonshine-voice",),
        "MIT",
        "Moonshine AI",
        "read speech, accented read speech and a few spontaneous words",
        _readings,
    ),
    SpeechSource(
        "meeting",
        ("pocketsphinx",),
        "BSD-2-Clause",
        "Carnegie Mellon University",
        "a channel of a meeting, no text",
        _meeting,
    ),
    SpeechSource(
        "codec2",
        ("codec2-examples",),
        "LGPL-2.1",
        "David Rowe and contributors",
        "men and women, amateur radio and telephone band, no text",
        _codec2,
    ),
    SpeechSource(
        "exclamations",
        ("hedgewars-data",),
        "GFDL-1.3",
        "Andrey Korotaev and the contributors of Hedgewars",
        "shouts, short comments, hums, coughs and groans of characters of a game, acted; no text",
        _exclamations,
    ),
)
SOURCES: dict[str, SpeechSource] = {source.name: source for source in _ALL}
