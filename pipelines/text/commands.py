"""Commands of a typed conversation: lines that begin with a slash and are no questions."""

from collections.abc import Mapping

QUIT = "/quit"
# In the order of the console's list. A picture can be shown in the console only.
IMAGE = "/image"
COMMANDS: Mapping[str, str] = {
    "/help": "list the commands",
    IMAGE: "show the picture in a file with the next line: /image PATH",
    "/session": "print the id of the session, with which --session resumes it",
    QUIT: "end the conversation",
}
COMMANDS_OF_LINES: Mapping[str, str] = {name: text for name, text in COMMANDS.items() if name != IMAGE}


def is_command(line: str) -> bool:
    """Return whether a line is a command, known or not."""
    return line.startswith("/")


def response_to(command: str, commands: Mapping[str, str], session_id: str) -> str:
    """Return the lines that a command prints; also for an unknown one.

    Args:
        command: the line.
        commands: known commands and their effects.
        session_id: of the conversation.
    """
    if command == "/help":
        return "".join(f"{name:<10}{effect}\n" for name, effect in commands.items())
    if command == "/session":
        return f"{session_id}\n"
    return f"Unknown command {command}; /help lists the commands.\n"
