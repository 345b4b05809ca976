# SPDX-License-Identifier: Apache-2.0
"""REST for clients as they are, and against those that others' pages make of a browser.

curl and urllib send JSON under a form's Content-Type unless they are told otherwise, and many
writers of JSON have no integers: both are served. A web page of another site is not, whether it says
where it is from (Origin) or has its name point to this machine (Host).
"""

import json
import socket
import subprocess
import unittest
import urllib.request

import shoal_fixture
from shoal_fixture import WAIT_SECONDS, Shoald, node, pipeline, run_shoald, stage
from shoal_rest import ANY_PORT, Rest, port_of, tensor

BODY = json.dumps({"inputs": [tensor("x", "INT8", [2], [1.0, 2])]})
PATH = "/v2/models/echo/infer"


def echo(**keys):
    return node(pipeline("echo", stage("libecho.so")), **keys)


class TestClients(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.shoald = cls.enterClassContext(Shoald(echo(http=ANY_PORT)))
        cls.port = port_of(cls.shoald)
        cls.url = f"http://localhost:{cls.port}{PATH}"

    def check(self, body):
        self.assertEqual(json.loads(body)["outputs"][0]["data"], [1, 2])

    def test_curl(self):
        for more in ((), ("-H", "Content-Type:"), ("-H", "Content-Type: application/json")):
            done = subprocess.run(["curl", "-4", "-s", "-d", BODY, *more, self.url], check=True,
                                  capture_output=True, timeout=WAIT_SECONDS)
            self.check(done.stdout)

    def test_urllib(self):
        url = self.url.replace("localhost", "127.0.0.1")
        with urllib.request.urlopen(url, BODY.encode(), timeout=WAIT_SECONDS) as answer:
            self.check(answer.read())

    def test_what_a_form_encodes_is_no_json(self):
        with Rest(self.port) as rest:
            answer = rest.post("echo", "inputs=%5B%5D",
                               {"Content-Type": "application/x-www-form-urlencoded"})
            self.assertEqual(answer.code, 400)
            self.assertIn("the body is not valid JSON", answer.error)

    def test_bool_as_number(self):
        with Rest(self.port) as rest:
            self.assertEqual(rest.infer("echo", tensor("x", "BOOL", [3], [1, 0, True])).data(),
                             [True, False, True])
            answer = rest.infer("echo", tensor("x", "BOOL", [1], [2]))
            self.assertEqual((answer.code, answer.error),
                             (400, 'tensor "x": element 0, 2, is out of BOOL\'s range'))


def ask(port, host, origin=None, host_to="127.0.0.1"):
    """The status and the error of a call by a client that sends these headers."""
    with socket.create_connection((host_to, port), WAIT_SECONDS) as client:
        head = "".join(f"{name}: {value}\r\n" for name, value in (("Host", host), ("Origin", origin))
                       if value is not None)
        client.sendall(f"POST {PATH} HTTP/1.{0 if host is None else 1}\r\n{head}Connection: close\r\n"
                       f"Content-Length: {len(BODY)}\r\n\r\n{BODY}".encode())
        answer = b"".join(iter(lambda: client.recv(65536), b""))
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body).get("error", "")


class TestPagesOfOthers(unittest.TestCase):
    def check(self, port, cases):
        for host, origin, word in cases:
            with self.subTest(host=host, origin=origin):
                code, error = ask(port, host, origin)
                self.assertEqual(code, 403 if word else 200, error)
                if word:
                    self.assertIn(word, error)
                    self.assertIn("http_hosts", error)

    def test_at_loopback(self):
        machine = socket.gethostname() or "localhost"  # some have no name
        with Shoald(echo(http=ANY_PORT)) as shoald:
            port = port_of(shoald)
            self.check(port, (
                ("127.0.0.1", None, ""), (f"localhost:{port}", None, ""), ("[::1]:80", None, ""),
                ("LOCALHOST", None, ""), ("a.localhost", None, ""), ("192.0.2.7:1", None, ""),
                (machine, None, ""), (machine.upper(), None, ""),
                (machine.partition(".")[0], None, ""), (None, None, ""),
                ("evil.example", None, "Host"), (f"evil.example:{port}", None, "Host"),
                ("notlocalhost", None, "Host"), ("127.0.0.1.evil.example", None, "Host"),
                ("localhost.evil.example", None, "Host"), ("", None, "Host"),
                (":80", None, "Host"), ("[", None, "Host"), ("h" * 300, None, "Host"),
                # DNS rebinding: a page whose own name now means this machine
                (f"evil.example:{port}", f"http://evil.example:{port}", "Host"),
                # drive-by: a page of another site, another port or none at all
                (f"127.0.0.1:{port}", f"http://127.0.0.1:{port}", ""),
                (f"127.0.0.1:{port}", "https://evil.example", "Origin"),
                (f"127.0.0.1:{port}", f"http://127.0.0.1:{port + 1}", "Origin"),
                (f"127.0.0.1:{port}", "null", "Origin"), (f"127.0.0.1:{port}", "", "Origin")))
            shoald.wait_published()
            self.assertGreater(shoald.stat()["calls_refused"], 9)

    def test_beyond_loopback(self):
        """A node that serves a network may have any name in it, unless it is told its names."""
        with Shoald(echo(http="0.0.0.0:0")) as shoald:
            self.check(port_of(shoald), (
                ("models.example", None, ""), ("models.example", "https://models.example", ""),
                ("models.example", "https://evil.example", "Origin")))

    def test_listed(self):
        for http in (ANY_PORT, "0.0.0.0:0"):
            with Shoald(echo(http=http, http_hosts=["models.example", "shoal"])) as shoald:
                self.check(port_of(shoald), (
                    ("models.example", None, ""), ("SHOAL:8008", None, ""), ("127.0.0.1", None, ""),
                    # through a proxy that puts its own name before the caller's
                    ("127.0.0.1", "https://models.example", ""),
                    ("models", None, "Host"), ("evil.example", None, "Host"),
                    ("models.example", "https://evil.example", "Origin")))

    def test_names_are_checked(self):
        for name in ("Models.example", "models.example:8008", "http://models.example", "a b"):
            code, said = run_shoald(echo(http=ANY_PORT, http_hosts=[name]))
            self.assertEqual(code, 2, said)
            self.assertIn("`http_hosts`", said)


if __name__ == "__main__":
    shoal_fixture.main()
