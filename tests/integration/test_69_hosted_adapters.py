# SPDX-License-Identifier: Apache-2.0
"""ServingRuntimes with a `builtInAdapter` that a node runs: model servers as processes (strict ones,
shoal_model_server.py), whose adapter is shoald.

Proves: a runtime as KServe's manifests write it, with its folder for models where KServe has it, serves;
a changed or disabled one leaves no model behind, also during loads and calls; a server that is killed
under load costs no call that another node can answer, nor does an upgrade of a model meanwhile.
ctest: timeout=240
"""

import os
import pathlib
import re
import signal
import sys
import tempfile
import threading

from shoal_client import failure
from shoal_fixture import SOURCE, WAIT_SECONDS, free_port, main, read_proc, wait_until
from shoal_hosting import Case, container, host, processes, runtime, service
from shoal_meshes import Etcd
from shoal_registry import Registrar

PROGRAM = f"{sys.executable} {SOURCE / 'tests' / 'integration' / 'shoal_model_server.py'}"
IMAGES = {"nvcr.io/nvidia/tritonserver": PROGRAM}


class Rig(Case):
    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="shoal-test.")))
        self.files = self.folder / "files"
        self.files.mkdir()
        self.node = {"files_root": str(self.files), "models_cache": str(self.folder / "cache")}

    def repository(self, name="node-1"):
        return self.folder / "cache" / "runtimes" / name

    def laid_out(self, name="node-1"):
        return sorted(one.name for one in self.repository(name).iterdir())

    def write(self, *names):
        for name in names:
            (self.files / name).write_text(name)

    def runtime(self, name="triton-2.x", port=None, journal="journal", adapter=(), **more):
        """As KServe writes it, but for the program's arguments and the probe."""
        port = port or self.port
        server = container("triton", str(port), "/models/_triton_models", str(self.folder / journal), name="triton",
                           image="nvcr.io/nvidia/tritonserver:21.06.1-py3", env=[self.mark],
                           resources={"requests": {"cpu": "500m", "memory": "192Mi"}})
        return runtime(name, "127.0.0.1:8085", server, formats=("onnx",), protocolVersions=["grpc-v2"],
                       grpcDataEndpoint=f"port:{port}",
                       builtInAdapter={"serverType": "triton", "runtimeManagementPort": port,
                                       "memBufferBytes": 134217728, "modelLoadingTimeoutMillis": 90000,
                                       **dict(adapter)}, **more)

    def services(self, *names):
        self.write(*names)
        return [service(name, "onnx", name) for name in names]

    def noted(self, journal="journal"):
        return (self.folder / journal).read_text().splitlines()

    def start_ask(self, vmodel, registrar=None, timeout=WAIT_SECONDS):
        return (registrar or self.registrar).start_infer("", (("mm-vmodel-id", vmodel),), timeout=timeout)

    def ask(self, vmodel):
        return self.start_ask(vmodel).result().raw_output_contents[0].decode()

    def server(self, port=None):
        """The process of the one that serves the port."""
        found, = [pid for pid in processes(self.marker) if "--keep" not in read_proc(pid, "cmdline")
                  and f"\0{port or self.port}\0" in read_proc(pid, "cmdline")]
        return found

    def wait_laid_out(self, *patterns, name="node-1"):
        def look():
            found = self.laid_out(name)
            return len(found) == len(patterns) and all(map(re.fullmatch, patterns, found))
        wait_until(look, lambda: f"{patterns} in the folder, not {self.laid_out(name)}\n{self.at.stderr}")


class TestOneNode(Rig):
    def test_a_manifest_of_kserve_to_its_end(self):
        self.start(images=IMAGES, node=self.node)
        self.apply(self.runtime(), *self.services("one", "two"))
        for name in ("one", "two"):
            self.wait_ready(name)
            self.assertEqual(self.ask(name), name)
        self.wait_state("triton-2.x", "Ready", restarts="^0$", message="^$")
        self.wait_laid_out("one__isvc-.*", "two__isvc-.*")
        command = read_proc(self.server(), "cmdline")
        self.assertIn(f"\0{self.repository()}\0", command)
        self.at.wait_log("external_ready .*capacity_bytes=67108864")
        self.apply(self.runtime(disabled=True))
        self.wait_gone()
        self.wait_laid_out()

    def test_a_change_during_loads_and_calls(self):
        """A call is answered by the former server, a load that never ends is given up, and the changed server
        has nothing of the former one."""
        self.start(images=IMAGES, node=self.node, stop_timeout_ms=WAIT_SECONDS * 1000)
        self.apply(self.runtime(adapter={"env": [{"name": "LOADING_CONCURRENCY", "value": "2"}]}),
                   *self.services("slow"))
        gate = self.folder / "gate"
        os.mkfifo(gate)
        (self.files / "slow").write_text(f"wait {gate}")
        self.wait_ready("slow")
        self.apply(*self.services("endless"))
        wait_until(lambda: any(line.startswith("load endless") for line in self.noted()), "the load to begin")
        call = self.start_ask("slow")
        wait_until(lambda: any(line.startswith("call slow") for line in self.noted()), "the call to begin")
        (self.files / "endless").write_text("ended")
        self.apply(self.runtime(journal="second", adapter={"modelLoadingTimeoutMillis": 70000}))
        self.wait_state("triton-2.x", "Stopping")
        with open(gate, "r+b", 0) as pipe:  # opens at once, also if another process has it
            pipe.write(b"go\n")
            self.assertEqual(call.result().raw_output_contents[0].decode(), f"wait {gate}")
        gate.unlink()
        gate.touch()
        wait_until(lambda: (self.folder / "second").exists(), "the changed server")
        self.wait_ready("endless")
        for name, text in (("endless", "ended"), ("slow", f"wait {gate}")):
            wait_until(lambda name=name: self.start_ask(name, timeout=5).exception() is None, "an answer")
            self.assertEqual(self.ask(name), text)
        self.wait_laid_out("endless__.*", "slow__.*")
        self.assertFalse([line for line in self.noted("second") if line.startswith("unload")])


class TestTwoNodes(Rig):
    def setUp(self):
        super().setUp()
        etcd = self.enterContext(Etcd())
        self.hosts, self.registrars, self.ports = {}, {}, {}
        for name in ("node-a", "node-b"):
            at = self.enterContext(host(name, IMAGES, self.node, store=f"etcd:{etcd.url}", service="test",
                                        peers=["127.0.0.1:0"], node_labels=[f"is={name}"]))
            at.wait_log("mesh_session_begun")
            self.hosts[name], self.ports[name] = at, free_port()
            self.registrars[name] = self.enterContext(Registrar(at))
        self.at = self.hosts["node-a"]
        self.registrar = self.registrars["node-a"]

    def test_kill_9_under_load(self):
        """No call fails, and each gets its model's answer; the killed server's models are loaded elsewhere, it
        serves again, and a service moves to another model."""
        for name, port in self.ports.items():
            self.apply(self.runtime(f"on-{name}", port, f"journal-{name}", nodeSelector={"is": name}))
        for name in self.ports:
            self.wait_state(f"on-{name}", "Ready", node=name)
        models = ["a", "b", "c"]
        self.apply(*self.services(*models))
        for model in models:
            self.wait_ready(model)
        place, = [name for name in self.hosts if any(one.startswith("a__") for one in self.laid_out(name))]
        other, = set(self.hosts) - {place}
        answers, failures, over = dict.fromkeys(models, 0), [], threading.Event()
        right, last = {model: {model} for model in models}, {}  # `last`: by model and node

        def caller(model, name):
            while not over.is_set():
                future = self.start_ask(model, self.registrars[name])
                if future.exception() is not None:
                    failures.append(failure(future))
                    return
                told = future.result().raw_output_contents[0].decode()
                if told not in right[model]:
                    failures.append((model, told))
                    return
                last[model, name] = told
                answers[model] += 1
        callers = [threading.Thread(target=caller, args=(model, name)) for model in models
                   for name in self.registrars]
        for one in callers:
            one.start()
        try:
            wait_until(lambda: all(answers.values()), "calls")
            os.kill(self.server(self.ports[place]), signal.SIGKILL)
            self.hosts[place].wait_log("external_lost")
            wait_until(lambda: any(one.startswith("a__") for one in self.laid_out(other)), "a load elsewhere")
            before = dict(answers)
            self.wait_state(f"on-{place}", "Ready", node=place, restarts="^1$")
            wait_until(lambda: failures or all(answers[model] > before[model] for model in models), "calls after it")
            self.write("upgraded")
            right["a"].add("upgraded")
            self.apply(service("a", "onnx", "upgraded"))
            wait_until(lambda: failures or all(last["a", name] == "upgraded" for name in self.hosts),
                       lambda: f"the new model's answers, not {last}")
            right["a"].remove("a")  # none goes back
            before = dict(answers)
            wait_until(lambda: failures or all(answers[model] > before[model] for model in models), "calls after that")
        finally:
            over.set()
            for one in callers:
                one.join(WAIT_SECONDS)
        self.assertEqual(failures, [])


if __name__ == "__main__":
    main()
