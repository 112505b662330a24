"""Contract of speech-to-text engines (``models.stt``).

The tests need no recognition of particular words: an engine with random weights passes them.
"""

import threading
from collections.abc import Iterator

import pytest

from parley.contracts.speech import PIECE_BYTES, play, question, silence, understand
from parley.core.errors import EngineError, ShapeError
from parley.core.media import samples_to_ms
from parley.models.stt import SpeechStream, SpeechToText, Transcript

QUESTION = question()


class SpeechToTextContract:
    """Tests of a recogniser; needs a fixture ``engine``."""

    @pytest.fixture
    def stream(self, engine: SpeechToText) -> Iterator[SpeechStream]:
        opened = engine.open_stream()
        yield opened
        opened.close()

    def test_silence_is_an_empty_final_transcript(self, stream: SpeechStream) -> None:
        assert understand(stream, silence(600)) == Transcript("", (), 0.0, final=True)

    def test_an_utterance_without_audio_is_empty(self, stream: SpeechStream) -> None:
        stream.start()
        assert stream.finish().text == ""

    def test_speech_becomes_words_with_times_and_confidence(self, stream: SpeechStream) -> None:
        heard = understand(stream, QUESTION)
        assert heard.final
        assert heard.text == " ".join(word.text for word in heard.words) != ""
        assert heard.text == heard.text.lower()
        assert 0.0 < heard.confidence <= 1.0
        assert all(0.0 <= word.confidence <= 1.0 for word in heard.words)

    def test_word_times_follow_each_other_inside_the_utterance(self, stream: SpeechStream) -> None:
        words = understand(stream, QUESTION).words
        times = [time for word in words for time in (word.start_ms, word.end_ms)]
        assert times == sorted(times)
        assert all(word.start_ms < word.end_ms for word in words)
        assert times[-1] <= samples_to_ms(len(QUESTION) // 2, 16_000)

    def test_no_marks_of_the_engine_are_in_the_text(self, stream: SpeechStream) -> None:
        stream.start()
        texts = [partial.text for partial in play(stream, QUESTION + silence(800) + QUESTION)]
        texts.append(stream.finish().text)
        assert not any(mark in text for text in texts for mark in "<>[]()+")

    def test_partials_come_while_speaking_and_only_when_the_text_changed(self, stream: SpeechStream) -> None:
        stream.start()
        partials = play(stream, QUESTION)
        assert partials
        assert not any(partial.final for partial in partials)
        assert all(before.text != after.text for before, after in zip(partials, partials[1:], strict=False))

    def test_the_piece_size_does_not_change_what_is_heard(self, engine: SpeechToText) -> None:
        small, large = engine.open_stream(), engine.open_stream()
        assert understand(small, QUESTION, 320).text == understand(large, QUESTION, 3_200).text

    def test_audio_outside_an_utterance_is_an_error(self, stream: SpeechStream) -> None:
        with pytest.raises(EngineError):
            stream.feed(silence(20))
        understand(stream, QUESTION)
        with pytest.raises(EngineError):
            stream.feed(silence(20))

    def test_finishing_twice_is_an_error(self, stream: SpeechStream) -> None:
        understand(stream, QUESTION)
        with pytest.raises(EngineError):
            stream.finish()

    def test_half_a_sample_is_refused(self, stream: SpeechStream) -> None:
        stream.start()
        with pytest.raises(ShapeError):
            stream.feed(b"\0")

    def test_discarding_is_allowed_at_any_time(self, stream: SpeechStream) -> None:
        stream.discard()
        stream.start()
        play(stream, QUESTION)
        stream.discard()
        stream.discard()
        with pytest.raises(EngineError):
            stream.finish()

    def test_a_new_start_forgets_the_open_utterance(self, stream: SpeechStream) -> None:
        stream.start()
        play(stream, QUESTION)
        assert understand(stream, silence(600)).text == ""

    def test_utterances_of_one_caller_do_not_mix(self, stream: SpeechStream) -> None:
        first = understand(stream, QUESTION)
        assert understand(stream, silence(600)).text == ""
        # An engine may adapt to the caller's channel and improve; it may not repeat itself.
        assert 0 < len(understand(stream, QUESTION).words) <= len(first.words)

    def test_callers_do_not_hear_each_other(self, engine: SpeechToText) -> None:
        alone = understand(engine.open_stream(), QUESTION)
        one, other = engine.open_stream(), engine.open_stream()
        one.start()
        other.start()
        for at in range(0, len(QUESTION), PIECE_BYTES):
            one.feed(QUESTION[at : at + PIECE_BYTES])
            other.feed(silence(20))
        assert other.finish().text == ""
        assert one.finish() == alone

    def test_streams_work_in_threads_at_the_same_time(self, engine: SpeechToText) -> None:
        alone = understand(engine.open_stream(), QUESTION)
        heard: list[Transcript] = []
        threads = [
            threading.Thread(target=lambda: heard.append(understand(engine.open_stream(), QUESTION)))
            for _ in range(3)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert heard == [alone] * 3

    def test_closing_during_an_utterance_frees_what_it_held(self, engine: SpeechToText) -> None:
        for _ in range(12):
            stream = engine.open_stream()
            stream.start()
            stream.feed(silence(20))
            stream.close()
