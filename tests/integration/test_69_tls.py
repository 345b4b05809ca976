# SPDX-License-Identifier: Apache-2.0
"""TLS of a whole node: towards callers, between nodes, towards etcd; with real certificates.

Proves: callers without the required certificate are refused, with every client; a
certificate that is renewed is seen without a restart, and one that does not fit changes nothing;
a key that has a password serves as one that has none, renewed or not, and nobody is shown the
password; what is wrong with the files is said before anything starts; nodes of a mesh answer
through each other over TLS, with an etcd that wants certificates, from files or from its JSON; and
a node with another authority's certificate, or without TLS, is not called and calls nobody, which
its log and those of the others say.
ctest: timeout=180
"""

import json
import os
import pathlib
import re
import shutil
import unittest

import grpc

from shoal_certificates import NAME, Certificates, SecureRegistrar
from shoal_client import failure
from shoal_ctl import NEGATIVE, OK, UNREACHABLE, shoalctl
from shoal_fixture import main, read_proc, run_shoald, node, wait_until
from shoal_meshes import Etcd, Nodes, mesh_node
from shoal_pupil import prepare, pupil, said
from shoal_registry import LOADED, Registrar

Code = grpc.StatusCode
SECRET = "a pass word, ä"
PASSPHRASE = "MM_TLS_PRIVATE_KEY_PASSPHRASE"


class TestCallers(unittest.TestCase):
    def setUp(self):
        self.certificates = self.enterContext(Certificates("ca", "stranger"))
        for name, authority in (("server", "ca"), ("client", "ca"), ("alien", "stranger")):
            self.certificates.sign(name, authority)

    def start(self, **tls):
        self.start_with({}, tls=self.certificates.pair("server", **tls))

    def start_with(self, environment, **keys):
        shoald = prepare(pupil(), mesh={"instance": "one"}, **keys)
        shoald.env.update(environment)
        self.shoald = self.enterContext(shoald)

    def connect(self, authority="ca", name=None):
        credentials = self.certificates.credentials(authority, name)
        return self.enterContext(SecureRegistrar(self.shoald, credentials))

    def check_refused(self, registrar):
        self.assertEqual(failure(registrar.start_ready("m"))[0], Code.UNAVAILABLE)

    def trusts(self, authority):
        """Whether the node shows new connections a certificate of that authority."""
        with SecureRegistrar(self.shoald,
                             self.certificates.credentials(authority)) as registrar:
            return registrar.start_ready("m").code() == Code.OK

    def test_clients_that_trust_the_node(self):
        self.start()
        self.connect().register("m")
        self.assertEqual(said(self.connect().infer("m")), "m")
        self.check_refused(self.connect("stranger"))
        self.check_refused(self.enterContext(Registrar(self.shoald)))

    def test_callers_show_certificates(self):
        self.start(client_ca="ca")
        self.connect(name="client").register("m")
        self.assertEqual(said(self.connect(name="client").infer("m")), "m")
        self.check_refused(self.connect())
        self.check_refused(self.connect(name="alien"))

        pem, key = self.certificates.pem, self.certificates.key
        shown = ["--target", self.shoald.target, "--timeout-ms", "60000", "--tls-name", NAME,
                 "--tls-ca", pem("ca")]
        own = ["--tls-cert", pem("client"), "--tls-key", key("client")]
        x = ["--input", "x=UINT8[1]:7"]
        told = shoalctl("mesh", "status", "m", *shown, *own, code=NEGATIVE).err
        self.assertIn("mmesh.ModelMesh is not served on `listen`", told)
        shoalctl("infer", "m", *x, *shown, *own, code=OK)
        shoalctl("status", "m", *shown, *own, code=OK)
        self.certificates.lock("client", SECRET)
        own += ["--tls-key-password-file", self.certificates.word("client")]
        for command in (["infer", "m", *x], ["status", "m"]):
            shoalctl(*command, *shown, *own, code=OK)
        told = shoalctl("mesh", "status", "m", *shown, *own, code=NEGATIVE).err
        self.assertIn("mmesh.ModelMesh is not served on `listen`", told)
        told = shoalctl("infer", "m", *x, *shown, *own[:4], code=UNREACHABLE).err
        self.assertIn("the key has a password: set --tls-key-password-file", told)
        told = shoalctl("infer", "m", *x, *shown[:4], "--timeout-ms", "1000", code=UNREACHABLE).err
        self.assertIn("no node answers", told)
        told = shoalctl("mesh", "status", "m", *shown, "--timeout-ms", "1000",
                        code=UNREACHABLE).err
        self.assertIn("over TLS, with these certificates", told)
        told = shoalctl("infer", "m", *x, *shown, *own[:2], code=UNREACHABLE).err
        self.assertIn("a certificate without its key", told)

    def test_renewed(self):
        self.start()
        before = self.connect()
        before.register("m")
        self.assertEqual(said(before.infer("m")), "m")
        self.certificates.sign("server", "stranger")
        wait_until(lambda: self.trusts("stranger"), "the new certificate to be shown")
        self.shoald.wait_log('tls_renewed what="tls"')
        self.check_refused(self.connect())
        self.assertEqual(said(before.infer("m")), "m")
        shutil.copy(self.certificates.key("alien"), self.certificates.key("server"))

        def is_refused():
            self.assertTrue(self.trusts("stranger"))
            return 'tls_kept what="tls"' in self.shoald.stderr
        wait_until(is_refused, "the log to say that the key does not fit")

    def renew_locked(self, password, *options):
        """A pair of another authority whose key has this password takes the place of the first."""
        self.certificates.sign("next", "stranger")
        self.certificates.lock("next", password, *options)
        for path in (self.certificates.word, self.certificates.key, self.certificates.pem):
            os.replace(path("next"), path("server"))
        wait_until(lambda: self.trusts("stranger"), "the new certificate to be shown")
        self.shoald.wait_log('tls_renewed what="tls"')
        self.check_refused(self.connect())

    def test_password_in_a_file(self):
        word = self.certificates.word("server")
        self.certificates.lock("server", SECRET)
        self.start_with({}, tls={**self.certificates.pair("server"), "key_password_file": word})
        self.connect().register("m")
        self.assertEqual(said(self.connect().infer("m")), "m")
        self.renew_locked("another word")
        pathlib.Path(word).write_text("mistaken")

        def is_kept():
            self.assertTrue(self.trusts("stranger"))
            return re.search(rf'tls_kept what="tls" error="\S+server.key: the key does not open: '
                             rf'{word} must hold the password', self.shoald.stderr)
        wait_until(is_kept, "the log to say that the password does not fit")
        for text in (SECRET, "another word", "mistaken"):
            self.assertNotIn(text, self.shoald.stderr)

    def test_password_in_the_environment(self):
        self.certificates.lock("server", SECRET)
        self.start_with({**self.environment(), PASSPHRASE: SECRET})
        self.connect().register("m")
        self.assertEqual(said(self.connect().infer("m")), "m")
        shoalctl("reload", "pupil", "--counters", self.shoald.counters, code=OK)
        self.assertIn(f"{PASSPHRASE}=\0", read_proc(self.shoald.pid, "environ"))
        for pid in (self.shoald.pid, *(worker.pid for worker in self.shoald.workers())):
            self.assertNotIn(SECRET[:4], read_proc(pid, "environ"))
        self.renew_locked(SECRET, "-traditional", "-aes128")
        self.assertEqual(said(self.connect("stranger").infer("m")), "m")
        self.assertNotIn(SECRET, self.shoald.stderr)

    def environment(self):
        return {"MM_TLS_KEY_CERT_PATH": self.certificates.pem("server"),
                "MM_TLS_PRIVATE_KEY_PATH": self.certificates.key("server")}

    def check_bad(self, texts, env=None, **keys):
        """Nothing is started, nor good when it is only checked, and this is said."""
        config = node(pupil(), **keys)
        config["pipelines"][0]["models"]["root"] = "."
        for arguments in ((), ("--check",)):
            code, told = run_shoald(config, arguments, env=env)
            self.assertEqual(code, 2, told)
            for text in texts:
                self.assertIn(text, told)
            self.assertNotIn(SECRET, told)

    def test_bad_passwords(self):
        self.certificates.lock("server", "another word")
        pair = self.certificates.pair("server")
        key, word = pair["key"], self.certificates.folder / "wrong.word"
        word.write_text(SECRET)
        self.check_bad([f"tls: {key}: the key has a password: set `key_password_file`"],
                       tls=pair)
        self.check_bad([f"tls: {key}: the key does not open: {word} must hold the password that"],
                       tls={**pair, "key_password_file": str(word)})
        self.check_bad(["nothing.word: No such file"],
                       tls={**pair, "key_password_file": "nothing.word"})
        mesh = {"mesh": {"instance": "one"}}
        self.check_bad([f"{key}: the key has a password: set {PASSPHRASE}"],
                       self.environment(), **mesh)
        self.check_bad([f"tls: {key}: the key does not open: {PASSPHRASE} must hold the password"],
                       {**self.environment(), PASSPHRASE: SECRET}, **mesh)
        self.check_bad([f"{PASSPHRASE}, but no MM_TLS_KEY_CERT_PATH"], {PASSPHRASE: SECRET}, **mesh)

    def test_bad_files(self):
        def refused(tls, *texts):
            self.check_bad(texts, tls=tls)
        pair = self.certificates.pair
        refused({**pair("server"), "key": self.certificates.key("alien")},
                "tls: ", "alien.key is not the key of the certificate", "server.pem")
        refused({**pair("server"), "certificate": "nothing.pem"}, "nothing.pem: No such file")
        self.certificates.sign("server", "ca", days=0)
        self.start()
        self.shoald.wait_log(r'warn shoald tls_expired what="tls" file="\S+server.pem" valid_until=')


class TestMesh(unittest.TestCase):
    def setUp(self):
        self.certificates = self.enterContext(Certificates("ca", "mesh", "etcd", "stranger"))
        for name, authority in (("server", "ca"), ("client", "ca"), ("node", "mesh"),
                                ("member", "etcd"), ("user", "etcd"), ("alien", "stranger")):
            self.certificates.sign(name, authority)
        self.etcd = self.enterContext(Etcd(self.certificates))

    def place(self, inline, **more):
        """A file as KServe's deployments mount it, with the certificates in it or named by it."""
        certificates = self.certificates
        files = {"certificate": certificates.pem("etcd"),
                 "client_certificate": certificates.pem("user"),
                 "client_key": certificates.key("user")}
        if inline:
            files = {key: pathlib.Path(path).read_text() for key, path in files.items()}
        else:
            files = {f"{key}_file": path for key, path in files.items()}
        path = certificates.folder / f"etcd-{inline}.json"
        path.write_text(json.dumps({"endpoints": self.etcd.url, **files, **more}))
        return f"etcd:{path}"

    def keys(self, inline, **tls):
        word = {"client_key_password_file": self.certificates.word("user")}
        return {"mesh": {"store": self.place(inline, **word), **tls}, "drain_timeout_ms": 4000}

    def connect(self, shoald):
        return SecureRegistrar(shoald, self.certificates.credentials("ca", "client"))

    def where(self, registrar, model):
        return [copy.location for copy in registrar.status(model).modelCopyInfos
                if copy.copyStatus == LOADED]

    def model_at(self, nodes, name):
        """One that is loaded there alone."""
        for i in range(100):
            model = f"m{i}"
            nodes.at(name).register(model)
            self.assertEqual(said(nodes.at(name).infer(model)), model)
            if wait_until(lambda m=model: self.where(nodes.at("node-a"), m), model) == [name]:
                return model
        raise AssertionError(f"nothing is placed at {name}")

    def test_two_nodes_and_two_strangers(self):
        """The keys of the nodes have passwords, for one another and for etcd."""
        self.certificates.lock("node", SECRET)
        self.certificates.lock("user", SECRET)
        tls = {"tls": {**self.certificates.pair("node", ca="mesh"),
                       "key_password_file": self.certificates.word("node")}}
        callers = self.certificates.pair("server", client_ca="ca")
        nodes = Nodes(self.etcd, ["node-a", "node-b"], connect=self.connect, tls=callers,
                      each={"node-a": self.keys(True, **tls), "node-b": self.keys(False, **tls)})
        with nodes:
            model = self.model_at(nodes, "node-b")
            for _ in range(50):
                self.assertEqual(said(nodes.at("node-a").infer(model)), model)
            self.assertEqual(self.where(nodes.at("node-a"), model), ["node-b"])
            for one in nodes.nodes.values():
                self.assertNotRegex(one.stderr, "peer_(unreachable|lost|refused|stranger)")
            self.strangers(nodes, model)

    def strangers(self, nodes, model):
        alien = self.certificates.pair("alien", ca="mesh")
        strangers = Nodes(self.etcd, ["node-c", "node-d"], connect=self.connect,
                          tls=self.certificates.pair("server", client_ca="ca"),
                          each={"node-c": self.keys(False, tls=alien), "node-d": self.keys(False)})
        with strangers:
            for name in ("node-c", "node-d"):
                wait_until(lambda n=name: self.where(strangers.at(n), model), "the registry")
                self.assertEqual(said(strangers.at(name).infer(model)), model)  # loaded there, too
            strangers["node-c"].wait_log(
                r'peer_unreachable instance="node-b" address="tls:127.0.0.1:\d+"')
            strangers["node-d"].wait_log(
                r'peer_unreachable instance="node-b" address="tls:.*`mesh: tls` must be equal on all')
            for name, words in (("node-c", r'address="tls:127.0.0.1:\d+"'),
                                ("node-d", r'address="127.0.0.1:\d+" .*`mesh: tls`')):
                self.call_one_of(nodes, strangers, name)
                nodes["node-a"].wait_log(rf'peer_unreachable instance="{name}" {words}')

    def call_one_of(self, nodes, strangers, name):
        """A model that the stranger alone has, called at another: it is loaded once more."""
        strangers.at(name).register(f"of-{name}")
        found = said(strangers.at(name).infer(f"of-{name}"))
        self.assertEqual(found, f"of-{name}")
        self.assertEqual(said(nodes.at("node-a").infer(f"of-{name}")), f"of-{name}")


if __name__ == "__main__":
    main()
