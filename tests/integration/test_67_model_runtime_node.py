# SPDX-License-Identifier: Apache-2.0
"""mmesh.ModelRuntime and the node that serves it: its start, its end, quarantine, several
pipelines, a budget that is used up, a real model, and the addresses that an operator may choose.

test_66_model_runtime.py covers the contract on one node. Here each test has its own, with the
pupil as its modelet, or the perceptron of examples/mlp.

ctest: timeout=240 presets=dev
"""

import collections
import json
import shutil
import socket
import struct
import subprocess
import unittest

import grpc

import shoal_fixture
from shoal_client import Client
from shoal_fixture import (BUILD, EXAMPLES, free_port, node, pipeline, run_shoald, stage,
                           wait_until)
from shoal_mesh import FAILING, INFERENCE, READY, SERVICE, STARTING, Mesh
from shoal_pupil import MIB, Rig, key, models, prepare, pupil, said


class TestNode(Rig, unittest.TestCase):
    def start(self, *pipelines, runtime=("unix:runtime.sock",), ready=True, **keys):
        self.shoald = prepare(*(pipelines or [pupil()]), runtime=list(runtime), **keys)
        if ready:
            self.enterContext(self.shoald)
        else:
            self.shoald.start()
            self.addCleanup(self.shoald.discard)
        folder = self.shoald.folder
        self.mesh = self.enterContext(Mesh(f"unix:{folder}/runtime.sock",
                                           f"unix:{folder}/grpc.sock"))

    def test_starting_until_all_serve(self):
        self.start(pupil("one"), pupil("two", {"open": "open"}), ready=False)
        self.wait_held("open")
        wait_until((self.shoald.folder / "runtime.sock").exists, "the socket")
        status = self.mesh.status()
        self.assertEqual(status.status, STARTING)
        self.assertEqual(status.ByteSize(), 0)
        self.give("open")
        self.shoald.wait_ready()
        self.assertEqual(self.mesh.status().status, READY)
        self.assertEqual(self.shoald.terminate(), 0)
        self.shoald.check_log()

    def test_failing(self):
        """A stage in quarantine: a mesh that waits is asked to give up."""
        puppet = stage("libpuppet.so", params={"folder": "."}, attempts_max=1, quarantine_deaths=1,
                       quarantine_ms=3600000)
        both = pupil()
        both["stages"].insert(0, puppet)
        self.start(both)
        self.assertEqual(self.mesh.status().status, READY)
        self.shoald.wait_log("worker_ready .* stage=puppet")
        self.mesh.load("model", key=key())
        crash = [("say", "BYTES", [1], b"\7\0\0\0crash x")]
        self.assertIsNotNone(self.mesh.start_infer("model", inputs=crash).exception())
        self.shoald.wait_log("stage_quarantined")
        self.wait_state(FAILING)
        with Client(f"unix:{self.shoald.folder}/runtime.sock") as client:
            request, check = client.stub("Check", "grpc.health.v1.Health")
            self.assertEqual(check(request(service=SERVICE), timeout=60).status, 2)

    def test_load_past_its_time_out(self):
        self.start(pupil(models={"load_timeout_ms": 1000}))
        status = self.mesh.status()
        self.assertEqual(status.modelLoadingTimeoutMs, 2000)
        self.check_fails(self.mesh.start_load("late", key=key(load="late")),
                         grpc.StatusCode.DEADLINE_EXCEEDED, "1000")
        self.shoald.wait_log("worker_ready", 2)
        self.mesh.load("model", key=key())
        self.assertEqual(said(self.mesh.start_infer("model").result()), "model")

    def test_types(self):
        """Two pipelines are one runtime; the key says whose a model is."""
        self.start(pupil("one", models={"types": ["one", "uno"]}),
                   pupil("two", models={"types": ["two"], "memory_mib": 32, "default_size_mib": 8,
                                        "load_concurrency": 2, "load_timeout_ms": 90000}))
        status = self.mesh.status()
        self.assertEqual(status.capacityInBytes, 96 * MIB)
        self.assertEqual(status.defaultModelSizeInBytes, 8 * MIB)
        self.assertEqual(status.maxLoadingConcurrency, 2)
        self.assertEqual(status.modelLoadingTimeoutMs, 91000)
        for kind, name in (("one", "a"), ("uno", "b"), ("two", "c")):
            self.mesh.load(name, key=json.dumps({"model_type": {"name": kind}}))
            self.assertEqual(said(self.mesh.start_infer(name).result()), name)
        for text, part in ((json.dumps({"model_type": {"name": "three"}}), "three"),
                           ("{}", "model_type")):
            self.check_fails(self.mesh.start_load("d", key=text),
                             grpc.StatusCode.INVALID_ARGUMENT, part)

    def test_bound_methods(self):
        """Each is reported with the path to its id; where there is none the id is in metadata."""
        self.start(pupil("pupil", method="/school.Pupil/Learn", id_path=[2, 1],
                         models={"types": ["pupil"]}),
                   pupil("other", method="/school.Pupil/Other", models={"types": ["other"]}))
        status = self.mesh.status()
        paths = {name: list(info.idInjectionPath) for name, info in status.methodInfos.items()}
        self.assertEqual(paths, {"school.Pupil/Learn": [2, 1], "school.Pupil/Other": [],
                                 f"{INFERENCE}/ModelReady": [1],
                                 f"{INFERENCE}/ModelMetadata": [1]})
        self.mesh.load("a", key=key())
        self.mesh.load("b", key=json.dumps({"model_type": "other"}))
        for method, message, metadata, wanted in (
                ("Learn", b"\x0a\x04more\x12\x03\x0a\x01a", [], b"a"),
                ("Other", b"whatever", [("mm-model-id", "b")], b"b")):
            call = self.mesh.data.unary_unary(f"/school.Pupil/{method}")
            self.assertEqual(call(message, timeout=60, metadata=metadata), wanted)

    def test_too_large(self):
        """Models that a mesh ordered are not evicted: a load that does not fit fails, and says
        so."""
        self.start()
        self.mesh.load("a", key=key(bytes=40 * MIB))
        self.check_fails(self.mesh.start_load("b", key=key(bytes=30 * MIB)),
                         grpc.StatusCode.RESOURCE_EXHAUSTED, "memory_mib")
        self.assertEqual(said(self.mesh.start_infer("a").result()), "a")
        self.mesh.unload("a")
        self.mesh.load("b", key=key(bytes=30 * MIB))

    def test_real_model(self):
        """The perceptron of the examples, from a directory as a storage helper leaves it."""
        self.start(pipeline("mlp", stage(BUILD / "lib" / "shoal" / "libmlp.so", batch_size=16,
                                         workers=2), models=models()))
        place = self.shoald.folder / "models" / "xor-1234"
        place.mkdir()
        shutil.copy(EXAMPLES / "mlp" / "xor.mlp", place / "xor.mlp")
        size = self.mesh.load("xor-1234", f"{place}/", json.dumps(
            {"model_type": {"name": "mlp"}, "disk_size_bytes": 1})).sizeInBytes
        self.assertGreater(size, 0)
        inputs = struct.pack("<8f", 0, 0, 0, 1, 1, 0, 1, 1)
        answer = self.mesh.start_infer("xor-1234", inputs=[("bits", "FP32", [4, 2], inputs)])
        outputs = struct.unpack("<4f", answer.result().raw_output_contents[0])
        self.assertEqual([round(one) for one in outputs], [0, 1, 1, 0])

    def test_too_many_calls(self):
        """The 1,024 that wait are answered; what is more is refused at once."""
        self.start()
        loading = self.mesh.start_load("model", key=key(load="cue"))
        self.wait_held("cue")
        calls = [self.mesh.start_unload("model") for _ in range(1100)]
        # the load has failed with the first of them, which may have come too late for one call
        wait_until(lambda: sum(call.done() for call in calls) >= 1100 - 1024, "the refusals")
        for call in calls:
            if call.done():
                self.check_fails(call, grpc.StatusCode.RESOURCE_EXHAUSTED, "1024 calls")
        self.give("cue")
        self.check_fails(loading, grpc.StatusCode.ABORTED, "model")
        codes = collections.Counter(call.code().name for call in calls)
        self.assertIn(codes["OK"], (1023, 1024))
        self.assertEqual(codes["OK"] + codes["RESOURCE_EXHAUSTED"], 1100)

    def test_node_stops_with_loads_under_way(self):
        """Each call is answered."""
        self.start()
        self.mesh.load("loaded", key=key())
        loads = [self.mesh.start_load(name, key=key(load="cue")) for name in "abc"]
        self.wait_held("cue")
        unloading = self.mesh.start_unload("loaded")  # behind the loads
        code = self.shoald.terminate()
        self.assertEqual(code, 0, self.shoald.stderr)
        for load in loads:
            self.check_fails(load, grpc.StatusCode.UNAVAILABLE)
        wait_until(unloading.done, "the unload to be answered")
        self.assertFalse((self.shoald.folder / "runtime.sock").exists())

    def test_draining(self):
        """While calls end, nothing is loaded any more."""
        puppet = stage("libpuppet.so", params={"folder": "."})
        self.start(pupil(), pipeline("puppet", puppet))
        with Client(self.shoald.target) as client:
            held = client.tell("hold call")
            self.wait_held("call")
            self.shoald.drain()
            self.check_fails(self.mesh.start_load("a", key=key()), grpc.StatusCode.UNAVAILABLE)
            self.check_fails(self.mesh.start("runtimeStatus"), grpc.StatusCode.UNAVAILABLE)
            self.mesh.unload("a")
            self.give("call")
            held.result()
        self.shoald.check_end()

    # ---- addresses ----

    def test_not_configured(self):
        """Nobody can load models on a node that does not say where."""
        self.shoald = self.enterContext(prepare(pupil()))
        target = self.shoald.target
        self.mesh = self.enterContext(Mesh(target, target))
        for method in ("loadModel", "unloadModel", "predictModelSize", "modelSize",
                       "runtimeStatus"):
            self.check_fails(self.mesh.start(method), grpc.StatusCode.UNIMPLEMENTED)

    def test_inference_is_not_there(self):
        """Of two endpoints each has its own."""
        self.start()
        self.mesh.data, self.mesh.management = self.mesh.management, self.mesh.data
        self.check_fails(self.mesh.start_infer("model"), grpc.StatusCode.UNIMPLEMENTED)
        self.check_fails(self.mesh.start("runtimeStatus"), grpc.StatusCode.UNIMPLEMENTED)
        self.mesh.data, self.mesh.management = self.mesh.management, self.mesh.data

    def test_only_this_machine(self):
        """`port:` is loopback; where it is one endpoint with what reaches further, so is the
        service."""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect(("192.0.2.1", 9))  # nothing is sent: it only finds our address
                own = probe.getsockname()[0]
            except OSError:
                own = "127.0.0.1"
        if own.startswith("127."):
            self.skipTest("this machine has no address but loopback")
        port, other = free_port(), free_port()
        self.shoald = self.enterContext(prepare(
            pupil(), runtime=[f"port:{port}", f"port:{other}"], listen=[f"port:{port}"]))
        near = self.enterContext(Mesh(f"127.0.0.1:{port}", f"127.0.0.1:{other}"))
        self.assertEqual(near.status().status, READY)
        own_server = self.enterContext(Mesh(f"localhost:{other}", f"localhost:{other}"))
        self.assertEqual(own_server.status().status, READY)
        far = self.enterContext(Mesh(f"{own}:{port}", f"{own}:{other}"))
        self.check_fails(far.start("runtimeStatus"), grpc.StatusCode.PERMISSION_DENIED, "runtime")
        far.management = far.data
        self.check_fails(far.start("runtimeStatus"), grpc.StatusCode.UNAVAILABLE)

    def test_old_socket(self):
        """One that a dead node left is replaced, one that somebody listens on is not."""
        self.shoald = prepare(pupil(), runtime=["unix:runtime.sock"])
        path = str(self.shoald.folder / "runtime.sock")
        with socket.socket(socket.AF_UNIX) as left:
            left.bind(path)
        with self.shoald:
            self.mesh = self.enterContext(Mesh(f"unix:{path}", self.shoald.target))
            self.assertEqual(self.mesh.status().status, READY)
        shoald = prepare(pupil(), runtime=["unix:runtime.sock"])
        with socket.socket(socket.AF_UNIX) as other:
            other.bind(str(shoald.folder / "runtime.sock"))
            other.listen()
            self.assertEqual(shoald.start().wait_exit(), 2)
        self.assertRegex(shoald.stderr, "runtime: unix:.*runtime.sock: in use")
        shoald.discard()

    def test_mistakes(self):
        """Reported before anything starts."""
        echo = pipeline("echo", stage("libecho.so"))
        code, text = run_shoald(node(echo, runtime=["port:8085"]))
        self.assertEqual(code, 2)
        self.assertRegex(text, r"shoald.yaml:\d+: `runtime`, but no pipeline has `models`")
        port = free_port()
        shoald = prepare(pupil(), runtime=["unix:grpc.sock"],
                         listen=[f"port:{port}", "unix:grpc.sock"])
        shoald.command[shoald.command.index("unix:grpc.sock")] = shoald.target
        for args in ([], ["--check"]):
            command = [*shoald.command[:-1], *args, shoald.command[-1]]
            done = subprocess.run(command, env=shoald.env, capture_output=True, text=True,
                                  timeout=60)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(f"name port:{port} in `runtime` too", done.stderr)
        shoald.discard()


if __name__ == "__main__":
    shoal_fixture.main()
