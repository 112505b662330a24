"""Voice to imitate that a client sends during a call: that with which the engine is prepared alone."""

import pytest

from parley.pipelines.sockets.client_checks import checked_voice
from parley.protocols.client_protocol import ProtocolError, SessionUpdate


@pytest.mark.parametrize("voice", ["anna", "", None])
def test_a_client_may_go_on_to_send_a_voice_that_was_removed_since(voice: str | None):
    # It requested "anna", and the engine's own voice speaks. Unmute's client sends it with each update.
    update = SessionUpdate(instructions="Be kind.", reference_voice=voice)
    assert checked_voice({"anna", ""}, update) is update


def test_another_voice_is_refused():
    with pytest.raises(ProtocolError) as refused:
        checked_voice({"anna", ""}, SessionUpdate(reference_voice="bob"))
    assert refused.value.code == "cannot_update_voice"
