# SPDX-License-Identifier: Apache-2.0
"""TLS of the gateway, with real certificates: on its listener and to model servers.

Proves: clients and the gateway show and check certificates; a renewed certificate is shown without
a restart, and one without its key is not; a server with another name or authority, or that does
not accept the gateway's certificate, gets no requests; large answers and events come through whole.

ctest: timeout=240 presets=dev
"""

import http.client
import json
import os
import shutil
import socket
import ssl
import unittest

from shoal_certificates import NAME, Certificates
from shoal_fixture import WAIT_SECONDS, main, wait_until
from test_97_gateway import CHAT, Gateway, Model


class SecureModel(Model):
    def __init__(self, name, certificate, key, *options, **keys):
        self.keys = {"scheme": "https", **keys}
        super().__init__(name, "--certificate", certificate, "--key", key, *options)


class Secure(unittest.TestCase):
    def setUp(self):
        self.certificates = self.enterContext(Certificates("ca", "stranger"))
        for name, authority in (("server", "ca"), ("client", "ca"), ("alien", "stranger"),
                                ("renewed", "ca")):
            self.certificates.sign(name, authority)

    def model(self, name, certificate, *options, **keys):
        model = SecureModel(name, self.certificates.pem(certificate),
                            self.certificates.key(certificate), *options, **keys)
        self.addCleanup(model.kill)
        return model

    def gateway(self, models, **keys):
        gateway = Gateway(models, endpoints_ca=self.certificates.pem("ca"), **keys)
        self.addCleanup(gateway.close)
        return gateway

    def listener_keys(self, **more):
        return {"tls_certificate": self.certificates.pem("server"),
                "tls_key": self.certificates.key("server"), **more}

    def call(self, gateway, body, name=None, method="POST", path=CHAT):
        """(answer's body, the shown certificate's serial number)."""
        context = ssl.create_default_context(cafile=self.certificates.pem("ca"))
        if name is not None:
            context.load_cert_chain(self.certificates.pem(name), self.certificates.key(name))
        link = http.client.HTTPSConnection("127.0.0.1", gateway.port, timeout=WAIT_SECONDS, context=context)
        try:
            link.request(method, path, json.dumps(body) if body is not None else None)
            serial = link.sock.getpeercert()["serialNumber"]
            answer = link.getresponse()
            data = answer.read()
            self.assertEqual(answer.status, 200, data)
            return data, serial
        finally:
            link.close()

    def test_both_sides(self):
        model = self.model("one", "server")
        gateway = self.gateway([model], **self.listener_keys())
        gateway.wait_up(model)
        body, _ = self.call(gateway, {"model": "base", "prompt": "x" * 300_000, "max_tokens": 3},
                            path="/v1/completions")
        self.assertEqual(json.loads(body)["choices"][0]["text"], "t1 t2 t3 ")
        body, _ = self.call(gateway, {"model": "base", "messages": [], "max_tokens": 200,
                                      "stream": True})
        self.assertEqual(body.count(b"data: "), 201)
        self.assertTrue(body.endswith(b"data: [DONE]\n\n"))
        with self.assertRaises((http.client.HTTPException, OSError)):
            gateway.chat()  # without TLS
        self.call(gateway, None, method="GET", path="/v1/models")

    def test_a_torn_answer_does_not_look_whole(self):
        """Without chunks, its end is all that a client of HTTP/1.0 has to tell by."""
        model = Model("one")
        self.addCleanup(model.kill)
        gateway = self.gateway([model], **self.listener_keys())
        gateway.wait_up(model)
        model.fault("tear")
        body = json.dumps({"model": "base", "messages": [], "max_tokens": 50, "stream": True})
        context = ssl.create_default_context(cafile=self.certificates.pem("ca"))
        with context.wrap_socket(socket.create_connection(("127.0.0.1", gateway.port), WAIT_SECONDS),
                                 server_hostname="127.0.0.1",
                                 suppress_ragged_eofs=False) as link:
            link.sendall(f"POST {CHAT} HTTP/1.0\r\nContent-Length: {len(body)}\r\n\r\n{body}"
                         .encode())
            with self.assertRaises((ssl.SSLEOFError, ConnectionResetError)):
                while link.recv(65536):
                    pass
        self.assertEqual(gateway.figures()["cut_short_total"], 1)

    def test_clients_show_certificates(self):
        model = self.model("one", "server")
        gateway = self.gateway([model],
                               **self.listener_keys(tls_client_ca=self.certificates.pem("ca")))
        gateway.wait_up(model)
        self.call(gateway, None, "client", "GET", "/health")
        for name in (None, "alien"):
            with self.assertRaises((ssl.SSLError, OSError, http.client.HTTPException)):
                self.call(gateway, None, name, "GET", "/health")

    def test_a_certificate_is_renewed(self):
        model = self.model("one", "server")
        gateway = self.gateway([model], **self.listener_keys())
        gateway.wait_up(model)
        old = self.call(gateway, None, method="GET", path="/health")[1]
        shutil.copy(self.certificates.pem("renewed"), self.certificates.pem("server") + ".new")
        os.rename(self.certificates.pem("server") + ".new", self.certificates.pem("server"))
        shown = lambda: self.call(gateway, None, method="GET", path="/health")[1]
        wait_until(lambda: shown() == old and "tls_kept" in gateway.read_log(), gateway.read_log)
        shutil.copy(self.certificates.key("renewed"), self.certificates.key("server") + ".new")
        os.rename(self.certificates.key("server") + ".new", self.certificates.key("server"))
        wait_until(lambda: shown() != old, gateway.read_log)

    def test_servers_that_are_not_who_they_should_be(self):
        good = self.model("good", "server", "--client-ca", self.certificates.pem("ca"),
                          serverName=NAME)
        bad = [self.model("stranger", "alien"),
               self.model("named", "server", serverName="other.example"),
               self.model("strict", "server", "--client-ca", self.certificates.pem("stranger"))]
        gateway = self.gateway([good, *bad], endpoints_certificate=self.certificates.pem("client"),
                               endpoints_key=self.certificates.key("client"))
        gateway.wait_up(good)
        for text in ('endpoint_untrusted endpoint="stranger"',
                     'name="other.example" error="hostname mismatch"'):
            wait_until(lambda text=text: text in gateway.read_log(), gateway.read_log)
        wait_until(lambda: gateway.figures()["scrapes_failed_total"] >= 6, gateway.read_log)
        for model in bad:
            self.assertFalse(gateway.is_up(model), model.name)
        self.assertEqual(gateway.chat()[0], 200)

    def test_configurations(self):
        model = self.model("one", "server")
        self.certificates.lock("client", "open sesame")
        for keys, mistake in (
                ({"tls_certificate": "a.pem"}, "need each other"),
                ({"tls_client_ca": "a.pem"}, "needs both"),
                ({"endpoints_key": "a.pem"}, "need each other"),
                (self.listener_keys(tls_key=self.certificates.key("alien")), "cannot be used"),
                (self.listener_keys(tls_certificate=self.certificates.pem("client"),
                                    tls_key=self.certificates.key("client")), "a password"),
                (self.listener_keys(tls_certificate="gone.pem"), "gone.pem: No such file"),
                ({"endpoints_ca": self.certificates.key("ca")}, "authorities of servers")):
            gateway = Gateway([model], **keys)
            self.assertEqual(gateway.process.wait(WAIT_SECONDS), 2)
            log = gateway.read_log()
            gateway.process.stdin.close()
            gateway.folder.cleanup()
            self.assertIn(mistake, log)


if __name__ == "__main__":
    main()
