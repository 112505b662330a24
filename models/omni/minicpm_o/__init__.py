"""MiniCPM-o 4.5: a model that hears and sees a second, then listens or says a second.

engine (this process) <-- wire --> worker (another Python environment) --> binding --> the model's own code

``worker``, ``binding`` and ``wire`` run in the other environment as well: they import the standard library,
numpy and, when a model is loaded, torch, transformers and PIL. Nothing else of Parley is needed there.
"""
