# SPDX-License-Identifier: Apache-2.0
"""The metrics of a daemon as a scraper sees them, checked by Prometheus' own tool; and a
Prometheus."""

import http.client
import json
import re
import subprocess
import urllib.parse
import urllib.request

from shoal_fixture import WAIT_SECONDS, free_port, wait_until

SAMPLE = re.compile(r'([a-z_]+)(?:\{(.*)\})? (\S+)')
LABEL = re.compile(r'([a-z]+)="((?:\\.|[^"\\])*)"(?:,|$)')


def metrics_port(shoald, count=1):
    return int(shoald.wait_log(r"http_listening address=\S+ port=(\d+)", count)[1])


def fetch(port, path="/metrics", method="GET", body=None, host="127.0.0.1"):
    """(status, headers, text) of one request on a connection of its own."""
    connection = http.client.HTTPConnection(host, port, timeout=WAIT_SECONDS)
    try:
        connection.request(method, path, body)
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read().decode()
    finally:
        connection.close()


def promtool(text):
    """Its complaints may only be about ModelMesh's names: ModelMesh's are as they are."""
    done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True,
                          text=True, timeout=WAIT_SECONDS)
    said = [line for line in (done.stdout + done.stderr).splitlines()
            if not line.startswith("modelmesh_")]
    assert not said and done.returncode in (0, 3 if "modelmesh_" in text else 0), \
        f"promtool: {done.returncode} {said}"


class Scrape:
    """One answer of /metrics: samples by name and labels."""

    def __init__(self, port):
        status, headers, text = fetch(port)
        assert status == 200, (status, text)
        assert headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8", headers
        promtool(text)
        self.text = text
        self.types = dict(re.findall(r"^# TYPE (\w+) (\w+)$", text, re.M))
        self.samples = {}
        for line in text.splitlines():
            if line.startswith("#"):
                continue
            name, labels, value = SAMPLE.fullmatch(line).groups()
            key = (name, frozenset(LABEL.findall(labels or "")))
            assert key not in self.samples, f"twice: {line}"
            self.samples[key] = float(value)

    def __getitem__(self, key):
        """scrape["name"], or scrape["name", {"label": "value"}]."""
        name, labels = key if isinstance(key, tuple) else (key, {})
        return self.samples[name, frozenset(labels.items())]

    def sum(self, name, **labels):
        """Of all series that have these labels."""
        found = [value for (other, has), value in self.samples.items()
                 if other == name and labels.items() <= dict(has).items()]
        assert found, f"no series of {name} with {labels}"
        return sum(found)

    def names(self):
        return {name for name, _ in self.samples}

    def label(self, name, label):
        """The values that the label has in the series of that name."""
        return {dict(has)[label] for other, has in self.samples if other == name}


class Prometheus:
    """A real one, that scrapes the given ports twice a second."""

    def __init__(self, folder, ports):
        self.folder = folder
        self.port = free_port()
        targets = [f"127.0.0.1:{port}" for port in ports]
        (folder / "prometheus.yml").write_text(json.dumps({
            "global": {"scrape_interval": "500ms", "scrape_timeout": "500ms"},
            "scrape_configs": [{"job_name": "shoal", "static_configs": [{"targets": targets}]}]}))

    def __enter__(self):
        with open(self.folder / "prometheus.log", "wb") as log:
            self.process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", "prometheus",
                 f"--config.file={self.folder}/prometheus.yml",
                 f"--storage.tsdb.path={self.folder}/prometheus",
                 f"--web.listen-address=127.0.0.1:{self.port}", "--log.level=warn"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def log(self):
        return (self.folder / "prometheus.log").read_text()

    def ask(self, path, **query):
        """Its API's answer, or None while it is not up."""
        assert self.process.poll() is None, f"prometheus has ended:\n{self.log()}"
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        try:
            with urllib.request.urlopen(url, timeout=WAIT_SECONDS) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            if error.code == 503:  # it says so while it starts
                return None
            raise AssertionError(f"{query}: {error.read().decode()}") from error
        except OSError:
            return None

    def value(self, query):
        """Of a query with one result; None while it has none."""
        data = self.ask("query", query=query)
        return float(data["result"][0]["value"][1]) if data and data["result"] else None

    def wait_value(self, query, condition=lambda value: True):
        last = []

        def look():
            value = self.value(query)
            last.append(value)
            return value is not None and condition(value)
        wait_until(look, lambda: f"{query}: {last[-5:]}; its log:\n{self.log()}")
        return last[-1]
