#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""`./dev demo mesh`: etcd and three nodes on this machine are one service for 300 models of
handwritten digits, of which each node has room for some 180. Callers keep calling all nodes while
one node is killed and comes back, another is drained, and a vmodel moves from model to model. Every
answer is checked. Fails if a call fails, if another model answers than the one asked for, or if
fewer than 95 % of the digits are classified correctly.
"""

import argparse
import bisect
import itertools
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

EXAMPLES = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(EXAMPLES), str(EXAMPLES / "digits")]
import client as digits
import open_inference

import grpc
from google.protobuf import descriptor_pool, descriptor_pb2

BUILD = pathlib.Path(os.environ.get("SHOAL_BUILD_DIR", EXAMPLES.parent / "build" / "release"))
NAMES = ["a", "b", "c"]
MODELS = 300
MEMORY_MIB = 256  # of each node; a model of digits takes 1.4
CALLERS = 6
WAIT_SECONDS = 60
VMODEL = "digits-today"
DEFINED = 1

# Callers know all nodes, take them in turn, and retry at another one if a node has gone away: gRPC
# does that, switched on by these options.
CHANNEL = [("grpc.service_config", json.dumps({
    "loadBalancingConfig": [{"round_robin": {}}],
    "methodConfig": [{"name": [{}], "retryPolicy": {
        "maxAttempts": 5, "initialBackoff": "0.05s", "maxBackoff": "0.5s", "backoffMultiplier": 2,
        "retryableStatusCodes": ["UNAVAILABLE"]}}]})),
    ("grpc.use_local_subchannel_pool", 1)]


def fail(text):
    sys.exit(f"demo: {text}")


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def wait_until(condition, what):
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            fail(f"not within {WAIT_SECONDS} s: {what}")
        time.sleep(0.02)


def start(command, log):
    """A process that does not outlive this one."""
    with log.open("ab") as out:
        return subprocess.Popen(["setpriv", "--pdeathsig", "KILL", *map(str, command)],
                                stdin=subprocess.DEVNULL, stdout=out, stderr=out)


class Etcd:
    def __init__(self, folder):
        if shutil.which("etcd") is None:
            fail("there is no etcd here; on Debian: apt-get install etcd-server")
        self.url = f"http://127.0.0.1:{free_port()}"
        self.address = self.url.rpartition("/")[2]
        peer = f"http://127.0.0.1:{free_port()}"
        self.log = folder / "etcd.log"
        self.process = start(
            ["etcd", "--data-dir", folder / "etcd", "--listen-client-urls", self.url,
             "--advertise-client-urls", self.url, "--listen-peer-urls", peer,
             "--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}"],
            self.log)
        wait_until(self.answers, "etcd to take calls; its log: " + str(self.log))

    def answers(self):
        if self.process.poll() is not None:
            fail(f"etcd has ended:\n{self.log.read_text()[-2000:]}")
        host, port = self.address.split(":")
        with socket.socket() as one:
            return one.connect_ex((host, int(port))) == 0


class Node:
    """A shoald with the digits pipeline, whose models the mesh manages."""

    def __init__(self, folder, name, etcd):
        self.name = name
        self.target = f"127.0.0.1:{free_port()}"
        self.counters = folder / f"{name}.counters"
        self.log = folder / f"{name}.log"
        self.file = folder / f"{name}.yaml"
        place = BUILD / "examples" / "digits"
        stages = [{"name": name, "modelet": str(place / f"lib{modelet}.so"), "workers": 1,
                   "batch_size": 64} for name, modelet in
                  [("normalize", "normalize"), ("classify", "xgboost_modelet"), ("label", "label")]]
        self.file.write_text(json.dumps({  # JSON is YAML
            "listen": [self.target], "counters": str(self.counters), "drain_timeout_ms": 60000,
            "mesh": {"store": f"etcd:{etcd.url}", "service": "demo", "instance": name,
                     "peers": ["127.0.0.1:0"]},
            "pipelines": [{"name": "digits", "stages": stages, "models": {
                "root": str(place), "memory_mib": MEMORY_MIB, "default_size_mib": 2,
                "load_timeout_ms": 30000}}]}))

    def start(self):
        self.log.write_bytes(b"")
        self.process = start([BUILD / "bin" / "shoald", self.file], self.log)
        wait_until(self.is_up, f"node {self.name} to be ready; its log: {self.log}")

    def is_up(self):
        if self.process.poll() is not None:
            fail(f"node {self.name} has ended:\n{self.log.read_text()[-2000:]}")
        text = self.log.read_text()
        return "mesh_session_begun" in text and " ready " in text

    def stop(self, number):
        self.process.send_signal(number)
        try:
            self.process.wait(WAIT_SECONDS + 30)
        except subprocess.TimeoutExpired:
            fail(f"node {self.name} does not end; its log: {self.log}")
        if number == signal.SIGTERM and self.process.returncode != 0:
            fail(f"node {self.name} has ended with {self.process.returncode}:\n"
                 f"{self.log.read_text()[-2000:]}")

    def loaded(self):
        if self.process.poll() is not None:
            return None
        done = subprocess.run([BUILD / "bin" / "shoalctl", "model", "list", "--counters", self.counters,
                               "--state", "loaded", "--json"], capture_output=True, timeout=30)
        return len(done.stdout.splitlines()) if done.returncode == 0 else None


class Mesh:
    """Connections to all nodes, for any number of threads."""

    def __init__(self, nodes):
        pool = descriptor_pool.DescriptorPool()
        descriptors = open_inference.default_descriptors()
        for file in descriptor_pb2.FileDescriptorSet.FromString(descriptors.read_bytes()).file:
            pool.AddSerializedFile(file.SerializeToString())
        self.pool = pool
        self.channel = grpc.insecure_channel("ipv4:" + ",".join(node.target for node in nodes),
                                             options=CHANNEL)
        self.nodes = nodes
        self.infer = self.stub(self.channel, open_inference.SERVICE, "ModelInfer")
        self.infer_request = self.kind("inference.ModelInferRequest")

    def kind(self, name):
        descriptor = self.pool.FindMessageTypeByName(name)
        if hasattr(open_inference.message_factory, "GetMessageClass"):
            return open_inference.message_factory.GetMessageClass(descriptor)
        return open_inference.message_factory.MessageFactory(self.pool).GetPrototype(descriptor)

    def stub(self, channel, service, method):
        found = self.pool.FindServiceByName(service).methods_by_name[method]
        request, response = (self.kind(one.full_name)
                             for one in (found.input_type, found.output_type))
        call = channel.unary_unary(f"/{service}/{method}", request.SerializeToString,
                                        response.FromString)
        return lambda fields=None, metadata=(), message=None: call(
            message if message is not None else request(**fields), timeout=WAIT_SECONDS,
            metadata=metadata, wait_for_ready=True)

    def manage(self, method, **fields):
        """Runs a command at any node that is up, as its own user."""
        node = next(one for one in self.nodes if one.process.poll() is None)
        with grpc.insecure_channel(f"unix:{node.counters}.manage", options=CHANNEL) as channel:
            return self.stub(channel, "mmesh.ModelMesh", method)(fields)


class Traffic:
    """Callers that never pause. Their results are kept until they are read."""

    def __init__(self, nodes):
        self.images = digits.held_out(digits.DATA)
        weights = [1 / rank for rank in range(1, MODELS + 1)]
        self.sums = list(itertools.accumulate(weights))
        self.lock = threading.Lock()
        self.ends = threading.Event()
        self.clear()
        self.total = self.right_total = 0
        self.failed = []
        self.of_vmodel = {"m0"}  # the models that may answer for the vmodel
        self.threads = [threading.Thread(target=self.run, args=(nodes, i), daemon=True)
                        for i in range(CALLERS)]

    def clear(self):
        self.answered = 0
        self.slowest = 0.0

    def run(self, nodes, seed):
        mesh, draw = Mesh(nodes), random.Random(seed)
        while not self.ends.is_set():
            rank = bisect.bisect_left(self.sums, draw.random() * self.sums[-1])
            self.call(mesh, draw, VMODEL if draw.random() < 0.1 else f"m{rank}")

    def call(self, mesh, draw, model):
        image, digit = draw.choice(self.images)
        message = mesh.infer_request(model_name="" if model == VMODEL else model)
        message.inputs.add(name="image", datatype="FP32", shape=[1, 64])
        message.raw_input_contents.append(open_inference.array.array("f", image).tobytes())
        with self.lock:
            may = set(self.of_vmodel) if model == VMODEL else {model}
        begun = time.monotonic()
        wrong, label = None, None
        try:
            answer = mesh.infer(message=message,
                                metadata=[("mm-vmodel-id", model)] if model == VMODEL else [])
            outputs = {output.name: raw for output, raw in
                       zip(answer.outputs, answer.raw_output_contents)}
            label = int.from_bytes(outputs["label"], "little")
            with self.lock:
                may |= self.of_vmodel if model == VMODEL else set()
            if answer.model_name not in may:
                wrong = f"{model}: answered by {answer.model_name}"
        except grpc.RpcError as error:
            wrong = f"{model}: {error.code().name}: {error.details()}"
        with self.lock:
            self.answered += wrong is None
            self.total += wrong is None
            self.right_total += label == digit
            self.slowest = max(self.slowest, time.monotonic() - begun)
            if wrong is not None:
                self.failed.append(wrong)

    def go_on(self, calls):
        until = self.answered + calls
        wait_until(lambda: self.answered >= until or self.failed, "calls to be answered")

    def check(self):
        if self.failed:
            fail(f"{len(self.failed)} calls failed, the first: {self.failed[0]}")


class Demo:
    def __init__(self, folder, calls):
        self.calls = calls
        etcd = Etcd(folder)
        self.nodes = {name: Node(folder, name, etcd) for name in NAMES}
        for node in self.nodes.values():
            node.start()
        print(f"etcd and nodes {', '.join(NAMES)} are up")
        self.mesh = Mesh(self.nodes.values())
        self.traffic = Traffic(self.nodes.values())

    def register(self):
        begun = time.monotonic()
        for i in range(MODELS):
            self.mesh.manage("registerModel", modelId=f"m{i}",
                             modelInfo={"type": "xgboost", "path": "digits.ubj"})
        self.mesh.manage("setVModel", vModelId=VMODEL, targetModelId="m0")
        print(f"{MODELS} models registered in {time.monotonic() - begun:.1f} s\n")
        print(f"{'':34}{'calls':>7}{'failed':>8}{'slowest':>10}   loaded at " + "  ".join(
            f"{name:>4}" for name in NAMES))

    def act(self, title, action=lambda: None):
        """Does something under traffic and prints the result."""
        with self.traffic.lock:
            self.traffic.clear()
        action()
        self.traffic.go_on(self.calls)
        loaded = [node.loaded() for node in self.nodes.values()]
        print(f"{title:34}{self.traffic.answered:7}{len(self.traffic.failed):8}"
              f"{self.traffic.slowest * 1000:7.0f} ms             " + "  ".join(
                  f"{'–' if count is None else count:>4}" for count in loaded), flush=True)
        self.traffic.check()

    def move_vmodel(self):
        for i in range(1, 11):
            with self.traffic.lock:
                self.traffic.of_vmodel.add(f"m{i * 20}")
            status = self.mesh.manage("setVModel", vModelId=VMODEL, targetModelId=f"m{i * 20}",
                                      sync=True)
            if (status.status, status.activeModelId) != (DEFINED, f"m{i * 20}"):
                fail(f"the vmodel has not moved: {status}")

    def run(self):
        self.register()
        for thread in self.traffic.threads:
            thread.start()
        b, c = self.nodes["b"], self.nodes["c"]
        self.act("all three nodes")
        self.act("c is killed (SIGKILL)", lambda: c.stop(signal.SIGKILL))
        self.act("c comes back", c.start)
        self.act("a vmodel moves ten times", self.move_vmodel)
        self.act("b is drained, and ends (SIGTERM)", lambda: b.stop(signal.SIGTERM))
        self.traffic.ends.set()
        for thread in self.traffic.threads:
            thread.join()
        self.traffic.check()
        right = self.traffic.right_total / self.traffic.total
        print(f"\n{self.traffic.total} calls, none failed; each was answered by the model it asked "
              f"for; {right:.1%} of the digits were read right")
        if right < 0.95:
            fail("less than 95 %")
        for name in ("a", "c"):
            self.nodes[name].stop(signal.SIGTERM)
        print("demo: stopped cleanly")


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--calls", type=int, default=2000, help="at least, per act [%(default)s]")
    arguments = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="shoal-demo.") as folder:
        Demo(pathlib.Path(folder), arguments.calls).run()


if __name__ == "__main__":
    main()
