# SPDX-License-Identifier: Apache-2.0
"""The gateway's page for operators: what it is sent, who may look, and how a real Chromium shows it.

The scores of each placement add up, the chosen endpoint is first, and figures are those of the
metrics page. Names are text, with any content; nothing appears on the console.

ctest: timeout=240
"""

import http.client
import json
import os
import subprocess
import unittest

from shoal_browser import BROWSER, Browser
from shoal_fixture import BIN, WAIT_SECONDS, free_port, main, wait_until
from test_96_dashboard_browser import CONTRAST
from test_97_gateway import Gateway, Model

VIEWERS_MAX = 8
HOSTILE = "<img src=x onerror=document.title=1>"


class WithPage(unittest.TestCase):
    names = "one", "two"

    def setUp(self):
        self.port = free_port()
        self.models = [Model(name) for name in self.names]
        self.gateway = Gateway(self.models, dashboard=f"127.0.0.1:{self.port}")
        self.addCleanup(self.gateway.close)
        self.gateway.wait_up(*self.models)

    def tearDown(self):
        for model in self.models:
            if model.process.poll() is None:
                model.kill()

    def get(self, path="/stream", method="GET", **headers):
        """The answer, whose body is still to be read."""
        link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT_SECONDS)
        link.request(method, path, headers={name.replace("_", "-"): text for name, text in headers.items()})
        answer = link.getresponse()
        answer.leave = lambda: (answer.close(), link.close())
        self.addCleanup(answer.leave)
        return answer

    @staticmethod
    def sample(stream):
        while not (line := stream.readline()).startswith(b"data: "):
            assert line, "the stream has ended"
        return json.loads(line.removeprefix(b"data: "))


class Stream(WithPage):
    def test_placements_and_figures(self):
        for _ in range(3):
            served = self.gateway.chat("red", "x" * 400, stream=True)[1]["X-Served-By"]
        stream = self.get()
        self.assertEqual(stream.headers["Content-Type"], "text/event-stream")
        first = self.sample(stream)
        self.assertEqual(len(first["placements"]), 3)
        for placement in first["placements"]:
            for reason in placement["reasons"]:
                parts = [value for name, value in reason.items() if name.endswith("-scorer")]
                self.assertEqual(len(parts), 4)
                self.assertAlmostEqual(sum(parts), reason["total"])
            totals = [reason["total"] for reason in placement["reasons"]]
            self.assertEqual(totals, sorted(totals, reverse=True))
            self.assertEqual((placement["usable"], placement["tries"]), (2, 1))
        last = first["placements"][-1]
        self.assertEqual((last["model"], last["reasons"][0]["endpoint"]), ("red", served))
        self.assertAlmostEqual(last["reasons"][0]["prefix-cache-scorer"], 3)

        def shown():
            sample = self.sample(stream)
            self.assertEqual(sample["placements"], [])  # they were told
            row, = [one for one in sample["endpoints"] if one["name"] == served]
            return row if any(one["loaded"] for one in row["adapters"]) else None
        row = wait_until(shown, "the adapter to be loaded")
        self.assertIn({"name": "red", "loaded": True, "pending": 0}, row["adapters"])
        self.assertEqual(row["state"], "up")
        for times in row["first_us"], row["token_us"]:
            self.assertTrue(0 < times[0] <= times[1], row)
        self.assertEqual(first["sent"], self.gateway.figures()["sent_total"])

    def test_who_may_look(self):
        self.assertEqual(self.get("/").status, 200)
        self.assertIn("default-src 'self'", self.get("/").headers["Content-Security-Policy"])
        self.assertEqual(self.get("/nothing").status, 404)
        self.assertEqual(self.get(method="POST").status, 405)
        for name in ("evil.example", f"evil.example:{self.port}", "x" * 200, "127.0.0.1.evil.example"):
            self.assertEqual(self.get("/", Host=name).status, 403, name)
        for name in ("localhost:1", "[::1]:1", "127.0.0.1"):
            self.assertEqual(self.get("/", Host=name).status, 200, name)
        self.assertEqual(self.get(Sec_Fetch_Site="cross-site").status, 403)
        streams = [self.get() for _ in range(VIEWERS_MAX)]
        self.assertEqual({stream.status for stream in streams}, {200})
        self.assertEqual(self.get().status, 503)
        self.assertEqual(self.gateway.figures()["dashboard_refused_total"], 1)
        streams[0].leave()
        wait_until(lambda: self.get().status == 200, "the place of one that left")

    def test_other_addresses_are_refused(self):
        path = os.path.join(self.gateway.folder.name, "other.yaml")
        for address in ("0.0.0.0:1", "port:1", "192.0.2.1:1", "127.evil.example:1"):
            with open(path, "w", encoding="utf-8") as file:
                json.dump({"listen": f"127.0.0.1:{free_port()}", "endpoints": "servers.yaml",
                           "dashboard": address}, file)
            for options in [], ["--check"]:
                done = subprocess.run([BIN / "shoal-gateway", *options, path], capture_output=True,
                                      text=True, timeout=WAIT_SECONDS)
                self.assertEqual(done.returncode, 2, address)
                self.assertIn("not a loopback address", done.stderr)


@BROWSER
class Page(WithPage):
    names = HOSTILE, "two"

    def test_page(self):
        with Browser() as browser:
            browser.open(f"http://127.0.0.1:{self.port}/")
            browser.wait_text("2 of 2 endpoints up")
            browser.wait_text("No request has come yet.")
            for _ in range(3):
                served = self.gateway.chat("red", "y" * 400, stream=True)[1]["X-Served-By"]
            wait_until(lambda: len(browser.all("button.link")) == 3, browser.text)
            browser.wait_text("max-score-picker chose among 2 of 2 usable endpoints")
            browser.run("document.querySelector('button.link').click()")
            for text in (HOSTILE, "lora-affinity 4.00", "prefix-cache 3.00", "red of 4"):
                browser.wait_text(text)
            self.assertEqual(browser.run("return document.title"), "Gateway · Shoal")
            self.assertEqual(browser.all("main img"), [])
            self.assertEqual(browser.run(CONTRAST), [])
            browser.resize(390, 844)
            self.assertLessEqual(browser.run("return document.documentElement.scrollWidth"), 390)
            browser.resize(1280, 900)
            next(model for model in self.models if model.name == served).kill()
            browser.wait_text("1 of 2 endpoints up")
            self.gateway.chat("red", "y" * 400)
            browser.wait_text("down")
            self.assertEqual(browser.complaints(), [])
            self.assertEqual(browser.asked(), {f"http://127.0.0.1:{self.port}"})


if __name__ == "__main__":
    main()
