"""A language model from a GGUF file, on this machine, by llama.cpp (the package xllamacpp).

``server`` owns a child process in which ``engine`` loads the file and serves OpenAI's chat completions on a
loopback port; the service of a call speaks to that port as to any compatible server.
"""
