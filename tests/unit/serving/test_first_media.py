"""WebRTC calls whose peer sends nothing are ended."""

import asyncio
import weakref

from parley.serving.gateway.webrtc.first_media import FirstWord
from tests.virtual_time import run

ENDED_S = 30.0


def call_for(seconds: float) -> asyncio.Task[None]:
    return asyncio.create_task(asyncio.sleep(seconds), name="call")


def test_a_call_without_a_word_is_ended() -> None:
    async def scenario() -> None:
        words: list[None] = []
        call = call_for(100)
        FirstWord(lambda: words.append(None), ended_s=ENDED_S).watch(call)
        await asyncio.sleep(ENDED_S - 1)
        assert not call.done()
        await asyncio.sleep(2)
        assert call.cancelled() and not words

    run(scenario())


def test_a_word_is_told_once_and_keeps_the_call() -> None:
    async def scenario() -> None:
        words: list[None] = []
        call = call_for(100)
        word = FirstWord(lambda: words.append(None), ended_s=ENDED_S)
        word.watch(call)
        await asyncio.sleep(1)
        word.came()
        word.came()
        assert len(words) == 1
        await asyncio.sleep(2 * ENDED_S)
        assert not call.done()
        call.cancel()

    run(scenario())


def test_a_word_before_the_call_begins_keeps_it() -> None:
    async def scenario() -> None:
        call = call_for(100)
        word = FirstWord(lambda: None, ended_s=ENDED_S)
        word.came()
        word.watch(call)
        await asyncio.sleep(2 * ENDED_S)
        assert not call.done()
        call.cancel()

    run(scenario())


def test_a_listener_is_forgotten_when_it_was_called_or_the_wait_is_over() -> None:
    class Listener:
        def __call__(self) -> None: ...

    for end in (FirstWord.came, FirstWord.close):
        listener = Listener()
        seen, word = weakref.ref(listener), FirstWord(listener)
        del listener
        end(word)
        assert seen() is None
