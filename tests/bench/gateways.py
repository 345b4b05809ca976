# SPDX-License-Identifier: Apache-2.0
"""shoal-gateway beside nginx and HAProxy, before the same model server (model_backend): all on one
CPU of their own, the server and the client on the other. The gateway also decides: it scans the
body, hashes the prompt's blocks and scores its endpoint; the others pass on what they get.
"""

import http.client
import json
import re
import shutil
import subprocess
import urllib.request
from pathlib import Path

from contenders import LOAD_FIGURES, Case, Group, Idle, closed
from programs import PINNED, RUN_DEADLINE_S, Failed, Missing, Server, run_json
from quiet import cpu_seconds
from shoal_ports import free_port
from web import Web

CHAT = "/v1/chat/completions"
STREAMS, EVENTS, EVERY_US = 200, 100, 20000
OPEN_STREAMS = 2000
ENDPOINTS = 100
H2_STREAMS = 16  # of a connection
FIGURES = [*LOAD_FIGURES[:3], ("server_cpu_us_per_request", "proxy CPU µs")]
SIZES = {"1 KB": 1000, "220 KB": 220000}

NGINX = """\
daemon off;
master_process off;
pid {folder}/{name}.pid;
error_log stderr;
worker_rlimit_nofile 16384;
events {{ worker_connections 8192; }}
http {{
    access_log off;
    keepalive_requests 1000000000;
    client_max_body_size 64m;
    client_body_buffer_size 512k;
    client_body_temp_path {folder}/{name}; proxy_temp_path {folder}/{name};
    fastcgi_temp_path {folder}/{name}; uwsgi_temp_path {folder}/{name}; scgi_temp_path {folder}/{name};
    upstream models {{ server 127.0.0.1:{backend}; keepalive 256; keepalive_requests 1000000000; }}
    server {{
        listen 127.0.0.1:{port} backlog=4096{listen};
        location / {{
            proxy_pass http://models;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_buffering off;
        }}
    }}
}}
"""

HAPROXY = """\
global
    nbthread 1
    maxconn 8192
defaults
    mode http
    option http-no-delay
    http-reuse always
    timeout connect 5s
    timeout client 60s
    timeout server 60s
listen models
    bind 127.0.0.1:{port} backlog 4096{listen}
    server one 127.0.0.1:{backend}
"""


def body_text(size):
    text = '{"model":"base","stream":false,"messages":[{"role":"user","content":"%s"}]}'
    return text % ("how many fish are in a shoal? " * size)[:size - len(text) + 2]


class Proxy(Web):
    """A proxy and a model server of its own. Subclasses say how it is started."""

    path = CHAT
    listens = {"nginx": "", "haproxy": ""}

    def __init__(self, setting, name, size, backend_options=()):
        super().__init__(setting, name)
        self.body = body_text(size)
        self.backend_options = backend_options
        self.backend_port = free_port()
        self.backend = None

    def start(self):
        command = [self.setting.program("bench", "model_backend"), *self.setting.cpu("client"),
                   *self.backend_options, str(self.backend_port)]
        self.backend = Server(command, self.setting.directory / f"{self.name}.backend.log")
        self.backend.wait_until(lambda: "listening" in self.backend.log())
        super().start()

    def stop(self):
        wrong = [one.stop() for one in (self.server, self.backend) if one]
        return "\n".join(filter(None, wrong)) or None

    def pinned(self, command):
        return (["taskset", "-c", str(PINNED["server"])] if self.setting.pinned else []) + command

    def answers(self):
        try:
            link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=RUN_DEADLINE_S)
            link.request("POST", CHAT, self.body)
            answer = link.getresponse()
            return answer.status == 200 and "usage" in json.load(answer)
        except OSError:
            return False

    def request(self):
        path = self.setting.write(f"{self.name}.lua", (
            'wrk.method = "POST"\nwrk.headers["Content-Type"] = "application/json"\n'
            f"wrk.body = '{self.body}'\n").encode())
        return ["-s", path]


class Nginx(Proxy):
    def command(self):
        nginx = shutil.which("nginx", path="/usr/sbin:/usr/bin:/sbin:/bin")
        if nginx is None:
            raise Missing("nginx is not installed")
        text = NGINX.format(folder=self.setting.directory, name=self.name, port=self.port,
                            backend=self.backend_port, listen=self.listens["nginx"])
        path = self.setting.write(f"{self.name}.conf", text.encode())
        return self.pinned([nginx, "-e", "stderr", "-c", path])


class HAProxy(Proxy):
    def command(self):
        haproxy = shutil.which("haproxy", path="/usr/sbin:/usr/bin:/sbin:/bin")
        if haproxy is None:
            raise Missing("haproxy is not installed")
        text = HAPROXY.format(port=self.port, backend=self.backend_port,
                              listen=self.listens["haproxy"])
        path = self.setting.write(f"{self.name}.cfg", text.encode())
        return self.pinned([haproxy, "-db", "-f", path])

    def stop(self):
        if self.server:
            self.server.stop()  # 143: it was told to
            self.server = None
        return super().stop()


class Gateway(Proxy):
    more_keys = {}

    def endpoints(self):
        return [{"name": "one", "address": "127.0.0.1", "port": str(self.backend_port)}]

    def command(self):
        self.setting.write(f"{self.name}.endpoints.yaml",
                           json.dumps({"endpoints": self.endpoints()}).encode())
        keys = {"listen": f"127.0.0.1:{self.port}", "endpoints": f"{self.name}.endpoints.yaml",
                "requests_max": 4096, "connections_max": 8192, "idle_connections_max": 256,
                **self.more_keys}
        path = self.setting.write(f"{self.name}.yaml", json.dumps(keys).encode())
        return self.pinned([self.setting.program("bin", "shoal-gateway"), path])


class Direct(Proxy):
    """The model server alone: what a proxy adds is measured from here."""

    def start(self):
        self.port = self.backend_port
        super().start()

    def command(self):
        return ["sleep", "infinity"]

    def stop(self):
        if self.server:
            self.server.stop()
            self.server = None
        return super().stop()


PROXIES = {"nginx": Nginx, "haproxy": HAProxy, "shoal": Gateway}


# ---- HTTP/2 from clients


def http2(kind):
    class Http2(kind):
        """Requests over HTTP/2 without TLS, from h2load; the model server behind stays with HTTP/1."""

        listens = {"nginx": " http2", "haproxy": " proto h2"}

        def answers(self):
            probe = subprocess.run([*h2load(self), "-n", "1", "-c", "1", self.url()],
                                   capture_output=True, text=True, check=False,
                                   timeout=RUN_DEADLINE_S)
            return "1 2xx" in probe.stdout

        def url(self):
            return f"http://127.0.0.1:{self.port}{CHAT}"

        def measure(self, case, seconds, _rate, _seed):
            times = self.setting.directory / f"{self.name}.times"
            times.unlink(missing_ok=True)
            streams = min(H2_STREAMS, case.outstanding)
            command = [*(["taskset", "-c", str(PINNED["client"])] if self.setting.pinned else []),
                       *h2load(self), "-D", str(max(1, round(seconds))),
                       "-c", str(case.outstanding // streams), "-m", str(streams),
                       f"--log-file={times}", self.url()]
            cpu = cpu_seconds(self.pids())
            done = subprocess.run(command, capture_output=True, text=True, check=False,
                                  timeout=RUN_DEADLINE_S)
            cpu = cpu_seconds(self.pids()) - cpu
            rate = re.search(r"([\d.]+) req/s", done.stdout)
            status = re.search(r"status codes: (\d+) 2xx, 0 3xx, 0 4xx, 0 5xx", done.stdout)
            if done.returncode != 0 or rate is None or status is None or int(status[1]) == 0:
                raise Failed(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
            took = sorted(int(line.split()[2]) for line in times.read_text().splitlines())
            return {"requests_per_s": float(rate[1]), "p50_us": took[len(took) // 2],
                    "p99_us": took[len(took) * 99 // 100],
                    "server_cpu_us_per_request": 1e6 * cpu / int(status[1])}

    return Http2


def h2load(proxy):
    if shutil.which("h2load") is None:
        raise Missing("h2load is not installed")
    body = proxy.setting.write(f"{proxy.name}.body", proxy.body.encode())
    return ["h2load", "-d", body, "-H", "content-type: application/json"]


# ---- streams


def stream_load(proxy, streams, *more):
    return [proxy.setting.program("bench", "stream_load"), *proxy.setting.cpu("client"),
            "--streams", str(streams), *more, str(proxy.port)]


def streaming(kind):
    class Streaming(kind):
        """Paced streams: how late each event arrives."""

        def __init__(self, setting, name):
            super().__init__(setting, name, SIZES["1 KB"],
                             ("--chunks", str(EVENTS), "--every-us", str(EVERY_US)))

        def measure(self, _case, seconds, _rate, _seed):
            (line,) = run_json(stream_load(
                self, STREAMS, "--chunks", str(EVENTS), "--every-us", str(EVERY_US), "--seconds",
                str(max(1, round(seconds))), "--server-pid", str(self.pids()[0])))
            return {figure: line[figure] for figure, _ in STREAM_FIGURES if line[figure] > 0}

    return Streaming


STREAM_FIGURES = [("events_per_s", "events/s"), ("lag_p50_us", "lag p50 µs"),
                  ("lag_p99_us", "lag p99 µs"), ("server_cpu_us_per_event", "proxy CPU µs/event")]


def resident_kib(pid):
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1])
    raise Failed(f"process {pid} has no memory")


def holding(kind):
    class Holding(kind):
        """Streams that are open: the memory that each of them takes, after some were open before."""

        def __init__(self, setting, name):
            super().__init__(setting, name, SIZES["1 KB"],
                             ("--chunks", "1000000", "--every-us", "1000000"))

        def measure(self, _case, _seconds, _rate, _seed):
            pid = self.pids()[0]
            idle = resident_kib(pid)
            load = subprocess.Popen(stream_load(self, OPEN_STREAMS, "--hold", "--every-us",
                                                "1000000"),
                                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            try:
                if load.stdout.readline() != "open\n":
                    raise Failed("stream_load opened no streams")
                held = resident_kib(pid)
            finally:
                load.stdin.close()
                load.wait(RUN_DEADLINE_S)
                load.stdout.close()
            return {"idle_mib": idle / 1024, "stream_kib": (held - idle) / OPEN_STREAMS}

    return Holding


# ---- idle


class ManyEndpoints(Gateway):
    def __init__(self, setting, name):
        super().__init__(setting, name, SIZES["1 KB"], ("--addresses", str(ENDPOINTS)))
        self.admin = free_port()
        self.more_keys = {"metrics": f"127.0.0.1:{self.admin}"}

    def endpoints(self):
        return [{"name": str(one), "address": f"127.0.0.{one}", "port": str(self.backend_port)}
                for one in range(1, ENDPOINTS + 1)]

    def answers(self):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.admin}/metrics") as page:
                return f"inference_pool_ready_pods {ENDPOINTS}\n" in page.read().decode()
        except OSError:
            return False


class IdleGateway(Idle):
    settle_s = 12  # scrapes become as rare as they may be

    def start(self):
        self.served.start()
        self.settled = False


def rounds_of(wrap):
    def make(setting, names):
        kinds = {**PROXIES, "direct": Direct}
        return {name: wrap(kinds[name])(setting, f"gateway_{name}") for name in names}

    return make


def gateway_groups():
    names = tuple(PROXIES)
    groups = [
        Group(f"gateway {size}", f"shoal-gateway: requests of {size}, one server behind it", names,
              lambda setting, size=size: {name: kind(setting, f"gateway_{name}", SIZES[size])
                                          for name, kind in PROXIES.items()},
              closed(*outstanding), placements=("pinned",),
              figures=FIGURES,
              note="The gateway's time includes its decision.")
        for size, outstanding in (("1 KB", (1, 16, 128)), ("220 KB", (1, 16)))]
    groups.append(Group(
        "gateway HTTP/2", "shoal-gateway: requests of 1 KB over HTTP/2, one server behind it", names,
        lambda setting: {name: http2(kind)(setting, f"gateway_h2_{name}", SIZES["1 KB"])
                         for name, kind in PROXIES.items()},
        closed(1, 16, 128), placements=("pinned",), figures=FIGURES,
        note=f"At most {H2_STREAMS} requests at once on a connection."))
    with_direct = ("direct", *names)
    groups.append(Group(
        "gateway streams", f"shoal-gateway: {STREAMS} streams, an event each {EVERY_US // 1000} ms",
        with_direct, lambda setting: rounds_of(streaming)(setting, with_direct),
        [Case("streams")], placements=("pinned",), times=3, figures=STREAM_FIGURES))
    groups.append(Group(
        "gateway memory", f"shoal-gateway: {OPEN_STREAMS} open streams", names,
        lambda setting: rounds_of(holding)(setting, names),
        [Case("memory")], placements=("pinned",),
        figures=[("idle_mib", "resident, idle, MiB"), ("stream_kib", "KiB per open stream")]))
    groups.append(Group(
        "gateway idle", f"shoal-gateway: idle, {ENDPOINTS} endpoints", ("shoal",),
        lambda setting: {"shoal": IdleGateway(ManyEndpoints(setting, "gateway_idle"))},
        [Case("idle")], placements=("pinned",), times=10,
        figures=[("core_percent", "% of a core"), ("wakes_per_s", "switches/s")]))
    return groups
