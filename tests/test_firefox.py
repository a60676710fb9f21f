"""The pages in Firefox, from files and without a network, where `firefox-esr` is installed.

Only `make soak` tries that. Playwright drives a Firefox of its own; this one is asked over
Marionette, which is in every Firefox: a socket and JSON.
"""

import itertools
import json
import shutil
import socket
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from tests.helpers import SOAK, wait_for
from tests.test_write_it import ATTENTION

FIGURE = "document.querySelector('.explorer.ready > div').shadowRoot"
BOX = "document.querySelector('details.write-it[data-function=attention]')"
# what lies beyond the right edge and can't be scrolled to within a box
WIDE = """const edge = document.documentElement.clientWidth, boxed = (e) => e !== document.body
  && (getComputedStyle(e).overflowX !== 'visible' || boxed(e.parentElement));
return [...document.querySelectorAll('main *, header *')]
  .filter((e) => e.getBoundingClientRect().right > edge + 0.5 && !boxed(e.parentElement))
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
        self.numbers, self.received = itertools.count(1), b""

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
        found = self.run(script, sandbox="system")
        self.ask("Marionette:SetContext", value="content")
        return found

    def until(self, expression: str) -> Any:
        return wait_for(expression, lambda: self.run(f"return {expression};"))

    def into(self, frame: str) -> None:
        """Scroll to a frame, and ask its document from now on."""
        self.ask("WebDriver:SwitchToFrame", element=None)
        self.run(f"document.querySelector('{frame}').scrollIntoView();")
        [element] = self.ask("WebDriver:FindElement", using="css selector", value=frame).values()
        self.ask("WebDriver:SwitchToFrame", element=element)
        self.until("document.querySelector('button') !== null")

    def resize(self, width: int) -> None:
        """Make the inside of the window so wide."""
        self.ask("WebDriver:SetWindowRect", width=width, height=900)
        around = self.run("return outerWidth - innerWidth;")
        self.ask("WebDriver:SetWindowRect", width=width + around, height=900)
        assert self.run("return innerWidth;") == width


@pytest.fixture(scope="module")
def firefox(tmp_path_factory) -> Iterator[Firefox]:
    if not SOAK or not shutil.which("firefox-esr"):
        pytest.skip("only make soak tries it, where firefox-esr is installed")
    opened = Firefox(tmp_path_factory.mktemp("firefox"))
    yield opened
    opened.process.terminate()
    opened.process.wait(30)


def test_everything_that_computes_works(firefox, committed_page):
    """Live figure, an editor, the trainer and the clinic; without an error."""
    firefox.ask("WebDriver:Navigate", url=committed_page("the_annotated_transformer").as_uri())
    firefox.until("document.querySelector('.explorer.ready') !== null")
    firefox.run(f"const figure = {FIGURE}; "
                "figure.querySelector('#text').value = 'Ein Mann hebt einen Hund auf.';"
                "figure.querySelector('button[type=submit]').click();")  # fmt: skip
    firefox.until(f"{FIGURE}.querySelector('#translation').textContent.includes('dog')")

    firefox.run(f"{BOX}.open = true; {BOX}.querySelector('textarea').value = arguments[0];"
                f"{BOX}.querySelector('button').click();", ATTENTION)  # fmt: skip
    firefox.until(f"{BOX}.querySelector('output').textContent.includes('Right')")

    firefox.into("#trainer")
    firefox.run("const task = document.querySelector('#learn-task'); task.value = 'copy';"
                "task.dispatchEvent(new Event('change', { bubbles: true })); "
                "document.querySelector('#learn-run').click();")  # fmt: skip
    # at first it is 3
    firefox.until("/loss [01]\\./.test(document.querySelector('#learn-state')?.textContent)")

    firefox.into("#clinic-frame")
    firefox.until("!document.querySelector('#clinic-orders button').disabled")
    firefox.run("document.querySelectorAll('#clinic-orders button')"
                ".forEach((one, i) => i < 3 && one.click());")  # fmt: skip
    firefox.until("document.querySelectorAll('.clinic-result li').length > 8")
    firefox.ask("WebDriver:SwitchToFrame", element=None)
    assert firefox.chrome(ERRORS) == []


@pytest.mark.parametrize("name", ["the_annotated_transformer", "since_2017", "exercises", "clinic"])
@pytest.mark.parametrize("language", ["en", "zh"])
def test_nothing_is_wider_than_the_window(firefox, committed_page, language, name):
    firefox.ask("WebDriver:Navigate", url=committed_page(name, language).as_uri())
    for width in (390, 820, 1440):
        firefox.resize(width)
        assert firefox.run(WIDE) == [], width
