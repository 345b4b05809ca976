# SPDX-License-Identifier: Apache-2.0
"""The cost of being a member of a mesh: a model that is here, one that another node has, and one
that is registered."""

import subprocess
import time

from contenders import (BATCH, KEPT, LOAD_FIGURES, MODELS_MIB, OUTSTANDING, SERVED_MODELS, Group,
                        Networks, Shoal, Size, closed)
from programs import (KEEP_MEMORY, PINNED, START_DEADLINE_S, Client, Failed, Messages, Missing, Server,
                      field, floats, infer_request)
from shoal_meshes import Etcd

SIZE = Size("mesh", 4, "unix", 1000)
# Models of this type are only where this label is.
TYPE, LABEL = "mlp", "networks"
CONSTRAINTS = f'\'{{"{TYPE}": {{"required": ["{LABEL}"]}}}}\''


class Node(Shoal):
    """A node with networks. Without `mesh` it loads what is called; else it takes what is
    registered."""

    def __init__(self, setting, name, engine, messages, mesh=None):
        stages = [("models", engine.library, [PINNED["workers"]], f"batch_size: {BATCH}")]
        keys = (f"models: {{ root: {engine.root}, memory_mib: {MODELS_MIB}, default_size_mib: 1, preload: no }}",)
        super().__init__(setting, name, "models", stages, messages, SIZE, keys)
        if mesh is not None:
            with open(self.config, "a", encoding="utf-8") as config:
                config.write("\nmesh:\n" + "".join(f"  {key}: {mesh[key]}\n" for key in mesh))

    def launch(self):
        self.server = Server(self.command(), self.setting.directory / f"{self.name}.log",
                             self.environment())

    def register(self, names):
        """With the first it may have to be waited for the node, and for its registry."""
        deadline = time.monotonic() + START_DEADLINE_S
        for name in names:
            command = [self.setting.program("bin", "shoalctl"), "mesh", "register", "--type", TYPE,
                       "--wait", "--counters", self.counters, name, name]
            while True:
                done = subprocess.run(command, capture_output=True, text=True, check=False)
                if done.returncode == 0 or time.monotonic() > deadline:
                    break
            if done.returncode != 0:
                raise Failed(f"{' '.join(command)}: {done.stdout}{done.stderr}\n{self.server.log()}")


class Local(Node):
    """A mesh of one, that has them all."""

    def __init__(self, setting, name, engine, messages):
        super().__init__(setting, name, engine, messages, {"store": "memory"})
        self.engine = engine

    def start(self):
        self.client = self.make_client()
        self.launch()
        self.register(self.engine.names)
        self.server.wait_until(self.client.answers)


class Proxied:
    """The least proxy there is, before a node that another contender has."""

    def __init__(self, setting, name, node):
        self.setting = setting
        self.name = name
        self.node = node
        self.target = f"unix:{setting.directory}/{name}.sock"
        self.server = None
        self.client = None

    def start(self):
        command = [self.setting.program("bench", "bare_proxy"), *self.setting.cpu("server")]
        self.client = Client(self.setting, self.name, self.target, self.node.messages)
        self.server = Server([*command, "--to", self.node.target, self.target],
                             self.setting.directory / f"{self.name}.log", KEEP_MEMORY)
        self.server.wait_until(self.client.answers)

    def stop(self):
        return self.server.stop() if self.server else None

    def pids(self):
        return self.server.pids() + self.node.pids()

    measure = Shoal.measure
    size = SIZE
    kept = ()


class Forwarded(Node):
    """Two nodes of a mesh: this one is called, the other has the models."""

    def __init__(self, setting, name, engine, messages):
        self.etcd = Etcd()
        super().__init__(setting, name, engine, messages, self.mesh("called", ()))
        self.other = Node(setting, f"{name}_other", engine, messages, self.mesh("other", (LABEL,)))
        self.engine = engine

    def mesh(self, instance, labels):
        keys = {"store": f'"etcd:{self.etcd.url}"', "service": "bench", "instance": instance,
                "peers": '["127.0.0.1:0"]', "type_constraints": CONSTRAINTS}
        return {**keys, "labels": f"[{', '.join(labels)}]"} if labels else keys

    def start(self):
        try:
            self.etcd.start()
        except FileNotFoundError as error:
            raise Missing("etcd is not installed") from error
        self.client = self.make_client()
        self.launch()
        self.other.launch()
        self.other.register(self.engine.names)
        self.server.wait_until(self.client.answers)

    def stop(self):
        wrong = [one.server.stop() for one in (self, self.other) if one.server]
        self.etcd.__exit__()
        return "\n".join(filter(None, wrong)) or None

    def pids(self):
        return self.server.pids() + self.other.server.pids()


class External(Node):
    """A mesh of one without pipelines. Its runtime, another node, has the models."""

    def __init__(self, setting, name, engine, messages):
        super().__init__(setting, name, engine, messages)
        self.engine = engine
        self.runtime = Node(setting, f"{name}_runtime", engine, messages)
        with open(self.runtime.config, "a", encoding="utf-8") as config:
            config.write(f'\nruntime: ["{self.runtime.target}"]\n')
        cpus = f"cpus: [{PINNED['server']}]\n" if setting.pinned else ""
        text = f'listen: ["{self.target}"]\n{cpus}mesh: {{ store: memory, runtime: "{self.runtime.target}" }}\n'
        self.config = setting.write(f"{name}.yaml", text.encode())

    def start(self):
        self.client = self.make_client()
        self.runtime.launch()
        self.launch()
        self.register(self.engine.names)
        self.server.wait_until(self.client.answers)

    def stop(self):
        wrong = [one.server.stop() for one in (self, self.runtime) if one.server]
        return "\n".join(filter(None, wrong)) or None

    def pids(self):
        return self.server.pids() + self.runtime.server.pids()


def mesh_contenders(setting):
    engine = Networks()
    engine.root = setting.directory / "mesh"
    if not engine.root.exists():
        engine.root.mkdir()
        engine.write(setting, engine.root)
    engine.names = [engine.name(number) for number in range(SERVED_MODELS)]
    messages = Messages([infer_request(name, engine.input, [1, 1], [0.0]) for name in engine.names],
                        [floats([engine.answer(number)]) for number in range(SERVED_MODELS)])
    alone = Node(setting, "no_mesh", engine, messages)
    return {"no_mesh": alone, "mesh": Local(setting, "mesh", engine, messages),
            "bare_proxy": Proxied(setting, "bare_proxy", alone),
            "mesh_forwarded": Forwarded(setting, "mesh_forwarded", engine, messages),
            "mesh_external": External(setting, "mesh_external", engine, messages)}


def mesh_group():
    return Group("mesh", f"{SERVED_MODELS} networks of one stage: with and without a mesh, forwarded, in an external runtime",
                 ("no_mesh", "mesh", "bare_proxy", "mesh_forwarded", "mesh_external"),
                 mesh_contenders, closed(*OUTSTANDING), figures=LOAD_FIGURES[:5],
                 note="The proxy forwards bytes to a node without a mesh over a unix socket. A node of the mesh "
                 "looks up the model's copy and forwards over TCP.")


# ---- registering

REGISTER_METHOD = "/mmesh.ModelMesh/registerModel"
PUT_METHOD = "/etcdserverpb.KV/Put"
SERIAL = b"#" * 16  # grpc_load's --serial


class CallClient(Client):
    """Calls another method; each call names another model, or key."""

    def __init__(self, setting, name, target, messages, method):
        super().__init__(setting, name, target, messages)
        self.command += ["--method", method, "--serial"]


class Registrations(Node):
    """A node that is asked to register models, each once, in an etcd that waits for its disk."""

    def __init__(self, setting, name, engine):
        self.etcd = Etcd(durable=True)
        info = field(1, TYPE.encode()) + field(2, b"models/" + SERIAL) + field(3, b'{"model_type": "mlp"}')
        message = field(1, b"model-" + SERIAL) + field(2, info)
        super().__init__(setting, name, engine, Messages([message], [b""], warmup=200),
                         {"store": f'"etcd:{self.etcd.url}"', "service": "bench", "instance": "node",
                          "peers": '["127.0.0.1:0"]'})

    def make_client(self):
        return CallClient(self.setting, self.name, f"unix:{self.counters}.manage", self.messages,
                          REGISTER_METHOD)

    def start(self):
        try:
            self.etcd.start()
        except FileNotFoundError as error:
            raise Missing("etcd is not installed") from error
        super().start()

    def stop(self):
        wrong = super().stop()
        self.etcd.__exit__()
        return wrong

    def pids(self):
        return [*self.server.pids(), self.etcd.process.pid]


class Puts:
    """The same etcd, called without a node: a key a call, which compares nothing."""

    def __init__(self, setting, name, registrations):
        self.setting = setting
        self.name = name
        self.etcd = registrations.etcd
        value = b'{"type":"mlp","encKey":"","mPath":"models/' + SERIAL + b'","autoDel":false,"luTime":0}'
        self.messages = Messages([field(1, b"/bench/" + SERIAL) + field(2, value)], [b""], warmup=200)
        self.client = None

    def start(self):
        self.client = CallClient(self.setting, self.name, f"127.0.0.1:{self.etcd.port}", self.messages,
                                 PUT_METHOD)

    def stop(self):
        return None

    def pids(self):
        return [self.etcd.process.pid]

    def measure(self, case, seconds, _rate, seed):
        line = self.client.measure(seconds, self.pids(), case.outstanding, seed=seed)
        return {name: line[name] for name in KEPT}


def register_contenders(setting):
    engine = Networks()
    engine.root = setting.directory
    node = Registrations(setting, "shoal", engine)
    return {"shoal": node, "etcd": Puts(setting, "etcd", node)}


def register_group():
    return Group("register", "models registered through a node, and keys put into its etcd",
                 ("shoal", "etcd"), register_contenders, closed(1, 64), placements=("free",),
                 figures=LOAD_FIGURES[:5],
                 note="A registration is a transaction that compares two keys and puts one; etcd waits for its disk. "
                 "The server's CPU is that of node and etcd.")
