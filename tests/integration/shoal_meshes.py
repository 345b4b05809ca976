# SPDX-License-Identifier: Apache-2.0
"""Meshes of several nodes on this machine: an etcd of their own, and daemons that share it."""

import base64
import json
import pathlib
import shutil
import signal
import ssl
import subprocess
import tempfile
import urllib.request

from shoal_fixture import WAIT_SECONDS, free_port, wait_until
from shoal_pupil import prepare, pupil
from shoal_registry import Registrar


class Etcd:
    """One member on loopback, its data in a folder that goes with it. `certificates`: with TLS, for
    clients with a certificate of the authority `etcd`; its own is `member`. More options of its
    command line. `durable`: it waits for its disk, which is etcd's default."""

    def __init__(self, certificates=None, options=(), durable=False):
        self.certificates = certificates
        self.options = options if durable else ("--unsafe-no-fsync", *options)
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="shoal-etcd."))
        self.port, self.peer_port = free_port(), free_port()
        self.url = f"{'https' if certificates else 'http'}://127.0.0.1:{self.port}"
        self.headers = {}
        self.process = None

    def start(self):
        peer = f"http://127.0.0.1:{self.peer_port}"
        self.process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "etcd", "--data-dir", self.folder / "data",
             "--listen-client-urls", self.url, "--advertise-client-urls", self.url,
             "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
             "--initial-cluster", f"default={peer}", *self.tls_options(), *self.options],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_until(self.answers, "etcd to answer")
        return self

    def tls_options(self):
        if self.certificates is None:
            return []
        pem, key = self.certificates.pem, self.certificates.key
        return ["--cert-file", pem("member"), "--key-file", key("member"), "--client-cert-auth",
                "--trusted-ca-file", pem("etcd")]

    def context(self):
        if self.certificates is None:
            return None
        pem, key = self.certificates.pem, self.certificates.key
        context = ssl.create_default_context(cafile=pem("etcd"))
        context.load_cert_chain(pem("user"), key("user"))
        return context

    def answers(self):
        try:
            with urllib.request.urlopen(f"{self.url}/health", timeout=WAIT_SECONDS,
                                        context=self.context()) as answer:
                return json.load(answer)["health"] == "true"
        except OSError:
            return False

    def ask(self, path, **fields):
        """Over the JSON gateway. Texts are keys and values, numbers are themselves."""
        body = json.dumps({name: base64.b64encode(value.encode()).decode()
                           if isinstance(value, str) else value
                           for name, value in fields.items()}).encode()
        request = urllib.request.Request(f"{self.url}{path}", body, self.headers)
        with urllib.request.urlopen(request, timeout=WAIT_SECONDS, context=self.context()) as answer:
            return json.load(answer)

    def use_passwords(self, password):
        """From now on, and only as root."""
        def post(path, **fields):
            request = urllib.request.Request(f"{self.url}/v3/auth/{path}", json.dumps(fields).encode())
            with urllib.request.urlopen(request, timeout=WAIT_SECONDS, context=self.context()) as answer:
                return json.load(answer)
        post("user/add", name="root", password=password)
        post("user/grant", user="root", role="root")
        post("enable")
        self.headers = {"Authorization": post("authenticate", name="root", password=password)["token"]}

    def put(self, key, value):
        self.ask("/v3/kv/put", key=key, value=value)

    def get(self, key):
        """Its value; None: it is not there."""
        found = self.ask("/v3/kv/range", key=key).get("kvs", [])
        return base64.b64decode(found[0]["value"]).decode() if found else None

    def records(self, prefix):
        """By the rest of its key, each record with this prefix, as etcd describes it."""
        found = self.ask("/v3/kv/range", key=prefix, range_end=prefix[:-1] + chr(ord(prefix[-1]) + 1))
        return {base64.b64decode(one["key"]).decode().removeprefix(prefix): one
                for one in found.get("kvs", [])}

    def keys(self, prefix):
        """All keys with this prefix, without it."""
        return list(self.records(prefix))

    def delete(self, key):
        self.ask("/v3/kv/deleterange", key=key)

    def expire(self, instance):
        """Ends the lease of a node that has died, as etcd would after 25 s."""
        kv, = self.ask("/v3/kv/range", key=f"/tas-runtime/test/instances/{instance}")["kvs"]
        self.ask("/v3/lease/revoke", ID=int(kv["lease"]))

    def stop(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait()
        self.process = None

    def empty(self):
        """It starts again without its data."""
        self.stop()
        shutil.rmtree(self.folder / "data")
        self.start()

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


def mesh_node(etcd, name, **keys):
    """A daemon that has not started; all nodes have the same files under their roots. `pipelines`:
    instead of the pupil's."""
    of_models = keys.pop("models", {})
    of_mesh = keys.pop("mesh", {})
    of_pipeline = keys.pop("pipeline", {})
    pipelines = keys.pop("pipelines", None) or [pupil(models=of_models, **of_pipeline)]
    shoald = prepare(*pipelines,
                     mesh={"store": f"etcd:{etcd.url}", "service": "test", "instance": name,
                           "peers": ["127.0.0.1:0"], **of_mesh}, **keys)
    shoald.instance = name
    return shoald


class Nodes:
    """Several nodes of one mesh, up. `each`: what one of them has of its own; `connect`: how they
    are reached."""

    def __init__(self, etcd, names, each=None, connect=Registrar, **keys):
        self.connect = connect
        self.nodes = {name: mesh_node(etcd, name, **{**keys, **(each or {}).get(name, {})})
                      for name in names}
        self.registrars = {}

    def __getitem__(self, name):
        return self.nodes[name]

    def __enter__(self):
        try:
            for node in self.nodes.values():
                node.start()
            for node in self.nodes.values():
                node.wait_ready()
                node.wait_log(r"mesh_session_begun")
        except BaseException:
            self.__exit__(AssertionError)
            raise
        for name, node in self.nodes.items():
            self.registrars[name] = self.connect(node)
        return self

    def __exit__(self, kind, *more):
        for registrar in self.registrars.values():
            registrar.close()
        try:
            if kind is None:
                self.end()
        finally:
            for node in self.nodes.values():
                node.__exit__(kind, *more)

    def end(self):
        """All stop at once: nobody has to take what another has loaded."""
        left = [node for node in self.nodes.values() if node.code is None]
        for node in left:
            node.check_still_runs()
        for node in left:
            node.signal(signal.SIGTERM)
        for node in left:
            node.check_end()

    def at(self, name):
        return self.registrars[name]
