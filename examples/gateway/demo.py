#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""`./dev demo gateway`: three simulated language-model servers (tests/llm-server), each with room for
two of six LoRA adapters, get the same calls first in turn (round robin), then through shoal-gateway.
Then a server is killed under load, and comes back. One tenant floods the gateway, without and with
fairness. At last an adapter is rolled out, and back. Fails if a call fails before its first token, or
if the gateway is no better than round robin.
"""

import argparse
import asyncio
import collections
import json
import os
import pathlib
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

SOURCE = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("SHOAL_BUILD_DIR", SOURCE / "build" / "release"))
ADAPTERS = ["sql", "law", "code", "chat", "math", "poem"]
WEIGHTS = [30, 25, 20, 12, 8, 5]
SLOTS = 2
CALLS_PER_SECOND = 24
TOKENS = 40
PROMPT_WORDS = 250
WAIT_SECONDS = 60
TENANTS = ["anna", "ben", "cleo"]
FLOOD_PER_SECOND = 100  # for half of the act
FAIR = {  # as docs/gateway.md explains
    "featureGates": ["flowControl"],
    "plugins": [{"type": "concurrency-detector", "parameters": {"maxConcurrency": 4}},
                {"type": "round-robin-fairness-policy"}, {"type": "queue-scorer"},
                {"type": "max-score-picker"}],
    "schedulingProfiles": [{"name": "default", "plugins": [{"pluginRef": "queue-scorer"},
                                                           {"pluginRef": "max-score-picker"}]}],
    "flowControl": {"saturationDetector": {"pluginRef": "concurrency-detector"},
                    "defaultRequestTTL": "0s",  # as long as a call may take
                    "defaultPriorityBand": {"fairnessPolicyRef": "round-robin-fairness-policy"}}}

NEW = {"kind": "LLMRoute", "metadata": {"name": "tax"}, "spec": {"backendRefs": [
    {"name": "all", "adapter": {"name": "tax", "path": "/adapters/tax"}}]}}

Call = collections.namedtuple("Call", "at model text tokens tenant", defaults=[TOKENS, "demo"])


def fail(text):
    sys.exit(f"demo: {text}")


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def start(command, log):
    """A process that does not outlive this one."""
    with log.open("ab") as out:
        return subprocess.Popen(["setpriv", "--pdeathsig", "KILL", *map(str, command)],
                                stdin=subprocess.DEVNULL, stdout=out, stderr=out)


def get(port, path):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=WAIT_SECONDS) as answer:
        return answer.read().decode()


def status_of(port, model):
    body = {"model": model, "max_tokens": 1, "messages": [{"role": "user", "content": "How much?"}]}
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/chat/completions",
                                    json.dumps(body).encode(), WAIT_SECONDS) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


def wait_until(condition, what):
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        try:
            if condition():
                return
        except OSError:
            pass
        if time.monotonic() > deadline:
            fail(f"not within {WAIT_SECONDS} s: {what}")
        time.sleep(0.02)


class Server:
    def __init__(self, folder, name):
        self.name, self.port, self.log = name, free_port(), folder / f"{name}.log"
        self.start()

    def start(self):
        self.seen = (0, 0)  # by this process
        self.process = start(
            [sys.executable, SOURCE / "tests" / "llm-server" / "llm_server.py", "--port", self.port,
             "--name", self.name, "--adapters", ",".join(ADAPTERS), "--slots", SLOTS], self.log)
        wait_until(lambda: get(self.port, "/health"), f"{self.name} answers; its log: {self.log}")

    def count(self):
        """Since it was last asked: how often a call's adapter was there, and had to be loaded."""
        counts = json.loads(get(self.port, "/test/last"))
        before, self.seen = self.seen, (counts["adapter_hits"], counts["adapter_loads"])
        return self.seen[0] - before[0], self.seen[1] - before[1]


class Gateway:
    def __init__(self, folder, servers, **keys):
        folder.mkdir()
        self.port, self.admin, self.log = free_port(), free_port(), folder / "gateway.log"
        (folder / "servers.yaml").write_text(json.dumps({"endpoints": [  # JSON is YAML
            {"name": one.name, "address": "127.0.0.1", "port": str(one.port)} for one in servers]}))
        (folder / "gateway.yaml").write_text(json.dumps({
            "listen": f"127.0.0.1:{self.port}", "metrics": f"127.0.0.1:{self.admin}",
            "endpoints": "servers.yaml", "scrape_timeout_ms": 10_000, **keys}))  # a busy machine
        self.process = start([BUILD / "bin" / "shoal-gateway", folder / "gateway.yaml"], self.log)
        for one in servers:
            self.wait_up(one)

    def figures(self):
        rows = [line.rsplit(" ", 1) for line in get(self.admin, "/metrics").splitlines()
                if not line.startswith("#")]
        return {name.removeprefix("shoal_gateway_"): float(value) for name, value in rows}

    def wait_up(self, server):
        wait_until(lambda: self.figures().get(f'endpoint_up{{endpoint="{server.name}"}}') == 1,
                   f"{server.name} is used; the gateway's log: {self.log}")

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        if self.process.wait(WAIT_SECONDS) != 0:
            fail(f"the gateway has ended with {self.process.returncode}: {self.log.read_text()}")


class Result:
    """Times of calls to their first tokens, and the ends that went wrong."""

    def __init__(self):
        self.first = []
        self.tokens = 0
        self.failed, self.cut = [], 0


def p(times, percent):
    if len(times) < 2:
        fail("too few calls were answered")
    return statistics.quantiles(times, n=100)[percent - 1]


async def read_events(reader, on_event):
    """True: the stream came to its end."""
    while line := await reader.readline():
        if line.startswith(b"data: [DONE]"):
            return True
        if line.startswith(b"data: "):
            if b'"error"' in line:
                return False
            on_event()
    return False


async def do(call, port, result):
    begun = time.monotonic()
    seen = 0

    def on_event():
        nonlocal seen
        if seen == 0:
            result.first.append(time.monotonic() - begun)
        seen += 1
        result.tokens += 1

    body = json.dumps({"model": call.model, "max_tokens": call.tokens, "stream": True,
                       "messages": [{"role": "user", "content": call.text}]})
    status, is_whole, writer = 0, False, None
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write((f"POST /v1/chat/completions HTTP/1.1\r\nHost: demo\r\nConnection: close\r\n"
                      f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
                      f"x-gateway-inference-fairness-id: {call.tenant}\r\n"
                      f"\r\n{body}").encode())
        status = int((await reader.readline()).split()[1])
        is_whole = status == 200 and await read_events(reader, on_event)
    except (OSError, IndexError) as error:
        status = status or repr(error)
    finally:
        if writer is not None:
            writer.close()
    if seen > 0 and not is_whole:
        result.cut += 1
    elif not is_whole:
        result.failed.append(status)


def calls(seed, seconds):
    """Calls in random order and at random moments, the same for a seed. Each adapter has a system
    prompt of its own, which all of its calls begin with."""
    draw = random.Random(seed)
    at, made = 0.0, []
    while at < seconds:
        at += draw.expovariate(CALLS_PER_SECOND)
        adapter = draw.choices(ADAPTERS, WEIGHTS)[0]
        text = f"You know all about {adapter}. " * (PROMPT_WORDS // 5) + str(draw.random())
        made.append(Call(at, adapter, text))
    return made


def tenants_calls(seed, seconds):
    """Short calls of the base model."""
    draw = random.Random(seed)
    return sorted(Call(draw.uniform(0, seconds), "base", "How are you?", 10, tenant)
                  for tenant in TENANTS for _ in range(int(3 * seconds)))


def flood(seconds):
    return [Call(number / FLOOD_PER_SECOND, "base", "Me first!", 10, "flood")
            for number in range(int(FLOOD_PER_SECOND * seconds / 2))]


async def send(trace, port_of, result):
    begun = time.monotonic()
    tasks = []
    for number, call in enumerate(trace):
        await asyncio.sleep(max(0.0, begun + call.at - time.monotonic()))
        tasks.append(asyncio.ensure_future(do(call, port_of(number), result)))
    await asyncio.wait_for(asyncio.gather(*tasks), WAIT_SECONDS)
    return time.monotonic() - begun


class Demo:
    def __init__(self, folder, seconds, seed):
        self.folder, self.seconds, self.seed = folder, seconds, seed
        self.servers = [Server(folder, name) for name in ("one", "two", "three")]
        self.gateway = Gateway(folder / "routed", self.servers)
        self.fair = Gateway(folder / "fair", self.servers, **FAIR)
        print(f"three servers are up, each with room for {SLOTS} of {len(ADAPTERS)} adapters, and "
              f"the gateway; {CALLS_PER_SECOND} calls a second\n")
        print(f"{'':32}{'calls':>6}{'first token, ms':>24}{'tokens':>9}{'adapter':>10}"
              f"{'failed':>8}{'cut':>5}")
        print(f"{'':32}{'':>6}{'p50':>12}{'p90':>12}{'per s':>9}{'was there':>10}")

    async def act(self, title, port_of, beside=None):
        result, trace = Result(), calls(self.seed, self.seconds)
        work = asyncio.ensure_future(send(trace, port_of, result))
        if beside is not None:
            await beside()
        took = await work
        hits, loads = map(sum, zip(*(one.count() for one in self.servers)))
        print(f"{title:32}{len(trace):6}{p(result.first, 50) * 1000:12.0f}{p(result.first, 90) * 1000:12.0f}"
              f"{result.tokens / took:9.0f}{hits / max(1, hits + loads):10.0%}"
              f"{len(result.failed):8}{result.cut:5}", flush=True)
        self.check(result)
        return result

    @staticmethod
    def check(result):
        if result.failed:
            fail(f"{len(result.failed)} calls failed, the first: {result.failed[0]}")

    async def act_flood(self, title, gateway):
        """One tenant sends more than the servers can take; the other tenants' times."""
        others, flooding = Result(), Result()
        trace = tenants_calls(self.seed, self.seconds)
        await asyncio.gather(send(trace, lambda _: gateway.port, others),
                             send(flood(self.seconds), lambda _: gateway.port, flooding))
        print(f"{title:32}{len(trace):6}{p(others.first, 50) * 1000:12.0f}"
              f"{p(others.first, 90) * 1000:12.0f}{'':19}{len(others.failed):8}{others.cut:5}", flush=True)
        self.check(others)
        self.check(flooding)
        return others

    async def kill_one(self):
        loop = asyncio.get_running_loop()
        victim = self.servers[0]
        await asyncio.sleep(self.seconds * 0.3)
        victim.process.kill()
        victim.process.wait()
        await asyncio.sleep(self.seconds * 0.3)
        await loop.run_in_executor(None, victim.start)

    def roll_out(self):
        """Returns the seconds to the first answer, and those to the first refusal afterwards."""
        routes = self.folder / "routes"
        routes.mkdir()
        gateway = Gateway(self.folder / "rolled", self.servers, resources=str(routes))
        begun = time.monotonic()
        (routes / "new").write_text(json.dumps(NEW))  # it is none of the documents yet
        (routes / "new").rename(routes / "new.json")
        wait_until(lambda: status_of(gateway.port, "tax") == 200, "the new adapter answers")
        out = time.monotonic() - begun
        wait_until(lambda: gateway.figures()["adapters_loaded_total"] == len(self.servers),
                   "all servers load the new adapter")
        begun = time.monotonic()
        (routes / "new.json").unlink()
        wait_until(lambda: status_of(gateway.port, "tax") == 404, "it is unloaded")
        back = time.monotonic() - begun
        gateway.stop()
        return out, back

    async def run(self):
        in_turn = await self.act("in turn (round robin)",
                                 lambda number: self.servers[number % 3].port)
        routed = await self.act("through the gateway", lambda number: self.gateway.port)
        await self.act("a server is killed, comes back", lambda number: self.gateway.port,
                       self.kill_one)
        unfair = await self.act_flood("beside a tenant that floods", self.gateway)
        fair = await self.act_flood("the same, with fairness", self.fair)
        ratio = p(in_turn.first, 90) / p(routed.first, 90)
        print(f"\nno call failed before its first token, and only what the killed server had begun "
              f"was cut;\nnine of ten first tokens came {ratio:.1f} times as soon as in turn")
        print(f"beside a tenant that floods, nine of ten first tokens of the others came within "
              f"{p(unfair.first, 90):.2f} s,\nand within {p(fair.first, 90):.2f} s with fairness")
        out, back = self.roll_out()
        print(f"a new adapter answered {out:.1f} s after its file had come, and was unknown {back:.1f} s "
              f"after it\nhad gone")
        if ratio < 1:
            fail("the gateway is no better than round robin")
        self.gateway.stop()
        self.fair.stop()
        print("demo: stopped cleanly")


def main():
    options = argparse.ArgumentParser(description=__doc__,
                                      formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seconds", type=float, default=10, help="per act [%(default)s]")
    options.add_argument("--seed", type=int, default=1, help="of the calls [%(default)s]")
    arguments = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="shoal-demo.") as folder:
        asyncio.run(Demo(pathlib.Path(folder), arguments.seconds, arguments.seed).run())


if __name__ == "__main__":
    main()
