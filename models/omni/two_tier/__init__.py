"""Two tiers: a small policy decides on every tick who talks, and a large one is woken for what is said.

unit of audio -> voice gate, completeness, words -> duplex policy -> listen, speak, hum, yield
                                                        |  wakes, guesses, cancels
                                                   content: any language model, any voice
"""
