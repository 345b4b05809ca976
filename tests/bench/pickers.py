# SPDX-License-Identifier: Apache-2.0
"""shoal-gateway as Envoy's endpoint picker: extproc_load in Envoy's place, a simulated model server
to be scraped. Both reference pickers took 113 to 144 µs of CPU for a request of 1 KB, and 3.6 to 3.7
ms for one of 220 KB, with the same messages on a machine like ours (2026-11-22): no package has them.
"""

import json
import sys
import urllib.request

from contenders import ROOT, Case, Group
from programs import RUN_DEADLINE_S, Server, run_json
from shoal_ports import free_port

CONNECTIONS = 4
FIGURES = [("requests_per_s", "requests/s"), ("p50_us", "p50 µs"), ("p99_us", "p99 µs"),
           ("server_cpu_us_per_request", "picker CPU µs")]


class Picker:
    def __init__(self, setting, size):
        self.setting = setting
        self.size = size
        self.port, self.admin, self.model_port = free_port(), free_port(), free_port()
        self.server = self.model = None

    def start(self):
        script = ROOT / "tests" / "llm-server" / "llm_server.py"
        self.model = Server([sys.executable, str(script), "--port", str(self.model_port)],
                            self.setting.directory / "picker.model.log")
        self.setting.write("picker.endpoints.yaml", json.dumps({"endpoints": [
            {"name": "one", "address": "127.0.0.1", "port": str(self.model_port)}]}).encode())
        path = self.setting.write("picker.yaml", json.dumps({
            "listen": f"127.0.0.1:{free_port()}", "metrics": f"127.0.0.1:{self.admin}",
            "endpoints": "picker.endpoints.yaml", "ext_proc": f"127.0.0.1:{self.port}"}).encode())
        pinned = self.setting.cpu("server")[1:]
        command = ["taskset", "-c", *pinned] if pinned else []
        self.server = Server([*command, self.setting.program("bin", "shoal-gateway"), path],
                             self.setting.directory / "picker.log")
        self.server.wait_until(self.is_ready)

    def is_ready(self):
        try:
            url = f"http://127.0.0.1:{self.admin}/metrics"
            with urllib.request.urlopen(url, timeout=RUN_DEADLINE_S) as page:
                return b'endpoint_up{endpoint="one"} 1' in page.read()
        except OSError:
            return False

    def stop(self):
        wrong = self.server.stop() if self.server else None
        if self.model:
            self.model.stop()  # 143: it was told to
        return wrong

    def pids(self):
        return [self.server.process.pid]

    def measure(self, case, seconds, _rate, _seed):
        (line,) = run_json([self.setting.program("bench", "extproc_load"), *self.setting.cpu("client"),
                            "--connections", str(min(CONNECTIONS, case.outstanding)), "--streams",
                            str(case.outstanding), "--bytes", str(self.size), "--seconds",
                            str(max(1, round(seconds))), "--warmup", "1", "--server-pid",
                            str(self.pids()[0]), str(self.port)])
        return {figure: line[figure] for figure, _ in FIGURES}


def picker_groups():
    return [Group(f"picker {name}", f"shoal-gateway for Envoy's ext_proc: requests of {name}",
                  ("shoal",), lambda setting, size=size: {"shoal": Picker(setting, size)},
                  [Case(f"{count} outstanding", outstanding=count) for count in (1, many)],
                  placements=("pinned",), figures=FIGURES)
            for name, size, many in (("1 KB", 1000, 32), ("220 KB", 220000, 16))]
