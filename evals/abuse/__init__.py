"""Attacks on a running server while control calls measure their own audio (``docs/explanation/abuse.md``)."""
