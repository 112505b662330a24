"""Shortening of a dialogue that is too long for its model."""

from pipecat.adapters.llm.schemas.function_schema import FunctionSchema
from pipecat.adapters.llm.schemas.tools_schema import ToolsSchema
from pipecat.processors.aggregators.llm_context import LLMContext

from parley.core.prompt_notes import PromptNotes, parse_notes, write_notes
from parley.processors.dialogue.llamacpp_service import LEFT_OUT, with_readable_choice, without_oldest

NOTES = PromptNotes(summary="The person lost a card.", facts={"name": "Ada"}, remarks=True)


def dialogue(front: str = "") -> list[dict[str, str]]:
    turns = [
        {"role": role, "content": f"{role} {number} " + "so " * 20}
        for number in range(4)
        for role in ("user", "assistant")
    ]
    turns[0]["content"] = f"{front}{turns[0]['content']}"
    return [{"role": "system", "content": "Be brief."}, *turns, {"role": "user", "content": "And now?"}]


def test_the_newest_turns_stay_and_the_model_is_told_that_something_is_missing():
    kept = without_oldest(dialogue(), 0.6)
    assert kept is not None
    assert kept[0]["content"] == "Be brief."
    notes, said = parse_notes(kept[1]["content"])
    assert kept[1]["role"] == "user" and said.startswith("user 2 ")
    assert notes == PromptNotes(summary=LEFT_OUT)
    assert kept[2:] == dialogue()[6:]


def test_what_is_known_of_the_person_stays():
    kept = without_oldest(dialogue(f"{write_notes(NOTES)}\n\n"), 0.5)
    assert kept is not None
    notes, said = parse_notes(kept[1]["content"])
    assert said.startswith("user 2 ")
    assert notes == PromptNotes(summary=f"{NOTES.summary}\n{LEFT_OUT}", facts=NOTES.facts, remarks=True)


def test_what_was_learned_in_left_out_turns_stays():
    messages = dialogue()
    messages[3]["content"] = f"{write_notes(PromptNotes(facts={'name': 'Ada'}))}\n\n{messages[3]['content']}"
    messages[5]["content"] = f"{write_notes(PromptNotes(facts={'home': 'Bonn'}))}\n\n{messages[5]['content']}"
    kept = without_oldest(messages, 0.6)
    assert kept is not None
    notes, said = parse_notes(kept[1]["content"])
    assert said.startswith("user 2 ")
    assert notes == PromptNotes(summary=LEFT_OUT, facts={"name": "Ada", "home": "Bonn"})


def test_a_dialogue_that_is_cut_twice_says_once_that_something_is_missing():
    once = without_oldest(dialogue(f"{write_notes(NOTES)}\n\n"), 0.7)
    assert once is not None
    twice = without_oldest(once, 0.5)
    assert twice is not None
    assert len(twice) < len(once)
    assert parse_notes(twice[1]["content"])[0] == parse_notes(once[1]["content"])[0]


def test_a_picture_keeps_its_place_after_the_notes():
    picture = {"type": "image_url", "image_url": {"url": "data:,"}}
    messages = dialogue()
    messages[-1] = {"role": "user", "content": [picture]}
    kept = without_oldest(messages, 0.05)
    assert kept is not None
    (_, last) = kept
    assert last["content"][1:] == [picture]
    assert parse_notes(last["content"][0]["text"])[0].summary == LEFT_OUT


def test_a_single_turn_is_not_cut():
    assert (
        without_oldest([{"role": "system", "content": "x"}, {"role": "user", "content": "so " * 99}], 0.1)
        is None
    )


def test_one_function_is_required_by_offering_it_alone():
    tools = ToolsSchema([FunctionSchema(name, name, {}, []) for name in ("order", "cancel")])
    named = {"type": "function", "function": {"name": "cancel"}}
    context = with_readable_choice(LLMContext([], tools=tools, tool_choice=named))  # type: ignore[arg-type]
    assert isinstance(context.tools, ToolsSchema)
    assert [tool.name for tool in context.tools.standard_tools] == ["cancel"]
    assert context.tool_choice == "required"
    free = LLMContext([], tools=tools, tool_choice="required")
    assert with_readable_choice(free) is free
