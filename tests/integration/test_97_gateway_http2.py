# SPDX-License-Identifier: Apache-2.0
"""The gateway's clients over HTTP/2: curl, with prior knowledge and by ALPN, and nghttp if it is
there, before a simulated model server.

Proves: requests, streams of events and prompts of 300 KB pass as over HTTP/1; a hundred streams of one
connection are served side by side; a client that gives up one of them frees its server; told to
stop, the gateway finishes what is under way; `http2_streams_max: 0` leaves HTTP/1.

ctest: timeout=240 presets=dev
"""

import json
import os
import shutil
import signal
import subprocess
import unittest

from shoal_certificates import Certificates
from shoal_fixture import main, wait_until
from test_97_gateway import CHAT, Gateway, Model

NGHTTP = shutil.which("nghttp")
TOLD = "\n%{http_version} %{http_code}"


def prompt(**keys):
    return json.dumps({"model": "base", "messages": [{"role": "user", "content": "hello"}],
                       "max_tokens": 4, **keys})


class Http2(unittest.TestCase):
    def setUp(self):
        self.model = Model("one")
        self.addCleanup(self.model.kill)

    def gateway(self, **keys):
        gateway = Gateway([self.model], **keys)
        self.addCleanup(gateway.close)
        gateway.wait_up(self.model)
        return gateway

    def start(self, gateway, *options, body=None, path=CHAT, scheme="http", how="--http2-prior-knowledge"):
        link = subprocess.Popen(
            ["curl", "-sSN", "--max-time", "60", how, "-w", TOLD, *options,
             *(["--json", "@-"] if body is not None else []),
             f"{scheme}://127.0.0.1:{gateway.port}{path}"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if body is not None:
            link.stdin.write(body)
        link.stdin.close()
        return link

    def end(self, link):
        """(version, status, body) of a call that start() began."""
        text, errors = link.stdout.read(), link.stderr.read()
        self.assertEqual(link.wait(), 0, errors)
        link.stdout.close()
        link.stderr.close()
        body, told = text.rsplit("\n", 1)
        return *told.split(), body

    def call(self, *arguments, **keys):
        return self.end(self.start(*arguments, **keys))

    def test_calls_pass_as_over_http1(self):
        gateway = self.gateway()
        version, code, body = self.call(gateway, body=prompt())
        self.assertEqual((version, code), ("2", "200"))
        self.assertEqual(json.loads(body)["choices"][0]["message"]["content"], "t1 t2 t3 t4 ")
        version, code, body = self.call(gateway, body=prompt(stream=True, max_tokens=100))
        self.assertEqual((version, code, body.count("data: ")), ("2", "200", 101))
        body = self.call(gateway, body=json.dumps(
            {"model": "base", "prompt": "x" * 300_000, "max_tokens": 3}), path="/v1/completions")[2]
        self.assertEqual(json.loads(body)["choices"][0]["text"], "t1 t2 t3 ")
        self.assertEqual(self.call(gateway, path="/nothing")[:2], ("2", "404"))
        self.assertEqual(self.call(gateway, body="{")[:2], ("2", "400"))
        self.assertEqual(self.call(gateway, "-I", path="/health")[:2], ("2", "200"))
        self.assertEqual(gateway.chat()[0], 200)
        self.assertEqual(self.call(gateway, body=prompt(), how="--http1.1")[0], "1.1")

    def test_alpn(self):
        certificates = self.enterContext(Certificates("ca"))
        certificates.sign("server", "ca")
        gateway = self.gateway(tls_certificate=certificates.pem("server"),
                               tls_key=certificates.key("server"))
        trust = ("--cacert", certificates.pem("ca"))
        for how, version in (("--http2", "2"), ("--http1.1", "1.1")):
            got = self.call(gateway, *trust, body=prompt(stream=True, max_tokens=50), how=how,
                            scheme="https")
            self.assertEqual((got[0], got[1], got[2].count("data: ")), (version, "200", 51))

    def test_http1_alone(self):
        gateway = self.gateway(http2_streams_max=0)
        self.assertEqual(self.call(gateway, body=prompt(), how="--http2")[:2], ("1.1", "200"))
        link = self.start(gateway, body=prompt())
        self.assertNotEqual(link.wait(), 0)
        link.stdout.close()
        link.stderr.close()

    @unittest.skipUnless(NGHTTP, "nghttp is not installed")
    def test_a_hundred_streams_of_a_connection(self):
        gateway = self.gateway()
        body = os.path.join(gateway.folder.name, "body")
        with open(body, "w", encoding="utf-8") as file:
            file.write(prompt(stream=True, max_tokens=20))
        told = subprocess.run(
            [NGHTTP, "-m", "100", "-t", "60", "-H", ":method: POST", "-H",
             "content-type: application/json", "-d", body, f"http://127.0.0.1:{gateway.port}{CHAT}"],
            capture_output=True, text=True, timeout=100, check=True)
        self.assertEqual(told.stdout.count("data: [DONE]"), 100, told.stderr)
        self.assertEqual(gateway.figures()["answered_total"], 100)

    def test_a_client_that_gives_up(self):
        gateway = self.gateway()
        link = self.start(gateway, body=prompt(stream=True, max_tokens=4000))
        self.assertTrue(link.stdout.read(100))
        link.kill()
        link.wait()
        link.stdout.close()
        link.stderr.close()
        wait_until(lambda: gateway.figures()["cancelled_total"] == 1, gateway.read_log)
        wait_until(lambda: gateway.figures()["requests_open"] == 0, gateway.read_log)

    def test_told_to_stop(self):
        gateway = self.gateway()
        link = self.start(gateway, body=prompt(stream=True, max_tokens=200))
        self.assertTrue(link.stdout.read(20))
        gateway.process.send_signal(signal.SIGTERM)
        self.assertEqual(self.end(link)[:2], ("2", "200"))
        self.assertEqual(gateway.process.wait(60), 0)


if __name__ == "__main__":
    main()
