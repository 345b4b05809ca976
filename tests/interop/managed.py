# SPDX-License-Identifier: Apache-2.0
"""A node manages a real model server by a built-in adapter; the parts
adapter_mlserver and adapter_triton add the server and its models.

A model's answer to a number is the number times the model's factor.
"""

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

from shoal_fixture import Shoald, free_port, wait_until  # noqa: E402
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


def floats(value):
    return struct.pack("<f", value)


def real(contents, form="<f"):
    return struct.unpack(form, contents)[0]
