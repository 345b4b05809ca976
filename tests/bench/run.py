#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures Shoal against plain yardsticks in one run, and prints the ratios next to their goals.

    python3 tests/bench/run.py --build build/release [--json FILE] [--quick] [--only CELL]
                                [--rounds N] [--seconds S] [--placement free]

Cells:
  ring     Shoal's ring, a plain ring, one with cached indices and one that carries a record of a
           cache line per item, between two threads on two cores; judged against the plain one
  service  two stages, scale and shift: a Python service without a network; Shoal without a network
           (pipeline_bench submits as the front does); Shoal through gRPC
  echo     a bare gRPC C core echo server and Shoal's one-stage echo pipeline: same client, same
           message, unix socket and TCP

In every cell the contenders alternate, A B A B, a fresh process each time, so that a slow phase of
the machine meets all alike. A figure is the median over the rounds, with its range. Nothing here
judges speed: the exit code is 0 when everything asked for was measured, 1 when a program failed or
answered wrongly, 2 for a wrong command line. A part that is not built is skipped by name.
"""

import argparse
import json
import os
import platform
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
OUTSTANDING = [1, 16, 128]
START_DEADLINE_S = 20
RUN_DEADLINE_S = 120

# Two cores are enough for all: where the server or coordinator, the workers, the client run.
PINNED = {"server": 0, "workers": 1, "client": 1}

# What the table shows; the file given by --json has all.
PRINTED = ["ns", "requests_per_s", "p50_us", "p99_us", "cpu_us_per_request"]

# (cell, text, figure, contender, yardstick, "least" or "most", goal): the medians' ratio is judged.
GOALS = [
    ("ring", "ring push + pop, streaming, a record", "stream ns", "shoal", "plain_record", "most", 2),
    ("ring", "ring push + pop, streaming, an index", "stream ns", "shoal", "plain", "most", 2),
    ("ring", "ring push + pop, one item", "hop ns", "shoal", "plain", "most", 2),
    ("service", "rate at 128, no network", "128 requests_per_s", "shoal", "python", "least", 30),
    ("service", "p50 at 1, no network", "1 p50_us", "shoal", "python", "most", 1 / 100),
    ("service", "rate at 128, gRPC", "128 requests_per_s", "shoal_grpc", "python", "least", 3),
    ("service", "p50 at 1, gRPC", "1 p50_us", "shoal_grpc", "python", "most", 1 / 50),
    ("echo", "rate at 128, unix", "unix 128 requests_per_s", "shoal", "bare", "least", 0.7),
    ("echo", "rate at 128, TCP", "tcp 128 requests_per_s", "shoal", "bare", "least", 0.7),
]

# Each service as it is best at 128 outstanding: Shoal takes what is there, up to 32 requests, without
# waiting for more; the Python service, pinned as here, is faster without batches: compare
# `python_service.py --outstanding 128 --cpu 0 --scale-cpus 1,1 --shift-cpus 1` with and without
# `--batch-size 32 --batch-wait-ms 1`.
CONFIG = """\
listen: ["port:{port}", "unix:{directory}/shoal.sock"]
{coordinator_cpus}pipelines:
  - name: echo
    slots: 1024
    stages:
      - {{ name: echo, modelet: {modelets}/libecho.so, {one} }}
  - name: scale-shift
    slots: 1024
    stages:
      - {{ name: scale, modelet: {modelets}/libscale.so, {two}, batch_size: 32 }}
      - {{ name: shift, modelet: {modelets}/libshift.so, {one}, batch_size: 32 }}
"""


class Failed(Exception):
    """A program under measurement did not do its work."""


class Missing(Exception):
    """A program under measurement is not built."""


# ---- messages


def varint(value):
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def field(number, payload):
    """A length-delimited protobuf field."""
    return varint(number << 3 | 2) + varint(len(payload)) + payload


def infer_request(model, name, values):
    """An inference.ModelInferRequest with one FP32 tensor, its contents raw."""
    tensor = field(1, name) + field(2, b"FP32") + field(3, varint(len(values)))
    return field(1, model) + field(5, tensor) + field(7, floats(values))


def floats(values):
    return struct.pack(f"<{len(values)}f", *values)


# ---- programs


class Setting:
    """Where the programs are, how long to measure, and a folder for sockets and files."""

    def __init__(self, options, directory):
        self.build = Path(options.build).resolve()
        self.pinned = options.placement == "pinned"
        self.rounds = 2 if options.quick else options.rounds
        self.seconds = options.seconds or (0.5 if options.quick else 1.5)
        self.directory = directory
        self.port = free_port()

    def program(self, *path):
        found = self.build.joinpath(*path)
        if not found.exists():
            raise Missing(f"{found} is not built")
        return str(found)

    def cpu(self, role, option="--cpu", count=1):
        return [option, ",".join([str(PINNED[role])] * count)] if self.pinned else []

    def write(self, name, content):
        path = self.directory / name
        path.write_bytes(content)
        return str(path)

    def config(self):
        """One configuration with both pipelines; their idle workers sleep."""
        cpus = PINNED["workers"]
        text = CONFIG.format(
            port=self.port,
            directory=self.directory,
            coordinator_cpus=f"cpus: [{PINNED['server']}]\n" if self.pinned else "",
            modelets=self.build / "lib" / "shoal",
            one=f"cpus: [{cpus}]" if self.pinned else "workers: 1",
            two=f"cpus: [{cpus}, {cpus}]" if self.pinned else "workers: 2",
        )
        return self.write("bench.yaml", text.encode())


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def run_json(command):
    """Runs a bench program to its end; returns the JSON lines it printed."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=RUN_DEADLINE_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise Failed(f"{command[0]} did not end within {RUN_DEADLINE_S} s") from error
    if done.returncode != 0:
        output = (done.stdout + done.stderr).rstrip()
        raise Failed(f"{' '.join(command)}: exit code {done.returncode}\n{output}")
    return [json.loads(line) for line in done.stdout.splitlines()]


class Server:
    """A server process for the length of a `with` block; its end must be clean."""

    def __init__(self, command, log_path):
        self.command = command
        self.log_path = log_path
        self.process = None

    def __enter__(self):
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=subprocess.STDOUT)
        return self

    def __exit__(self, kind, error, trace):
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(timeout=START_DEADLINE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            code = "none: it had to be killed"
        if code != 0 and error is None:
            raise Failed(f"{self.command[0]}: exit code {code}\n{self.log()}")

    def log(self):
        return Path(self.log_path).read_text(errors="replace")

    def pids(self):
        """The process and its children."""
        pids = [self.process.pid]
        for task in Path(f"/proc/{self.process.pid}/task").iterdir():
            pids += [int(pid) for pid in (task / "children").read_text().split()]
        return pids

    def wait_until(self, ready):
        deadline = time.monotonic() + START_DEADLINE_S
        while not ready():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise Failed(f"{self.command[0]} did not start\n{self.log()}")
            time.sleep(0.02)


# ---- contenders: each returns {figure: value} of one round


def keyed(lines, prefix=""):
    """Flattens JSON lines, one per number of outstanding requests, to "<outstanding> <figure>"."""
    skip = ("bench", "outstanding", "channels", "errors", "wrong", "requests")
    return {
        f"{prefix}{line['outstanding']} {name}": value
        for line in lines
        for name, value in line.items()
        if name not in skip
    }


def load(setting, server, target, message, tail):
    """The gRPC client at each number of outstanding requests."""
    lines = []
    for outstanding in OUTSTANDING:
        command = [setting.program("bench", "grpc_load"), "--json", "--target", target]
        command += ["--message", message, "--expect-tail", tail]
        command += ["--outstanding", str(outstanding), "--seconds", str(setting.seconds)]
        command += [word for pid in server.pids() for word in ("--server-pid", str(pid))]
        lines += run_json(command + setting.cpu("client"))
    for line in lines:  # the servers' alone; the client's stands beside it
        line["cpu_us_per_request"] = line.pop("server_cpu_us_per_request")
    return lines


def answers(setting, target, message, tail):
    """True once the server answers. An answer that is wrong will not get better by waiting."""
    command = [setting.program("bench", "grpc_load"), "--json", "--target", target]
    command += ["--message", message, "--expect-tail", tail, "--requests", "1", "--warmup", "0"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=RUN_DEADLINE_S, check=False
    )
    if done.stdout and json.loads(done.stdout)["wrong"] > 0:
        raise Failed(f"{target} answers wrongly")
    return done.returncode == 0


def bare_echo(setting):
    command = [setting.program("bench", "echo_server")] + setting.cpu("server")
    targets = {"unix": f"unix:{setting.directory}/bare.sock", "tcp": f"127.0.0.1:{setting.port}"}
    with Server(command + list(targets.values()), setting.directory / "bare.log") as server:
        server.wait_until(lambda: server.log().count("listening ") == len(targets))
        return measure_targets(setting, server, targets, "echo", list(range(16)), list(range(16)))


def shoal(setting, transports, model, values, expected):
    command = [setting.program("bin", "shoald"), "--counters", f"{setting.directory}/counters"]
    command += [setting.config()]
    every = {"unix": f"unix:{setting.directory}/shoal.sock", "tcp": f"127.0.0.1:{setting.port}"}
    targets = {name: every[name] for name in transports}
    with Server(command, setting.directory / "shoal.log") as server:
        return measure_targets(setting, server, targets, model, values, expected)


def measure_targets(setting, server, targets, model, values, expected):
    message = setting.write("message", infer_request(model.encode(), b"x", values))
    tail = setting.write("tail", floats(expected))
    figures = {}
    for name, target in targets.items():
        server.wait_until(lambda target=target: answers(setting, target, message, tail))
        prefix = f"{name} " if len(targets) > 1 else ""
        figures.update(keyed(load(setting, server, target, message, tail), prefix))
    return figures


def shoal_echo(setting):
    return shoal(setting, ["unix", "tcp"], "echo", list(range(16)), list(range(16)))


def shoal_scale_shift_grpc(setting):
    return shoal(setting, ["unix"], "scale-shift", [5], [13])


def shoal_scale_shift(setting):
    """pipeline_bench prints the same lines as python_service.py, of the same closed loop."""
    command = [setting.program("bench", "pipeline_bench"), "--config", setting.config()]
    command += ["--pipeline", "scale-shift", "--seconds", str(setting.seconds), "--json"]
    command += ["--counters", f"{setting.directory}/counters"]
    return keyed(run_json(command + ["--outstanding", ",".join(map(str, OUTSTANDING))]))


def python_scale_shift(setting):
    command = [sys.executable, str(HERE / "python_service.py"), "--seconds", str(setting.seconds)]
    command += ["--outstanding", ",".join(map(str, OUTSTANDING))]
    command += setting.cpu("server") + setting.cpu("workers", "--scale-cpus", 2)
    return keyed(run_json(command + setting.cpu("workers", "--shift-cpus")))


# ---- cells


def ring_cell(setting):
    """ring_bench alternates by itself, between threads of one process."""
    rounds = str(max(3, setting.rounds * 3))
    lines = run_json([setting.program("bench", "ring_bench"), "--json", "--rounds", rounds])
    cell = {}
    for line in lines:
        figure = {"median": line["ns"], "min": line["min"], "max": line["max"]}
        cell.setdefault(line["ring"], {})[f"{line['figure']} ns"] = figure
    return cell


def alternate(contenders, rounds, skipped):
    """{contender: {figure: {median, min, max}}}; what is not built is named once in `skipped`."""
    values = {name: {} for name in contenders}
    for turn in range(rounds):
        for name, measure in contenders.items():
            if name in skipped:
                continue
            print(f"  round {turn + 1} of {rounds}: {name}", file=sys.stderr, flush=True)
            try:
                figures = measure()
            except Missing as missing:
                skipped[name] = str(missing)
                continue
            for figure, value in figures.items():
                values[name].setdefault(figure, []).append(value)
    return {
        name: {
            figure: {"median": statistics.median(of), "min": min(of), "max": max(of), "rounds": of}
            for figure, of in figures.items()
        }
        for name, figures in values.items()
        if figures
    }


def service_cell(setting, skipped):
    contenders = {
        "python": lambda: python_scale_shift(setting),
        "shoal": lambda: shoal_scale_shift(setting),
        "shoal_grpc": lambda: shoal_scale_shift_grpc(setting),
    }
    return alternate(contenders, setting.rounds, skipped)


def echo_cell(setting, skipped):
    contenders = {"bare": lambda: bare_echo(setting), "shoal": lambda: shoal_echo(setting)}
    return alternate(contenders, setting.rounds, skipped)


CELLS = {
    "ring": lambda setting, skipped: ring_cell(setting),
    "service": service_cell,
    "echo": echo_cell,
}


# ---- report


def machine():
    model = platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
            break
    return {
        "cpu": model,
        "cores": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load_average": os.getloadavg()[0],
    }


def figure_text(figure):
    def short(value):
        return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"

    if figure is None:
        return "-"
    return f"{short(figure['median'])} [{short(figure['min'])} - {short(figure['max'])}]"


def print_cell(name, contenders):
    print(f"\n{name}: median [range]")
    every = dict.fromkeys(figure for of in contenders.values() for figure in of)
    figures = [figure for figure in every if figure.split()[-1] in PRINTED]
    print(f"  {'':30}" + "".join(f"{contender:>28}" for contender in contenders))
    for figure in figures:
        texts = [figure_text(of.get(figure)) for of in contenders.values()]
        print(f"  {figure:30}" + "".join(f"{text:>28}" for text in texts))


def judge(cells):
    """The goals of the cells that were measured, with the ratio of the medians."""
    judged = []
    for cell, text, figure, contender, yardstick, sense, goal in GOALS:
        above = cells.get(cell, {}).get(contender, {}).get(figure)
        below = cells.get(cell, {}).get(yardstick, {}).get(figure)
        if above is None or below is None:
            continue
        ratio = above["median"] / below["median"]
        met = ratio >= goal if sense == "least" else ratio <= goal
        judged.append(
            {"goal": text, "cell": cell, "ratio": ratio, "sense": sense, "bound": goal, "met": met}
        )
    return judged


def print_goals(judged):
    if judged:
        print(f"\n{'goal':34}{'ratio':>12}{'wanted':>16}")
    for goal in judged:
        wanted = f"{'>=' if goal['sense'] == 'least' else '<='} {goal['bound']:.3g}"
        verdict = "met" if goal["met"] else "not met"
        print(f"{goal['goal']:34}{goal['ratio']:12.4g}{wanted:>16}   {verdict}")


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--build", required=True, help="the build folder, such as build/release")
    parser.add_argument("--json", metavar="FILE", help="write everything that was measured")
    parser.add_argument("--quick", action="store_true", help="2 short rounds")
    parser.add_argument("--rounds", type=int, default=5, help="default 5")
    parser.add_argument("--seconds", type=float,
                        help="measured time of each figure; default 1.5, quick 0.5")
    parser.add_argument("--only", choices=sorted(CELLS), help="one cell")
    parser.add_argument("--placement", choices=["pinned", "free"], default="pinned",
                        help="pinned (default): servers on CPU 0, workers and client on CPU 1")
    return parser.parse_args(arguments)


def measure_cell(name, setting, report):
    skipped = {}
    try:
        report["cells"][name] = CELLS[name](setting, skipped)
        print_cell(name, report["cells"][name])
    except Missing as missing:
        skipped["all"] = str(missing)
    except Failed as failed:
        report["failed"][name] = str(failed)
    report["skipped"].update({f"{name}/{part}": why for part, why in skipped.items()})


def main(arguments):
    options = parse(arguments)
    report = {"machine": machine(), "placement": options.placement}
    report.update({"cells": {}, "skipped": {}, "failed": {}})
    print("  ".join(f"{name} {value}" for name, value in report["machine"].items()))
    with tempfile.TemporaryDirectory(prefix="shoal-bench-") as directory:
        setting = Setting(options, Path(directory))
        report["rounds"] = setting.rounds
        print(f"placement {options.placement}  rounds {setting.rounds}  seconds {setting.seconds}")
        for name in [options.only] if options.only else CELLS:
            measure_cell(name, setting, report)
    report["goals"] = judge(report["cells"])
    print_goals(report["goals"])
    for part, why in report["skipped"].items():
        print(f"skipped {part}: {why}")
    for part, why in report["failed"].items():
        print(f"FAILED {part}: {why}")
    if options.json:
        Path(options.json).write_text(json.dumps(report, indent=1) + "\n")
    return 1 if report["failed"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
