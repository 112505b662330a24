"""A full-duplex engine in a pipeline: one prefill and one generation for each unit, in place of dialogue and
speech.
"""
