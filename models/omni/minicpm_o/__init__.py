"""MiniCPM-o 4.5: a model that reads a second of audio and video, then listens or speaks for a second.

engine (this process) <-- wire --> worker (another Python environment) --> binding --> the model's own code

``worker``, ``binding`` and ``wire`` run in the other environment as well. They import the standard library,
numpy and, when a model is loaded, torch, transformers and PIL. No other part of Parley is needed there.
"""
