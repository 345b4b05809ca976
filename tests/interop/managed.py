# SPDX-License-Identifier: Apache-2.0
"""A node manages a real model server by a built-in adapter (Managed), and runs it from a manifest (Hosted);
the parts adapter_mlserver and adapter_triton add the server and its models.

A model's answer to a number is the number times the model's factor.
"""

import collections
import contextlib
import json
import os
import pathlib
import signal
import struct
import subprocess
import sys
import tempfile
import threading

import grpc
import peers

sys.path.insert(0, str(peers.SOURCE / "tests" / "integration"))

from shoal_client import failure  # noqa: E402
from shoal_fixture import WAIT_SECONDS, Shoald, free_port, read_proc, wait_until  # noqa: E402
from shoal_hosting import Case, host, processes, service  # noqa: E402
from shoal_meshes import Etcd  # noqa: E402
from shoal_registry import LOADED, LOADING_FAILED, Registrar  # noqa: E402

MIB = 1 << 20
Code = grpc.StatusCode


class Managed:
    """Needs of a part: `kind`, `format`, `command()` and its `environment()`, `write(path, factor)`, `broken(path)`,
    `request(value)` and `value(answer)`."""

    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="shoal-interop.")))
        self.repository, self.files = self.folder / "repository", self.folder / "files"
        self.repository.mkdir()
        self.files.mkdir()
        self.port, self.http_port = free_port(), free_port()
        self.log = self.enterContext((self.folder / "log").open("w"))
        self.start_server()
        self.addCleanup(lambda: self.kill_server())
        adapter = {"server_type": self.kind, "model_repository": str(self.repository), "memory_mib": 100,
                   "buffer_mib": 0}
        self.shoald = self.enterContext(Shoald({
            "message_mib": 1, "files_root": str(self.files),
            "mesh": {"instance": "node", "runtime": f"127.0.0.1:{self.port}", "adapter": adapter}}))
        self.registrar = self.enterContext(Registrar(self.shoald))
        self.shoald.wait_log("external_ready")

    def start_server(self):
        self.server = subprocess.Popen(self.command(), stdout=self.log, stderr=self.log, start_new_session=True,
                                       env={**os.environ, **self.environment()})

    def kill_server(self):
        os.killpg(self.server.pid, signal.SIGKILL)
        self.server.wait()

    # ---- models ----

    def register(self, model, size_mib=1):
        return self.registrar.register(model, model, json.dumps({"disk_size_bytes": size_mib * MIB}), self.format,
                                       loadNow=True, sync=True)

    def load(self, *models, **keys):
        for factor, model in enumerate(models, 1):
            self.write(self.files / model, factor)
            answer = self.register(model, **keys)
            self.assertEqual((answer.status, list(answer.errors)), (LOADED, []))

    def ask(self, model):
        name, datatype, shape, contents = self.request(5.0)
        answer = self.registrar.infer("", metadata=(("mm-model-id", model),),
                                      inputs=((name, datatype, shape, contents),))
        return round(self.value(answer.raw_output_contents[0]), 3)

    # ---- checks ----

    def check_register_call_unregister(self):
        self.load("one", "two")
        self.assertEqual([self.ask("one"), self.ask("two")], [5.0, 10.0])
        self.registrar.unregister("one")
        wait_until(lambda: [one.name for one in self.repository.iterdir()] == ["two"], "the folder to be removed")
        self.assertEqual(self.ask("two"), 10.0)

    def check_broken(self):
        self.broken(self.files / "bad")
        answer = self.register("bad")
        self.assertEqual(answer.status, LOADING_FAILED)
        self.assertRegex(answer.errors[0], f"(FAILED_PRECONDITION|INVALID_ARGUMENT): {self.kind}: ")
        wait_until(lambda: not list(self.repository.iterdir()), "the folder to be removed")
        self.registrar.unregister("bad")
        self.load("bad")
        self.assertEqual(self.ask("bad"), 5.0)

    def check_evict_and_reload(self):
        """four models of 31 MiB in 100 MiB"""
        models = ["a", "b", "c", "d"]
        self.load(*models, size_mib=25)
        for _ in range(2):
            for factor, model in enumerate(models, 1):
                self.assertEqual(self.ask(model), 5.0 * factor)
        wait_until(lambda: self.shoald.stat()["mesh_evictions"] >= 2, "evictions")
        self.assertLess(len(list(self.repository.iterdir())), 4)

    def check_forgotten_model(self):
        """unloaded behind the node's back, it is loaded again"""
        self.load("one")
        with grpc.insecure_channel(f"127.0.0.1:{self.port}") as channel:
            channel.unary_unary("/inference.GRPCInferenceService/RepositoryModelUnload")(b"\x12\x03one")

        def answers():
            try:
                return self.ask("one") == 5.0
            except grpc.RpcError:
                return False
        wait_until(answers, "an answer")

    def check_kill_9_under_load(self):
        self.load("a", "b")
        over, answers = threading.Event(), {"a": 0, "b": 0}
        wrong = []

        def call(model, answer):
            while not over.is_set():
                try:
                    if self.ask(model) != answer:
                        wrong.append(model)
                    answers[model] += 1
                except grpc.RpcError as error:
                    if error.code() not in (Code.UNAVAILABLE, Code.INTERNAL):
                        wrong.append(error)
        callers = [threading.Thread(target=call, args=one) for one in (("a", 5.0), ("b", 10.0))]
        for caller in callers:
            caller.start()
        try:
            for kills in range(1, 3):
                self.kill_server()
                self.shoald.wait_log("external_lost", kills)
                self.start_server()
                self.shoald.wait_log("external_ready", kills + 1)
                before = dict(answers)
                wait_until(lambda: all(answers[model] > before[model] + 3 for model in answers),
                           lambda: f"answers after {before}: {answers}")
        finally:
            over.set()
            for caller in callers:
                caller.join()
        self.assertEqual(wrong, [])

    def check_kill_9_of_the_node(self):
        """the next one empties the server and its folder"""
        self.load("a", "b")
        self.shoald.kill()
        with Shoald(self.shoald.config) as second, Registrar(second) as self.registrar:
            second.wait_log("external_ready")
            self.assertEqual(list(self.repository.iterdir()), [])
            self.load("b")
            self.assertEqual(self.ask("b"), 5.0)


class Hosted(Case):
    """Needs of a part: `format`, `write(path, factor)`, `request(value)` and `value(answer)` as above; `manifest`, a
    text with fields in braces; `mesh`, what a node needs to run it; `started`, a line of the server's log."""

    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="shoal-interop.")))
        self.files = self.folder / "files"
        self.files.mkdir()
        self.node = {"files_root": str(self.files), "models_cache": str(self.folder / "cache")}

    def runtime(self, node, marker, more=""):
        """The manifest of a runtime for the node, which has the node's name."""
        text = self.manifest + more
        ports = {one: free_port() for one in ("adapter", "grpc", "http", "metrics")}
        for field, value in {"name": node, "marker": marker, **ports}.items():
            text = text.replace(f"{{{field}}}", str(value))
        return text

    def service(self, name, path):
        return service(name, self.format, path)

    def serve(self, **factors):
        for name, factor in factors.items():
            self.write(self.files / name, factor)
        self.apply(*(self.service(name, name) for name in factors))

    def ask(self, vmodel, registrar=None, timeout=10):
        """The answer; code and text of a call that failed."""
        call = (registrar or self.registrar).start_infer("", (("mm-vmodel-id", vmodel),), (self.request(5.0),), timeout)
        if call.exception() is not None:
            return failure(call)
        contents, = call.result().raw_output_contents
        return round(self.value(contents), 3)

    def wait_answers(self, **factors):
        for name, factor in factors.items():
            wait_until(lambda factor=factor, name=name: self.ask(name) == 5.0 * factor,
                       lambda name=name: f"{name} to answer, not {self.ask(name)}\n{self.at.stderr}")

    def server(self, marker):
        """The process of the container."""
        keeper, = (pid for pid in processes(marker) if "--keep" in read_proc(pid, "cmdline"))
        server, *_ = map(int, read_proc(keeper, f"task/{keeper}/children").split())
        return server

    def models(self, node):
        return [one.name.partition("__")[0] for one in (self.folder / "cache" / "runtimes" / node).glob("*__isvc-*")]

    # ---- checks ----

    def check_a_manifest_of_kserve(self):
        """from the manifest to answers, kill -9 of the server, and its end"""
        self.start(node=self.node, **self.mesh)
        manifest = self.runtime("node-1", self.marker)
        self.apply(manifest)
        self.serve(one=1, two=2)
        self.wait_answers(one=1, two=2)
        os.kill(self.server(self.marker), signal.SIGKILL)
        self.at.wait_log(self.started, 2)  # takes its time
        self.wait_state("node-1", "Ready", restarts="^1$", message="ended by signal 9")
        self.wait_answers(one=1, two=2)
        self.assertEqual(sorted(self.models("node-1")), ["one", "two"])
        self.apply(manifest.replace("multiModel: true", "multiModel: true\n  disabled: true"))
        self.wait_gone()
        self.wait_cleared()

    def wait_cleared(self):
        wait_until(lambda: not self.models("node-1"), "the folder to be cleared")

    def start_nodes(self, *names):
        """Two, each with a server of its own."""
        etcd = self.enterContext(Etcd())
        self.hosts, self.registrars = {}, {}
        for name in names:
            self.start(name, node=self.node, store=f"etcd:{etcd.url}", service="test", peers=["127.0.0.1:0"],
                       node_labels=[f"is={name}"], **self.mesh)
            self.at.wait_log("mesh_session_begun")
            self.hosts[name], self.registrars[name] = self.at, self.registrar
            self.apply(self.runtime(name, f"{self.marker}-{name}", f"  nodeSelector: {{is: {name}}}\n"))
        for name in names:
            self.hosts[name].wait_log(self.started)  # takes its time
            self.wait_state(name, "Ready", node=name)

    @contextlib.contextmanager
    def calling(self, answers):
        """Meanwhile each vmodel is called through each node. Yields the function that waits until each of these
        vmodels has given one of these answers once more through each node; in the end no call has failed."""
        seen, failures, over = collections.Counter(), [], threading.Event()

        def caller(vmodel, node):
            while not over.is_set():
                answer = self.ask(vmodel, self.registrars[node], WAIT_SECONDS)
                if answer not in answers[vmodel]:
                    failures.append((vmodel, node, answer))
                    return
                seen[vmodel, node, answer] += 1

        def wait(**wanted):
            before = collections.Counter(seen)
            wait_until(lambda: failures or all(any(seen[vmodel, node, answer] > before[vmodel, node, answer]
                                                   for answer in ones)
                                               for vmodel, ones in wanted.items() for node in self.registrars),
                       lambda: f"{wanted} after {before}: {seen}")
            self.assertEqual(failures, [])
        callers = [threading.Thread(target=caller, args=(vmodel, node)) for vmodel in answers
                   for node in self.registrars]
        for one in callers:
            one.start()
        try:
            yield wait
        finally:
            over.set()
            for one in callers:
                one.join(WAIT_SECONDS)
        self.assertEqual(failures, [])

    def check_no_call_fails(self):
        """two nodes under load: kill -9 of a server, another path of an InferenceService"""
        self.start_nodes("node-a", "node-b")
        self.serve(a=1, b=2)
        self.wait_answers(a=1, b=2)
        place = next(name for name in self.hosts if "a" in self.models(name))
        other, = set(self.hosts) - {place}
        with self.calling({"a": (5.0, 15.0), "b": (10.0,)}) as wait:
            wait(a=(5.0,), b=(10.0,))
            os.kill(self.server(f"{self.marker}-{place}"), signal.SIGKILL)
            self.hosts[place].wait_log("container_ended")
            wait_until(lambda: "a" in self.models(other), "a load elsewhere")
            wait(a=(5.0,), b=(10.0,))
            self.hosts[place].wait_log(self.started, 2)
            self.wait_state(place, "Ready", node=place, restarts="^1$")
            self.write(self.files / "a-2", 3)
            self.apply(self.service("a", "a-2"))
            wait(a=(15.0,), b=(10.0,))


def floats(value):
    return struct.pack("<f", value)


def real(contents, form="<f"):
    return struct.unpack(form, contents)[0]
