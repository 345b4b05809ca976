# SPDX-License-Identifier: Apache-2.0
"""What it costs to be one of a mesh: a model that is here, and one that another node has."""

import subprocess
import time

from contenders import (BATCH, LOAD_FIGURES, MODELS_MIB, OUTSTANDING, SERVED_MODELS, Group, Networks,
                        Shoal, Size, closed)
from programs import (KEEP_MEMORY, PINNED, START_DEADLINE_S, Client, Failed, Messages, Missing, Server,
                      floats, infer_request)
from shoal_meshes import Etcd

SIZE = Size("mesh", 4, "unix", 1000)
# Models of this type are only where this label is.
TYPE, LABEL = "mlp", "networks"
CONSTRAINTS = f'\'{{"{TYPE}": {{"required": ["{LABEL}"]}}}}\''


class Node(Shoal):
    """A node with networks. Without `mesh` it loads what is called; else it takes what is registered."""

    def __init__(self, setting, name, engine, messages, mesh=None):
        stages = [("models", engine.library, [PINNED["workers"]], f"batch_size: {BATCH}")]
        keys = (f"models: {{ root: {engine.root}, memory_mib: {MODELS_MIB}, default_size_mib: 1 }}",)
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
            "mesh_forwarded": Forwarded(setting, "mesh_forwarded", engine, messages)}


def mesh_group():
    return Group("mesh", f"{SERVED_MODELS} networks of one stage: on a node alone, on a mesh of one, behind a "
                 "bare proxy, on another node of the mesh", ("no_mesh", "mesh", "bare_proxy", "mesh_forwarded"),
                 mesh_contenders, closed(*OUTSTANDING), figures=LOAD_FIGURES[:5],
                 note="The proxy passes calls on to the node alone, over a unix socket and unseen. The mesh's "
                 "node finds out whose model it is, and passes them on over TCP.")
