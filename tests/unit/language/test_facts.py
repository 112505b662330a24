import pytest

from parley.language.english.facts import asks, extract_facts, find_fact, intent, statements
from parley.language.english.spoken_digits import spoken_digits


@pytest.mark.parametrize(
    ("said", "facts"),
    [
        ("My name is Ada.", {"name": "Ada"}),
        ("hello my name is ada lovelace and i have a question", {"name": "Ada Lovelace"}),
        ("my name's Jean-Luc Picard from the Enterprise", {"name": "Jean-Luc Picard"}),
        ("my name is a d a", {"name": "Ada"}),
        ("Hi, I'm Ada.", {"name": "Ada"}),
        ("this is Ada speaking", {"name": "Ada"}),
        ("You can call me Al.", {"name": "Al"}),
        ("Ada is my name", {"name": "Ada"}),
        ("My account number is 4 1 7 2.", {"account number": "4172"}),
        ("my account number is four one seven two please", {"account number": "4172"}),
        ("my account number is, um, forty one seventy two", {"account number": "4172"}),
        ("4172 is my account number", {"account number": "4172"}),
        ("the account number is 4172", {"account number": "4172"}),
        ("my phone number is double five one oh three", {"phone number": "55103"}),
        ("My phone number is +49 (30) 123-4567.", {"phone number": "+49301234567"}),
        ("my order number is AB 12 34", {"order number": "AB1234"}),
        ("my email is ada dot l at example dot com", {"email": "ada.l@example.com"}),
        ("I live in Berlin.", {"home": "Berlin"}),
        ("i live in new york and i want to close my account", {"home": "New York"}),
        ("i am forty two years old", {"age": "42"}),
        ("I work for Acme.", {"work": "for Acme"}),
        ("My address is 12 Main Street, Springfield.", {"address": "12 Main Street, Springfield"}),
        ("my favourite colour is blue", {"favourite colour": "blue"}),
        ("my dog is called rex", {"dog": "Rex"}),
        ("my wife's name is Eva", {"wife's name": "Eva"}),
        ("my appointment is on friday", {"appointment": "on friday"}),
        ("my budget is five hundred dollars", {"budget": "five hundred dollars"}),
        ("call me back at five", {"call back": "at five"}),
        ("Could you call me back tomorrow at five?", {"call back": "tomorrow at five"}),
        ("please call me tomorrow", {"call back": "tomorrow"}),
        ("Remember that I am allergic to nuts.", {"note": "I am allergic to nuts"}),
        ("Can you remember that my pin is 1234?", {"pin": "1234"}),
        ("remember to buy milk", {"note": "to buy milk"}),
        ("my name is ada i live in berlin", {"name": "Ada", "home": "Berlin"}),
        ("my name is Eda. No, my name is Ada.", {"name": "Ada"}),
        ("I said my name is Ada", {"name": "Ada"}),
    ],
)
def test_what_is_stated_is_found(said: str, facts: dict[str, str]) -> None:
    assert {statement.name: statement.value for statement in statements(said)} == facts


@pytest.mark.parametrize(
    "said",
    [
        "what is my name",
        "What is my account number?",
        "is my name Ada",
        "my name is Ada?",
        "do you know that my name is ada",
        "do you remember my name",
        "tell me what my account number is",
        "if my name is Ada then what",
        "what happens when my account number is 4172",
        "he said my name is Ada",
        "my name is not important",
        "my name is on the card",
        "my account number is wrong",
        "my card is stolen",
        "my card is not working",
        "my account is overdrawn",
        "my question is what a wire costs",
        "my microphone does not work",
        "I'm lost",
        "I'm French.",
        "I am from here",
        "that is my card",
        "call me",
        "thank you",
        "",
        "?!",
    ],
)
def test_questions_and_troubles_state_nothing(said: str) -> None:
    assert statements(said) == ()


def test_a_state_of_someone_else_is_not_sure() -> None:
    assert [s.sure for s in statements("my dog is sick")] == [False]
    assert [s.sure for s in statements("my dog is Rex")] == [True]


@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        ("I'm calling about a lost card.", "a lost card"),
        ("hello i'm calling about a lost card", "a lost card"),
        ("I'm calling because I lost my card", "because I lost my card"),
        ("I want to close my account please", "to close my account"),
        ("I have a question about wire fees", "wire fees"),
        ("I was calling to change my address", "to change my address"),
        ("I need help with my pin", "my pin"),
        ("It's about my mortgage", "my mortgage"),
        ("I would like to know what a wire costs", None),
        ("I want to ask you something", None),
        ("What is it about?", None),
        ("I am about to leave", None),
    ],
)
def test_what_the_person_wants_is_found(said: str, wanted: str | None) -> None:
    assert intent(said) == wanted


@pytest.mark.parametrize(
    ("said", "changed"),
    [
        ("No, it's 4173.", {"account number": "4173"}),
        ("no four one seven three", {"account number": "4173"}),
        ("sorry, I meant 4173", {"account number": "4173"}),
        ("not 4172, 4173", {"account number": "4173"}),
        ("no it's Ada", {"name": "Ada"}),
        ("that's wrong, it's Ada", {"name": "Ada"}),
        ("it's Ada, not Eda", {"name": "Ada"}),
        ("it's not eda it's ada", {"name": "Ada"}),
        ("No, my name is Ada.", {"name": "Ada"}),
        ("no thanks", {}),
        ("no it's fine", {}),
        ("no", {}),
        ("no it is not", {}),
        ("actually it's about my card", {}),
        ("no i meant the savings account", {}),
        ("no, is it 4173?", {}),
    ],
)
def test_a_correction_changes_what_it_fits(said: str, changed: dict[str, str]) -> None:
    facts = {"name": "Eda", "account number": "4172"}
    assert dict(extract_facts(said, facts, ("account number", "name")).facts) == changed


def test_what_was_said_long_ago_is_not_corrected_by_the_way() -> None:
    assert not extract_facts("no it's Ada", {"name": "Eda"}, ()).facts


def test_notes_are_kept_alongside_each_other() -> None:
    facts = dict(extract_facts("remember that I drink tea", {}).facts)
    facts |= extract_facts("remember that I like rain", facts).facts
    assert facts == {"note": "I drink tea", "note 2": "I like rain"}
    assert not extract_facts("remember that I drink tea", facts).facts


def test_the_rest_is_what_was_said_besides() -> None:
    found = extract_facts("my name is Ada and my card was stolen", {})
    assert (dict(found.facts), found.rest, found.sure) == ({"name": "Ada"}, "and my card was stolen", True)


@pytest.mark.parametrize(
    "said", ["What is it?", "i live in berlin can i open an account", "and how much is it"]
)
def test_questions_are_known(said: str) -> None:
    assert asks(said)


@pytest.mark.parametrize(
    "said", ["My name is Ada.", "can you remember that my pin is 1234?", "call me back at five"]
)
def test_requests_to_remember_are_no_questions(said: str) -> None:
    assert not asks(said)


@pytest.mark.parametrize(
    ("words", "digits"),
    [
        ("four one seven two", "4172"),
        ("forty-one seventy two please", "4172"),
        ("triple seven oh", "7770"),
        ("nineteen eighty", "1980"),
        ("4 1 72", "4172"),
        ("five hundred", ""),
        ("hello", ""),
    ],
)
def test_digits_are_put_together(words: str, digits: str) -> None:
    assert spoken_digits(words.split())[0] == digits


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("telephone number", "phone number"),
        ("favorite color", "favourite colour"),
        ("account", "account number"),
        ("full name", "name"),
        ("number", None),
        ("shoe size", None),
        ("note", None),
    ],
)
def test_a_fact_is_found_under_what_people_call_it(asked: str, found: str | None) -> None:
    names = ("name", "account number", "phone number", "favourite colour", "note")
    assert find_fact(names, asked) == found


def test_a_long_paste_is_read_at_its_beginning_only() -> None:
    pages = "This is a page of text. " * 1_000
    assert dict(extract_facts(f"My name is Ada. {pages} My age is 42.", {}).facts) == {"name": "Ada"}


@pytest.mark.parametrize("piece", ["my ", "my name is ", "not it's ", "and ", "i want to ", "no, "])
def test_repetition_is_no_statement(piece: str) -> None:
    assert not extract_facts(piece * 5_000, {"name": "Ada"}, ("name",)).facts
