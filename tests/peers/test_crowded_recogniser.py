"""Two callers speak at once to pocketsphinx with one decoder, in its own process."""

import asyncio

from loguru import logger
from pipecat.frames.frames import ErrorFrame, TranscriptionFrame
from pipecat.tests.utils import run_test

from parley.processors.perception.engine_stt import EngineSttService
from tests.peers.pocketsphinx_call import QUESTIONS, child, spoken


async def test_both_callers_get_their_words_from_one_decoder() -> None:
    logged: list[str] = []
    sink = logger.add(lambda line: logged.append(line.record["message"]), level="WARNING")
    engine = child(max_decoders=1)
    await engine.start()
    try:
        calls = await asyncio.gather(
            *(
                run_test(EngineSttService(engine), frames_to_send=spoken(question, frame_s=0.005, rest_s=5))
                for question in QUESTIONS
            )
        )
    finally:
        logger.remove(sink)
        await engine.close()
    assert any("decoders are in use" in line for line in logged)
    heard = [[f.text for f in down if isinstance(f, TranscriptionFrame)] for down, _ in calls]
    assert heard == [[question] for question in QUESTIONS]
    assert not [frame for _, up in calls for frame in up if isinstance(frame, ErrorFrame)]
    assert engine.restarts == 0
