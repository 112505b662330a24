from parley.core.call_choices import NO_VOICES, CallChoices, VoiceNames
from parley.core.client_rules import CLIENT_HEADING


def test_texts_of_the_operator_come_before_those_of_the_caller():
    chosen = CallChoices(preset="bank", preset_text="You are a bank.", instructions="Be brief.")
    assert chosen.prompt("You are Parley.").split("\n\n") == [
        "You are Parley.",
        "You are a bank.",
        CLIENT_HEADING,
        "Be brief.",
    ]
    assert CallChoices().prompt("You are Parley.") == "You are Parley."
    assert CallChoices(preset_text="You are a bank.").prompt("") == "You are a bank."


def test_a_record_names_what_was_chosen_and_holds_no_text_of_the_caller():
    chosen = CallChoices(voice="rms", preset="bank", preset_text="You are a bank.", instructions="Be brief.")
    assert chosen.as_payload() == {"choices": {"voice": "rms", "preset": "bank", "instructions": True}}
    assert CallChoices().as_payload() == {}


def test_a_voice_is_found_by_its_own_name_and_by_that_of_another_provider():
    voices = VoiceNames(("parley", "rms"), {"marin": "rms", "cedar": "gone"})
    assert [voices.find(name) for name in ("rms", "marin", "cedar", "slt")] == ["rms", "rms", None, None]
    assert NO_VOICES.find("parley") == "parley" and NO_VOICES.find("rms") is None
