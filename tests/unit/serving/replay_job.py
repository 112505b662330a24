"""Process of a replay as ``serving.gateway.replays`` starts it, which does what the name of a call says.

It speaks the protocol of ``command.replay_job`` and loads no engine. The last digit of the id of the call
decides: 0 succeeds, 1 is killed, 2 fails with a reason, 3 goes on until it is ended, 4 ends without a report.
"""

import argparse
import json
import os
import signal
import sys
from pathlib import Path


def main() -> int:
    parser = argparse.ArgumentParser()
    for name in ("--config", "--session", "--call", "--output"):
        parser.add_argument(name)
    given = parser.parse_args()
    output = Path(given.output)
    assert Path(given.config).read_text() == "name: today\n"
    assert os.environ["TMPDIR"] == given.output
    print(json.dumps({"state": "replaying", "at_ms": 250, "pid": os.getpid()}), flush=True)
    match given.call[-1]:
        case "0":
            facts = {"summary": "1 turn", "turns": [], "session": given.session}
            (output / "result.json").write_text(json.dumps(facts))
            (output / "index.html").write_text("<h1>Replay</h1>")
            print(json.dumps({"state": "done"}), flush=True)
        case "1":
            os.kill(os.getpid(), signal.SIGKILL)
        case "2":
            print(json.dumps({"state": "failed", "reason": "an engine does not load"}), flush=True)
            return 1
        case "3":
            # Without an end: it is killed, or dies with its parent.
            (output.parent / f"{given.call}.folder").write_text(given.output)
            sys.stdin.close()
            signal.pause()
        case "4":
            return 7
    return 0


if __name__ == "__main__":
    sys.exit(main())
