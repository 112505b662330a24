from typing import Any

import pytest

from parley.core.call_choices import VoiceNames
from parley.core.media import WordTime
from parley.protocols.openai_chat import CompletionRequest, completion_parts
from parley.protocols.openai_http import (
    OpenAiHttpError,
    RecordingText,
    SpeechRequest,
    TranscriptionOptions,
    captions,
    transcription_body,
    transcription_options,
)

MODELS = ("parley",)


def parts_of(*messages: dict[str, Any], **more: Any) -> Any:
    return completion_parts(CompletionRequest(model="parley", messages=messages, **more))


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def said(*words: tuple[str, int, int]) -> RecordingText:
    times = tuple(WordTime(text, start, end) for text, start, end in words)
    return RecordingText(" ".join(word.text for word in times), times, 12.0, "en")


def test_system_messages_are_the_instruction_and_the_rest_the_dialogue():
    parts = parts_of(
        {"role": "system", "content": "Be kind."},
        {"role": "developer", "content": [{"type": "text", "text": "Be brief."}]},
        user("Hi"),
        {"role": "assistant", "content": "Hello."},
        user("And?"),
    )
    assert parts.instruction == "Be kind.\n\nBe brief."
    assert [(turn.role, turn.text) for turn in parts.turns] == [
        ("user", "Hi"),
        ("assistant", "Hello."),
        ("user", "And?"),
    ]
    assert parts.is_whole


def test_a_single_message_is_the_next_one_of_a_session_with_or_without_instructions():
    assert not parts_of(user("Hi")).is_whole
    assert not parts_of({"role": "system", "content": "Be kind."}, user("Hi")).is_whole


def test_pictures_come_as_data():
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJD"}}
    parts = parts_of({"role": "user", "content": [{"type": "text", "text": "What is it?"}, picture]})
    [turn] = parts.turns
    assert turn.text == "What is it?"
    assert [(each.media_type, each.data) for each in turn.pictures] == [("image/png", "QUJD")]


@pytest.mark.parametrize(
    "url", ["https://a.example/b.png", "data:text/html;base64,QUJD", "file:///etc/passwd"]
)
def test_no_address_is_fetched_for_a_picture(url: str):
    with pytest.raises(OpenAiHttpError) as refused:
        parts_of({"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]})
    assert (refused.value.status, refused.value.code) == (400, "invalid_image_url")


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"tools": [{"type": "function"}]}, "tools[0]"),
        ({"tools": [{"type": "custom", "custom": {"name": "f"}}]}, "tools[0]"),
        ({"functions": [{"name": "f"}]}, "functions"),
        ({"modalities": ["text", "audio"]}, "modalities"),
        ({"logprobs": True}, "logprobs"),
        ({"stop": ["\n"]}, "stop"),
        ({"n": 3}, "n"),
    ],
)
def test_fields_that_would_change_the_answer_are_refused_by_name(more: dict[str, Any], param: str):
    with pytest.raises(OpenAiHttpError) as refused:
        parts_of(user("Hi"), **more)
    assert refused.value.param == param


def test_fields_without_an_effect_are_accepted():
    more = {"temperature": 0.2, "max_tokens": 5, "tools": [], "tool_choice": "auto", "modalities": ["text"]}
    assert parts_of(user("Hi"), response_format={"type": "text"}, **more).turns
    function = {"type": "function", "function": {"name": "f"}}
    assert parts_of(user("Hi"), tools=[function], tool_choice="none").offer.tools == ()


def test_the_pictures_of_a_request_are_bounded():
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJD"}}
    assert parts_of({"role": "user", "content": [picture] * 16}).turns
    with pytest.raises(OpenAiHttpError, match="16 pictures"):
        parts_of({"role": "user", "content": [picture] * 17})


def test_a_dialogue_that_ends_with_the_bot_or_nothing_is_refused():
    for messages in ([user("Hi"), {"role": "assistant", "content": "Hello."}], [user("  ")]):
        with pytest.raises(OpenAiHttpError, match="last message"):
            parts_of(*messages)


def test_the_voice_may_be_an_object():
    request = SpeechRequest(model="parley", input="Hi", voice={"id": "parley"}, response_format="opus")
    assert request.checked_format() == "opus"


def test_a_voice_may_have_the_name_of_another_providers():
    request = SpeechRequest(model="parley", input="Hi", voice="marin")
    assert request.checked_format(VoiceNames(("parley", "rms"), {"marin": "rms"})) == "mp3"
    with pytest.raises(OpenAiHttpError, match="Supported values for 'voice' are: 'parley', 'rms', 'ash'"):
        request.checked_format(VoiceNames(("parley", "rms"), {"ash": "rms"}))


def test_captions_end_at_pauses_and_when_they_get_long():
    words = [(f"w{number}", number * 500, number * 500 + 400) for number in range(20)]
    found = captions(said(*words, ("late", 20_000, 20_400)))
    assert found[-1].text == "late" and found[-1].start_ms == 20_000
    assert all(each.end_ms - each.start_ms <= 6_000 for each in found)
    assert " ".join(each.text for each in found) == said(*words, ("late", 0, 0)).text


def test_a_recogniser_without_times_has_one_caption():
    untimed = RecordingText("hello there", (), 2.5, "en")
    [caption] = captions(untimed)
    assert (caption.start_ms, caption.end_ms) == (0, 2_500)
    assert captions(RecordingText("", (), 2.5, "en")) == []


def test_subtitles_have_hours_and_their_own_points():
    late = said(("late", 3_723_045, 3_724_000))
    srt = transcription_body(late, TranscriptionOptions("srt", words=False, captions=True))
    assert srt == "1\n01:02:03,045 --> 01:02:04,000\nlate\n\n"
    vtt = transcription_body(late, TranscriptionOptions("vtt", words=False, captions=True))
    assert vtt == "WEBVTT\n\n01:02:03.045 --> 01:02:04.000\nlate\n\n"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ([], "model"),
        ([("model", "x")], "model"),
        ([("model", "parley"), ("language", "de")], "language"),
        ([("model", "parley"), ("stream", "true")], "stream"),
        ([("model", "parley"), ("response_format", "xml")], "response_format"),
        (
            [
                ("model", "parley"),
                ("response_format", "verbose_json"),
                ("timestamp_granularities[]", "letter"),
            ],
            "timestamp_granularities",
        ),
    ],
)
def test_fields_of_a_transcription_are_checked(fields: list[tuple[str, str]], param: str):
    with pytest.raises(OpenAiHttpError) as refused:
        transcription_options(fields, models=MODELS, language="en")
    assert refused.value.param == param


def test_a_region_of_the_language_is_that_language():
    options = transcription_options(
        [("model", "parley"), ("language", "en-GB")], models=MODELS, language="en"
    )
    assert options == TranscriptionOptions("json", words=False, captions=True)
