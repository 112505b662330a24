"""Offline transcription of files and recorded calls: throughput over many, apart from live calls."""
