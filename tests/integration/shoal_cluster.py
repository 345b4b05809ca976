# SPDX-License-Identifier: Apache-2.0
"""Clusters for tests: one etcd member or three, several daemons of one mesh with XGBoost models
whose answers are known (shoal_boosters.py), and callers that call any of them and check every
answer.

A caller knows which nodes are to be asked, as a balancer in front of them does: not one that was
told to stop. A call that is out at a node when this node is killed goes once more, to another
(`moved`); nothing else that fails is forgiven. Failures are kept with their times.
"""

import base64
import collections
import dataclasses
import http.client
import json
import pathlib
import random
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import urllib.request

import grpc

import shoal_boosters
from shoal_fixture import WAIT_SECONDS, Shoald, free_port, node, pipeline, stage, wait_until
from shoal_registry import LOADED, Registrar

MIB = 1 << 20
PIPELINE = "boosters"
IN_FLIGHT = 8  # of each caller
DEADLINE_SECONDS = 60
FAILURES_KEPT = 50


# ---- etcd ----

class Member:
    def __init__(self, folder, index):
        self.name = f"m{index}"
        self.data = folder / self.name
        self.url = f"http://127.0.0.1:{free_port()}"
        self.peer = f"http://127.0.0.1:{free_port()}"
        self.enter = []
        self.process = None


class Etcds:
    """A cluster of etcd on loopback; its data is in a folder that goes with it. `enter`: a command
    that runs another one where it can be reached."""

    enter = ()

    def __init__(self, count=1):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="shoal-etcds."))
        self.members = [Member(self.folder, i) for i in range(count)]

    @property
    def urls(self):
        return ",".join(one.url for one in self.members)

    def start_member(self, member, url=None):
        """`url`: another place for clients than the usual."""
        url = url or member.url
        cluster = ",".join(f"{one.name}={one.peer}" for one in self.members)
        with (self.folder / f"{member.name}.log").open("ab") as log:
            member.process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *member.enter, "etcd", "--name", member.name,
                 "--data-dir", member.data, "--listen-client-urls", url,
                 "--advertise-client-urls", url, "--listen-peer-urls", member.peer,
                 "--initial-advertise-peer-urls", member.peer, "--initial-cluster", cluster],
                stdout=log, stderr=log)

    def start(self):
        for member in self.members:
            self.start_member(member)
        for member in self.members:
            self.wait_answers(member.url)
        return self

    @staticmethod
    def ask(url, path, **request):
        """Over the JSON gateway; raises OSError if it does not answer, or refuses."""
        body = json.dumps(request).encode() if request else None
        with urllib.request.urlopen(f"{url}{path}", body, timeout=WAIT_SECONDS) as response:
            return json.load(response)

    def wait_answers(self, url):
        def answers():
            try:
                return self.ask(url, "/health")["health"] == "true"
            except (OSError, http.client.HTTPException):
                return False
        wait_until(answers, "etcd to answer")

    def stop(self):
        for member in self.members:
            if member.process is not None:
                member.process.kill()
                member.process.wait()
            member.process = None

    def empty(self):
        """It comes back with nothing."""
        self.stop()
        for member in self.members:
            shutil.rmtree(member.data)
        self.start()

    def compact_aside(self):
        """It is away, goes on elsewhere for some revisions, forgets all but the last, and is back:
        earlier watchers find that their revisions are compacted. Of one member."""
        (member,) = self.members
        self.stop()
        aside = f"http://127.0.0.1:{free_port()}"
        self.start_member(member, aside)
        self.wait_answers(aside)
        key = base64.b64encode(b"unrelated").decode()
        for _ in range(20):
            answer = self.ask(aside, "/v3/kv/put", key=key, value=key)
        self.ask(aside, "/v3/kv/compaction", revision=answer["header"]["revision"])
        self.stop()
        self.start()

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


# ---- nodes ----

def models_config(root, memory_mib):
    return {"root": str(root), "memory_mib": memory_mib, "default_size_mib": 1,
            "load_concurrency": 4, "watch": "no"}


def boosters(root, memory_mib, slots):
    return pipeline(PIPELINE, stage("libxgboost_modelet.so", batch_size=16), slots=slots,
                    models=models_config(root, memory_mib))


class ClusterNode:
    """One daemon. `life` counts its lives: a call that began in an older one may have died with
    it."""

    def __init__(self, etcds, name, root, memory_mib, slots, keys):
        self.name = name
        self.life = 0
        self.asked = False  # whether callers shall ask it
        mesh = {"store": f"etcd:{etcds.urls}", "service": "cluster", "instance": name,
                "peers": ["127.0.0.1:0"],
                "address": "127.0.0.1"}  # parted members of etcd are not on loopback
        self.shoald = Shoald(node(boosters(root, memory_mib, slots), mesh=mesh, message_mib=1,
                                  **keys))
        self.shoald.command = [*etcds.enter, *self.shoald.command]

    def start(self):
        self.shoald.start()

    def wait_ready(self):
        self.shoald.wait_ready()
        self.shoald.wait_log(r"mesh_session_begun")
        self.life += 1
        self.asked = True

    def kill(self):
        self.asked = False
        self.life += 1
        self.shoald.kill()
        self.shoald.check_log()

    def drain(self):
        """SIGTERM; returns when it has ended, cleanly."""
        self.asked = False
        self.shoald.signal(signal.SIGTERM)
        self.shoald.check_end()


class Cluster:
    """Nodes of one mesh, up; `with` it. All have the same folder of models."""

    def __init__(self, etcds, root, names=("node-a", "node-b", "node-c"), memory_mib=64,
                 slots=256, **keys):
        self.nodes = [ClusterNode(etcds, name, root, memory_mib, slots, keys)
                      for name in names]

    def __enter__(self):
        try:
            for one in self.nodes:
                one.start()
            for one in self.nodes:
                one.wait_ready()
        except BaseException:
            self.__exit__(AssertionError)
            raise
        return self

    def __exit__(self, kind, *more):
        try:
            if kind is None:
                self.check_end()
        finally:
            for one in self.nodes:
                one.asked = False
                one.shoald.__exit__(kind, *more)

    def check_end(self):
        """All stop at once: nobody has to take what another has loaded."""
        for one in self.nodes:
            one.shoald.check_still_runs()
        for one in self.nodes:
            one.shoald.signal(signal.SIGTERM)
        for one in self.nodes:
            one.shoald.check_end()

    def registrar(self, index=0):
        return Registrar(self.nodes[index].shoald)

    def asked(self):
        return [one for one in self.nodes if one.asked]

    def register(self, numbers, **fields):
        """Many models, some at a time."""
        with self.registrar() as registrar:
            flying = collections.deque()
            for number in numbers:
                name = shoal_boosters.name(number)
                flying.append(registrar.start(
                    "registerModel", modelId=name,
                    modelInfo={"type": "xgboost", "path": name, "key": ""}, **fields))
                if len(flying) >= 64:
                    flying.popleft().result()
            for call in flying:
                call.result()

    def wait_loaded(self, numbers, index=0):
        """Waits until the registry says of each that it is loaded somewhere."""
        with self.registrar(index) as registrar:
            for number in numbers:
                registrar.wait_status(shoal_boosters.name(number), LOADED)


# ---- callers ----

@dataclasses.dataclass
class Call:
    """`fields`: of start_infer; `wanted`: takes the value that came, and says what is wrong or
    None."""
    fields: dict
    wanted: object
    side: int
    node: ClusterNode = None
    life: int = 0
    future: object = None
    begun: float = 0.0


def call_of(number, side):
    right = shoal_boosters.answers(number)[side]
    name = shoal_boosters.name(number)

    def wanted(value):
        return None if value == right else f"{name} answered {value}, not {right}"
    return Call({"name": name}, wanted, side)


def zipf(count, draw):
    """Numbers below `count`, as popularity has it; which is popular is drawn."""
    order = list(range(count))
    draw.shuffle(order)
    weights = [1 / (rank + 1) for rank in range(count)]

    def pick(own):
        return call_of(own.choices(order, weights)[0], own.randrange(2))
    return pick


class Caller(threading.Thread):
    """Has some calls out, all the time."""

    def __init__(self, traffic, seed, in_flight):
        super().__init__(daemon=True)
        self.traffic = traffic
        self.in_flight = in_flight
        self.draw = random.Random(seed)
        self.channels = {}  # of a node: the life it is of, Registrar
        self.flying = collections.deque()

    def run(self):
        try:
            while not self.traffic.ends.is_set():
                self.flying.append(self.send(self.traffic.pick(self.draw)))
                if len(self.flying) >= self.in_flight:
                    self.take(self.flying.popleft())
            while self.flying:
                self.take(self.flying.popleft())
        except Exception as error:  # pylint: disable=broad-except
            self.traffic.keep(f"a caller ended: {type(error).__name__}: {error}")
        finally:
            for _, registrar in self.channels.values():
                registrar.channel.close()

    def channel(self, one, life):
        """Of this life: a channel to the one before may wait long before it connects again."""
        known = self.channels.get(one.name)
        if known is not None and known[0] == life:
            return known[1]
        if known is not None:
            self.land(one)  # closing would end what is out
            known[1].channel.close()
        self.channels[one.name] = life, Registrar(one.shoald)
        return self.channels[one.name][1]

    def land(self, one):
        kept = [call for call in self.flying if call.node is not one]
        leaving = [call for call in self.flying if call.node is one]
        self.flying = collections.deque(kept)
        for call in leaving:
            self.take(call)

    def send(self, call):
        while True:
            call.node = self.draw.choice(wait_until(self.traffic.cluster.asked, "a node to ask"))
            call.life = call.node.life
            if call.node.asked:  # read after its life: a process that dies from now on has another
                break
        registrar = self.channel(call.node, call.life)
        call.begun = time.monotonic()
        call.future = registrar.start_infer(
            **call.fields, inputs=(shoal_boosters.tensor(call.side),), timeout=DEADLINE_SECONDS)
        return call

    def take(self, call):
        traffic = self.traffic
        code = call.future.code()
        seconds = time.monotonic() - call.begun
        if code == grpc.StatusCode.UNAVAILABLE and call.node.life != call.life:
            traffic.count(moved=1)
            self.take(self.send(call))
            return
        if code != grpc.StatusCode.OK:
            traffic.keep(f"{call.fields} at {call.node.name} after {seconds:.3f} s: {code}: "
                         f"{call.future.details()}")
            return
        wrong = call.wanted(shoal_boosters.value_of(call.future.result()))
        if wrong is not None:
            traffic.keep(f"{call.fields} at {call.node.name}: {wrong}", wrong=True)
        else:
            traffic.count(answered=1, seconds=seconds)


class Traffic:
    """Callers while the block runs. `pick`: from a caller's random.Random to its next Call."""

    def __init__(self, cluster, pick, draw, callers=2, in_flight=IN_FLIGHT):
        self.cluster, self.pick = cluster, pick
        self.begun = time.monotonic()
        self.answered, self.wrong, self.failed, self.moved = 0, 0, 0, 0
        self.slowest = 0.0
        self.failures = []  # (seconds since the beginning, what)
        self.ends = threading.Event()
        self.lock = threading.Lock()
        self.callers = [Caller(self, draw.randrange(1 << 32), in_flight)
                        for _ in range(callers)]

    def __enter__(self):
        for caller in self.callers:
            caller.start()
        return self

    def __exit__(self, *_):
        self.ends.set()
        for caller in self.callers:
            caller.join()

    def count(self, answered=0, moved=0, seconds=0.0):
        with self.lock:
            self.answered += answered
            self.moved += moved
            self.slowest = max(self.slowest, seconds)

    def keep(self, what, wrong=False):
        with self.lock:
            self.wrong += wrong
            self.failed += not wrong
            if len(self.failures) < FAILURES_KEPT:
                self.failures.append((round(time.monotonic() - self.begun, 3), what))

    def go_on(self, calls):
        """Waits until so many more were answered, or something went wrong."""
        until = self.answered + calls
        wait_until(lambda: self.answered >= until or self.failures,
                   lambda: f"{until - self.answered} more answers", DEADLINE_SECONDS * 3)
