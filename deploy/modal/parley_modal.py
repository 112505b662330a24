"""Parley on Modal: one call in one container, which starts from a memory snapshot.

    browser -- GET /, POST /start, POST /sessions/{id}/api/offer --> web: one small container for all pages
       |                                                              | hold.spawn(offer, answers): one
       |                                                              v FunctionCall for each call
       +------ audio, directly or over TURN -------------------> Call: parley serve, on this container alone
                                                                      | the answer, through a modal.Queue

    modal deploy deploy/modal/parley_modal.py

The deployment is ``PARLEY_CONFIG`` (a name or a path in the image); its keys are in the Modal secret
``parley``. Sessions outlive their containers where ``PARLEY_STORE_URL`` in that secret names a PostgreSQL.
"""

import json
import os
import queue
import uuid
from pathlib import Path
from typing import Any

import modal

CONFIG = os.environ.get("PARLEY_CONFIG", "embedded")
HERE = Path(__file__).resolve().parent
# In the image: next to this file.
ROOT = HERE.parents[1] if len(HERE.parents) > 1 else HERE
LONGEST_CALL_S, ANSWER_S = 3_600, 60
# Two cores hold one call with everything embedded, and 1.5 GB are enough for it.
CORES, MEMORY_MB = 2.0, 2_048
# Offers whose answer has not been fetched yet, and bytes of one.
MOST_STARTED, MOST_OFFER_BYTES = 1_000, 64_000

app = modal.App("parley")
image = modal.Image.from_dockerfile(ROOT / "deploy" / "Dockerfile", context_dir=ROOT).entrypoint([])
secrets = [modal.Secret.from_name("parley")]


@app.cls(
    image=image.env({"PARLEY_CONFIG": CONFIG}).add_local_file(HERE / "line.py", "/srv/parley/line.py"),
    cpu=CORES,
    memory=MEMORY_MB,
    timeout=LONGEST_CALL_S,
    secrets=secrets,
    enable_memory_snapshot=True,
    # The next call gets a container that has started already.
    buffer_containers=1,
    single_use_containers=True,
)
class Call:
    """Container of one call."""

    @modal.enter(snap=True)
    def load(self) -> None:
        """Import what the server needs, and check its weights: both are in the snapshot."""
        import parley.command.server  # noqa: F401
        import parley.pipelines.engines.engines  # noqa: F401

    @modal.method()
    async def hold(self, offer: dict[str, Any], answers: modal.Queue) -> None:
        """Answer an offer, and hold its call until it is over."""
        from line import Line, LineError

        async with Line(CONFIG) as line:
            try:
                answer = await line.answer(offer)
            except LineError as error:
                await answers.put.aio({"error": str(error)})
                return
            await answers.put.aio(answer)
            await line.until_over()


# One container: it has the calls that were started, and the next request of a page may come at any time.
@app.function(image=image, cpu=0.25, secrets=secrets, max_containers=1)
@modal.concurrent(max_inputs=100)
@modal.asgi_app()
def web() -> Any:
    """Serve the page, and pass offers on to containers of their own."""
    from fastapi import FastAPI, HTTPException, Request
    from starlette.responses import Response

    from parley.pipelines.modes import CASCADE
    from parley.serving.gateway.page_files import page_files

    pages, files = FastAPI(), page_files()
    started: dict[str, Any] = {}

    @pages.get("/")
    def page(request: Request) -> Response:
        return files.page("index.html", request)

    @pages.get("/status")
    def status() -> dict[str, object]:
        return {"mode": CASCADE, "omni": None}

    @pages.post("/start")
    async def start(request: Request) -> dict[str, object]:
        if len(started) >= MOST_STARTED:
            # The oldest was given up: a page sends its offer at once.
            del started[next(iter(started))]
        session = str(uuid.uuid4())
        started[session] = (await _body(request)).get("body") or {}
        return {"sessionId": session}

    @pages.post("/sessions/{session}/api/offer")
    async def offer(session: str, request: Request) -> dict[str, Any]:
        if session not in started:
            raise HTTPException(404, "this call was not started")
        given = {**await _body(request), "requestData": started.pop(session)}
        async with modal.Queue.ephemeral() as answers:
            await Call().hold.spawn.aio(given, answers)
            try:
                answer = await answers.get.aio(timeout=ANSWER_S)
            except queue.Empty:
                answer = {"error": "the container of the call has not answered"}
        if "error" in answer:
            raise HTTPException(503, answer["error"])
        return dict(answer)

    @pages.patch("/sessions/{session}/api/offer")
    def candidates(session: str) -> dict[str, str]:
        # The offer has the first ones; the server of the call learns the others from the packets themselves.
        return {"status": "success", "session": session}

    async def _body(request: Request) -> dict[str, Any]:
        content = bytearray()
        async for piece in request.stream():
            content += piece
            if len(content) > MOST_OFFER_BYTES:
                raise HTTPException(413, f"over {MOST_OFFER_BYTES} bytes")
        try:
            found = json.loads(content)
        except ValueError as error:
            raise HTTPException(400, "not JSON") from error
        return found if isinstance(found, dict) else {}

    pages.mount("/shared", files.shared)
    return pages
