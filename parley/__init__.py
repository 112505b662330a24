"""Parley: a conversation server.

The folders of the repository are linked here, so that a checkout and an installed wheel have the same one
import package (docs/adr/0001-root-level-packages.md).
"""
