"""Browser calls over WebRTC: Pipecat's SmallWebRTC transport with paced output, fast flush and peer liveness."""
