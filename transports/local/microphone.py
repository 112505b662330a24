"""This machine's microphone and loudspeaker, through Pipecat's PortAudio transport."""

from pipecat.transports.base_transport import BaseTransport

from core.errors import ConfigError


def open_microphone() -> BaseTransport:
    """The default input and output devices at 16 kHz.

    Raises ConfigError when the binding, the library or a device is missing.
    """
    try:
        import pyaudio
        from pipecat.transports.local.audio import LocalAudioTransport, LocalAudioTransportParams
    except ImportError as error:
        raise ConfigError(
            "the local transport needs PortAudio and the extra 'local': "
            "sudo apt-get install portaudio19-dev && .venv/bin/pip install '.[local]'"
        ) from error
    devices = pyaudio.PyAudio()
    try:
        devices.get_default_input_device_info()
        devices.get_default_output_device_info()
    except OSError as error:
        raise ConfigError(f"no microphone or loudspeaker on this machine: {error}") from error
    finally:
        devices.terminate()
    return LocalAudioTransport(
        LocalAudioTransportParams(
            audio_in_enabled=True,
            audio_out_enabled=True,
            audio_in_sample_rate=16_000,
            audio_out_sample_rate=16_000,
        )
    )
