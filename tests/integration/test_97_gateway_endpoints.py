# SPDX-License-Identifier: Apache-2.0
"""Where the gateway's endpoints come from: labels in the list, and names that are looked up.

Filters by labels leave endpoints out, and a header draws requests to those that it names. A name's
addresses come and go, one that cannot be resolved keeps its last ones, and a resolver that does not
answer delays neither requests nor the end.

ctest: timeout=240
"""

import os
import socket
import subprocess
import tempfile
import unittest

from shoal_fixture import free_port, main, wait_until
from test_97_gateway import Gateway
from test_97_model_server import OFTEN, Foreign

LABELS = {"one": {"role": "prefill", "zone": "a"}, "two": {"role": "decode", "zone": "b"}, "three": {}}


class Labels(unittest.TestCase):
    def start(self, *plugins):
        """The names of the endpoints that are used."""
        self.models = [Foreign(name) for name in LABELS]
        for model in self.models:
            self.addCleanup(model.close)
            model.keys = {"labels": LABELS[model.name]}
        names = [plugin["type"] for plugin in plugins]
        self.gateway = Gateway(self.models, plugins=[*plugins, {"type": "max-score-picker"}], schedulingProfiles=[
            {"name": "x", "plugins": [{"pluginRef": name} for name in [*names, "max-score-picker"]]}], **OFTEN)
        self.addCleanup(self.gateway.close)
        wait_until(self.used, "an endpoint")
        return self.used()

    def used(self):
        try:
            figures = self.gateway.figures()
        except OSError:
            return set()
        return {model.name for model in self.models if f'endpoint_up{{endpoint="{model.name}"}}' in figures}

    def test_filters(self):
        role = {"key": "role", "operator": "In", "values": ["decode", "both"]}
        for kind, parameters, wanted in (
                ("label-selector-filter", {"matchLabels": {"role": "decode"}}, {"two"}),
                ("label-selector-filter", {"matchExpressions": [role]}, {"two"}),
                ("label-selector-filter", {"matchExpressions": [{**role, "operator": "NotIn"}]}, {"one", "three"}),
                ("by-label-selector", {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}, {"one", "two"}),
                ("label-selector-filter", {"matchExpressions": [{"key": "zone", "operator": "DoesNotExist"}]}, {"three"}),
                ("label-selector-filter", {"matchLabels": {"role": "decode", "zone": "b"}}, {"two"}),
                ("by-label", {"label": "role", "validValues": ["prefill"]}, {"one"}),
                ("by-label", {"label": "role", "validValues": ["prefill"], "allowsNoLabel": True}, {"one", "three"})):
            with self.subTest(kind, parameters=parameters):
                self.assertEqual(self.start({"type": kind, "parameters": parameters}), wanted)
                self.doCleanups()

    def test_header(self):
        self.start({"type": "header-label-affinity-scorer",
                    "parameters": {"headerName": "X-Zone", "labelKey": "zone"}})
        self.gateway.wait_up(*self.models)
        for zone, name in (("a", "one"), ("b", "two")):
            served = {self.gateway.chat(headers={"x-zone": zone})[1]["X-Served-By"] for _ in range(4)}
            self.assertEqual(served, {name})
        self.assertEqual(self.gateway.chat(headers={"x-zone": "nowhere"})[0], 200)
        self.models[0].keys = {"labels": {"zone": "b"}}
        self.models[1].keys = {"labels": {"zone": "a"}}
        self.gateway.list(self.models)
        wait_until(lambda: self.gateway.chat(headers={"x-zone": "a"})[1]["X-Served-By"] == "two",
                   "the new labels")


class PrivateGateway(Gateway):
    """With /etc/hosts and /etc/resolv.conf of its own, which are this process's to write."""

    def __init__(self, hosts, nameserver, **keys):
        self.files = tempfile.TemporaryDirectory()
        self.hosts = os.path.join(self.files.name, "hosts")
        resolver = os.path.join(self.files.name, "resolv.conf")
        self.resolve(hosts)
        with open(resolver, "w", encoding="utf-8") as file:
            file.write(f"nameserver {nameserver}\noptions timeout:30 attempts:1\n")
        self.command = ["unshare", "--mount", "--propagation", "private", "sh", "-c",
                        'mount --bind "$0" /etc/hosts && mount --bind "$1" /etc/resolv.conf && shift && exec "$@"',
                        self.hosts, resolver]
        super().__init__([], dns_ms=20, **keys)

    def resolve(self, hosts):
        """In one write, and not renamed: it is mounted, and no lookup may find it empty."""
        text = "".join(f"{address} llm.test\n" for address in hosts).ljust(80, "\n")
        file = os.open(self.hosts, os.O_WRONLY | os.O_CREAT, 0o644)
        os.write(file, text.encode())
        os.close(file)

    def close(self):
        super().close()
        self.files.cleanup()


def may_mount():
    """Whether this process may mount files of its own: root, whose root folder is a mount."""
    return subprocess.run(["unshare", "--mount", "--propagation", "private", "true"],
                          stderr=subprocess.DEVNULL).returncode == 0


@unittest.skipUnless(may_mount(), "files cannot be mounted here")
class Names(unittest.TestCase):
    def setUp(self):
        self.silent = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.addCleanup(self.silent.close)
        self.nameserver = self.bind_silent()
        self.port = free_port()
        self.models = [Foreign(host, host, self.port) for host in ("127.0.0.1", "127.0.0.2")]
        for model in self.models:
            self.addCleanup(model.close)

    def bind_silent(self):
        """The address of a nameserver that answers nothing; others may run this test, too."""
        for last in range(1, 255):
            try:
                self.silent.bind((f"127.9.0.{last}", 53))
                return f"127.9.0.{last}"
            except OSError:
                pass
        raise self.failureException("no address is free")

    def start(self, hosts):
        gateway = PrivateGateway(hosts, self.nameserver, endpoints="names.yaml", files={"names.yaml": (
            f'endpoints: [{{ name: pool, address: llm.test, port: "{self.port}" }}]')}, **OFTEN)
        self.addCleanup(gateway.close)
        return gateway

    def wait_addresses(self, gateway, *wanted):
        def up():
            try:
                figures = gateway.figures()
            except OSError:
                return None
            return {host for host in ("127.0.0.1", "127.0.0.2")
                    if figures.get(f'endpoint_up{{endpoint="pool@{host}"}}')}
        wait_until(lambda: up() == set(wanted), lambda: f"{wanted}, not {up()}: {gateway.read_log()}")

    def test_addresses_come_and_go(self):
        gateway = self.start(["127.0.0.1"])
        self.wait_addresses(gateway, "127.0.0.1")
        gateway.resolve(["127.0.0.1", "127.0.0.2"])
        self.wait_addresses(gateway, "127.0.0.1", "127.0.0.2")
        gateway.resolve(["127.0.0.2"])
        self.wait_addresses(gateway, "127.0.0.2")
        self.assertEqual(gateway.chat()[1]["X-Served-By"], "127.0.0.2")

    def test_a_silent_resolver(self):
        gateway = self.start(["127.0.0.1"])
        self.wait_addresses(gateway, "127.0.0.1")
        gateway.resolve([])
        self.assertTrue(self.silent.recv(512))  # it is asked, and the thread waits
        for _ in range(3):
            self.assertEqual(gateway.chat()[1]["X-Served-By"], "127.0.0.1")


if __name__ == "__main__":
    main()
