"""Full-duplex engines against callers who pause, finish, interrupt, hum along, and talk to other people.

The definitions of Full-Duplex-Bench v1 and v1.5 and of the voice metrics of tau2-bench, implemented anew from
their descriptions, with controls that calibrate each figure. See docs/explanation/duplex_bench.md.
"""
