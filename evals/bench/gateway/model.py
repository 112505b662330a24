"""Stand-in for a model that the gateway serves: a MiniCPM-o server whose units cost a fixed time.

``python -m evals.bench.gateway.model COST_MS`` prints its address and serves until it is killed. Units speak
and listen in turns of two; ``cost_llm_ms`` of each result is the time that this one took here.
"""

import asyncio
import base64
import json
import sys
import time

import numpy as np
from websockets.asyncio.server import ServerConnection, serve

SPEECH = base64.b64encode(
    (0.3 * np.sin(2 * np.pi * 220 * np.arange(24_000) / 24_000)).astype("<f4").tobytes()
).decode()


async def _talk(connection: ServerConnection, cost_s: float) -> None:
    units = 0
    async for data in connection:
        came_s = time.perf_counter()
        kind = json.loads(data)["type"]
        if kind == "prepare":
            await connection.send(json.dumps({"type": "prepared", "prompt_length": 8}))
        elif kind == "audio_chunk":
            speaks, ends = units % 4 >= 2, units % 4 == 3
            units += 1
            await asyncio.sleep(max(0.0, came_s + cost_s - time.perf_counter()))
            result = {
                "type": "result",
                "is_listen": not speaks,
                "text": f" {units}" if speaks else "",
                "audio_data": SPEECH if speaks else "",
                "end_of_turn": ends,
                "current_time": units,
                "kv_cache_length": units * 32,
                "server_send_ts": time.time(),
            }
            result |= {name: 0.0 for name in ("cost_tts_prep_ms", "cost_tts_ms", "cost_token2wav_ms")}
            result |= {"n_tokens": 5, "n_tts_tokens": 25}
            took_ms = (time.perf_counter() - came_s) * 1000
            result |= {"cost_llm_ms": took_ms, "cost_all_ms": took_ms, "wall_clock_ms": took_ms}
            await connection.send(json.dumps(result))
        elif kind == "stop":
            await connection.send(json.dumps({"type": "stopped"}))
            return


async def _main(cost_ms: float) -> None:
    async with serve(lambda connection: _talk(connection, cost_ms / 1000), "127.0.0.1", 0) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        print(f"ws://127.0.0.1:{port}/ws/duplex/eval", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_main(float(sys.argv[1])))
