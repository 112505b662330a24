"""Observing processors for telemetry and recording. They never change a frame."""
