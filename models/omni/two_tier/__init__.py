"""Two tiers: a small policy decides on every tick who talks, and a large one makes the content on demand.

unit of audio -> voice gate, completeness, words -> duplex policy -> listen, speak, hum, yield
                                                        |  wakes, guesses, cancels
                                                   content: any language model, any voice
"""
