"""A process that makes one call of a webhook in a session and is killed by the test meanwhile.

Arguments: database file, session id, address of the webhook, "idempotent" or "once".
"""

import asyncio
import sys

import aiohttp

from parley.models.tools.webhook import WebhookSettings, WebhookTool
from parley.processors.dialogue.durable_tools import DurableTools
from parley.session_store.compaction import Compactor
from parley.session_store.conversations import Conversations
from parley.session_store.settings import StoreTuning
from parley.session_store.store import SessionStore


async def main(file: str, session_id: str, url: str, kind: str) -> None:
    store = await SessionStore.open(StoreTuning(url=f"sqlite:///{file}"))
    settings = WebhookSettings(
        name="order",
        description="Orders something.",
        parameters={"type": "object", "properties": {"item": {"type": "string"}}},
        url=url,
        idempotent=kind == "idempotent",
        timeout_s=60,
    )
    async with (
        aiohttp.ClientSession() as http,
        Conversations(store, compactor=Compactor()).open(session_id) as conversation,
    ):
        await conversation.user_turn("Order tea.", transport="text")
        tools = DurableTools([WebhookTool(settings, http)], conversation)
        await tools.call("order", {"item": "tea"})


asyncio.run(main(*sys.argv[1:]))
