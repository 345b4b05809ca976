# SPDX-License-Identifier: Apache-2.0
"""Models from servers with TLS, whose certificates and callers' certificates entries of storage-config name.

Proves: a node fetches with an entry's CA, client certificate and headers; it trusts no other server, also
where it is redirected; each error names its cause, is final or not by A3 of tasks.h, and holds no key.
ctest: timeout=300
"""

import ssl

from shoal_certificates import Certificates
from shoal_ctl import NEGATIVE
from shoal_fixture import main
from shoal_store import Store
from test_71_storage import HEADER, Case

FILE = "/plain/m.json"


class TestTls(Case):
    def setUp(self):
        self.certificates = self.enterContext(Certificates("ours", "theirs"))
        self.certificates.sign("server", "ours")
        self.certificates.sign("client", "ours")
        self.certificates.sign("elsewhere", "ours", "DNS:elsewhere.example")
        super().setUp()
        self.secure = self.serve("server")
        self.complete = {"certificate": self.read("ours.pem"), "client_certificate": self.read("client.pem"),
                         "client_key": self.read("client.key")}

    def serve(self, name, asks=ssl.CERT_REQUIRED):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificates.pem(name), self.certificates.key(name))
        context.load_verify_locations(self.certificates.pem("ours"))
        context.verify_mode = asks
        store = self.enterContext(Store(context))
        store.plain[FILE], store.needs = self.data, {"Authorization": HEADER}
        return store

    def read(self, name):
        return (self.certificates.folder / name).read_text()

    def load_with(self, members, url=None, **options):
        """Loads with an entry of these members."""
        self.write_entry("web", {"type": "http", "url": url or self.secure.url, "headers": {"Authorization": HEADER},
                                 **members})
        told = self.load("m", FILE[1:], {"storage_key": "web"}, **options)
        for line in self.complete["client_key"].splitlines()[1:-1]:
            self.assertNotIn(line, told + self.shoald.stderr)
        return told

    def refused(self, status, expected, members, url=None):
        told = self.load_with(members, url, code=NEGATIVE)
        self.assertRegex(told, expected)
        self.assertIn(f'"status": "{status}"', told)
        self.assertEqual(self.cached(), [])

    def test_all_that_the_server_asks_for(self):
        self.load_with(self.complete)
        self.ask("m")
        self.assertEqual([path for path in self.secure.paths() if path == FILE], [FILE])
        self.assertTrue(all(headers["authorization"] == HEADER for _, headers in self.secure.requests))

    def test_servers_that_are_not_trusted(self):
        """Final at once: the next attempt would meet the same server."""
        problem = "SSL certificate problem: "
        without = {name: text for name, text in self.complete.items() if name != "certificate"}
        self.refused("FAILED_PRECONDITION", problem, without)
        self.refused("FAILED_PRECONDITION", problem, {**self.complete, "certificate": self.read("theirs.pem")})
        self.refused("FAILED_PRECONDITION", "does not match|no alternative certificate subject name matches",
                     self.complete, self.serve("elsewhere").url)
        self.assertEqual(self.count("storage_retries"), 0)
        self.assertEqual(self.secure.requests, [])

    def test_members_that_are_wrong(self):
        for member, wrong in (("certificate", "no PEM"), ("client_certificate", "no PEM"),
                              ("client_key", "no PEM"), ("client_key", self.read("server.key"))):
            with self.subTest(member):
                self.refused("FAILED_PRECONDITION", "certificate|private key", {**self.complete, member: wrong})
        self.assertEqual(self.count("storage_retries"), 0)
        self.assertEqual(self.secure.requests, [])

    def test_without_a_client_certificate(self):
        """The server ends the connection, which counts as broken: it may not last."""
        self.refused("UNAVAILABLE", "6 attempts failed: .*alert certificate required",
                     {"certificate": self.read("ours.pem")})
        self.assertEqual(self.count("storage_retries"), 6)
        self.assertEqual(self.secure.requests, [])

    def test_a_client_certificate_of_another_authority(self):
        self.certificates.sign("stranger", "theirs")
        self.refused("UNAVAILABLE", "6 attempts failed: .*alert unknown ca", {
            **self.complete, "client_certificate": self.read("stranger.pem"),
            "client_key": self.read("stranger.key")})
        self.assertEqual(self.secure.requests, [])

    def test_redirected_to_another_server(self):
        """The entry's CA is for its own server alone."""
        other = self.serve("server", ssl.CERT_OPTIONAL)
        self.secure.redirects[FILE] = other.url + FILE
        self.refused("FAILED_PRECONDITION", "SSL certificate problem", self.complete)
        self.assertEqual(other.requests, [])
        self.assertEqual(self.secure.paths(), [FILE])

    def test_s3(self):
        secure = self.serve("server", ssl.CERT_NONE)
        secure.keys, secure.objects = self.store.keys, self.store.objects
        self.put()
        self.write_entry("s3", secure.entry(bucket="models", certificate=self.read("ours.pem")))
        self.load("m", "m", {"storage_key": "s3"})
        self.ask("m")
        asked = len(secure.requests)
        for member in ({}, {"certificate": self.read("theirs.pem")}):
            self.write_entry("s3", secure.entry(bucket="models", **member))
            told = self.load("other", "m/model.json", {"storage_key": "s3"}, code=NEGATIVE)
            self.assertIn("SSL certificate problem", told)
            self.assertIn('"status": "FAILED_PRECONDITION"', told)
        self.assertEqual(len(secure.requests), asked)


if __name__ == "__main__":
    main()
