"""``parley config``: every setting of a deployment with its meaning, or the schema for editors."""

import argparse

from parley.command import options
from parley.command.exit_status import status_of
from parley.command.log import configure_log
from parley.command.run import print_config
from parley.configs.load import CONFIG_DIR, load_deployment


def main(arguments: list[str]) -> int:
    """Print the settings; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="parley config",
        description="Print a deployment as YAML, with the meaning and default of every setting.",
    )
    options.add_config(parser)
    options.add_all(parser)
    parser.add_argument(
        "--schema",
        action="store_true",
        help="print the JSON schema of a deployment's file, by which editors complete and check it",
    )
    options.add_verbose(parser)
    given = parser.parse_args(arguments)
    configure_log(given.verbose)
    if given.schema:
        print((CONFIG_DIR / "deployment.schema.json").read_text(encoding="utf-8"), end="")
        return 0
    return status_of(parser.prog, lambda: print_config(load_deployment(given.config), with_engines=given.all))
