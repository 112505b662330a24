"""Package that extends Parley: a recogniser, a full-duplex engine, a tool and an observer.

Useless on calls, and the smallest complete example of each. The interfaces and their rules are in Parley:
``models/stt``, ``models/omni``, ``models/tools`` and ``runtime/observers.py``.
"""
