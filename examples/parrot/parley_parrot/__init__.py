"""Package that extends Parley: a recogniser, a full-duplex engine, a tool, an observer and a room.

Useless on calls, and the smallest complete example of each. The interfaces and their rules are in Parley:
``models/stt``, ``models/omni``, ``models/tools``, ``runtime/observers.py`` and ``transports/registry.py``.
"""
