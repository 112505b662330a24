"""Engines in separate processes: messages, their encoding, and the supervision of children (ADR 0014)."""
