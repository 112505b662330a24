"""Commands: a few phrases that have to be heard, by an engine that hears little else.

A recogniser of everything weighs a lone "stop" against a whole language and writes "shut". An engine of this
stage chooses between its commands and what else people say in a second. The interface is that of a
recogniser (``models.stt``), so that the same process can host it: an utterance in, a final transcript out,
whose text is one of the commands or empty, and which may say besides how likely the voice wants the floor
(``Transcript.floor_log_odds``, ``floor.py``). There are no partials: a command is short, and known when the
voice has ended.
"""

from core.registry import Registry, Row
from models.stt import SpeechToText

COMMANDS: Registry[SpeechToText] = Registry(
    "command spotter",
    {"pocketsphinx": Row("models.commands.pocketsphinx:PocketsphinxCommands", "stop words, in English")},
)
