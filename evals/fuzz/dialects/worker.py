"""Link of a worker: leases and watches with valid tokens and others, and the messages of a voice's stream."""

import json
import time
from collections.abc import Mapping
from typing import Any

from websockets.asyncio.client import connect

from parley.evals.abuse.mutations import mutated_bytes
from parley.evals.abuse.registry import OPEN_S
from parley.evals.fuzz.conversation import FuzzConversation
from parley.evals.fuzz.dialects.sockets import reading
from parley.evals.fuzz.generate import Dice, Payload, payload
from parley.protocols.worker_tokens import Claim, sign
from parley.runtime.engine_hosting.codec import LENGTH

NAME = "worker"
# Facts of the target: the address of the worker, its name, and the secret of its tokens.
URL, WORKER, SECRET = "worker_url", "worker_name", "worker_secret"
MESSAGES = 120
TOKEN_S = 60
# Share of first messages that are changed, and of later ones with a payload.
WRONG_FIRST, WITH_PAYLOAD = 0.3, 0.3
SAMPLES: tuple[Mapping[str, Any], ...] = (
    {"type": "speak", "number": 1, "text": "Hello."},
    {"type": "stop", "number": 1},
    {"type": "pause", "number": 0, "ms": 100},
    {"type": "resume", "number": 0},
    {"type": "ping", "number": 0},
    {"type": "start", "number": 2},
    {"type": "audio", "number": 3},
    {"type": "finish", "number": 4},
    {"type": "discard", "number": 5},
    {"type": "prepare", "number": 6, "system_prompt": "Be brief.", "options": {"temperature": 0.5}},
    {"type": "prefill", "number": 7, "frames": [[1, 1]]},
    {"type": "generate", "number": 8, "turns": [{"role": "user", "text": "Hello."}]},
    {"type": "measure", "number": 9},
)


def first(dice: Dice, facts: Mapping[str, str], session: str) -> dict[str, Any]:
    """Return the first message of a socket: a lease or a watch, with its token."""
    watches = dice.random() < 0.2
    claim = Claim(
        facts[WORKER], "", "" if watches else session, dice.randint(1, 5), int(time.time()) + TOKEN_S
    )
    signed = claim.facts(sign(facts[SECRET].encode(), claim))
    return {"type": "watch" if watches else "lease", "number": 0, **signed}


def packed(data: Payload, dice: Dice) -> Payload:
    """Return a message with a payload after it, whose length may be wrong."""
    text = data.encode("utf-8", "replace") if isinstance(data, str) else data
    length = len(text) if dice.random() < 0.8 else dice.choice((0, 1, len(text) + 1, 2**32 - 1))
    made = LENGTH.pack(length) + text + dice.randbytes(dice.choice((0, 1, 640, 3_200)))
    return mutated_bytes(made, dice) if dice.random() < 0.1 else made


async def link(conversation: FuzzConversation) -> None:
    """Lease a stream of the worker and send messages, or watch it."""
    dice, facts = conversation.dice, conversation.target.facts
    session = f"fuzz{dice.getrandbits(32):x}"
    async with (
        connect(
            facts[URL],
            max_size=None,
            open_timeout=OPEN_S,
            close_timeout=1.0,
            ping_interval=None,
            compression=None,
        ) as socket,
        reading(conversation, socket),
    ):
        begins = first(dice, facts, session)
        is_wrong = dice.random() < WRONG_FIRST
        await conversation.send(socket, payload([begins], dice) if is_wrong else json.dumps(begins))
        for _ in range(MESSAGES):
            data = payload(SAMPLES, dice, conversation.known)
            await conversation.send(socket, packed(data, dice) if dice.random() < WITH_PAYLOAD else data)
