"""Random conversations through sequencer and fusion: the newest tokens contain all tags."""

from hypothesis import event, given
from hypothesis import strategies as st

from parley.core.timeline import (
    Annotation,
    DiarPayload,
    EnrichedToken,
    ProsodyPayload,
    Source,
    SpeechPayload,
    SpokenWord,
    VisionPayload,
)
from parley.sequencer.fusion import Fused, Fusion, FusionSettings
from parley.sequencer.merge import Committed, Sequencer, SequencerSettings
from parley.sequencer.operations import Advance, Heartbeat, Join, Journal, Operation, Report
from tests.unit.sequencer.scripts import UNTIMED

LATENCY_US = {"stt": 8, "prosody": 12, "vision": 20, "diar": 16}
TAGS = ("prosody", "vision", "diar")
SEQUENCER = SequencerSettings(deadline_us=60, stall_us=100)
FUSION = FusionSettings(epsilon_us=3, deadline_us=60, min_confidence=0.3)

_SPANS = st.tuples(st.integers(0, 120), st.integers(0, 40)).map(lambda pair: (pair[0], pair[0] + pair[1]))
_SPEAKERS = st.sampled_from((None, None, "ana", "ben"))
_CONFIDENCES = st.sampled_from((0.2, 0.5, 0.9))


def _speech(starts_us: list[int]) -> SpeechPayload:
    words = tuple(SpokenWord(f"w{start_us}", start_us, start_us + 9) for start_us in sorted(starts_us))
    return SpeechPayload(" ".join(word.text for word in words), words)


_SPEECH = st.lists(st.integers(0, 120), min_size=1, max_size=6).map(_speech)
_PAYLOADS = st.one_of(
    _SPEECH,
    _SPEECH,
    st.builds(lambda span, joy: ProsodyPayload(*span, joy=joy), _SPANS, st.sampled_from((0.0, 1.0))),
    st.builds(
        lambda span, ref: VisionPayload(*span, ref=ref), _SPANS, st.sampled_from(("fee", "card", None))
    ),
    st.builds(lambda span, who: DiarPayload(*span, who), _SPANS, st.sampled_from(("ana", "ben"))),
)
_STREAM_OF = {SpeechPayload: "stt", ProsodyPayload: "prosody", VisionPayload: "vision", DiarPayload: "diar"}


@st.composite
def conversations(draw: st.DrawFn) -> list[Operation[Annotation]]:
    operations: list[Operation[Annotation]] = [
        Join(name, latency_us, 0) for name, latency_us in LATENCY_US.items()
    ]
    now_us = 0
    for number, (pause_us, payload) in enumerate(
        draw(st.lists(st.tuples(st.sampled_from((0, 2, 9, 30, 120)), _PAYLOADS), min_size=10, max_size=30))
    ):
        now_us += pause_us
        stream = _STREAM_OF[type(payload)]
        for name in LATENCY_US:
            if draw(st.booleans()):
                operations.append(Heartbeat(name, now_us))
        speaker_id, confidence, final = draw(_SPEAKERS), draw(_CONFIDENCES), draw(st.booleans())
        annotation = Annotation(now_us, now_us, Source.STT, payload, speaker_id, confidence, final)
        identity = draw(st.sampled_from((None, "a", "b")))
        operations.append(Report(stream, now_us, annotation, identity=identity, revision=number, final=final))
        operations += [Advance(now_us)] * draw(st.integers(0, 1))
    return [*operations, Advance(now_us + 100), Advance(now_us + 200)]


def play(
    operations: list[Operation[Annotation]], journal: Journal[Annotation] | None = None
) -> tuple[list[Committed[Annotation]], list[Fused], list[Operation[Annotation]]]:
    sequencer: Sequencer[Annotation] = Sequencer(SEQUENCER)
    fusion = Fusion(FUSION)
    all_committed: list[Committed[Annotation]] = []
    all_fused: list[Fused] = []
    stored: list[Operation[Annotation]] = []
    for operation in operations:
        committed = sequencer.apply(operation)
        fused: list[Fused] = []
        if isinstance(operation, Advance):
            now_us = operation.now_us
            passed_us = sequencer.passed_us(TAGS, now_us)
            fused = fusion.advance(committed, now_us=now_us, passed_us=passed_us)
        all_committed += committed
        all_fused += fused
        if journal is not None:
            stored += journal.record(operation, yielded=bool(committed or fused))
    assert fusion.waiting == 0
    return all_committed, all_fused, stored


def expected(words: Committed[Annotation], tags: list[Committed[Annotation]]) -> tuple[EnrichedToken, ...]:
    """Return one token for each word, from the rules alone."""
    speech = words.payload.payload
    assert isinstance(speech, SpeechPayload)

    def best(kind: type, word: SpokenWord, speaker_id: str | None):
        found = []
        for tag in tags:
            payload = tag.payload.payload
            if type(payload) is not kind or tag.payload.confidence < FUSION.min_confidence:
                continue
            if speaker_id and tag.payload.speaker_id and tag.payload.speaker_id != speaker_id:
                continue
            together = range(
                max(payload.start_us, word.start_us - 3), min(payload.end_us, word.end_us + 3) + 1
            )
            if together:
                names = getattr(payload, "ref", None) is not None
                rank = (names, len(together), tag.payload.confidence, tag.payload.final, tag.seq)
                found.append((rank, payload))
        return max(found, key=lambda each: each[0])[1] if found else None

    tokens = []
    for word in speech.words:
        speaker_id = words.payload.speaker_id
        if speaker_id is None:
            voice = best(DiarPayload, word, None)
            speaker_id = voice.speaker_id if voice else None
        tokens.append(
            EnrichedToken(
                word.start_us,
                word.text,
                speaker_id,
                best(ProsodyPayload, word, speaker_id),
                best(VisionPayload, word, speaker_id),
            )
        )
    return tuple(tokens)


def apart(tokens: tuple[EnrichedToken, ...]) -> list[tuple[str, object, object, object]]:
    """Return the words of joined tokens with the tags of each."""
    return [
        (word, token.speaker_id, token.prosody, token.visual)
        for token in tokens
        for word in token.text.split()
    ]


@UNTIMED
@given(conversations())
def test_the_newest_tokens_say_what_the_newest_tags_say(operations: list[Operation[Annotation]]) -> None:
    committed, fused, _ = play(operations)
    newest = {one.statement: one for one in committed}
    tags = [one for one in newest.values() if not isinstance(one.payload.payload, SpeechPayload)]
    spoken = [one for one in newest.values() if isinstance(one.payload.payload, SpeechPayload)]
    tokens = {one.statement: one.tokens for one in fused}
    assert set(tokens) == {one.statement for one in spoken}
    for one in spoken:
        assert apart(tokens[one.statement]) == apart(expected(one, tags))
    for one in fused:
        event("superseded" if one.supersedes else "first")


@UNTIMED
@given(conversations())
def test_the_first_of_a_statement_supersedes_nothing_and_all_others_do(
    operations: list[Operation[Annotation]],
) -> None:
    _, fused, _ = play(operations)
    seen: set[int] = set()
    for number, one in enumerate(fused):
        assert one.number == number
        assert one.supersedes is (one.statement in seen)
        seen.add(one.statement)


@UNTIMED
@given(conversations())
def test_neighbours_of_which_the_same_is_told_are_one_token(operations: list[Operation[Annotation]]) -> None:
    _, fused, _ = play(operations)
    for one in fused:
        for left, right in zip(one.tokens, one.tokens[1:], strict=False):
            received = [(token.speaker_id, token.prosody, token.visual) for token in (left, right)]
            assert received[0] != received[1]


@UNTIMED
@given(conversations())
def test_a_stored_conversation_played_back_gives_the_same_tokens(
    operations: list[Operation[Annotation]],
) -> None:
    committed, fused, stored = play(operations, Journal())
    assert play(stored)[:2] == (committed, fused)
