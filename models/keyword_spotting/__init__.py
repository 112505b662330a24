"""Command spotting: a few phrases that must be recognised, by an engine that recognises little else.

A general recogniser weighs a lone "stop" against a whole language and writes "shut". An engine of this stage
chooses between its commands and other short utterances. The interface is that of a recogniser
(``models.stt``), so that the same process can host it. It takes an utterance and returns a final transcript,
whose text is one of the commands or empty. The transcript may also report how likely the voice claims the
floor (``Transcript.floor_log_odds``, ``floor.py``). There are no partials: a command is short, and known when
the voice has ended.
"""

from parley.core.registry import Registry, Row
from parley.models.stt import SpeechToText

COMMANDS: Registry[SpeechToText] = Registry(
    "command spotter",
    {
        "pocketsphinx": Row(
            "parley.models.keyword_spotting.pocketsphinx:PocketsphinxCommands", "stop words, in English"
        )
    },
)
