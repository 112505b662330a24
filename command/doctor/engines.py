"""Check of the engines: every one of the deployment is loaded, and a sentence is spoken and understood.

Loading checks the files of models against their pinned hashes.
"""

import re
import time
from collections.abc import Sequence

from parley.command.doctor.results import CheckResult, fail, good, warn
from parley.configs.deployment import Deployment

# Of the words of the phrase; a recogniser for short commands on a phone line still finds most of them.
UNDERSTOOD, DOUBTFUL = 0.7, 0.3


async def check_engines(deployment: Deployment) -> Sequence[CheckResult]:
    """Load the engines of a deployment, let the voice speak and the recogniser listen."""
    from parley.pipelines.engines.engines import Engines
    from parley.pipelines.engines.speech_trial import MEASURED_PHRASE, understood

    begun_s = time.monotonic()
    async with await Engines.load(deployment, duplex=True) as engines:
        results = [good(f"loaded within {time.monotonic() - begun_s:.1f} s, files and hashes are right")]
        results += [fail(reason, "see the server's log") for reason in engines.health()]
        voice, recogniser = engines.voice, engines.recogniser
        if voice is None or recogniser is None:
            which = "voice" if voice is None else "recogniser"
            step = "a call at the running server tries it"
            return [*results, warn(f"the {which} is a service, and was not tried", step)]
        begun_s = time.monotonic()
        heard = await understood(voice, recogniser, engines.executors.speech)
    took_ms = round((time.monotonic() - begun_s) * 1000)
    share = _share(MEASURED_PHRASE, heard)
    text = f"the voice said {MEASURED_PHRASE!r}, and the recogniser heard {heard!r} ({took_ms} ms)"
    if share >= UNDERSTOOD:
        return [*results, good(text)]
    step = "choose another recogniser or voice: docs/reference/weights.md"
    return [*results, warn(text, step) if share >= DOUBTFUL else fail(text, step)]


def _share(said: str, heard: str) -> float:
    wanted, found = (re.findall(r"\w+", text.lower()) for text in (said, heard))
    return sum(word in found for word in wanted) / len(wanted)
