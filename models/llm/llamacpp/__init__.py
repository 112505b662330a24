"""Language model from a GGUF file on this machine, run by llama.cpp (the package xllamacpp).

``server`` owns a child process in which ``engine`` loads the file and serves OpenAI's chat completions on a
loopback port. The service of a call connects to that port as to any compatible server.
"""
