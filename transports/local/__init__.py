"""Calls on this machine: WAV files, microphone and loudspeaker."""
