"""Phrases of the deployment, as frames for the voice. Pure."""

from pipecat.frames.frames import TTSSpeakFrame


def protected_phrase(text: str) -> TTSSpeakFrame:
    """Return a phrase that is part of the conversation and cannot be interrupted."""
    frame = TTSSpeakFrame(text, append_to_context=True)
    frame.interruptible = False
    return frame
