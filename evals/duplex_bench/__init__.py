"""A full-duplex engine against callers who pause, finish, interrupt, hum along, and talk to somebody else.

Definitions of Full-Duplex-Bench v1 and v1.5 and of the voice metrics of tau2-bench, written anew from what
they say, beside controls that show what each figure is worth; see docs/duplex_bench.md.
"""
