# SPDX-License-Identifier: Apache-2.0
"""Shoal's HTTP server beside nginx: keep-alive requests with a head of 1 KiB, from wrk (package wrk).

Both answer a few bytes from memory: what is compared is the server, not what is behind it.
"""

import http.client
import re
import shutil
import subprocess

from contenders import LOAD_FIGURES, OUTSTANDING, Group, closed, config_text, echo_stages
from programs import PINNED, RUN_DEADLINE_S, Failed, Missing, Server
from quiet import cpu_seconds
from shoal_ports import free_port

PATH = "/v2/health/live"
HEAD_BYTES = 1024
UNITS = {"us": 1, "ms": 1e3, "s": 1e6}

NGINX = """\
daemon off;
master_process off;
pid {folder}/nginx.pid;
error_log stderr;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    keepalive_requests 1000000000;
    client_header_buffer_size 4k;
    client_body_temp_path {folder}/nginx; proxy_temp_path {folder}/nginx;
    fastcgi_temp_path {folder}/nginx; uwsgi_temp_path {folder}/nginx; scgi_temp_path {folder}/nginx;
    server {{
        listen 127.0.0.1:{port};
        location {path} {{ default_type application/json; return 200 '{{"live":true}}'; }}
    }}
}}
"""


class Web:
    """A server of HTTP. Subclasses say how it is started."""

    path = PATH

    def __init__(self, setting, name):
        self.setting = setting
        self.name = name
        self.port = free_port()
        self.server = None

    def command(self):
        raise NotImplementedError

    def start(self):
        if shutil.which("wrk") is None:
            raise Missing("wrk is not installed")
        self.server = Server(self.command(), self.setting.directory / f"{self.name}.log")
        self.server.wait_until(self.answers)

    def stop(self):
        return self.server.stop() if self.server else None

    def pids(self):
        return [self.server.process.pid]

    def answers(self):
        try:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=RUN_DEADLINE_S)
            connection.request("GET", PATH)
            return connection.getresponse().status == 200
        except OSError:
            return False

    def request(self):
        """The arguments of wrk."""
        return ["-H", "X-Padding: " + "x" * HEAD_BYTES]

    def measure(self, case, seconds, _rate, _seed):
        seconds = max(1, round(seconds))  # wrk knows whole ones
        command = ["taskset", "-c", str(PINNED["client"])] if self.setting.pinned else []
        command += ["wrk", "--latency", "-t", "1", "-c", str(case.outstanding), "-d", f"{seconds}s"]
        command += [*self.request(), f"http://127.0.0.1:{self.port}{self.path}"]
        cpu = cpu_seconds(self.pids())
        done = subprocess.run(command, capture_output=True, text=True, check=False,
                              timeout=RUN_DEADLINE_S)
        cpu = cpu_seconds(self.pids()) - cpu
        count = re.search(r"(\d+) requests in", done.stdout)
        if done.returncode != 0 or count is None or "Non-2xx" in done.stdout:
            raise Failed(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
        figures = {"server_cpu_us_per_request": 1e6 * cpu / max(1, int(count[1])),
                   "requests_per_s": float(re.search(r"Requests/sec:\s+([\d.]+)", done.stdout)[1])}
        for figure, percent in (("p50_us", "50%"), ("p99_us", "99%")):
            value, unit = re.search(rf"{percent}\s+([\d.]+)(us|ms|s)", done.stdout).groups()
            figures[figure] = float(value) * UNITS[unit]
        return figures


class Nginx(Web):
    def command(self):
        nginx = shutil.which("nginx", path="/usr/sbin:/usr/bin:/sbin:/bin")
        if nginx is None:
            raise Missing("nginx is not installed")
        text = NGINX.format(folder=self.setting.directory, port=self.port, path=PATH)
        pin = ["taskset", "-c", str(PINNED["server"])] if self.setting.pinned else []
        return [*pin, nginx, "-e", "stderr", "-c", self.setting.write("nginx.conf", text.encode())]


class ShoalWeb(Web):
    def command(self):
        text = config_text(self.setting, f"unix:{self.setting.directory}/web.sock", "echo",
                           echo_stages(1)) + f'http: ["127.0.0.1:{self.port}"]\n'
        return [self.setting.program("bin", "shoald"), "--counters",
                f"{self.setting.directory}/web.counters",
                self.setting.write("web.yaml", text.encode())]


def web_group():
    return Group("http", "HTTP, keep-alive requests with a head of 1 KiB: nginx and Shoal's `/v2/health/live`",
                 ("nginx", "shoal"),
                 lambda setting: {"nginx": Nginx(setting, "nginx"), "shoal": ShoalWeb(setting, "shoal")},
                 closed(*OUTSTANDING), figures=LOAD_FIGURES[:4])
