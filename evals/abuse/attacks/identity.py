"""Mistaken identity: operators through proxies, tokens that lock out others, ids that suffice as credentials.

Through a proxy every client comes from 127.0.0.1. These attacks do not measure audio.
"""

import asyncio
import tempfile
from pathlib import Path

import aiohttp

from parley.evals.abuse.attacks.requests import GONE, new_session, status_of, type_turn
from parley.evals.abuse.proxies import Proxy, behind
from parley.evals.abuse.registry import AttackRun, Outcome, attack
from parley.evals.harness.phone_network import PUBLIC

HOSTS = {
    Proxy.DIRECT: "localhost",
    Proxy.TUNNEL: "localhost",
    Proxy.NGINX: PUBLIC.removeprefix("https://"),
    Proxy.NODE: PUBLIC.removeprefix("https://"),
    Proxy.TLS: PUBLIC.removeprefix("https://"),
}
WRONG_TOKENS = 40
STRANGER = 2
TYPED = 100
TOTAL, OVER_TOTAL = 3, 10
PREFIX_NOBODY_CALLS = "+99900012345"


@attack(
    "operator-by-proxy",
    "without a token everybody behind a proxy is the operator, and rings up any number",
    setting="outbound",
    controls=False,
)
async def operator_by_proxy(run: AttackRun) -> Outcome:
    """Request the operator's routes through each proxy, without any credential."""
    did: dict[str, object] = {}
    faults: list[str] = []
    requests = 0
    with tempfile.TemporaryDirectory() as folder:
        for proxy in Proxy:
            async with behind(proxy, run.target.port, Path(folder)) as url:
                for name, (method, path, body) in {
                    "lists sessions": ("GET", "/api/sessions", None),
                    "sees callers' apps": ("GET", "/api/admin/apps", None),
                    "closes an app": ("PUT", "/api/admin/apps/turnbased", {"enabled": False}),
                    "rings up a number": ("POST", "/twilio/calls", {"to": PREFIX_NOBODY_CALLS}),
                }.items():
                    status = await _status(url, method, path, HOSTS[proxy], body=body)
                    did[f"{proxy}: {name}"] = status
                    requests += status != 0
                    if status not in (401, 403, 404, 429):
                        faults.append(f"{proxy}: a stranger {name} ({status})")
    async with (
        aiohttp.ClientSession() as client,
        client.get(f"{run.target.facts['rest_url']}/asked") as response,
    ):
        asked = await response.json()
    did["calls asked of Twilio"] = len(asked)
    if asked:
        faults.append(f"{len(asked)} requests for a call left for Twilio")
    return Outcome(requests, did, faults)


async def _status(
    url: str, method: str, path: str, host: str, *, token: str = "", body: object = None
) -> int:
    headers = {"Host": host} | ({"Authorization": f"Bearer {token}"} if token else {})
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=15)) as client,
            client.request(
                method, f"{url}{path}", headers=headers, json=body, ssl=False, allow_redirects=False
            ) as response,
        ):
            return response.status
    except GONE:
        return 0


@attack("wrong-tokens", "wrong tokens of an address lock out the right one", setting="keys", controls=False)
async def wrong_tokens(run: AttackRun) -> Outcome:
    """Send wrong tokens, of the operator and of applications, and then the right ones, from one address."""
    target = run.target
    did: dict[str, object] = {}
    faults = []
    requests = 0
    async with run.client() as client:
        for right, method, path in (
            (target.operator_token, "GET", "/api/sessions"),
            (target.keys[0], "POST", "/api/sessions"),
            (target.keys[0], "POST", "/api/token"),
        ):
            wrong = await asyncio.gather(
                *(status_of(client, method, path, f"wrong-{number}" * 4) for number in range(WRONG_TOKENS))
            )
            requests += sum(each != 0 for each in wrong)
            status = await status_of(client, method, path, right)
            did[f"{method} {path}"] = {"wrong": sorted(set(wrong)), "right": status}
            if status not in (200, 201):
                faults.append(
                    f"{method} {path}: the right token gets {status} after {WRONG_TOKENS} wrong ones"
                )
            if any(200 <= each < 300 for each in wrong):
                faults.append(f"{method} {path}: a wrong token is taken")
    return Outcome(requests, did, faults)


@attack(
    "session-id-alone",
    "an id is enough to read, to type without limit and to delete for good",
    setting="keys",
    controls=False,
)
async def session_id_alone(run: AttackRun) -> Outcome:
    """Use a session of an application with its id and nothing else, from another address."""
    async with run.client(token=run.target.keys[0]) as owner:
        session = await new_session(owner)
        async with run.client(STRANGER) as stranger:
            path = f"/api/sessions/{session}"
            statuses = {
                "reads": await status_of(stranger, "GET", f"{path}/timeline"),
                "exports": await status_of(stranger, "GET", f"{path}/export"),
            }
            typed = await asyncio.gather(*(type_turn(stranger, session, "Hello.") for _ in range(TYPED)))
            statuses["types"] = min(typed)
            statuses["deletes"] = await status_of(stranger, "DELETE", path)
        async with owner.get(path) as response:
            left = response.status
    faults = [
        f"a stranger {what} ({status})"
        for what, status in statuses.items()
        if status not in (401, 403, 404, 429)
    ]
    if left != 200:
        faults.append(f"the owner's session is gone ({left})")
    requests = sum(status != 0 for status in (*statuses.values(), *typed))
    return Outcome(requests, {**statuses, "owner reads": left}, faults)


@attack(
    "key-session-rate",
    "the back end of an application is held to a stranger's sessions a minute",
    setting="keys",
    controls=False,
)
async def key_session_rate(run: AttackRun) -> Outcome:
    """Begin more sessions with a key than an anonymous client may in a minute."""
    async with run.client(token=run.target.keys[0]) as client:
        statuses = await asyncio.gather(
            *(status_of(client, "POST", "/api/sessions", run.target.keys[0]) for _ in range(90))
        )
    refused = sum(status != 201 for status in statuses)
    faults = [f"{refused} of 90 sessions are refused to a valid key"] if refused else []
    return Outcome(sum(status != 0 for status in statuses), {"refused": refused}, faults)


@attack(
    "token-total",
    "a token of a user spends without end: its rate is limited, and nothing in all",
    setting="keys",
    controls=False,
)
async def token_total(run: AttackRun) -> Outcome:
    """Type more turns with one token, and with the one that renews it, than its total allows."""
    async with run.client(token=run.target.keys[0]) as application:
        body = {"user": "abuse", "max_requests": TOTAL}
        async with application.post("/api/token", json=body) as response:
            if response.status != 200:
                return Outcome(1, faults=[f"a token with a total is refused ({response.status})"])
            token = (await response.json())["token"]
    statuses: list[int] = []
    async with run.client(STRANGER, token=token) as user:
        session = await new_session(user)
        for _ in range(OVER_TOTAL):
            statuses.append(await type_turn(user, session, "Hello."))
    answered = statuses.count(200)
    faults = [] if answered == TOTAL else [f"{answered} turns are answered, {TOTAL} are allowed"]
    if other := set(statuses) - {200, 403}:
        faults.append(f"typed turns get other answers than 200 and 403: {sorted(other)}")
    return Outcome(len(statuses), {"statuses": statuses}, faults)
