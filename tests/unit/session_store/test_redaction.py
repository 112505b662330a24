"""The last door: what of a draft is stored."""

from parley.core.privacy import PersonalData, PrivacySettings
from parley.language import find_language
from parley.language.personal_data import Redactor
from parley.session_store.events import Draft, Kind
from parley.session_store.redaction import PRIVATE, private_draft, redacted_draft

CARD = "4242 4242 4242 4242"


def redactor(**settings: object) -> Redactor:
    given = {"redact": tuple(kind for kind in PersonalData if kind is not PersonalData.NAME), **settings}
    return Redactor(PrivacySettings.model_validate(given), find_language("en").personal)


def draft(kind: Kind, **payload: object) -> Draft:
    return Draft(kind, payload, 0, 0, "user")


def stored(kind: Kind, **payload: object) -> dict[str, object]:
    return dict(redacted_draft(draft(kind, **payload), redactor()).payload)


def test_a_turn_is_stored_without_personal_data_in_all_of_its_fields():
    tokens = [{"event_us": 1_760_000_000_000_000, "text": f"pay {CARD}"}]
    found = stored(Kind.USER_TURN, text=f"pay {CARD}", rendered=f"(sad) pay {CARD}", tokens=tokens)
    assert found["text"] == "pay [card]" and found["rendered"] == "(sad) pay [card]"
    assert found["tokens"] == [{"event_us": 1_760_000_000_000_000, "text": "pay [card]"}]


def test_arguments_and_results_of_tools_are_stored_without_it_numbers_included():
    found = stored(Kind.TOOL_CALL, name="pay", arguments={"card": 4242424242424242, "amount": 12, "ok": True})
    assert found["arguments"] == {"card": "[card]", "amount": 12, "ok": True}
    assert stored(Kind.TOOL_RESULT, result={"lines": [f"charged {CARD}"]})["result"] == {
        "lines": ["charged [card]"]
    }


def test_agent_keeps_its_own_address_and_not_a_card():
    text = f"write to help@example.com about {CARD}"
    assert stored(Kind.BOT_TURN, text=text, unheard="")["text"] == "write to help@example.com about [card]"
    assert stored(Kind.USER_TURN, text=text)["text"] == "write to [e-mail] about [card]"


def test_ids_and_times_stay_as_they_are():
    one = draft(Kind.JOURNAL, call_id="4242424242424242", operations=["4242424242424242"])
    assert redacted_draft(one, redactor()) is one


def test_a_private_pause_leaves_no_word_and_the_marks_of_its_turns():
    assert private_draft(draft(Kind.USER_TURN, text="my secret", transport="webrtc")).payload == {
        "text": PRIVATE,
        "transport": "webrtc",
    }
    assert private_draft(draft(Kind.USER_TURN, text="[private-2]")).payload == {"text": "[private-2]"}
    assert private_draft(draft(Kind.BOT_TURN, text="secret", unheard="")).payload == {
        "text": PRIVATE,
        "unheard": "",
    }
