"""The program: command lines, and what they compose of the layers below: a server, single calls, a worker.

``parley`` and ``python -m parley`` (``main``), ``bot.py`` (``bot_line``) and ``runner.py`` (``runner_line``)
are names for it. Modules that import Pipecat are imported only after a command line is read: Pipecat logs
during its import, and the user chooses how much of the log is shown.
"""

import os

# Set before numpy is loaded. The event loop forks when an engine's process starts, and a fork waits for the
# threads of OpenBLAS. While another thread was at work in them, that wait did not end. A worker's idle
# threads would spin for some 40 ms after each product.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
