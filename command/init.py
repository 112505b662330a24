"""``parley init``: a deployment to start from, in the current folder."""

import argparse
from pathlib import Path

from parley.command.exit_status import status_of
from parley.core.errors import ConfigError
from parley.core.installation import parley_command, pip_command

STARTER = Path(__file__).with_name("starter.yaml")
NAME = "parley.yaml"


def main(arguments: list[str]) -> int:
    """Write the file; return the exit status: 2 when it exists or cannot be written."""
    parser = argparse.ArgumentParser(
        prog="parley init",
        description=f"Write {NAME} into the current folder: a deployment to start from, with comments.",
    )
    parser.parse_args(arguments)
    return status_of(parser.prog, _write)


def starter() -> str:
    """Return the text of the file, with the commands that fit this installation."""
    text = STARTER.read_text(encoding="utf-8").replace("{pip_anthropic}", pip_command("anthropic"))
    return text.replace("{parley}", parley_command())


def _write() -> int:
    target = Path(NAME)
    try:
        with target.open("x", encoding="utf-8") as file:
            file.write(starter())
    except FileExistsError as error:
        raise ConfigError(f"{NAME} exists already; it is left as it is") from error
    except OSError as error:
        raise ConfigError(f"cannot write {NAME}: {error.strerror}") from error
    parley = parley_command()
    print(f"{NAME} is written.")
    print(f"Check it: {parley} check --config {NAME}")
    print(f"Start it: {parley} serve --config {NAME}")
    return 0
