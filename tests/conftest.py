"""Logs of the tests: warnings and worse, so that a failure can be read and virtual time is not spent on
writing.
"""

import sys

from loguru import logger

logger.remove()
logger.add(sys.stderr, level="WARNING")
