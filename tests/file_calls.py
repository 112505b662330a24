"""Parameters of the transport in calls from a file."""

from pipecat.transports.base_transport import TransportParams


def file_params(rate_hz: int) -> TransportParams:
    """Return parameters for one rate in both directions, without silence after the last word."""
    return TransportParams(
        audio_in_enabled=True,
        audio_out_enabled=True,
        audio_in_sample_rate=rate_hz,
        audio_out_sample_rate=rate_hz,
        audio_out_end_silence_secs=0,
    )
