"""Browser calls over WebRTC: Pipecat's transport with paced output, fast flush and peer liveness."""
