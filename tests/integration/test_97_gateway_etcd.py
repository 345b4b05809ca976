# SPDX-License-Identifier: Apache-2.0
"""A gateway and an etcd that is guarded, or loses its data.

Proves, with a real etcd and a simulated server: a gateway reads its resources over TLS, with a
client certificate and as a user with a password; with a wrong password, or a certificate of another
authority, it serves nobody and the log says why; an etcd that comes back without its data takes no
resources away, until some are put there; `--check` names what is wrong. ctest: timeout=120
"""

import os
import subprocess
import tempfile
import unittest

from shoal_certificates import Certificates
from shoal_fixture import BIN, main, wait_until
from shoal_meshes import Etcd
from test_97_gateway import Gateway, Model
from test_97_gateway_resources import llm_route, pool

FOLDER = "/tas-runtime/test/manifests"


def put(etcd, kind, name, manifest):
    """As a node does for `shoalctl apply`."""
    etcd.put(f"{FOLDER}/{kind}/{name}", f'{{"created_ms":1,"deleted":false,"manifest":{manifest}}}')


def route_red(etcd):
    put(etcd, "InferencePool", "all", pool("all"))
    put(etcd, "LLMRoute", "assistant", llm_route("assistant", "red"))


class EtcdTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.model = Model("one")
        cls.addClassCleanup(cls.model.kill)

    def gateway(self, etcd, **keys):
        gateway = Gateway([self.model], store=f"etcd:{etcd.url}", store_service="test", **keys)
        self.addCleanup(gateway.close)
        return gateway

    def wait_codes(self, gateway, **wanted):
        wait_until(lambda: {model: gateway.chat(model)[0] for model in wanted} == wanted,
                   gateway.read_log)

    def wait_log(self, gateway, text):
        wait_until(lambda: text in gateway.read_log(), lambda: f"{text} in {gateway.read_log()}")

    def test_guarded(self):
        certificates = self.enterContext(Certificates("etcd", "stranger"))
        for name, authority in ("member", "etcd"), ("user", "etcd"), ("alien", "stranger"):
            certificates.sign(name, authority)
        etcd = self.enterContext(Etcd(certificates))
        etcd.use_passwords("se cret")
        route_red(etcd)
        with tempfile.TemporaryDirectory() as folder:
            words = {}
            for name in "se cret", "wrong":
                words[name] = os.path.join(folder, name)
                with open(words[name], "w", encoding="utf-8") as file:
                    file.write(name + "\n")

            def keys(pair="user", authority="etcd", word="se cret"):
                return {"store_user": "root", "store_password_file": words[word],
                        "store_ca": certificates.pem(authority),
                        "store_certificate": certificates.pem(pair), "store_key": certificates.key(pair)}
            gateway = self.gateway(etcd, **keys())
            gateway.wait_up(self.model)
            self.wait_codes(gateway, red=200, blue=404)
            for wrong, says in ((keys(word="wrong"), "authentication failed"), (keys(pair="alien"), "gateway_store_away"),
                                (keys(authority="stranger"), "certificate")):
                gateway = self.gateway(etcd, **wrong)
                self.wait_log(gateway, says)
                self.assertIn("gateway_store_away", gateway.read_log())
                self.assertNotIn("se cret", gateway.read_log())
                self.assertEqual(gateway.chat("red")[0], 503)

    def test_emptied(self):
        etcd = self.enterContext(Etcd())
        route_red(etcd)
        gateway = self.gateway(etcd)
        gateway.wait_up(self.model)
        self.wait_codes(gateway, red=200, blue=404)
        etcd.empty()
        self.wait_log(gateway, "etcd has lost its data")
        self.assertEqual((gateway.chat("red")[0], gateway.chat("blue")[0]), (200, 404))
        put(etcd, "InferencePool", "all", pool("all"))
        self.wait_codes(gateway, red=200, blue=200)  # what is there now counts, and has no route
        etcd.delete(f"{FOLDER}/InferencePool/all")
        wait_until(lambda: "resources_read count=0" in gateway.read_log(), gateway.read_log)

    def test_check(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "gateway.yaml")
            with open(os.path.join(folder, "servers.yaml"), "w", encoding="utf-8") as file:
                file.write("endpoints: []\n")
            for keys, says in (
                    ("store: etcd:host:2379", 'etcd endpoint "host:2379": write http://host:port'),
                    ("store: etcd:http://h:1\nstore_user: u\nstore_password_file: gone", "/gone: No such file"),
                    ("store: etcd:https://h:1\nstore_ca: gone.pem", "gone.pem"),
                    ("store: etcd:https://h:1\nstore_certificate: servers.yaml", "needs its key")):
                with open(path, "w", encoding="utf-8") as file:
                    file.write(f"endpoints: servers.yaml\n{keys}\n")
                done = subprocess.run([BIN / "shoal-gateway", "--check", path], capture_output=True,
                                      text=True, check=False, timeout=60)
                self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
                self.assertIn(says, done.stderr)


if __name__ == "__main__":
    main()
