"""A process that makes one call of a webhook in a session and is killed by the test meanwhile.

Arguments: database file, session id, address of the webhook, "idempotent" or "once".
"""

import asyncio
import sys

import aiohttp

from models.tools.webhook import WebhookSettings, WebhookTool
from processors.dialogue.durable_tools import DurableTools
from session_store.compaction import Compactor
from session_store.conversation import Conversations
from session_store.settings import StoreTuning
from session_store.store import SessionStore


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
