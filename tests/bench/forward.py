#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The cost of forwarding a call: a bare proxy against the same made of Shoal's rpc module, before
one echo server, over unix sockets.

    tests/bench/forward.py [--bytes N]... [--outstanding N]
                           [--requests N | --seconds S --rounds N [--window KIB]...]

Counts instructions with valgrind's callgrind, which a busy machine does not disturb; a count is the
difference of a long and a short run, so neither start nor end is in it. With --seconds it measures
calls per second and the proxy's CPU time instead, in turns, and prints the medians of the rounds;
--window adds rpc's proxy with a fixed window per stream (`stream_window_kib`). Exit code 0: all was
measured, 1: a program failed, 2: a wrong command line or no valgrind.
"""

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from instructions import by_object
from programs import HERE, Failed, Server, run_json

ROOT = HERE.parent.parent
PROXIES = ("bare_proxy", "rpc_proxy")
METHOD = "/any.Service/Method"
WARMUP = 50
SHORT = 400  # calls of the short run
CALLGRIND = ["valgrind", "--tool=callgrind", "--quiet"]
PATIENCE = 5  # times the bench's own deadline, under valgrind


class Bench:
    def __init__(self, build, folder):
        self.build = Path(build) / "bench"
        self.folder = Path(folder)
        self.running = []
        self.start("echo", [self.build / "echo_server", "--generic"])

    def address(self, name):
        return f"unix:{self.folder}/{name}"

    def start(self, name, command):
        server = Server([*map(str, command), self.address(name)], self.folder / f"{name}.log")
        self.running.append(server)
        server.wait_until(lambda: "listening" in server.log())
        return server

    def proxy(self, name, before=(), options=()):
        program = self.build / name.partition(".")[0]
        return self.start(name, [*before, program, *options, "--to", self.address("echo")])

    def stop(self, *servers):
        for server in servers:
            self.running.remove(server)
            wrong = server.stop()
            if wrong:
                raise Failed(wrong)

    def load(self, name, size, outstanding, *what, patience=1):
        message = self.folder / "message"
        message.write_bytes(b"x" * size)
        return run_json([str(self.build / "grpc_load"), "--json", "--target", self.address(name),
                         "--message", str(message), "--method", METHOD, "--channels", "1",
                         "--outstanding", str(outstanding), "--warmup", str(WARMUP), *what],
                        patience=patience)[0]

    def instructions(self, name, size, outstanding, requests):
        sums = []
        for count in (SHORT, SHORT + requests):
            output = self.folder / f"{name}.{count}"
            proxy = self.proxy(name, [*CALLGRIND, f"--callgrind-out-file={output}"])
            self.load(name, size, outstanding, "--requests", str(count), patience=PATIENCE)
            self.stop(proxy)
            sums.append(sum(by_object(output.read_text()).values()))
        return (sums[1] - sums[0]) / requests

    def timed(self, size, outstanding, seconds, rounds, windows):
        """{figure: {proxy: median}}: calls per second, the proxy's CPU time for each."""
        proxies = {name: self.proxy(name) for name in PROXIES}
        for kib in windows:
            name = f"rpc_proxy.{kib}"
            proxies[name] = self.proxy(name, options=("--window", kib))
        told = {name: [] for name in proxies}
        for turn in range(rounds):
            for name in list(proxies)[::-1] if turn % 2 else proxies:
                pid = str(proxies[name].process.pid)
                told[name].append(self.load(name, size, outstanding, "--seconds", str(seconds),
                                            "--server-pid", pid))
        self.stop(*proxies.values())
        return {figure: {name: statistics.median(line[figure] for line in lines)
                         for name, lines in told.items()}
                for figure in ("requests_per_s", "server_cpu_us_per_request")}


def tell(size, unit, bare, ours, ratio, name="rpc"):
    print(f"{size:10} bytes  bare {bare:12,.1f}  {name} {ours:12,.1f} {unit}  {ratio:.3f}", flush=True)


def measure(bench, options):
    for size in options.bytes or [100, 65536]:
        if options.seconds:
            timed = bench.timed(size, options.outstanding, options.seconds, options.rounds,
                                options.window)
            (_, bare), *others = timed["requests_per_s"].items()
            for name, ours in others:
                tell(size, "calls/s", bare, ours, ours / bare, name)
            (_, bare), *others = timed["server_cpu_us_per_request"].items()
            for name, ours in others:
                tell(size, "us of CPU/call", bare, ours, bare / ours, name)
        else:
            bare, ours = (bench.instructions(name, size, options.outstanding, options.requests)
                          for name in PROXIES)
            tell(size, "instructions/call", bare, ours, bare / ours)


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=str(ROOT / "build" / "release"))
    parser.add_argument("--bytes", type=int, action="append", help="default 100 and 65536")
    parser.add_argument("--outstanding", type=int, default=16, help="default 16")
    parser.add_argument("--requests", type=int, default=2000, help="counted, default 2000")
    parser.add_argument("--seconds", type=float, default=0, help="measure time, so long a turn")
    parser.add_argument("--rounds", type=int, default=7, help="with --seconds, default 7")
    parser.add_argument("--window", action="append", default=[], metavar="KIB",
                        help="with --seconds, may be repeated")
    options = parser.parse_args(arguments)
    if not options.seconds and shutil.which("valgrind") is None:
        print("valgrind is not there: apt-get install valgrind", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="shoal-forward-") as folder:
        try:
            bench = Bench(options.build, folder)
            try:
                measure(bench, options)
            finally:
                bench.stop(*bench.running)
        except (Failed, subprocess.SubprocessError) as failure:
            print(failure, file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
