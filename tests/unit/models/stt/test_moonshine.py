import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from parley.command.fetch_models import moonshine_files
from parley.core.errors import ConfigError, EngineError
from parley.models.stt import Transcript
from parley.models.stt.moonshine import MoonshineSettings, MoonshineStream, MoonshineStt
from tests.listening import Ticking, play, understand, understood_in_a_child
from tests.tiny_moonshine import FRAMES_PER_TOKEN, install_moonshine
from tests.voices import say, silence, tone

# The tiny model writes "What is your PIN?", a word for every 200 ms of voice, whatever is said: it counts.
SPEECH = silence(200) + say("how do i block my card if i lost it") + silence(200)


@pytest.fixture(scope="module")
def models_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    install_moonshine(folder, word_times=True)
    return folder


def engine_of(models_dir: Path, *, pass_s: float = 0.0, **settings: object) -> MoonshineStt:
    """Return an engine whose clock reports passes of that length: the tests' machine does not pace it."""
    chosen = MoonshineSettings.model_validate({"models_dir": models_dir, **settings})
    return MoonshineStt(chosen, clock=Ticking(pass_s))


def test_what_is_fetched_is_what_is_opened(tmp_path: Path) -> None:
    fetched = {tmp_path / remote.path for remote in moonshine_files()}
    assert fetched == set(MoonshineSettings(models_dir=tmp_path).files())


def test_files_of_streaming_and_other_models_are_known(tmp_path: Path) -> None:
    streaming = {file.name for file in MoonshineSettings(models_dir=tmp_path).files()}
    assert streaming >= {"frontend.model.ort", "encoder.ort", "decoder_kv.ort", "tokenizer.bin"}
    other = {file.name for file in MoonshineSettings(models_dir=tmp_path, model="tiny").files()}
    assert other == {"encoder_model.ort", "decoder_model_merged.ort", "tokenizer.bin"}


def test_a_language_without_a_model_is_named() -> None:
    with pytest.raises(ConfigError, match="'xx'"):
        MoonshineSettings(language="xx").check()


def test_a_missing_file_says_make_models_and_nothing_is_made(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"moonshine/download.moonshine.ai/.*make models"):
        MoonshineStt(MoonshineSettings(models_dir=tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_measured_word_times_name_their_extra_file(tmp_path: Path) -> None:
    install_moonshine(tmp_path)
    MoonshineSettings(models_dir=tmp_path).check()
    with pytest.raises(ConfigError, match="https://download.moonshine.ai/.*decoder_kv_with_attention.ort"):
        MoonshineSettings(models_dir=tmp_path, word_timestamps=True).check()


def test_a_broken_file_is_an_engine_error_that_names_the_folder(tmp_path: Path) -> None:
    folder = install_moonshine(tmp_path)
    (folder / "encoder.ort").write_bytes(b"half a download")
    with pytest.raises(EngineError, match=str(folder)) as caught:
        MoonshineStt(MoonshineSettings(models_dir=tmp_path))
    assert not caught.value.retryable


def test_partials_grow_with_the_sentence_and_come_at_the_interval(models_dir: Path) -> None:
    stream = engine_of(models_dir, partial_interval_ms=400).open_stream()
    stream.start()
    partials = play(stream, SPEECH)
    texts = [partial.text for partial in partials]
    assert texts == sorted(texts, key=len)
    assert texts[0].startswith("what")
    heard_ms = len(SPEECH) // 32
    assert 3 <= len(partials) <= heard_ms / 400
    assert stream.finish().text.startswith(texts[-1])


def test_a_short_interval_shows_every_word_in_turn(models_dir: Path) -> None:
    stream = engine_of(models_dir, partial_interval_ms=60).open_stream()
    stream.start()
    texts = [partial.text for partial in play(stream, SPEECH)]
    spoken = stream.finish().text.split()
    # "PIN?" is three tokens of the tiny model, so "p" is seen before "pin".
    assert {"what", "what is", "what is your", "what is your p", "what is your pin"} <= set(texts)
    assert len(texts) >= len(spoken)


def test_dear_passes_make_partials_rarer(models_dir: Path) -> None:
    quick = engine_of(models_dir, partial_interval_ms=100).open_stream()
    # Half a second for each pass, at half of the time: one second of audio between partials.
    slow = engine_of(models_dir, partial_interval_ms=100, pass_s=0.5).open_stream()
    counts = []
    for stream in (quick, slow):
        stream.start()
        counts.append(len(play(stream, SPEECH)))
        stream.finish()
    assert counts[0] >= 5
    assert 1 <= counts[1] <= 3


def test_the_last_sounds_are_heard_however_the_passes_fall(models_dir: Path) -> None:
    # Every length up to more than a chunk and a hop of the library, up to the last sample.
    stream = engine_of(models_dir, partial_interval_ms=200).open_stream()
    token_ms = FRAMES_PER_TOKEN * 20
    voice = say("what is your pin")
    for extra_ms in range(0, 220, 20):
        # A tone is as loud as a voice for the tiny model, and continues to the end.
        heard = understand(stream, voice + tone(600 + extra_ms))
        whole = understand_at_once(stream, voice + tone(600 + extra_ms))
        assert heard.text == whole.text
        assert count_tokens(heard.text) >= (600 + extra_ms) // token_ms


def understand_at_once(stream: MoonshineStream, pcm: bytes) -> Transcript:
    stream.start()
    stream.feed(pcm)
    return stream.finish()


def count_tokens(text: str) -> int:
    """Return the number of tokens of a text: "pin" has three ("P", "IN", "?"), the other words have one."""
    return sum(3 if word == "pin" else 1 for word in text.split())


def test_word_times_are_estimates_and_say_so(models_dir: Path) -> None:
    stream = engine_of(models_dir).open_stream()
    words = understand(stream, SPEECH).words
    assert words
    assert all(word.estimated and word.confidence == 1.0 for word in words)


def test_measured_word_times_are_the_librarys_also_after_partials(models_dir: Path) -> None:
    stream = engine_of(models_dir, word_timestamps=True, partial_interval_ms=200).open_stream()
    stream.start()
    assert play(stream, SPEECH)
    words = stream.finish().words
    assert len(words) > 3
    assert not any(word.estimated for word in words)
    # A token of the tiny model takes 200 ms of voice.
    assert all(word.end_ms - word.start_ms >= 150 for word in words[1:-1])


def test_a_long_utterance_is_heard_in_lines_with_one_time_line(models_dir: Path) -> None:
    voice = say("how do i block my card if i lost it")
    sentence = voice + silence(600)
    stream = engine_of(models_dir, max_line_ms=4_500).open_stream()
    stream.start()
    partials = play(stream, sentence * 5)
    heard = stream.finish()
    times = [time for word in heard.words for time in (word.start_ms, word.end_ms)]
    assert times == sorted(times)
    duration_ms = len(sentence) * 5 // 32
    assert duration_ms - 2_500 < times[-1] <= duration_ms
    # A partial keeps the lines before.
    assert [partial.text for partial in partials] == sorted((p.text for p in partials), key=len)
    # The tiny model begins anew in each line. Where its sentence starts again, a line began: in a pause.
    anew = [
        word.start_ms
        for before, word in zip(heard.words, heard.words[1:], strict=False)
        if word.text == "what" and before.text != "pin"
    ]
    assert anew
    assert all(start_ms % (len(sentence) // 32) >= len(voice) // 32 - 100 for start_ms in anew)


def test_a_line_without_a_pause_is_cut_all_the_same(models_dir: Path) -> None:
    stream = engine_of(models_dir, max_line_ms=3_000).open_stream()
    stream.start()
    # A tone is no voice, so the line that would begin with it is not decoded.
    play(stream, say("what is your pin") + tone(6_000))
    words = stream.finish().words
    assert 2_000 <= words[-1].end_ms <= 3_400


def test_noise_alone_is_not_decoded_and_not_kept(models_dir: Path) -> None:
    stream = engine_of(models_dir).open_stream()
    stream.start()
    # The tiny model would write words for a tone.
    assert play(stream, tone(3_000)) == []
    assert stream.finish() == Transcript("", (), 0.0, final=True)
    stream.start()
    play(stream, tone(3_000))
    play(stream, SPEECH)
    words = stream.finish().words
    # One second of it stays before the voice: the times count from the start of the utterance.
    assert 1_900 <= words[0].start_ms <= 3_500


def test_noise_after_a_line_is_not_decoded(models_dir: Path) -> None:
    stream = engine_of(models_dir, max_line_ms=3_000).open_stream()
    stream.start()
    play(stream, SPEECH + silence(600) + tone(3_000))
    words = stream.finish().words
    assert words
    assert words[-1].end_ms <= len(SPEECH) // 32 + 600


def test_callers_who_speak_at_once_get_the_text_that_they_get_alone(models_dir: Path) -> None:
    engine = engine_of(models_dir, partial_interval_ms=100)
    long, short = SPEECH, silence(200) + say("no") + silence(200)
    alone = [understand(engine.open_stream(), pcm).text for pcm in (long, short)]
    heard: dict[int, str] = {}

    def call(number: int) -> None:
        heard[number] = understand(engine.open_stream(), (long, short)[number % 2]).text

    threads = [threading.Thread(target=call, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [heard[number] for number in range(6)] == alone * 3


def test_turns_of_two_callers_may_be_taken_in_any_order(models_dir: Path) -> None:
    engine = engine_of(models_dir, partial_interval_ms=100)
    answer = silence(200) + say("what is your pin") + silence(600) + say("no") + silence(400)
    others = say("this is somebody else who speaks all the time and does not stop", "awb")
    alone = understand(engine.open_stream(), answer)
    one, other = engine.open_stream(), engine.open_stream()
    one.start()
    other.start()
    for at in range(0, len(answer), 640):
        one.feed(answer[at : at + 640])
        other.feed(others[at : at + 640])
    assert one.finish() == alone
    other.close()


def test_streams_are_freed_whatever_ends_them(models_dir: Path) -> None:
    engine = engine_of(models_dir)
    for end in ("finish", "discard", "close", "start"):
        stream = engine.open_stream()
        stream.start()
        stream.feed(SPEECH)
        getattr(stream, end)()
        stream.close()
        stream.close()
    assert engine.speakers == 0


@pytest.fixture
def thread_variable(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("MOONSHINE_ORT_SINGLE_THREAD", raising=False)
    yield


def test_one_thread_is_one_thread_and_leaves_no_trace(models_dir: Path, thread_variable: None) -> None:
    before = set(os.listdir("/proc/self/task"))
    one = engine_of(models_dir, single_thread=True)
    assert understand(one.open_stream(), SPEECH).text
    assert len(set(os.listdir("/proc/self/task")) - before) <= 1
    assert "MOONSHINE_ORT_SINGLE_THREAD" not in os.environ


async def test_the_engine_works_in_a_process_of_its_own(models_dir: Path) -> None:
    settings = MoonshineSettings(models_dir=models_dir)
    final = await understood_in_a_child("parley.models.stt.moonshine:MoonshineStt", settings, SPEECH)
    assert final.final
    assert final.words[-1].end_ms <= len(SPEECH) // 32
