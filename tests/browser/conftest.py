"""The real lab in a headless browser."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from playwright.sync_api import Locator, Page, expect, sync_playwright

ROOT = Path(__file__).parents[2]
PATIENCE = 180_000  # milliseconds: two busy cores may need them, an idle machine never does
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# Without these Chromium asks the network for updates at every start.
FLAGS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
)
expect.set_options(timeout=PATIENCE)

# The contrast of an element's text with the page behind it, as the accessibility guidelines define it.
CONTRAST = """element => {
    if (!element.isConnected) return 0;
    const light = colour => {
        const [r, g, b] = colour.match(/[0-9.]+/g).slice(0, 3).map(v => v / 255)
            .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    let behind = element;
    const background = () => getComputedStyle(behind).backgroundColor;
    while (/, 0\\)$/.test(background())) behind = behind.parentElement;
    const [low, high] = [getComputedStyle(element).color, background()].map(light).sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
}"""


def pytest_collection_modifyitems(items):
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.browser)
            item.add_marker(pytest.mark.slow)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if report.when == "call" and report.failed and "page" in item.funcargs:
        item.funcargs["page"].screenshot(path=artefacts() / f"failed-{item.name}.png")
    return report


def artefacts() -> Path:
    """The folder for pictures of the page, which git does not keep."""
    folder = Path(os.environ.get("TEST_ARTEFACTS") or ROOT / "artefacts")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


class Lab:
    """`course lab` on a workspace of its own."""

    def __init__(self, workspace: Path, **env: str) -> None:
        self.workspace = workspace
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "course_lib.command.cli",
                "lab",
                "--no-browser",
                "--dir",
                str(workspace),
                "--port",
                port,
            ],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **env},
        )
        self.url = next(
            (found.group() for line in self._process.stdout if (found := re.search(r"http://\S+", line))),
            None,
        )
        assert self.url, "the lab ended without saying where it is"

    def running(self, word: str) -> list[psutil.Process]:
        """The processes of the lab, kernels and ranks included, that have `word` on their command line."""
        found = []
        for process in psutil.Process(self._process.pid).children(recursive=True):
            try:
                if word in " ".join(process.cmdline()):
                    found.append(process)
            except psutil.NoSuchProcess:
                pass
        return found

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait for what the browser cannot see."""
        deadline = time.monotonic() + PATIENCE / 1000
        while not condition():
            assert time.monotonic() < deadline, f"not true after {PATIENCE / 1000:.0f} s"
            time.sleep(0.1)

    def close(self) -> list[psutil.Process]:
        """Press Ctrl-C; return the processes that are left."""
        started = psutil.Process(self._process.pid).children(recursive=True)
        self._process.send_signal(signal.SIGINT)
        self._process.wait(60)
        return psutil.wait_procs(started, timeout=10)[1]


class Notebook:
    """A notebook in the browser, driven as a learner drives it."""

    def __init__(self, page: Page, url: str, title: str) -> None:
        """Open the lab at its welcome page and follow the link to the notebook."""
        self.page = page
        page.goto(url)
        page.get_by_role("link", name=title, exact=True).click()
        page.get_by_text("Python 3 (ipykernel) | Idle").wait_for()
        self.cells = page.locator(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-Cell")
        self.cells.first.wait_for()

    def cell(self, text: str) -> Locator:
        """The first cell whose source holds `text`."""
        return self.cells.filter(has=self.page.locator(".jp-InputArea", has_text=text)).first

    def run(self, first: str, last: str = "") -> Locator:
        """Run from the first cell whose source holds `first` to the one that holds `last`, and return it."""
        cell, last = self.cell(first), last or first
        cell.locator(".jp-InputPrompt").click()
        for _ in range(self.cells.count()):
            selected = self.page.locator(".jp-Cell.jp-mod-selected .jp-InputArea")
            arrived = last in selected.inner_text()
            self.page.keyboard.press("Shift+Enter")
            if arrived:
                return self.cell(last)
        raise AssertionError(f"no cell after {first!r} holds {last!r}")

    def add(self, after: str, code: str) -> Locator:
        """Put a cell under the first one whose source holds `after`, run it, return it."""
        self.cell(after).locator(".jp-InputPrompt").click()
        self.page.keyboard.press("b")
        self.page.keyboard.press("Enter")
        self.page.keyboard.insert_text(code)
        return self.run(code)

    def progress(self, cell: Locator) -> list[int]:
        """Percent of each rank's bar in a live view."""
        return cell.get_by_role("progressbar").evaluate_all("bars => bars.map(bar => +bar.ariaValueNow)")

    def show(self, cell: Locator) -> None:
        """Scroll until the cell stands at the top."""
        cell.evaluate("cell => cell.scrollIntoView()")

    def contrast(self, element: Locator) -> float:
        """The contrast of an element's text with the page behind it; 0 if it has just been replaced."""
        return element.evaluate(CONTRAST)

    def theme(self, name: str) -> None:
        """Change the theme with the Settings menu."""
        self.page.get_by_role("menuitem", name="Settings").click()
        for item in ("Theme", name):
            self.page.locator(".lm-Menu-itemLabel", has_text=re.compile(f"^{item}$")).click()
        light = "false" if "Dark" in name else "true"
        self.page.locator(f"body[data-jp-theme-light={light}]").wait_for(state="attached")


@pytest.fixture(scope="module")  # Playwright's event loop runs until its end: asyncio.run would fail in other tests
def chromium():
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        pytest.skip("there is no Chromium here; on Debian: apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS.split())
        yield browser
        browser.close()


@pytest.fixture
def images():
    """Training images in the lab: few enough for epochs of seconds."""
    return 12_800


@pytest.fixture
def settings(images):
    """Variables in the environment of the lab."""
    return {"COURSE_SLICE": str(images)}


@pytest.fixture
def lab(tmp_path, settings):
    lab = Lab(tmp_path / "workspace", **settings)
    yield lab
    assert not lab.close(), "processes of the lab outlived it"


@pytest.fixture
def shot(page):
    """Save a picture of the page, once JupyterLab's opening picture is gone, if TEST_ARTEFACTS names a folder."""

    def save(name: str) -> None:
        if "TEST_ARTEFACTS" not in os.environ:  # each takes a second, and nobody would look
            return
        page.locator("#jupyterlab-splash").wait_for(state="detached")
        page.screenshot(path=artefacts() / f"{name}.png")

    return save


@pytest.fixture
def page(chromium):
    page = chromium.new_page(viewport={"width": 1400, "height": 900})
    page.set_default_timeout(PATIENCE)
    yield page
    page.close()


@pytest.fixture
def opened(page, lab):
    """opened(title): a notebook, opened from the welcome page."""
    return lambda title: Notebook(page, lab.url, title)


@pytest.fixture
def convert(opened):
    """Notebook 2b."""
    return opened("2b Convert a script")
