"""A name for the command that serves or holds one conversation, and a Pipecat bot module (``bot``).

``python bot.py`` serves a browser page with the engines of a deployment; ``--transport file`` and
``--transport local`` hold one call on this machine and end. The command is ``parley.command.bot_line``;
``parley serve``, ``parley call`` and ``parley text`` do the same.
"""

from parley.runtime.interrupts import end_at_once

if __name__ == "__main__":
    # Before the other imports, during which Ctrl-C would be an exception inside other packages.
    end_at_once()

from parley.command.bot_line import main
from parley.command.pipecat_bot import bot
from parley.runtime.process_exit import exit_process

__all__ = ["bot", "main"]

if __name__ == "__main__":
    exit_process(main())
