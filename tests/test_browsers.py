"""The pages in Firefox and WebKit, from files and without a network, where these are installed.

`make soak` tries both (Debian's `firefox-esr`, `webkit2gtk-driver` and `xvfb`); `make test` only
the page that translates, in WebKit, which stands for Safari. Playwright drives browsers of its own;
these are asked over what each of them has: Marionette, a socket and JSON, and the driver's HTTP and
JSON.
"""

import itertools
import json
import os
import shutil
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import SOAK, free_ports, started, wait_for
from tests.test_write_it import ATTENTION
from translator.__main__ import main

FIGURE = "document.querySelector('.explorer.ready > div').shadowRoot"
PANEL = "document.querySelector('.sentence-panel[data-panel=vectors]')"
BOX = "document.querySelector('details.write-it[data-function=attention]')"
# what lies beyond the right edge and can't be scrolled to within a box
WIDE = """const edge = document.documentElement.clientWidth, boxed = (e) => e !== document.body
  && (getComputedStyle(e).overflowX !== 'visible' || boxed(e.parentElement));
return [...document.querySelectorAll('main *, header *')]
  .filter((e) => e.checkVisibility() && e.getBoundingClientRect().right > edge + 0.5)
  .filter((e) => !boxed(e.parentElement))
  .map((e) => e.outerHTML.slice(0, 200));"""
ERRORS = """return Services.console.getMessageArray().filter((m) => m instanceof Ci.nsIScriptError
  && !(m.flags & Ci.nsIScriptError.warningFlag) && /^(file|blob|data):/.test(m.sourceName))
  .map((m) => m.errorMessage);"""


class Firefox:
    """A Firefox without a window, network and extensions, and what it is asked."""

    def __init__(self, folder):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        wishes = {"marionette.port": port, "network.dns.disabled": True}
        wishes["dom.max_script_run_time"] = 0
        pairs = [f"{json.dumps(name)}, {json.dumps(value)}" for name, value in wishes.items()]
        lines = [f"user_pref({pair});\n" for pair in pairs]
        (folder / "user.js").write_text("".join(lines))
        command = "firefox-esr --headless --marionette --remote-allow-system-access"
        command += " --no-remote --profile"
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.process = subprocess.Popen([*command.split(), folder], **quiet)
        self.numbers = itertools.count(1)
        self.received = b""

        def connect():
            try:
                return socket.create_connection(("127.0.0.1", port))
            except OSError:
                return None

        self.socket = wait_for("Firefox", connect)
        self._read()  # it greets
        patient = {"timeouts": {"pageLoad": 300_000}}
        self.ask("WebDriver:NewSession", capabilities={"alwaysMatch": patient})
        self.chrome("for (const w of Services.wm.getEnumerator(null)) "
                    "w.document.documentElement.style.minWidth = 0;")  # fmt: skip

    def _read(self) -> list:
        while b":" not in self.received:
            self.received += self.socket.recv(4096)
        length, self.received = self.received.split(b":", 1)
        while len(self.received) < int(length):
            self.received += self.socket.recv(65536)
        text, self.received = self.received[: int(length)], self.received[int(length) :]
        return json.loads(text)

    def ask(self, command: str, **about: object) -> Any:
        text = json.dumps([0, next(self.numbers), command, about]).encode()
        self.socket.sendall(b"%d:%s" % (len(text), text))
        _, _, error, answer = self._read()
        assert not error, error
        return answer.get("value", answer)

    def run(self, script: str, *given: object, **about: object) -> Any:
        return self.ask("WebDriver:ExecuteScript", script=script, args=given, **about)

    def chrome(self, script: str) -> Any:
        """Run a script in the browser itself."""
        self.ask("Marionette:SetContext", value="chrome")
        answer = self.run(script, sandbox="system")
        self.ask("Marionette:SetContext", value="content")
        return answer

    def until(self, expression: str) -> Any:
        return wait_for(expression, lambda: self.run(f"return {expression};"))

    def into(self, frame: str) -> None:
        """Scroll to a frame, and ask its document from now on."""
        self.out_of_frames()
        self.run(f"document.querySelector('{frame}').scrollIntoView();")
        [element] = self.ask("WebDriver:FindElement", using="css selector", value=frame).values()
        self.ask("WebDriver:SwitchToFrame", element=element)
        self.until("document.querySelector('button') !== null")

    def out_of_frames(self) -> None:
        self.ask("WebDriver:SwitchToFrame", element=None)

    def open(self, page: Path) -> None:
        self.ask("WebDriver:Navigate", url=page.as_uri())

    def errors(self) -> list[str]:
        return self.chrome(ERRORS)

    def resize(self, width: int) -> None:
        """Make the inside of the window so wide."""
        self.ask("WebDriver:SetWindowRect", width=width, height=900)
        around = self.run("return outerWidth - innerWidth;")
        self.ask("WebDriver:SetWindowRect", width=width + around, height=900)
        assert self.run("return innerWidth;") == width


class WebKit:
    """The `MiniBrowser` of WebKit, on a screen that nobody sees, and what it is asked."""

    def __init__(self, stack: ExitStack, program: Path):
        (port,) = free_ports(1)
        screen = f":{os.getpid()}"
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        stack.enter_context(started(["Xvfb", screen, "-screen", "0", "1440x900x24"], **quiet))
        alone = os.environ | {"DISPLAY": screen, "GDK_BACKEND": "x11", "no_proxy": "*"}
        driver = ["WebKitWebDriver", f"--port={port}"]
        stack.enter_context(started(driver, env=alone, **quiet))
        self.address = f"http://127.0.0.1:{port}/session"
        options = {"webkitgtk:browserOptions": {"binary": str(program), "args": ["--automation"]}}
        timeouts = {"pageLoad": 300_000, "script": 120_000}
        wishes = {"capabilities": {"alwaysMatch": {"timeouts": timeouts, **options}}}

        def connect():
            try:
                return self.ask("", **wishes)
            except urllib.error.URLError:
                return None

        self.address += "/" + wait_for("WebKit", connect)["sessionId"]
        stack.callback(self.ask, "", method="DELETE")

    def ask(self, command: str, method: str = "POST", **about: object) -> Any:
        body = json.dumps(about).encode() if method == "POST" else None
        request = urllib.request.Request(self.address + command, body, method=method)
        try:
            with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(
                request
            ) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise AssertionError(error.read().decode()) from error

    def run(self, script: str, *given: object) -> Any:
        return self.ask("/execute/sync", script=script, args=given)

    def into(self, frame: str) -> None:
        """Scroll to a frame, and ask its document from now on."""
        self.out_of_frames()
        self.run(f"document.querySelector('{frame}').scrollIntoView();")
        self.ask("/frame", id=self.ask("/element", using="css selector", value=frame))
        self.until("document.querySelector('button') !== null")

    def out_of_frames(self) -> None:
        self.ask("/frame", id=None)

    def open(self, page: Path) -> None:
        self.ask("/url", url=page.as_uri())

    def errors(self) -> list[str]:
        return []  # it doesn't tell them; what doesn't come is waited for in vain

    until = Firefox.until


@pytest.fixture(scope="module")
def webkit() -> Iterator[WebKit]:
    program = next(Path("/usr/lib").glob("*/webkit2gtk-4.*/MiniBrowser"), None)
    if program is None or not shutil.which("WebKitWebDriver") or not shutil.which("Xvfb"):
        pytest.skip("webkit2gtk-driver and xvfb are not installed")
    with ExitStack() as stack:
        yield WebKit(stack, program)


@pytest.fixture(scope="module")
def firefox(tmp_path_factory) -> Iterator[Firefox]:
    if not SOAK or not shutil.which("firefox-esr"):
        pytest.skip("only make soak tries it, where firefox-esr is installed")
    opened = Firefox(tmp_path_factory.mktemp("firefox"))
    yield opened
    opened.process.terminate()
    opened.process.wait(30)


@pytest.mark.skipif(not SOAK, reason="minutes, of what Chromium does in test_page.py: make soak")
@pytest.mark.parametrize("name", ["webkit", "firefox"])
def test_everything_that_computes_works(request, name, committed_page):
    """Live figure, walk, a prediction, a panel, an editor, the trainer and the clinic."""
    browser = request.getfixturevalue(name)
    browser.open(committed_page("the_annotated_transformer"))
    browser.until("document.querySelector('.explorer.ready') !== null")
    browser.run(f"const figure = {FIGURE}; "
                "figure.querySelector('#text').value = 'Ein Mann hebt einen Hund auf.';"
                "figure.querySelector('button[type=submit]').click();")  # fmt: skip
    browser.until(f"{FIGURE}.querySelector('#translation').textContent.includes('dog')")

    browser.run("document.querySelector('#walk').click();")
    browser.until("document.querySelector('.walk[open] .walk-side')?.textContent.includes('Hund')")
    browser.run("document.querySelector('.walk').close();")

    browser.run("document.querySelector('ol.choices button').click();")
    browser.until("document.querySelector('details.answer').open")

    browser.run(f"{PANEL}.scrollIntoView();")
    browser.until(f"{PANEL}.querySelector('.panel-row')?.textContent.includes('Mann')")

    browser.run(f"{BOX}.open = true; {BOX}.querySelector('textarea').value = arguments[0];"
                f"{BOX}.querySelector('button').click();", ATTENTION)  # fmt: skip
    browser.until(f"{BOX}.querySelector('output').textContent.includes('Right')")

    browser.into("#trainer")
    browser.run("const task = document.querySelector('#learn-task'); task.value = 'copy';"
                "task.dispatchEvent(new Event('change', { bubbles: true })); "
                "document.querySelector('#learn-run').click();")  # fmt: skip
    # at first it is 3
    browser.until("/loss [01]\\./.test(document.querySelector('#learn-state')?.textContent)")

    browser.into("#clinic-frame")
    browser.until("!document.querySelector('#clinic-orders button').disabled")
    browser.run("document.querySelectorAll('#clinic-orders button')"
                ".forEach((one, i) => i < 3 && one.click());")  # fmt: skip
    browser.until("document.querySelectorAll('.clinic-result li').length > 8")
    browser.out_of_frames()
    assert browser.errors() == []


@pytest.mark.parametrize("name", ["the_annotated_transformer", "since_2017", "exercises", "clinic"])
@pytest.mark.parametrize("language", ["en", "zh"])
def test_nothing_is_wider_than_the_window(firefox, committed_page, language, name):
    firefox.open(committed_page(name, language))
    for width in (390, 820, 1440):
        firefox.resize(width)
        assert firefox.run(WIDE) == [], width


@pytest.mark.parametrize("name", ["webkit", "firefox"])
def test_a_page_that_translates_opens_from_a_file(request, name, tmp_path):
    browser = request.getfixturevalue(name)
    out = tmp_path / "page.html"
    assert main(["export", "--to", "page", "--out", str(out)]) == 0
    browser.open(out)
    browser.run("const field = document.querySelector('#text');"
                "field.value = 'Ein Hund läuft durch den Schnee.\\nDie Bundeskanzlerin.';"
                "field.dispatchEvent(new Event('input'));")  # fmt: skip
    browser.until("document.querySelector('#translation').textContent.includes('dog runs through')")
    browser.until("document.querySelector('#translation u') !== null")  # a word that it guesses
    style = browser.run("return getComputedStyle(document.querySelector('#translation u'))"
                        ".textDecorationStyle;")  # fmt: skip
    assert style == "wavy"
    assert browser.errors() == []
