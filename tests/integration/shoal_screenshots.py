# SPDX-License-Identifier: Apache-2.0
"""`./dev screenshots`: pictures of the dashboard for docs/, of three nodes and an etcd that serve
handwritten digits to callers while workers die and a vmodel moves. It takes five minutes.

    shoal_screenshots.py [FOLDER] [--seconds N]
"""

import argparse
import contextlib
import math
import os
import pathlib
import random
import shutil
import signal
import threading
import time

from shoal_browser import Browser
from shoal_dashboard import dashboard_port
from shoal_fixture import EXAMPLES, SOURCE, Shoald, free_port, node, pipeline, stage
from shoal_meshes import Etcd
from shoal_registry import Registrar
from shoal_rest import Rest, port_of, tensor

NAMES = "node-a", "node-b", "node-c"
KINDS = "churn", "digits", "fraud", "prices", "routes", "spam"
MODELS = [f"{kind}-{version:02}" for version in range(1, 13) for kind in KINDS]
PICTURES = [  # name, page, width, height, scheme
    ("node", "node", 1280, 900, "light"),
    ("mesh", "mesh", 1280, 900, "light"), ("model", "models/digits-01", 1280, 900, "light"),
    ("phone", "node", 390, 844, "dark"),
]


class Caller(threading.Thread):
    """Calls models by their popularity, in waves."""

    def __init__(self, port, seed, ends):
        super().__init__(daemon=True)
        self.port, self.draw, self.ends = port, random.Random(seed), ends

    def run(self):
        with Rest(self.port) as rest:
            while True:
                wave = 1 + 0.7 * math.sin(time.monotonic() / 20)
                if self.ends.wait(self.draw.expovariate(60 * wave)):
                    return
                rank = min(int(self.draw.paretovariate(0.7)) - 1, len(MODELS) - 1)
                size = 64 if self.draw.random() > 0.004 else 63
                pixels = [self.draw.randrange(17) for _ in range(size)]
                rest.infer(MODELS[rank], tensor("image", "FP32", [1, size], pixels))


def mesh_node(etcd, name):
    folder = EXAMPLES / "digits"
    stages = [stage(folder / f"lib{modelet}.so", part, workers=workers, batch_size=64)
              for part, modelet, workers in
              (("normalize", "normalize", 1), ("classify", "xgboost_modelet", 2), ("label", "label", 1))]
    return Shoald(node(
        pipeline("digits", *stages, slots=64, models={"root": str(folder), "memory_mib": 48,
                                                      "default_size_mib": 2}),
        mesh={"store": f"etcd:{etcd.url}", "service": "demo", "instance": name,
              "peers": ["127.0.0.1:0"], "zone": f"rack-{name[-1]}"},
        http=f"127.0.0.1:{free_port()}", dashboard="127.0.0.1:0", dashboard_infer="on"))


def take(nodes, folder, ends):
    """Returns the messages of the browser's console."""
    complaints = []
    with Browser() as browser:
        for name, page, width, height, scheme in PICTURES:
            browser.scheme(scheme)
            browser.resize(width, height)
            browser.open("about:blank")
            browser.open(f"http://127.0.0.1:{dashboard_port(nodes[0])}/#/{page}")
            browser.wait_text("ready")
            browser.wait(".card, .chart")
            if page.startswith("models"):
                browser.wait("button.primary")
                browser.run("document.querySelector('button.primary').click()")
                browser.wait_text("200 OK")
            ends.wait(3)
            file = folder / f"dashboard-{name}.png"
            browser.picture(file)
            print(f"{file}: {file.stat().st_size >> 10} KiB")
            complaints += (f"{file}: {complaint}" for complaint in browser.complaints())
    return complaints


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", nargs="?", default=SOURCE / "docs", type=pathlib.Path)
    parser.add_argument("--seconds", type=float, default=290)
    options = parser.parse_args()
    ends = threading.Event()
    if not shutil.which("etcd"):
        raise SystemExit("screenshots: there is no etcd here; on Debian: apt-get install etcd-server")
    with contextlib.ExitStack() as stack:
        etcd = stack.enter_context(Etcd())
        nodes = [stack.enter_context(mesh_node(etcd, name)) for name in NAMES]
        registrar = stack.enter_context(Registrar(nodes[0]))
        for model in MODELS:
            registrar.register(model, path="digits.ubj", kind="digits")
        registrar.register("prices-99", path="prices.ubj", kind="digits")  # there is no such file
        registrar.call("setVModel", vModelId="digits", targetModelId="digits-01")
        registrar.call("setVModel", vModelId="fraud", targetModelId="fraud-01")
        stack.callback(ends.set)
        for seed in range(6):
            Caller(port_of(nodes[seed % len(nodes)]), seed, ends).start()
        until = time.monotonic() + options.seconds
        ends.wait(options.seconds / 2)
        os.kill(nodes[0].workers(stage="classify")[0].pid, signal.SIGKILL)
        registrar.start("ensureLoaded", modelId="prices-99", sync=True)
        registrar.call("setVModel", vModelId="fraud", targetModelId="fraud-02")
        ends.wait(max(0.0, until - time.monotonic()))
        options.folder.mkdir(parents=True, exist_ok=True)
        complaints = take(nodes, options.folder, ends)
        ends.set()
    if complaints:
        raise SystemExit("\n".join(["screenshots: the browser complains", *complaints]))


if __name__ == "__main__":
    main()
