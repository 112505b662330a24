"""Headless Chromium for the evaluations of pages, with no connection to any other host.

The ``playwright`` package is imported by a run alone.
"""

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from parley.core.errors import ConfigError

if TYPE_CHECKING:
    from playwright.async_api import Browser

OFFLINE = (
    "--disable-background-networking",
    "--no-first-run",
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE localhost",
)
# A microphone and a camera that every page may use.
DEVICES = (
    "--use-fake-device-for-media-stream",
    "--use-fake-ui-for-media-stream",
    "--autoplay-policy=no-user-gesture-required",
)


@asynccontextmanager
async def chromium(*flags: str) -> AsyncIterator["Browser"]:
    """Run a new browser until the end of the context.

    Args:
        flags: of its command line, in addition to ``OFFLINE``.

    Raises:
        ConfigError: there is no Chromium, or no ``playwright``.
    """
    try:
        from playwright.async_api import async_playwright
    except ImportError as error:
        raise ConfigError("pages need the package playwright (make setup)") from error
    path = shutil.which("chromium")
    if path is None:
        raise ConfigError("pages need Chromium (make setup installs it on Debian)")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=path, args=[*OFFLINE, *flags])
        try:
            yield browser
        finally:
            await browser.close()
