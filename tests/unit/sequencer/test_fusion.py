"""Annotations that are bundled with the words."""

from parley.core.timeline import (
    Annotation,
    DiarPayload,
    EnrichedToken,
    Payload,
    ProsodyPayload,
    Source,
    SpeechPayload,
    SpokenWord,
    TextPayload,
    VisionPayload,
)
from parley.sequencer.fusion import Fused, Fusion, FusionSettings
from parley.sequencer.merge import Committed, Sequencer
from parley.sequencer.rendering import render

SOURCES: dict[type, Source] = {
    SpeechPayload: Source.STT,
    TextPayload: Source.TEXT,
    ProsodyPayload: Source.PROSODY,
    VisionPayload: Source.VISION,
    DiarPayload: Source.DIAR,
}
SETTINGS = FusionSettings(epsilon_us=100_000, deadline_us=500_000)
WORDS = (
    SpokenWord("this", 1_000_000, 1_200_000),
    SpokenWord("is", 1_200_000, 1_300_000),
    SpokenWord("fine", 1_300_000, 1_700_000),
)
SAID = SpeechPayload("this is fine", WORDS)
TENSE = ProsodyPayload(1_000_000, 1_700_000, stress=0.9)
AT_THE_FEE = VisionPayload(1_310_000, 1_900_000, ref="the fee", gesture="pointing")


class Timeline:
    """Committed annotations in sequence, which a fusion receives."""

    def __init__(self, settings: FusionSettings = SETTINGS) -> None:
        self.fusion = Fusion(settings)
        self.seq = 0
        self.pending: list[Committed[Annotation]] = []

    def put(
        self,
        payload: Payload,
        *,
        revises: int | None = None,
        event_us: int = 1_700_000,
        speaker_id: str | None = None,
        confidence: float = 1.0,
        final: bool = True,
    ) -> int:
        annotation = Annotation(
            event_us, event_us + 80_000, SOURCES[type(payload)], payload, speaker_id, confidence, final
        )
        statement = self.seq if revises is None else revises
        self.pending.append(
            Committed(
                self.seq, statement, "s", event_us, event_us + 80_000, annotation, None, 0, final, False
            )
        )
        self.seq += 1
        return statement

    def at(self, now_us: int, passed_us: int | None) -> list[Fused]:
        committed, self.pending = self.pending, []
        return self.fusion.advance(committed, now_us=now_us, passed_us=passed_us)

    def tokens(self, passed_us: int | None = 10_000_000) -> tuple[EnrichedToken, ...]:
        (fused,) = self.at(1_800_000, passed_us)
        return fused.tokens


def test_words_said_tensely_while_pointing_are_one_story():
    timeline = Timeline()
    timeline.put(TENSE)
    timeline.put(AT_THE_FEE)
    timeline.put(SAID, speaker_id="ana")
    assert timeline.tokens() == (
        EnrichedToken(1_000_000, "this", "ana", TENSE, None),
        EnrichedToken(1_200_000, "is fine", "ana", TENSE, AT_THE_FEE),
    )


def test_a_token_states_a_confidence_of_its_mood_below_one():
    timeline = Timeline()
    timeline.put(TENSE, confidence=0.6)
    timeline.put(SAID, speaker_id="ana")
    (token,) = timeline.tokens()
    assert token.prosody == TENSE and token.mood_confidence == 0.6
    assert render([token]) == "this is fine [seems tense]"


def test_words_without_specialists_are_one_token_at_once():
    timeline = Timeline()
    timeline.put(SAID)
    assert timeline.at(1_780_000, None) == [
        Fused(0, 0, (EnrichedToken(1_000_000, "this is fine"),), final=True, supersedes=False)
    ]


def test_words_wait_until_the_specialists_have_passed_their_end():
    timeline = Timeline()
    timeline.put(SAID)
    assert timeline.at(1_780_000, 1_699_999) == []
    assert timeline.fusion.waiting == 1
    assert len(timeline.at(1_790_000, 1_700_000)) == 1


def test_words_wait_no_longer_than_their_deadline():
    timeline = Timeline()
    timeline.put(SAID)
    assert timeline.at(2_279_999, 0) == []
    assert len(timeline.at(2_280_000, 0)) == 1


def test_a_missing_specialist_costs_its_own_field_only():
    timeline = Timeline()
    timeline.put(TENSE)
    timeline.put(SAID)
    assert timeline.tokens() == (EnrichedToken(1_000_000, "this is fine", None, TENSE, None),)


def test_epsilon_widens_a_word_on_both_sides():
    for start_us, end_us, belongs in (
        (800_000, 900_000, True),
        (800_000, 899_999, False),
        (1_800_000, 1_900_000, True),
        (1_800_001, 1_900_000, False),
    ):
        timeline = Timeline()
        timeline.put(VisionPayload(start_us, end_us, gesture="nodding"))
        timeline.put(SAID)
        assert any(token.visual is not None for token in timeline.tokens()) is belongs


def test_the_most_overlapping_tag_counts():
    timeline = Timeline()
    shorter = ProsodyPayload(1_250_000, 1_400_000, anger=0.9)
    timeline.put(shorter, confidence=1.0)
    timeline.put(TENSE, confidence=0.5)
    timeline.put(SpeechPayload("fine", WORDS[2:]))
    assert timeline.tokens()[0].prosody == TENSE


def test_what_is_pointed_at_counts_more_than_where_a_finger_points():
    timeline = Timeline()
    # From a specialist that knows no objects: it overlaps more, and is as sure.
    timeline.put(VisionPayload(900_000, 9_000_000, gesture="pointing to the left of the picture"))
    timeline.put(VisionPayload(1_250_000, 1_250_000, ref="the fee", gesture="pointing"))
    timeline.put(SAID)
    seen = {word: token.visual for token in timeline.tokens() for word in token.text.split()}
    assert seen["is"] is not None and seen["is"].ref == "the fee"
    assert seen["fine"] is not None and seen["fine"].ref == "the fee"


def test_of_equally_overlapping_tags_the_surest_counts_then_the_final_then_the_newest():
    calm = ProsodyPayload(1_000_000, 1_700_000, stress=0.1)
    glad = ProsodyPayload(1_000_000, 1_700_000, joy=0.9)
    for first, second, expected in (
        ({"confidence": 0.9}, {"confidence": 0.8}, calm),
        ({"confidence": 0.8}, {"confidence": 0.9, "final": False}, glad),
        ({"final": True}, {"final": False}, calm),
        ({"final": False}, {"final": False}, glad),
    ):
        timeline = Timeline()
        timeline.put(calm, **first)
        timeline.put(glad, **second)
        timeline.put(SAID)
        assert timeline.tokens()[0].prosody == expected


def test_a_tag_that_is_hardly_sure_is_not_taken():
    timeline = Timeline()
    timeline.put(TENSE, confidence=0.29)
    timeline.put(SAID)
    assert timeline.tokens() == (EnrichedToken(1_000_000, "this is fine"),)


def test_diarization_names_the_speaker_of_each_word():
    timeline = Timeline()
    timeline.put(DiarPayload(900_000, 1_290_000, "ana"))
    timeline.put(DiarPayload(1_310_000, 1_800_000, "ben"))
    timeline.put(SAID)
    assert [(token.speaker_id, token.text) for token in timeline.tokens()] == [
        ("ana", "this is"),
        ("ben", "fine"),
    ]


def test_what_the_recogniser_says_about_the_speaker_counts_before_diarization():
    timeline = Timeline()
    timeline.put(DiarPayload(900_000, 1_800_000, "ben"))
    timeline.put(SAID, speaker_id="ana")
    assert timeline.tokens()[0].speaker_id == "ana"


def test_words_over_which_another_person_speaks_name_both():
    timeline = Timeline()
    timeline.put(DiarPayload(900_000, 1_150_000, "ana"))
    timeline.put(DiarPayload(1_400_000, 1_800_000, "ana", also="ben"))
    timeline.put(SAID)
    assert timeline.tokens() == (
        EnrichedToken(1_000_000, "this is", "ana"),
        EnrichedToken(1_300_000, "fine", "ana", also="ben"),
    )


def test_another_speakers_tone_and_gesture_are_not_taken():
    timeline = Timeline()
    timeline.put(TENSE, speaker_id="ben")
    timeline.put(AT_THE_FEE, speaker_id="ana")
    timeline.put(SpeechPayload("fine", WORDS[2:]), speaker_id="ana")
    assert timeline.tokens() == (EnrichedToken(1_300_000, "fine", "ana", None, AT_THE_FEE),)


def test_typed_text_is_one_token_at_once_and_takes_no_tags():
    timeline = Timeline()
    timeline.put(TENSE)
    timeline.put(TextPayload("this is fine"), event_us=1_500_000, speaker_id="ana")
    assert timeline.tokens(passed_us=0) == (EnrichedToken(1_500_000, "this is fine", "ana"),)
    timeline.put(AT_THE_FEE)
    assert timeline.at(1_900_000, 0) == []


def test_words_without_times_take_what_was_there_when_they_were_said():
    timeline = Timeline()
    timeline.put(TENSE)
    timeline.put(SpeechPayload("this is fine"), event_us=1_750_000)
    assert timeline.tokens() == (EnrichedToken(1_750_000, "this is fine", None, TENSE),)


def test_a_late_tag_gives_all_tokens_of_the_words_anew():
    timeline = Timeline()
    timeline.put(SAID)
    (early,) = timeline.at(2_280_000, 0)
    timeline.put(AT_THE_FEE)
    (anew,) = timeline.at(2_400_000, 2_000_000)
    assert (early.supersedes, anew.supersedes, anew.statement) == (False, True, early.statement)
    assert anew.number == early.number + 1
    assert anew.tokens == (
        EnrichedToken(1_000_000, "this"),
        EnrichedToken(1_200_000, "is fine", None, None, AT_THE_FEE),
    )


def test_a_late_tag_that_changes_nothing_gives_nothing():
    timeline = Timeline()
    timeline.put(TENSE)
    timeline.put(SAID)
    timeline.tokens()
    timeline.put(ProsodyPayload(1_000_000, 1_700_000, stress=0.2), confidence=0.5)
    timeline.put(VisionPayload(3_000_000, 3_500_000, gesture="nodding"))
    assert timeline.at(2_400_000, 2_000_000) == []


def test_a_revised_tag_takes_the_place_of_the_old_one_also_where_it_no_longer_reaches():
    timeline = Timeline()
    tag = timeline.put(AT_THE_FEE, final=False)
    timeline.put(SAID)
    assert len(timeline.tokens()) == 2
    timeline.put(VisionPayload(2_500_000, 2_600_000, gesture="waving"), revises=tag)
    (anew,) = timeline.at(2_600_000, 2_600_000)
    assert anew.tokens == (EnrichedToken(1_000_000, "this is fine"),)


def test_revised_words_take_the_place_of_the_partial():
    timeline = Timeline()
    partial = timeline.put(SpeechPayload("this", WORDS[:1]), final=False)
    (first,) = timeline.at(1_700_000, None)
    timeline.put(SAID, revises=partial)
    (second,) = timeline.at(1_800_000, None)
    assert (first.final, second.final) == (False, True)
    assert (second.statement, second.supersedes) == (first.statement, True)
    assert [token.text for token in second.tokens] == ["this is fine"]


def test_words_that_are_taken_back_leave_no_token():
    timeline = Timeline()
    partial = timeline.put(SpeechPayload("uh", WORDS[:1]), final=False)
    timeline.tokens()
    timeline.put(SpeechPayload(""), revises=partial)
    (taken_back,) = timeline.at(1_900_000, 0)
    assert (taken_back.tokens, taken_back.supersedes) == ((), True)


def test_a_revision_of_words_that_wait_keeps_their_deadline():
    timeline = Timeline()
    partial = timeline.put(SpeechPayload("this", WORDS[:1]), event_us=1_200_000, final=False)
    assert timeline.at(1_300_000, 0) == []
    timeline.put(SAID, revises=partial)
    assert timeline.at(1_779_999, 0) == []
    (only,) = timeline.at(1_780_000, 0)
    assert (only.supersedes, only.tokens[0].text) == (False, "this is fine")


def test_a_late_tag_does_not_revise_words_whose_next_revision_waits():
    timeline = Timeline()
    partial = timeline.put(SpeechPayload("this", WORDS[:1]), final=False)
    timeline.at(1_800_000, None)
    timeline.put(SAID, revises=partial)
    timeline.put(TENSE)
    assert timeline.at(1_800_000, 0) == []
    (only,) = timeline.at(1_900_000, 2_000_000)
    assert only.tokens == (EnrichedToken(1_000_000, "this is fine", None, TENSE),)


def test_tokens_come_out_in_the_order_of_the_timeline():
    timeline = Timeline()
    timeline.put(SAID, event_us=1_700_000)
    timeline.put(TextPayload("typed"), event_us=1_720_000)
    assert timeline.at(1_800_000, 0) == []
    assert [fused.statement for fused in timeline.at(1_900_000, 1_900_000)] == [0, 1]


def test_who_is_overdue_takes_along_who_is_before_it():
    timeline = Timeline()
    # The first words arrived later than the second ones.
    timeline.put(SAID, event_us=1_900_000)
    timeline.put(SAID, event_us=1_700_000)
    assert timeline.at(2_279_999, 0) == []
    assert [fused.statement for fused in timeline.at(2_280_000, 0)] == [0, 1]


def test_only_the_last_tags_are_known_to_words():
    timeline = Timeline(FusionSettings(remembered_tags=2))
    timeline.put(TENSE)
    for start_us in (5_000_000, 6_000_000):
        timeline.put(ProsodyPayload(start_us, start_us + 1, joy=1.0))
    timeline.put(SAID)
    assert timeline.tokens()[0].prosody is None


def test_only_the_last_statements_are_changed_by_late_tags():
    timeline = Timeline(FusionSettings(remembered_statements=1))
    timeline.put(SAID)
    timeline.put(SpeechPayload("fine", WORDS[2:]))
    timeline.at(1_900_000, None)
    timeline.put(TENSE)
    assert [fused.statement for fused in timeline.at(2_000_000, None)] == [1]


def test_through_the_sequencer_a_tag_that_ends_after_its_words_supersedes_them():
    sequencer: Sequencer[Annotation] = Sequencer()
    fusion = Fusion(SETTINGS)
    latencies_us = {"stt": 80_000, "prosody": 120_000, "vision": 200_000}
    for name, latency_us in latencies_us.items():
        sequencer.join(name, latency_us=latency_us, at_us=0)
    reports: list[tuple[str, Payload]] = [("stt", SAID), ("prosody", TENSE), ("vision", AT_THE_FEE)]
    arrivals = {
        # The event time of a report is the end of the reported span.
        end_us + latencies_us[name]: (name, payload)
        for (name, payload), end_us in zip(reports, (1_700_000, 1_700_000, 1_900_000), strict=True)
    }
    out: list[tuple[int, Fused]] = []
    for now_us in range(10_000, 3_000_000, 10_000):
        for name in latencies_us:
            sequencer.heartbeat(name, now_us)
        if now_us in arrivals:
            name, payload = arrivals[now_us]
            event_us = now_us - latencies_us[name]
            sequencer.report(name, now_us, Annotation(event_us, now_us, SOURCES[type(payload)], payload))
        committed = sequencer.advance(now_us)
        passed_us = sequencer.passed_us(["prosody", "vision"], now_us)
        out += [(now_us, fused) for fused in fusion.advance(committed, now_us=now_us, passed_us=passed_us)]
    # Vision passes 1.7 s (the last word's end) at 1.9 s; its own report comes at 2.1 s.
    (first_us, first), (second_us, second) = out
    assert (first_us, [token.visual for token in first.tokens]) == (1_900_000, [None])
    assert second_us == 2_100_000
    assert [(token.text, token.prosody, token.visual) for token in second.tokens] == [
        ("this", TENSE, None),
        ("is fine", TENSE, AT_THE_FEE),
    ]
