"""A real browser for the tests: Chromium as the system has it, driven by Playwright.

Where one of the two is missing the tests that need it are skipped, and say so. `make browser` installs both, and
axe-core, which looks for what people with disabilities cannot use.
"""

import os
import shutil
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
AXE = Path(os.environ.get("QUAERE_AXE", Path(sys.prefix) / "share/axe.min.js"))


def find_chromium():
    """The path of the browser; skips the test if it, or what drives it, is not installed."""
    pytest.importorskip("playwright.sync_api", reason="Playwright is not installed: make browser")
    found = os.environ.get("QUAERE_CHROMIUM") or next(filter(None, map(shutil.which, _NAMES)), None)
    if not found:
        pytest.skip("there is no Chromium on this machine: make browser")
    return found


@contextmanager
def open_browser(chromium):
    """A browser without windows. While it is open, this thread has an event loop and can run no other."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # Chromium's sandbox needs rights that containers and root do not have; the pages are our own.
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


class Watched:
    """A page of which everything is noted that must not happen: errors, dialogs, requests to other hosts."""

    def __init__(self, page, url):
        self.page, self.url = page, url
        self.faults = []
        page.on("console", lambda said: self.faults.append(said.text) if said.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: self.faults.append(str(error)))
        page.on("dialog", self._refuse)
        page.on("request", self._check)

    def open(self, path):
        reply = self.page.goto(self.url + path)
        assert reply.status == 200, path
        return self.page

    def _refuse(self, dialog):
        self.faults.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _check(self, request):
        if not request.url.startswith(f"{self.url}/"):
            self.faults.append(f"request: {request.url}")


@contextmanager
def watch(browser, url, *, width=1280, scheme="light"):
    """A new window on a server; fails at the end if anything went wrong in it."""
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    context.set_default_timeout(20_000)
    try:
        watched = Watched(context.new_page(), url)
        yield watched
        assert watched.faults == []
    finally:
        context.close()


def find_barriers(page):
    """What axe-core finds; [] where it is not installed."""
    if not AXE.is_file():
        return []
    page.evaluate(AXE.read_text(encoding="utf-8"))
    # Preloading would fetch the style sheet, which the policy of a page in a file forbids.
    found = page.evaluate("axe.run(document, {resultTypes: ['violations'], preload: false})")["violations"]
    return [(fault["id"], [node["html"][:200] for node in fault["nodes"]][:3]) for fault in found]
