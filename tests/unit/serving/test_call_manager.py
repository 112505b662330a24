"""Transfers: those that are taken, those that are not, and no telephone that keeps ringing."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any
from xml.etree import ElementTree

import pytest

from parley.core.errors import EngineError
from parley.serving.gateway.phone.call_manager import (
    ANNOUNCED_S,
    MOST_OFFER_S,
    CallManager,
    TransferOutcome,
)
from tests import virtual_time

CALLER = "CA" + "0" * 32


class Posts:
    """Recorder of the posts to Twilio."""

    def __init__(self) -> None:
        self.begun: list[dict[str, Any]] = []
        self.redirected: list[tuple[str, str]] = []
        self.hung_up: list[str] = []
        self.fails = ""
        # Called before a post is answered.
        self.on_redirect: Callable[[], None] = lambda: None
        self.redirect_s = 0.0
        self.on_begun: Callable[[str], Awaitable[None]] | None = None

    async def begin(self, to: str, caller: str, **more: Any) -> str:
        if self.fails == "begin":
            raise EngineError("twilio: 400: no such number", engine="twilio")
        self.begun.append({"to": to, "caller": caller, **more})
        sid = f"CA{len(self.begun):032x}"
        if self.on_begun is not None:
            await self.on_begun(sid)
        return sid

    async def redirect(self, call_sid: str, twiml: str) -> None:
        if self.fails == "redirect":
            raise EngineError("twilio: 400: not in progress (21220)", engine="twilio", retryable=False)
        self.on_redirect()
        await asyncio.sleep(self.redirect_s)
        self.redirected.append((call_sid, twiml))
        if self.fails == "answer":
            raise EngineError("twilio: Calls: no answer in time", engine="twilio")

    async def hang_up(self, call_sid: str) -> None:
        self.hung_up.append(call_sid)

    async def close(self) -> None:
        pass


def desk_of(posts: Posts | None) -> CallManager:
    desk = CallManager(posts, ring_s=20)
    desk.serve_at("https://talk.example.org/twilio")
    return desk


def transfer(
    desk: CallManager, words: str = "x", announced: asyncio.Event | None = None
) -> Coroutine[Any, Any, TransferOutcome]:
    """Transfer the call of a caller who has heard so, unless the event is given."""
    if announced is None:
        announced = asyncio.Event()
        announced.set()
    return desk.transfer(CALLER, "+15550123", "+15550199", words, announced=announced)


async def ringing(
    desk: CallManager, posts: Posts, announced: asyncio.Event | None = None
) -> tuple["asyncio.Task[TransferOutcome]", str]:
    """Start a transfer; return its task and its token."""
    task = asyncio.create_task(transfer(desk, "They ask for <a card>.", announced))
    await asyncio.sleep(1)
    address = posts.begun[-1]["status_address"]
    assert address.startswith("https://talk.example.org/twilio/transfer/")
    return task, address.split("/")[-2]


def test_who_presses_a_key_is_put_together_with_the_caller():
    posts = Posts()
    desk = desk_of(posts)

    async def call() -> None:
        task, token = await ringing(desk, posts)
        offer = ElementTree.fromstring(posts.begun[0]["twiml"])
        assert [each.text for each in offer.iter("Say")] == ["They ask for <a card>."] * 2
        [gather] = offer.iter("Gather")
        # "#" is a key like any other.
        assert gather.attrib["finishOnKey"] == ""
        assert gather.attrib["action"].endswith(f"/transfer/{token}/answer")
        answer = await desk.answered(token, "1")
        assert await task is TransferOutcome.TAKEN
        [(caller, twiml)] = posts.redirected
        assert (caller, twiml) == (CALLER, answer)
        [name] = [each.text for each in ElementTree.fromstring(twiml).iter("Conference")]
        assert name is not None and len(name) > 30
        # A replayed webhook has no effect.
        assert await desk.answered(token, "1") is None
        # The caller's stream ends, and the call belongs to the person.
        await desk.hang_up(CALLER)
        assert posts.hung_up == []

    virtual_time.run(call())


@pytest.mark.parametrize(
    ("state", "outcome"),
    [
        ("no-answer", TransferOutcome.NO_ANSWER),
        ("busy", TransferOutcome.BUSY),
        ("completed", TransferOutcome.DECLINED),
    ],
)
def test_who_does_not_take_it_leaves_the_caller_where_they_are(state: str, outcome: TransferOutcome):
    posts = Posts()
    desk = desk_of(posts)

    async def call() -> None:
        task, token = await ringing(desk, posts)
        desk.ended(token, "ringing")
        await asyncio.sleep(1)
        assert not task.done()
        desk.ended(token, state)
        assert await task is outcome
        assert posts.redirected == []

    virtual_time.run(call())


def test_no_key_is_no_answer_to_the_offer():
    posts = Posts()
    desk = desk_of(posts)

    async def call() -> None:
        task, token = await ringing(desk, posts)
        answer = await desk.answered(token, "")
        assert answer is not None and "<Hangup" in answer
        desk.ended(token, "completed")
        assert await task is TransferOutcome.DECLINED

    virtual_time.run(call())


def test_a_caller_who_is_gone_when_it_is_taken_is_said_to_be():
    posts = Posts()
    desk = desk_of(posts)
    posts.fails = "redirect"

    async def call() -> None:
        task, token = await ringing(desk, posts)
        answer = await desk.answered(token, "1")
        assert answer is not None and "not there any more" in answer
        assert await task is TransferOutcome.FAILED

    virtual_time.run(call())


def test_a_caller_who_hangs_up_meanwhile_stops_the_ringing():
    posts = Posts()
    desk = desk_of(posts)

    async def call() -> None:
        task, token = await ringing(desk, posts)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await asyncio.sleep(0.1)
        assert posts.hung_up == ["CA" + f"{1:032x}"]
        assert await desk.answered(token, "1") is None

    virtual_time.run(call())


def test_a_caller_who_hangs_up_before_twilio_has_named_the_call_stops_its_ringing():
    posts = Posts()
    posts.on_begun = lambda _sid: asyncio.sleep(3)
    desk = desk_of(posts)

    async def call() -> None:
        task = asyncio.create_task(transfer(desk))
        await asyncio.sleep(1)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert posts.begun and posts.hung_up == []
        # Another task that closes the desk meanwhile waits for it.
        await desk.close()
        assert posts.hung_up == ["CA" + f"{1:032x}"]

    virtual_time.run(call())


@pytest.mark.parametrize("gone_first", [True, False])
def test_a_person_who_takes_the_call_and_goes_leaves_no_one_alone_in_the_conference(gone_first: bool):
    posts = Posts()
    desk = desk_of(posts)

    async def call() -> None:
        task, token = await ringing(desk, posts)
        if gone_first:
            # During the redirect of the caller.
            posts.on_redirect = lambda: desk.ended(token, "completed")
        await desk.answered(token, "1")
        assert await task is TransferOutcome.TAKEN
        # The caller's stream ends with that, but their call is not ended.
        await desk.hang_up(CALLER)
        if not gone_first:
            desk.ended(token, "in-progress")
            await asyncio.sleep(1)
            assert posts.hung_up == []
            desk.ended(token, "completed")
        await asyncio.sleep(1)
        assert set(posts.hung_up) == {CALLER}

    virtual_time.run(call())


def test_a_person_who_goes_while_the_caller_who_left_the_stream_is_redirected_leaves_no_one_alone():
    posts = Posts()
    desk = desk_of(posts)

    async def call() -> None:
        task, token = await ringing(desk, posts)

        def stream_is_over() -> None:
            task.cancel()

        posts.on_redirect = stream_is_over
        posts.redirect_s = 3
        answered = asyncio.create_task(desk.answered(token, "1"))
        await asyncio.sleep(1)
        assert task.done()
        desk.ended(token, "completed")
        await answered
        await asyncio.sleep(1)
        assert posts.hung_up == [CALLER]
        assert not desk._transfers and not desk._taken

    virtual_time.run(call())


@pytest.mark.parametrize("is_heard", [True, False])
def test_a_caller_hears_of_the_transfer_before_the_stream_ends_within_a_deadline(is_heard: bool):
    posts, announced = Posts(), asyncio.Event()
    desk = desk_of(posts)

    async def call() -> float:
        task, token = await ringing(desk, posts, announced)
        loop = asyncio.get_running_loop()
        answered = asyncio.create_task(desk.answered(token, "1"))
        pressed_s = loop.time()
        await asyncio.sleep(2)
        # They may still hang up; the call is not the person's before.
        assert not posts.redirected and not desk.is_put_through(CALLER)
        if is_heard:
            announced.set()
        await answered
        assert await task is TransferOutcome.TAKEN and posts.redirected
        return loop.time() - pressed_s

    assert virtual_time.run(call()) == pytest.approx(2 if is_heard else ANNOUNCED_S)


def test_a_person_who_goes_before_the_caller_has_heard_of_it_leaves_them_with_the_bot():
    posts = Posts()
    desk = desk_of(posts)

    async def call() -> None:
        task, token = await ringing(desk, posts, asyncio.Event())
        answered = asyncio.create_task(desk.answered(token, "1"))
        await asyncio.sleep(1)
        desk.ended(token, "completed")
        await answered
        assert await task is TransferOutcome.DECLINED
        await asyncio.sleep(1)
        assert posts.redirected == [] and posts.hung_up == [] and not desk.is_put_through(CALLER)
        assert not desk._transfers and not desk._taken

    virtual_time.run(call())


@pytest.mark.parametrize("leaves", ["before", "after", "never"])
def test_a_caller_whom_twilio_has_redirected_without_saying_so_is_left_alone_in_no_conference(leaves: str):
    posts = Posts()
    posts.fails, posts.redirect_s = "answer", 5
    desk = desk_of(posts)

    async def call() -> None:
        task, token = await ringing(desk, posts)
        answering = asyncio.create_task(desk.answered(token, "1"))
        await asyncio.sleep(1)
        if leaves == "before":
            # The redirection ends the stream; Twilio's answer does not arrive.
            await desk.leave(CALLER)
        answer = await answering
        assert answer is not None and "not there any more" in answer
        assert await task is TransferOutcome.FAILED
        await asyncio.sleep(1)
        if leaves == "after":
            assert posts.hung_up == []
            await desk.leave(CALLER)
        await desk.close()
        # A caller who is still with the bot stays there.
        assert posts.hung_up == ([] if leaves == "never" else [CALLER])

    virtual_time.run(call())


def test_a_person_who_takes_the_call_at_the_last_moment_has_taken_it():
    posts = Posts()
    posts.redirect_s = 3
    desk = desk_of(posts)

    async def call() -> None:
        task, token = await ringing(desk, posts)
        await asyncio.sleep(20 + MOST_OFFER_S - 2)
        assert "Conference" in str(await desk.answered(token, "1"))
        assert await task is TransferOutcome.TAKEN
        await desk.close()
        assert posts.hung_up == [] and not desk._transfers

    virtual_time.run(call())


def test_a_caller_does_not_wait_for_a_webhook_that_was_given_up():
    posts = Posts()
    posts.redirect_s = 10
    desk = desk_of(posts)

    async def call() -> None:
        task, token = await ringing(desk, posts)
        answering = asyncio.create_task(desk.answered(token, "1"))
        await asyncio.sleep(1)
        answering.cancel()
        await asyncio.gather(answering, return_exceptions=True)
        async with asyncio.timeout(1):
            assert await task is TransferOutcome.FAILED
        assert not desk.is_put_through(CALLER)
        # The redirection may come all the same.
        await desk.leave(CALLER)
        assert posts.hung_up == [CALLER]

    virtual_time.run(call())


def test_a_telephone_that_no_one_hears_of_again_is_given_up():
    posts = Posts()
    desk = desk_of(posts)

    async def call() -> float:
        task, _ = await ringing(desk, posts)
        began_s = asyncio.get_running_loop().time()
        assert await task is TransferOutcome.NO_ANSWER
        took_s = asyncio.get_running_loop().time() - began_s
        await asyncio.sleep(0.1)
        assert len(posts.hung_up) == 1
        return took_s

    assert virtual_time.run(call()) <= 20 + MOST_OFFER_S


def test_without_an_account_nothing_is_begun():
    desk = desk_of(None)

    async def call() -> None:
        assert not desk.can_call
        assert await transfer(desk) is TransferOutcome.FAILED
        await desk.hang_up(CALLER)
        with pytest.raises(EngineError, match="need a Twilio account"):
            await desk.call("+15550123", "+15550199", "<Response/>")

    virtual_time.run(call())


def test_a_number_that_cannot_be_rung_up_is_a_failed_transfer():
    posts = Posts()
    posts.fails = "begin"
    assert virtual_time.run(transfer(desk_of(posts))) is TransferOutcome.FAILED
