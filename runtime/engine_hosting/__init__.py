"""Engines in processes of their own: messages, their bytes, and the supervision of children (ADR 0014)."""
