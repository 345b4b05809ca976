# SPDX-License-Identifier: Apache-2.0
"""TLS of the node's HTTP addresses, with real certificates.

Proves: an address with `tls: yes` shows the certificate of `tls` and one without does not;
clients are asked for theirs as callers are; a renewed certificate is shown without a restart; large
bodies and answers come through whole; a refused client reads why while it still sends; requests
that are sent ahead are all answered; and a node whose `tls` has `client_ca` does not start with a
plain `http` beyond this machine unless that is said to be meant.
ctest: timeout=120
"""

import http.client
import json
import socket
import ssl
import unittest

import shoal_fixture
from shoal_certificates import Certificates
from shoal_fixture import WAIT_SECONDS, Shoald, node, pipeline, run_shoald, stage, wait_until
from shoal_rest import Rest, SecureRest, tensor

SECURE = {"address": "127.0.0.1:0", "tls": "yes"}
ELEMENTS = 300_000
REFUSED_BYTES = 4 << 20
AHEAD_COUNT = 20
AHEAD_EACH = 6_650


class TestTls(unittest.TestCase):
    def setUp(self):
        self.certificates = self.enterContext(Certificates("ca", "stranger"))
        for name, authority in (("server", "ca"), ("client", "ca"), ("alien", "stranger")):
            self.certificates.sign(name, authority)

    def start(self, *pipelines, tls=None, **keys):
        config = node(pipeline("echo", stage("libecho.so"), slots=16), *pipelines, message_mib=16,
                      tls=self.certificates.pair("server", **(tls or {})), **keys)
        self.shoald = self.enterContext(Shoald(config))

    def port(self, service, tls):
        return int(self.shoald.wait_log(
            rf"http_listening address=\S+ port=(\d+) service={service} tls={tls}")[1])

    def context(self, authority, name=None):
        context = ssl.create_default_context(cafile=self.certificates.pem(authority))
        if name is not None:
            context.load_cert_chain(self.certificates.pem(name), self.certificates.key(name))
        return context

    def trusts(self, authority):
        """Whether the node shows a certificate of that authority to a client that connects now."""
        try:
            with SecureRest(self.port("http", "yes"), self.context(authority)) as client:
                return client.get("/v2/health/live").code == 200
        except ssl.SSLCertVerificationError:
            return False

    def test_each_address_by_itself(self):
        self.start(http=SECURE, metrics=SECURE, probes="127.0.0.1:0")
        ca = self.context("ca")
        with SecureRest(self.port("http", "yes"), ca) as client:
            for _ in range(3):
                self.assertEqual(client.get("/v2/health/live").code, 200)
            values = [i % 100 for i in range(ELEMENTS)]
            sent = tensor("x", "INT32", [ELEMENTS], values)
            self.assertEqual(client.infer("echo", sent).data(), values)
        with SecureRest(self.port("metrics", "yes"), ca) as client:
            self.assertIn(b"shoal_node_http_requests_total", client.get("/metrics").body)
        with Rest(self.port("probes", "no")) as client:
            self.assertEqual(client.get("/live").code, 200)
        self.assertFalse(self.trusts("stranger"))
        with Rest(self.port("http", "yes")) as client, self.assertRaises(
                (http.client.HTTPException, OSError)):
            client.get("/v2/health/live")
        self.assertTrue(self.trusts("ca"))

    def test_clients_show_certificates(self):
        self.start(tls={"client_ca": "ca"}, http=SECURE)
        port = self.port("http", "yes")
        with SecureRest(port, self.context("ca", "client")) as client:
            self.assertEqual(client.get("/v2/health/live").code, 200)
        for name in (None, "alien"):
            with SecureRest(port, self.context("ca", name)) as client, self.assertRaises(
                    (http.client.HTTPException, OSError)):
                client.get("/v2/health/live")

    def test_renewed(self):
        self.start(http=SECURE)
        with SecureRest(self.port("http", "yes"), self.context("ca")) as before:
            self.assertEqual(before.get("/v2/health/live").code, 200)
            self.certificates.sign("server", "stranger")
            wait_until(lambda: self.trusts("stranger"), "the new certificate to be shown")
            self.assertFalse(self.trusts("ca"))
            self.assertEqual(before.get("/v2/health/live").code, 200)

    def test_refused_client_reads_why(self):
        self.start(http=SECURE)
        with self.context("ca").wrap_socket(
                socket.create_connection(("127.0.0.1", self.port("http", "yes")), WAIT_SECONDS),
                server_hostname="127.0.0.1") as client:
            client.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 999999999999\r\n\r\n")
            client.sendall(bytes(REFUSED_BYTES))
            answer = b"".join(iter(lambda: client.recv(65536), b""))
        self.assertTrue(answer.startswith(b"HTTP/1.1 413 "), answer)

    def received(self, client):
        got = client.connection.sock.recv(65536)
        self.assertNotEqual(got, b"", "the node has closed the connection")
        return got

    def ask_ahead(self, context, first_bytes):
        """Sends more requests ahead than are read while the first one runs: all are answered."""
        name = f"held-{first_bytes}"
        pad = b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\nX-Pad: " + b"p" * AHEAD_EACH + b"\r\n\r\n"
        with SecureRest(self.port("http", "yes"), context) as client, SecureRest(
                self.port("http", "yes"), context) as other:
            client.start_tell(f"hold {name}")
            wait_until((self.shoald.folder / f"{name}.held").exists, "the request to run")
            client.connection.sock.sendall((pad * AHEAD_COUNT)[:first_bytes])
            client.connection.sock.sendall((pad * AHEAD_COUNT)[first_bytes:])
            for _ in range(20):  # turns of the loop, by which no more is read
                self.assertEqual(other.get("/v2/health/live").code, 200)
            (self.shoald.folder / f"{name}.go").touch()
            answers = b""
            while answers.count(b"HTTP/1.1 200 ") < 1 + AHEAD_COUNT:
                answers += self.received(client)

    def test_requests_ahead(self):
        """Read up to a limit, which may come amid a record."""
        self.start(pipeline("puppet", stage("libpuppet.so", params={"folder": "."})), http=SECURE)
        context = self.context("ca")
        for first_bytes in range(1000, 17000, 1000):
            self.ask_ahead(context, first_bytes)

    def check(self, http_address, **more):
        config = node(pipeline("echo", stage("libecho.so")), http=http_address,
                      tls=self.certificates.pair("server", **more))
        return run_shoald(json.dumps(config), ["--check"])

    def test_plain_beside_client_ca(self):
        code, said = self.check("port:8008", client_ca="ca")
        self.assertEqual(code, 2, said)
        self.assertIn("port:8008 would serve callers without the certificate", said)
        for good in ("127.0.0.1:8008", "unix:http.sock", {"address": "port:8008", "tls": "yes"},
                     {"address": "port:8008", "plain": "yes"}):
            code, said = self.check(good, client_ca="ca")
            self.assertEqual(code, 0, said)
        self.assertEqual(self.check("port:8008")[0], 0)

    def test_mistakes(self):
        code, said = self.check({"address": "port:8008", "tls": "yes", "plain": "yes"})
        self.assertEqual(code, 2, said)
        self.assertIn("exclude each other", said)
        config = node(pipeline("echo", stage("libecho.so")), http=SECURE)
        code, said = run_shoald(json.dumps(config), ["--check"])
        self.assertEqual(code, 2, said)
        self.assertIn("there is no `tls` at the top", said)


if __name__ == "__main__":
    shoal_fixture.main()
