import pytest

from parley.language.english.identification import language_of
from parley.models.llm.intelligible import Intelligible, TurnKind
from parley.models.retrieval.minilm import MiniLm
from tests.processor_deadline import processor_deadline

DOCUMENTS = ("Opening hours. Branches are open until five on weekdays.", "The Kestrel pump has three modes.")


@pytest.fixture(scope="module")
def judge() -> Intelligible:
    return Intelligible(DOCUMENTS, MiniLm().known_words)


@pytest.mark.parametrize(
    "text",
    [
        "asdf jkl qwert zxcvb",
        "blorp fnarg wibblequx",
        "uhhh hmmmm ehh",
        "la la la la",
        "blah blah blah",
        "na na hey na na hey na na",
        "the the the the",
        "x" * 5_000,
        "hnnnnngggggggggggggggggggggggggggggggggggg",
        "...",
        "",
        "4 8 15 16 23 42",
    ],
)
def test_noise_is_no_question(judge: Intelligible, text: str) -> None:
    assert judge.judge(text) is TurnKind.NOISE


@pytest.mark.parametrize(
    "text",
    [
        "¿Cuándo abre la sucursal?",
        "Wann öffnet die Filiale am Samstag?",
        "wo ist die nächste filiale",
        "À quelle heure ouvrez-vous le samedi ?",
        "A che ora aprite il sabato e quanto costa?",
        "Quando é que o banco abre?",
        "Hoe laat gaat het kantoor open?",
        "O której otwieracie i jak się nazywa?",
        "När öppnar ni på lördag och hur mycket kostar det?",
        "Когда вы открываетесь?",
        "営業時間は何時ですか",
        "متى تفتحون",
    ],
)
def test_another_language_is_recognised(judge: Intelligible, text: str) -> None:
    assert judge.judge(text) is TurnKind.FOREIGN


@pytest.mark.parametrize(
    "text",
    [
        "What time do you open?",
        "how heavy is the kestrel",
        "I lost my card, what should I do?",
        "is the café open",
        "do you speak Spanish",
        "no",
        "me too",
        "opening hours",
        "can i come on a sunday per chance",
        "What is E05?",
        "my naïve résumé is in the safe",
        "payslips and overdrafts",
    ],
)
def test_a_question_is_one(judge: Intelligible, text: str) -> None:
    assert judge.judge(text) is TurnKind.QUESTION


def test_the_language_of_the_documents_is_answered_in() -> None:
    german = Intelligible(
        ["Die Filiale ist nicht am Sonntag und nicht am Montag auf.", "Der Preis ist hoch."]
    )
    assert german.language == "German"
    assert german.judge("Wann ist die Filiale auf und wie viel kostet das?") is TurnKind.QUESTION
    assert german.judge("When is the branch open and how much is it?") is TurnKind.FOREIGN


def test_a_name_of_the_documents_is_no_other_language() -> None:
    shop = Intelligible(["The Casa della Pasta is open on Sundays.", "The pasta is good."])
    assert shop.judge("casa della pasta") is TurnKind.QUESTION


def test_one_word_says_nothing_of_a_language() -> None:
    assert language_of("opening") is None
    assert language_of("") is None


@pytest.mark.parametrize("text", ["la " * 30_000, "é" * 80_000, "a'" * 40_000, "ing" * 30_000, "卡" * 80_000])
def test_a_long_turn_is_judged_in_linear_time(judge: Intelligible, text: str) -> None:
    with processor_deadline():
        judge.judge(text)
