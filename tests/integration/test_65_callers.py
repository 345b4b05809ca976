# SPDX-License-Identifier: Apache-2.0
"""Callers with a certificate are known by it alone.

Proves, with real certificates over gRPC and REST: a caller cannot have more than its share by
inventing names, nor use up another's by naming it; both ways lead to the same share; a renewed
certificate is the same caller; what a caller says is believed if its certificate is one of
`caller_proxies`, or if it has shown none; and poison is charged to the certificate, so the requests
of the caller that the sender named still run in company.

The modelet `puppet` holds a request until the test lets it go, so nothing depends on time.
ctest: timeout=180
"""

import ssl
import unittest

import grpc

import shoal_fixture
from shoal_certificates import NAME, Certificates
from shoal_client import Client, bytes_element, failure, outcome
from shoal_fixture import Shoald, node, pipeline, stage, wait_until
from shoal_rest import Rest, SecureRest, port_of

SLOTS = 100
MOST = 60  # of one caller, when there is another one
TLS_OPTIONS = (("grpc.use_local_subchannel_pool", 1), ("grpc.ssl_target_name_override", NAME))


class TlsClient(Client):
    """A connection that shows a certificate."""

    def __init__(self, target, certificates, name):
        super().__init__(target)
        self.channel.close()
        self.channel = grpc.secure_channel(target, certificates.credentials("ca", name),
                                           options=TLS_OPTIONS)

    def tell(self, text="echo x", caller=None, model="puppet"):
        request, stub = self.stub("ModelInfer")
        fields = self.infer_fields(model, [("say", "BYTES", [1], bytes_element(text))])
        return stub.future(request(**fields), timeout=shoal_fixture.WAIT_SECONDS,
                           metadata=() if caller is None else (("shoal-caller", caller),))


class Callers(unittest.TestCase):
    def setUp(self):
        self.certificates = self.enterContext(Certificates("ca"))
        self.certificates.sign("server", "ca")
        for name in ("alice", "bob", "proxy"):
            self.sign(name)

    def sign(self, name):
        """Names of every kind, as the two libraries must read them alike."""
        self.certificates.run("certificate", name, "ca", f"/O=Org, Ltd/CN={name}",
                              f"DNS:{name}.example,URI:spiffe://example/{name},IP:127.0.0.1,"
                              f"IP:::1,email:{name}@example.com")

    def serve(self, tls=None, **keys):
        config = node(pipeline("puppet", stage("libpuppet.so", params={"folder": "."},
                                               **keys.pop("stage", {})), slots=SLOTS),
                      tls=self.certificates.pair("server", **(tls or {"client_ca": "ca"})),
                      message_mib=1, **keys)
        self.shoald = self.enterContext(Shoald(config))

    def connect(self, name):
        return self.enterContext(TlsClient(self.shoald.target, self.certificates, name))

    def connect_rest(self, name):
        context = ssl.create_default_context(cafile=self.certificates.pem("ca"))
        if name is not None:
            context.load_cert_chain(self.certificates.pem(name), self.certificates.key(name))
        return self.enterContext(SecureRest(port_of(self.shoald), context))

    def stat(self):
        return self.shoald.pipeline_stat("puppet")

    def hold(self, client, caller):
        future = client.tell("hold a", caller)
        wait_until((self.shoald.folder / "a.held").exists, "the puppet to hold")
        return future

    def release(self, inside):
        (self.shoald.folder / "a.go").touch()
        for future in inside:
            future.result()

    def check_share(self, future):
        code, text = failure(future)
        self.assertEqual(code.name, "RESOURCE_EXHAUSTED", text)
        self.assertIn(f"its fair share in flight, {MOST} requests; 2 callers", text)

    def fill(self, alice, name_of):
        """As many of alice's calls as she can have beside others, the first of which holds the
        worker."""
        names = iter(map(name_of, range(MOST)))
        self.used = 0
        return [*self.let_in(lambda: self.hold(alice, next(names))),
                *self.let_in(lambda: alice.tell(caller=next(names)), MOST - 1)]

    def let_in(self, start, count=1):
        """Starts so many, each of which gets a slot."""
        self.used += count
        started = [start() for _ in range(count)]
        self.shoald.wait_stat("puppet", lambda stat: stat["slots_used"] == self.used, "slots")
        return started


class TestShares(Callers):
    def test_invented_names_are_one_caller(self):
        self.serve()
        alice, bob = self.connect("alice"), self.connect("bob")
        inside = self.fill(alice, lambda i: f"alice-{i}")
        inside += self.let_in(lambda: bob.tell(caller="alice"))
        for name in (None, "alice", "alice-70", "bob"):
            self.check_share(alice.tell(caller=name))
        inside += self.let_in(lambda: bob.tell(caller="alice"), 20)
        self.release(inside)

    def test_one_caller_by_both_ways_and_renewed(self):
        self.serve(http={"address": "127.0.0.1:0", "tls": "yes"})
        alice, bob = self.connect("alice"), self.connect("bob")
        inside = self.fill(alice, lambda i: f"alice-{i}")
        inside += self.let_in(bob.tell)
        rest = self.connect_rest("alice")
        for headers in ({}, {"shoal-caller": "bob"}, {"shoal-caller": "carol"}):
            answer = rest.tell("echo x", headers=headers)
            self.assertEqual(answer.code, 429, answer)
            self.assertIn(f"its fair share in flight, {MOST} requests", answer.error)
        self.sign("alice")
        self.check_share(self.connect("alice").tell(caller="carol"))
        answer = self.connect_rest("alice").tell("echo x", headers={"shoal-caller": "carol"})
        self.assertEqual(answer.code, 429, answer)
        rest = self.connect_rest("bob")
        self.let_in(lambda: rest.start_tell("echo x", headers={"shoal-caller": "alice"}))
        self.release(inside)

    def test_proxies_are_believed(self):
        self.serve(caller_proxies=["nobody.example", "spiffe://example/proxy"],
                   http={"address": "127.0.0.1:0", "tls": "yes"})
        proxy = self.connect("proxy")
        inside = self.fill(proxy, lambda _: "user-a")
        inside += self.let_in(lambda: proxy.tell(caller="user-b"))
        self.check_share(proxy.tell(caller="user-a"))
        answer = self.connect_rest("proxy").tell("echo x", headers={"shoal-caller": "user-a"})
        self.assertEqual(answer.code, 429, answer)
        inside += self.let_in(proxy.tell)  # of its own
        alice = self.connect("alice")
        inside += self.let_in(lambda: alice.tell(caller="user-a"))
        self.release(inside)

    def test_without_certificates_names_are_believed(self):
        self.serve(tls={"client_ca": "ca"}, http={"address": "127.0.0.1:0", "plain": "yes"})
        alice = self.connect("alice")
        inside = self.fill(alice, lambda i: None)
        plain = self.enterContext(Rest(port_of(self.shoald)))
        self.let_in(lambda: plain.start_tell("echo x", headers={"shoal-caller": "alice"}))
        self.check_share(alice.tell())
        self.release(inside)


class TestPoison(Callers):
    def test_poison_is_charged_to_the_certificate(self):
        self.serve(stage={"batch_size": 8}, http={"address": "127.0.0.1:0", "tls": "yes"})
        alice, bob = self.connect("alice"), self.connect("bob")
        self.assertEqual(outcome(bob.tell()).name, "OK")
        self.assertEqual(outcome(alice.tell("crash now", caller="bob")).name, "UNAVAILABLE")

        def suspected(call):
            before = self.stat()["suspected"]
            call()
            return self.stat()["suspected"] - before
        self.assertEqual(self.stat()["poison"], 1)
        self.assertEqual(suspected(lambda: bob.tell().result()), 0)
        self.assertEqual(suspected(lambda: bob.tell(caller="alice").result()), 0)
        self.assertEqual(suspected(lambda: alice.tell(caller="carol").result()), 1)
        rest = self.connect_rest("alice")
        self.assertEqual(suspected(lambda: rest.tell("echo x", headers={"shoal-caller": "d"})), 1)
        rest = self.connect_rest("bob")
        self.assertEqual(suspected(lambda: rest.tell("echo x", headers={"shoal-caller": "bob"})), 0)


if __name__ == "__main__":
    shoal_fixture.main()
