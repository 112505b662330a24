"""The REST client, against an endpoint with Twilio's interface."""

import asyncio

import pytest

from parley.core.errors import EngineError
from parley.evals.harness.phone_network import AUTH_TOKEN
from parley.transports.twilio.rest import Account, TwilioRest
from tests.peers.server import free_port
from tests.peers.twilio_rest import ACCOUNT, Phone, twilio_rest


async def test_calls_are_begun_redirected_and_ended():
    async with twilio_rest() as rest:
        rest.phone = Phone(answers_s=60)
        client = TwilioRest(Account(ACCOUNT, ACCOUNT, AUTH_TOKEN, rest.url))
        sid = await client.begin(
            "+15550123", "+15550199", twiml="<Response/>", status_address="https://x/s", ring_s=9
        )
        form = rest.begun[sid]
        assert (form["To"], form["From"], form["Twiml"], form["Timeout"]) == (
            ["+15550123"], ["+15550199"], ["<Response/>"], ["9"],
        )  # fmt: skip
        assert form["StatusCallbackEvent"] == ["ringing", "answered", "completed"]
        await client.redirect(sid, "<Response><Hangup/></Response>")
        await client.hang_up(sid)
        assert [sorted(form) for _, form in rest.updates] == [["Twiml"], ["Status"]]
        await client.close()


async def test_what_twilio_refuses_is_said_with_its_number_and_without_the_secret():
    async with twilio_rest() as rest:
        wrong = TwilioRest(Account(ACCOUNT, ACCOUNT, "not the token", rest.url))
        with pytest.raises(EngineError, match=r"401: Authenticate \(20003\)") as refused:
            await wrong.begin("+15550123", "+15550199", twiml="<Response/>")
        assert "not the token" not in str(refused.value) and not refused.value.retryable
        await wrong.close()
        client = TwilioRest(Account(ACCOUNT, ACCOUNT, AUTH_TOKEN, rest.url))
        # A call that has ended already counts as ended.
        rest.refuses = 400, 21220
        await client.hang_up("CA1")
        with pytest.raises(EngineError, match="21220"):
            await client.redirect("CA1", "<Response/>")
        # Busy: idempotent requests are retried; a request that begins a call is not.
        rest.refuses = 503, 20500
        asyncio.get_running_loop().call_later(0.4, setattr, rest, "refuses", None)
        await client.hang_up("CA2")
        rest.refuses = 503, 20500
        with pytest.raises(EngineError, match="503"):
            await client.begin("+15550123", "+15550199", twiml="<Response/>")
        await client.close()


async def test_no_one_there_is_an_error_in_time():
    client = TwilioRest(Account(ACCOUNT, "u", "s", f"http://127.0.0.1:{free_port()}"), timeout_s=1)
    with pytest.raises(EngineError, match="twilio: Calls"):
        await client.hang_up("CA1")
    await client.close()
