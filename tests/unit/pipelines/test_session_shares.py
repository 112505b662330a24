"""Share of text and pictures that a session takes in a minute."""

import base64
from pathlib import Path

import pytest

from parley.core.pictures import Picture
from parley.pipelines.text.shown_history import take_share
from parley.pipelines.text.typed_turns import ask
from parley.serving.gateway.limits import ShareError
from parley.session_store.conversation import Conversation, ConversationTuning
from tests.fakes.scripted_llm import ScriptedLanguageModel
from tests.unit.pipelines.test_typed_answers import World, play

SHARES = ConversationTuning(typed_bytes_per_minute=1_000, picture_bytes_per_minute=10_000)
# Most of a share, so that there is no second one in the same minute.
TEXT = "w" * 900
PICTURE = Picture("picture.1", "image/jpeg", 4, 3, base64.b64encode(bytes(9_000)).decode())


async def refused_turn(world: World, conversation: Conversation) -> None:
    turn = ask(conversation, world.answering, TEXT, pictures=[PICTURE], store=world.store)
    with pytest.raises(ShareError, match="too many pictures"):
        await anext(turn)


async def refused_messages(_world: World, conversation: Conversation) -> None:
    with pytest.raises(ShareError, match="too many pictures"):
        take_share(conversation, [TEXT], [PICTURE])


@pytest.mark.parametrize("refused", [refused_turn, refused_messages])
def test_a_request_that_is_refused_for_its_pictures_takes_no_text(tmp_path: Path, refused):
    async def scenario(world: World) -> None:
        async with world.conversations.open() as conversation:
            assert conversation.take_pictures([PICTURE]) == 0
            await refused(world, conversation)
            assert conversation.take_typed(TEXT) == 0

    play(tmp_path, ScriptedLanguageModel(("unused",)), scenario, SHARES)


def test_a_request_that_is_refused_for_its_text_takes_no_pictures(tmp_path: Path):
    async def scenario(world: World) -> None:
        async with world.conversations.open() as conversation:
            take_share(conversation, [TEXT], [])
            with pytest.raises(ShareError, match="too much text"):
                take_share(conversation, [TEXT], [PICTURE])
            assert conversation.take_pictures([PICTURE]) == 0

    play(tmp_path, ScriptedLanguageModel(("unused",)), scenario, SHARES)
