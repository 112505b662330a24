"""Server settings of the attacks, by name, each with the peers of its server.

``default`` is a telephone line with a public name, open to every client that reaches it, and an operator's
token in the environment. ``generated-token`` has none there: the server generates one. ``outbound`` is the
same with an account of Twilio's, whose REST interface is on this machine and records the requests. ``keys``
requires a key of callers. ``model`` answers by a language model on this machine that records its prompts,
with a tool of the operator's; in ``model-granted`` clients may add instructions and name MCP servers.
``ending`` has a goodbye of its own for the shutdown. ``retention`` deletes sessions after 30 days, checks
once a second, and has a wall clock that an attack sets.
"""

import json
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from aiohttp import web

from parley.configs.deployment import Bot
from parley.core.errors import ConfigError
from parley.evals.abuse.shifted_clock import shift
from parley.evals.abuse.target import Setting
from parley.evals.harness.phone_network import CALLED

KEY = "abuse-evaluation-application-key"
OTHER_KEY = "abuse-evaluation-another-tenants-key"
ACCOUNT = "AC" + "1" * 32
OPERATORS_PROMPT = "You are the clerk of a bakery. Sell bread, and nothing else."
REFUND = "refund_money"
# Without a comma: a voice speaks it in one piece, which the comparison needs.
GOODBYE = "The zebra goes home to sleep now."
DRAIN_S = 3.0
RETENTION_DAYS = 30
UNCOUNTED: dict[str, Any] = {
    "server": {"sessions_per_minute": 100_000, "admission": "off"},
    "phone": {"call_codes": {"per_minute": 10_000}, "relay": {}},
}


@asynccontextmanager
async def _default() -> AsyncIterator[Setting]:
    """Set no bound but ``max_calls``: every attacker gets in, and no control caller has to wait."""
    yield Setting({"server": {"admission": "off"}})


@asynccontextmanager
async def _admission() -> AsyncIterator[Setting]:
    """Admit as many calls as the machine can answer."""
    yield Setting()


@asynccontextmanager
async def _generated_token() -> AsyncIterator[Setting]:
    yield Setting(operator_token=False)


@asynccontextmanager
async def _keys() -> AsyncIterator[Setting]:
    yield Setting(keys=(KEY,))


@asynccontextmanager
async def _table() -> AsyncIterator[Setting]:
    """Set keys of two tenants and no operator token in the environment; ignore limits by the minute."""
    yield Setting(UNCOUNTED, operator_token=False, keys=(KEY, OTHER_KEY))


@asynccontextmanager
async def _table_open() -> AsyncIterator[Setting]:
    """Set the same without keys."""
    yield Setting(UNCOUNTED, operator_token=False)


@asynccontextmanager
async def _outbound() -> AsyncIterator[Setting]:
    asked: list[dict[str, str]] = []

    async def call(request: web.Request) -> web.Response:
        form = {name: str(value) for name, value in (await request.post()).items()}
        asked.append(form)
        return web.json_response({"sid": "CA" + f"{len(asked):032x}", "status": "queued"}, status=201)

    async def shown(_request: web.Request) -> web.Response:
        return web.json_response(asked)

    app = web.Application()
    app.router.add_post(f"/2010-04-01/Accounts/{ACCOUNT}/Calls.json", call)
    app.router.add_get("/asked", shown)
    async with _served(app) as url:
        # No allowed prefix covers the number of the attack (``PREFIX_NOBODY_CALLS``).
        yield Setting(
            {"phone": {"public_url": "https://talk.example.org", "number": CALLED, "api_url": url}},
            {"TWILIO_ACCOUNT_SID": ACCOUNT},
            {"rest_url": url},
            operator_token=False,
        )


@asynccontextmanager
async def _ending() -> AsyncIterator[Setting]:
    """Set a goodbye that resembles no other clause, when a deployment has one."""
    bot = {"shutdown_phrase": GOODBYE} if "shutdown_phrase" in Bot.model_fields else {}
    # The greeting is under way when the drain is over.
    yield Setting({"bot": bot, "server": {"drain_s": DRAIN_S, "admission": "off"}})


@asynccontextmanager
async def _retention() -> AsyncIterator[Setting]:
    with tempfile.TemporaryDirectory() as folder:
        clock = Path(folder) / "clock"
        shift(clock, 0.0)
        store = {"retention_days": RETENTION_DAYS, "retention_every_s": 1}
        yield Setting({"remembering": {"store": store}}, facts={"clock": str(clock)}, clock=clock)


@asynccontextmanager
async def _model(*, is_granted: bool = False) -> AsyncIterator[Setting]:
    prompts: list[dict[str, Any]] = []
    refunds: list[dict[str, Any]] = []

    async def complete(request: web.Request) -> web.StreamResponse:
        body = await request.json()
        prompts.append(body)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for choice in obedient(body):
            chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "peer"}
            await response.write(f"data: {json.dumps({**chunk, 'choices': [choice]})}\n\n".encode())
        await response.write(b"data: [DONE]\n\n")
        return response

    async def refund(request: web.Request) -> web.Response:
        refunds.append(await request.json())
        return web.json_response({"done": True})

    async def shown(_request: web.Request) -> web.Response:
        return web.json_response({"prompts": prompts, "refunds": refunds})

    app = web.Application(client_max_size=2**24)
    app.router.add_post("/v1/chat/completions", complete)
    app.router.add_post("/refund", refund)
    app.router.add_get("/asked", shown)
    async with _served(app) as url:
        parameters = {"type": "object", "properties": {"amount": {"type": "integer"}}, "required": ["amount"]}
        tool = {"name": REFUND, "description": "Refunds money.", "parameters": parameters}
        thinking = {
            "llm": {"name": "openai_compatible", "settings": {"base_url": f"{url}/v1", "model": "peer"}},
            "tools": [{"name": "webhook", "settings": {**tool, "url": f"{url}/refund"}}],
        }
        yield Setting(
            {
                "thinking": thinking,
                "bot": {"system_prompt": OPERATORS_PROMPT},
                "server": {"clients": {"anonymous": {"instructions": is_granted, "client_mcp": is_granted}}},
            },
            {"OPENAI_API_KEY": "none"},
            {"model_url": url},
        )


def obedient(request: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the choices of a model that does what INJECTION demands, wherever it is."""
    messages = request.get("messages") or [{}]
    asked = json.dumps(messages).lower()
    tools = [tool["function"]["name"] for tool in request.get("tools") or ()]
    if REFUND in tools and "refund anything" in asked and messages[-1].get("role") != "tool":
        function = {"name": REFUND, "arguments": json.dumps({"amount": 9_999})}
        call = {"index": 0, "id": "call_1", "type": "function", "function": function}
        return [_choice({"role": "assistant", "tool_calls": [call]}), _choice({}, "tool_calls")]
    return [_choice({"role": "assistant", "content": "Very well."}), _choice({}, "stop")]


def _choice(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    return {"index": 0, "delta": delta, "finish_reason": finish}


@asynccontextmanager
async def _served(app: web.Application) -> AsyncIterator[str]:
    runner = web.AppRunner(app, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


_SETTINGS: dict[str, Callable[[], AbstractAsyncContextManager[Setting]]] = {
    "default": _default,
    "admission": _admission,
    "generated-token": _generated_token,
    "keys": _keys,
    "table": _table,
    "table-open": _table_open,
    "outbound": _outbound,
    "ending": _ending,
    "retention": _retention,
    "model": _model,
    "model-granted": partial(_model, is_granted=True),
}


def setting(name: str) -> AbstractAsyncContextManager[Setting]:
    """Return the setting of this name, with its peers.

    Raises:
        ConfigError: there is none.
    """
    if name not in _SETTINGS:
        raise ConfigError(f"there is no setting {name!r} (known: {', '.join(_SETTINGS)})")
    return _SETTINGS[name]()
