"""Attacks on a running server while control calls measure their own audio; see ``docs/abuse.md``."""
