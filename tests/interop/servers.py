# SPDX-License-Identifier: Apache-2.0
"""Another server of models in Python beside a node of ours: the same model, two workers each, batches of
up to 64 that wait 2 ms at most. wrk calls both over HTTP with JSON; grpc_load calls ours over gRPC, which
the others do not speak. One serves at a time. Prints ratios, and each goal with its verdict. Only a wrong
answer fails, since machines differ.
"""

import contextlib
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
import unittest

import peers

sys.path[:0] = [str(peers.SOURCE / "tests" / folder) for folder in ("integration", "bench")]
from figures import FEW, LONE, MANY, VERDICTS, Goal, judge, ratio, short, wanted  # noqa: E402
from programs import Client, Messages, Missing, Setting, floats, infer_request  # noqa: E402
from shoal_fixture import BUILD, Shoald, children, node, pipeline, stage, wait_until  # noqa: E402
from shoal_ports import free_port  # noqa: E402
from shoal_rest import ANY_PORT, port_of  # noqa: E402

CASES = {LONE: 1, FEW: 16, MANY: 128}
SECONDS = 4
WORKERS, BATCH, WAIT_MS = 2, 64, 2
UNITS = {"us": 1, "ms": 1e3, "s": 1e6}
ROW = [1.0, 2.0, 3.0, 4.0]
ANSWER = [60.0, 70.0, 80.0]
WEIGHTS = "W = numpy.arange(12, dtype='f4').reshape(4, 3)\n"
OURS = "import numpy, shoal\n" + WEIGHTS + """
@shoal.batched
def run(x: shoal.FP32[-1, 4]) -> {"y": shoal.FP32[-1, 3]}:
    return {"y": x @ W}
"""
GOALS = [
    *(Goal(f"cpu_{count}", "CPU of a request, theirs over HTTP ÷ ours over gRPC",
           ratio("peer", case, "cpu_us", "theirs", "ours_grpc"), "least", 2)
      for case, count in ((FEW, 16), (MANY, 128))),
    *(Goal(f"rate_{count}", "requests/s over HTTP, ours ÷ theirs",
           ratio("peer", case, "per_s", "ours", "theirs"), "least", 1)
      for case, count in ((FEW, 16), (MANY, 128))),
    Goal("p50_1", "p50 over HTTP, ours ÷ theirs", ratio("peer", LONE, "p50_us", "ours", "theirs"),
         "most", 1 / 5),
]


def family(pid):
    """A process and all that descend from it."""
    found = [pid]
    for one in found:
        found += children(one)
    return found


def kill_family(process):
    """Ends a process and all that descend from it. It is stopped first, or it might start others."""
    if process.poll() is None:
        process.send_signal(signal.SIGSTOP)
        for pid in reversed(family(process.pid)):
            with contextlib.suppress(ProcessLookupError):  # it ended with its child
                os.kill(pid, signal.SIGKILL)
        process.wait()


def cpu_seconds(pid):
    """Of all of them, by the kernel's clock of a process id."""
    return sum(time.clock_gettime((~one << 3) | 2) for one in family(pid))


def ask(port, path, body):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=peers.SECONDS)
    connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    return answer.status, answer.read()


def answers(port, path, body, read):
    """Whether it is up; the answer must be right."""
    try:
        status, data = ask(port, path, body)
    except OSError:
        return False
    if status == 503:
        return False
    assert status == 200, data
    got = read(json.loads(data))
    assert all(abs(x - y) < 1e-3 for x, y in zip(got, ANSWER)) and len(got) == len(ANSWER), data
    return True


def run_wrk(port, path, body, outstanding, pid):
    script = peers.FOLDER / "post.lua"
    script.write_text(f"wrk.method = 'POST'\nwrk.headers['Content-Type'] = 'application/json'\n"
                      f"wrk.body = '{json.dumps(body)}'\n")
    command = ["wrk", "--latency", "-t", "1", "-c", str(outstanding), "-s", str(script),
               f"http://127.0.0.1:{port}{path}"]
    subprocess.run([*command, "-d", "1s"], check=True, capture_output=True, timeout=peers.SECONDS)
    cpu = cpu_seconds(pid)
    done = subprocess.run([*command, "-d", f"{SECONDS}s"], capture_output=True, text=True, check=True,
                          timeout=peers.SECONDS)
    cpu = cpu_seconds(pid) - cpu
    print(done.stdout, flush=True)
    assert "Non-2xx" not in done.stdout and "Socket errors" not in done.stdout, done.stdout
    p50, unit = re.search(r"50%\s+([\d.]+)(us|ms|s)", done.stdout).groups()
    count = int(re.search(r"(\d+) requests in", done.stdout)[1])
    return {"per_s": float(re.search(r"Requests/sec:\s+([\d.]+)", done.stdout)[1]),
            "cpu_us": 1e6 * cpu / count, "p50_us": float(p50) * UNITS[unit]}


def measure(port, path, body, read, pid):
    wait_until(lambda: answers(port, path, body, read), "the server to answer")
    figures = {case: run_wrk(port, path, body, count, pid) for case, count in CASES.items()}
    assert answers(port, path, body, read)
    return figures


def measure_theirs(code, arguments, path):
    file = peers.FOLDER / "service.py"
    file.write_text("import numpy\n" + WEIGHTS + code)
    port = free_port()
    with (peers.FOLDER / "service.log").open("w") as log:
        process = subprocess.Popen([sys.executable, file, *(one.format(port=port) for one in arguments)],
                                   stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=peers.FOLDER)
    try:
        return measure(port, path, {"x": ROW}, lambda answer: answer["y"], process.pid)
    finally:
        kill_family(process)
        print((peers.FOLDER / "service.log").read_text()[-4000:], flush=True)


def measure_grpc(setting, target, pid):
    messages = Messages([infer_request("m", "x", [1, len(ROW)], ROW)], [floats(ANSWER)])
    client = Client(setting, "grpc", target, messages)
    figures = {}
    for case, count in CASES.items():
        line = client.measure(SECONDS, family(pid), count)
        print(line, flush=True)
        figures[case] = {"per_s": line["requests_per_s"], "p50_us": line["p50_us"],
                         "cpu_us": line["server_cpu_us_per_request"]}
    return figures


def measure_ours(setting):
    """Over HTTP, and over gRPC on a TCP port, as the others' HTTP is."""
    (peers.FOLDER / "ours.py").write_text(OURS)
    config = node(pipeline("m", stage("./ours.py", name="m", workers=WORKERS, batch_size=BATCH,
                                      batch_wait_ms=WAIT_MS), slots=256), http=ANY_PORT)
    body = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4], "data": ROW}]}
    target = f"127.0.0.1:{free_port()}"
    with Shoald(config, ["--no-pin", "--listen", target], folder=peers.FOLDER) as shoald:
        http = measure(port_of(shoald), "/v2/models/m/infer", body,
                       lambda answer: answer["outputs"][0]["data"], shoald.pid)
        return http, measure_grpc(setting, target, shoald.pid)


def built():
    """Skips everything, by name, if this build lacks a part."""
    setting = Setting(BUILD, peers.FOLDER, "free")
    try:
        setting.program("bench", "grpc_load")
        setting.program("lib", "shoal", "libpython_modelet.so")
    except Missing as missing:
        raise unittest.SkipTest(str(missing)) from None
    return setting


class Beside(unittest.TestCase):
    """A subclass says how its server is started."""

    code = None  # after the weights W
    arguments = ()
    path = "/"

    @classmethod
    def setUpClass(cls):
        setting = built()
        theirs = measure_theirs(cls.code, cls.arguments, cls.path)
        ours, ours_grpc = measure_ours(setting)
        cls.figures = {"theirs": theirs, "ours": ours, "ours_grpc": ours_grpc}
        cells = {"peer": {name: {case: {figure: [value] for figure, value in of.items()}
                                 for case, of in cases.items()}
                          for name, cases in cls.figures.items()}}
        cls.goals = {goal["name"]: goal for goal in judge({"free": cells}, GOALS)}

    def note(self, case):
        """Ours over HTTP to theirs; ours over gRPC to theirs."""
        theirs, ours, grpc = (self.figures[name][case] for name in ("theirs", "ours", "ours_grpc"))

        def text(name, unit):
            return (f"{unit} x{ours[name] / theirs[name]:.2f}, gRPC x{grpc[name] / theirs[name]:.2f} "
                    f"({ours[name]:.0f}, {grpc[name]:.0f} to {theirs[name]:.0f})")
        self.detail = "; ".join((text("per_s", "req/s"), text("cpu_us", "CPU µs"),
                                 text("p50_us", "p50 µs"), f"load {os.getloadavg()[0]:.1f}"))

    def note_goal(self, name):
        """A goal without a value is a KeyError."""
        goal = self.goals[name]
        of = goal["placements"]["free"]
        self.detail = f"{goal['text']}: wanted {wanted(goal)}: {short(of['value'])}{VERDICTS[of['met']]}"

    def check_1_outstanding(self):
        self.note(LONE)

    def check_16_outstanding(self):
        self.note(FEW)

    def check_128_outstanding(self):
        self.note(MANY)

    def check_goal_cpu_16(self):
        self.note_goal("cpu_16")

    def check_goal_cpu_128(self):
        self.note_goal("cpu_128")

    def check_goal_p50_1(self):
        self.note_goal("p50_1")

    def check_goal_rate_16(self):
        self.note_goal("rate_16")

    def check_goal_rate_128(self):
        self.note_goal("rate_128")
