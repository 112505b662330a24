"""Commands in a typed conversation whose lines come from a file."""

import io
from pathlib import Path

from parley.configs.load import load_deployment
from parley.pipelines.text.terminal import talk_in_terminal


async def test_lines_of_a_file_may_be_commands(tmp_path: Path):
    deployment = tmp_path / "own.yaml"
    deployment.write_text("remembering: {store: {url: 'sqlite:///sessions.db'}}\nbot: {greeting: ''}\n")
    lines = tmp_path / "lines.txt"
    lines.write_text("/help\n/session\n/etc\n/quit\nWhat are your opening hours?\n")
    out = io.StringIO()
    with lines.open() as source:
        assert await talk_in_terminal(load_deployment(deployment), source, out) == 0
    *listed, session, unknown = out.getvalue().splitlines()
    assert [line.split()[0] for line in listed] == ["/help", "/session", "/quit"]
    assert len(session) == 36
    assert unknown == "Unknown command /etc; /help lists the commands."
