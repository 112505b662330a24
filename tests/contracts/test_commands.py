"""Contract of all command spotters: the interface of a recogniser, but only commands are recognised."""

import threading
import wave
from collections.abc import Callable
from pathlib import Path

import pytest

from parley.core.errors import ConfigError, EngineError, ShapeError
from parley.models.keyword_spotting import COMMANDS
from parley.models.keyword_spotting.pocketsphinx import CommandSettings, PocketsphinxCommands, beginning
from parley.models.stt import SpeechStream, SpeechToText, Transcript
from tests.listening import play, understand, understood_in_a_child
from tests.voices import say, silence

ENGINES: dict[str, Callable[[], SpeechToText]] = {"pocketsphinx": PocketsphinxCommands}
# Made by ``scripts.make_turn_sounds``.
SOUNDS = Path(__file__).parents[1] / "golden" / "sounds"


def is_nothing(heard: Transcript) -> bool:
    return heard.final and not heard.text and not heard.words


@pytest.fixture(scope="module", params=list(ENGINES))
def engine(request: pytest.FixtureRequest) -> SpeechToText:
    return ENGINES[request.param]()


@pytest.fixture
def stream(engine: SpeechToText):
    opened = engine.open_stream()
    yield opened
    opened.close()


def utterance(text: str, voice: str = "rms") -> bytes:
    return silence(200) + say(text, voice) + silence(200)


def test_every_row_of_the_registry_is_covered() -> None:
    assert set(COMMANDS.names()) <= ENGINES.keys()


@pytest.mark.parametrize("voice", ["rms", "slt", "awb"])
@pytest.mark.parametrize("text", ["stop", "wait", "stop please", "hang on"])
def test_a_command_is_heard(stream: SpeechStream, text: str, voice: str) -> None:
    heard = understand(stream, utterance(text, voice))
    assert heard.text == text
    assert heard.final
    assert 0.0 < heard.confidence <= 1.0
    assert [word.text for word in heard.words] == text.split()


@pytest.mark.parametrize("voice", ["rms", "slt", "awb"])
@pytest.mark.parametrize("text", ["okay", "yeah", "uh huh", "right", "i see"])
def test_what_a_listener_says_is_no_command(stream: SpeechStream, text: str, voice: str) -> None:
    assert is_nothing(understand(stream, utterance(text, voice)))


def test_of_a_phrase_that_breaks_off_the_one_counts_with_which_it_begins() -> None:
    known = frozenset({"wait", "wait a minute", "no", "no wait", "thank you"})
    assert beginning(["wait", "a"], known) == "wait"
    assert beginning(["no", "wait"], known) == "no wait"
    assert beginning(["thank"], known) == beginning([], known) == ""


@pytest.mark.parametrize("voice", ["rms", "slt", "awb"])
@pytest.mark.parametrize("text", ["no no", "how much"])
def test_what_claims_the_floor_is_a_command(stream: SpeechStream, text: str, voice: str) -> None:
    assert understand(stream, utterance(text, voice)).text == text


def recorded(name: str) -> bytes:
    with wave.open(str(SOUNDS / f"{name}.wav")) as file:
        return file.readframes(file.getnframes())


@pytest.mark.parametrize("name", ["stop", "wait", "stop-please"])
def test_a_recorded_command_is_heard(stream: SpeechStream, name: str) -> None:
    assert understand(stream, recorded(name)).text == name.replace("-", " ")


@pytest.mark.parametrize("name", ["okay", "uh-huh", "hum-1", "hum-2", "cough-1", "cough-2"])
def test_a_recorded_backchannel_hum_or_cough_is_no_command(stream: SpeechStream, name: str) -> None:
    assert is_nothing(understand(stream, recorded(name)))


@pytest.mark.parametrize("pcm", [b"", silence(20), silence(600)], ids=["nothing", "20 ms", "silence"])
def test_silence_is_no_command(stream: SpeechStream, pcm: bytes) -> None:
    assert is_nothing(understand(stream, pcm))


def test_talk_that_is_longer_than_any_command_is_none_even_when_it_ends_with_one(
    stream: SpeechStream,
) -> None:
    long = utterance("what is the fee of the card") + utterance("stop")
    assert is_nothing(understand(stream, long))


def test_there_are_no_partials(stream: SpeechStream) -> None:
    stream.start()
    assert play(stream, utterance("stop")) == []
    assert stream.finish().text == "stop"


def test_an_utterance_does_not_depend_on_the_one_before(stream: SpeechStream) -> None:
    alone = understand(stream, utterance("wait"))
    understand(stream, utterance("okay", "awb"))
    assert understand(stream, utterance("wait")) == alone


def test_start_discards_an_open_utterance(stream: SpeechStream) -> None:
    stream.start()
    stream.feed(utterance("what is the fee of the card"))
    assert understand(stream, utterance("stop")).text == "stop"


def test_nothing_is_heard_outside_an_utterance(stream: SpeechStream) -> None:
    with pytest.raises(EngineError):
        stream.feed(silence(20))
    with pytest.raises(EngineError):
        stream.finish()
    stream.discard()
    stream.start()
    stream.discard()
    with pytest.raises(EngineError):
        stream.finish()


def test_half_a_sample_is_refused(stream: SpeechStream) -> None:
    stream.start()
    with pytest.raises(ShapeError):
        stream.feed(b"\0\0\0")


def test_callers_share_the_engine(engine: SpeechToText) -> None:
    heard: list[str] = []

    def listen(text: str) -> None:
        stream = engine.open_stream()
        heard.append(understand(stream, utterance(text)).text)
        stream.close()

    # Synthesized before the threads start: the voice is cached, and threads must not create it at once.
    for text in ("stop", "wait"):
        utterance(text)
    threads = [threading.Thread(target=listen, args=(text,)) for text in ("stop", "wait", "stop")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(heard) == ["stop", "stop", "wait"]


async def test_a_process_of_its_own_can_host_it() -> None:
    heard = await understood_in_a_child(
        "parley.models.keyword_spotting.pocketsphinx:PocketsphinxCommands",
        CommandSettings(),
        utterance("stop"),
    )
    assert heard.text == "stop"


def test_a_word_that_no_one_can_pronounce_is_refused() -> None:
    with pytest.raises(ConfigError, match="xqzzt"):
        PocketsphinxCommands(CommandSettings(phrases=("xqzzt",)))
