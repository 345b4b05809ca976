# SPDX-License-Identifier: Apache-2.0
"""Attacks by modelets, the machine and its limits: supervision never blocks, and the user at fault
pays.
"""

import contextlib
import os
import pathlib
import signal
import subprocess
import time

import rig
import shoal_attacks
import shoal_fixture
from shoal_attacks import MIB, Caller, NotPossible, Unread, puppet, rascal
from shoal_client import Client, outcome, said
from shoal_ctl import NEGATIVE, shoalctl
from shoal_fixture import (Shoald, children, is_alive, node, pipeline, read_proc, stage, wait_until)

HOUR_MS = 3600 * 1000
RELIEF_SECONDS = 1


def served(*stages, **keys):
    return node(pipeline("p", *stages, slots=64), pipeline("echo", stage("libecho.so"), slots=64),
                message_mib=1, **keys)


def judge_calls(report, neighbour, most_failed=0):
    figures = neighbour.figures["attack"]
    report.calls("attack", figures)
    report.must(figures["failed"] <= most_failed, "no call of another failed")


def seconds_to_end(shoald):
    began = time.monotonic()
    wait_until(lambda: shoald.process.poll() is not None, "the end of the node")
    return time.monotonic() - began


def log(run):
    report = run.report
    with Unread(served(rascal())) as shoald, Client(shoald.target) as client:
        worker, = shoald.workers("echo")
        with rig.infer_neighbour(shoald) as neighbour:
            neighbour.phase("attack")
            shoald.reads.clear()
            flood = client.tell("flood x", "p")
            rig.pause(run.seconds)
            neighbour.phase("death")
            before = set(children(shoald.pid))
            os.kill(worker.pid, signal.SIGKILL)
            report.limit("replaced_s", rig.seconds_until(
                lambda: set(children(shoald.pid)) - before, "a successor"), 5)
            wait_until(lambda: client.call("ModelReady", name="echo").ready, "readiness")
        judge_calls(report, neighbour)
        flood.cancel()
        shoald.signal(signal.SIGTERM)
        report.limit("end_s", seconds_to_end(shoald), 15)
        shoald.reads.set()
        report.must(shoald.wait_exit() == 0, "exit code 0")
        report.say(f"{sum(map(len, shoald.lines)) >> 10} KiB of log")


def log_flood(run):
    """The same with a reader: the log grows as the rate allows."""
    report = run.report
    kib, seconds = 64, max(run.seconds, 5)
    with Shoald(served(rascal(), worker_log_kib_per_s=kib)) as shoald, Client(shoald.target) as client:
        with rig.infer_neighbour(shoald) as neighbour:
            neighbour.phase("attack")
            began = time.monotonic()
            flood = client.tell("flood x", "p")
            rig.pause(seconds)
            said_kib = sum(map(len, list(shoald.lines))) / 1024
            report.limit("log_kib", said_kib, kib * (4 + time.monotonic() - began) + 4)
        judge_calls(report, neighbour)
        dropped = shoald.pipeline_stat("p")["stages"][0]["lines_dropped"]
        report.say(f"{dropped:,} lines dropped", lines_dropped=dropped)
        flood.cancel()


def poison(run):
    report = run.report
    with Shoald(node(pipeline("p", rascal(batch_size=16), slots=64), message_mib=1)) as shoald, \
            Caller(shoald.target, "bad") as bad:
        with rig.infer_neighbour(shoald, "p", "BYTES") as neighbour:
            neighbour.phase("attack")
            count = 0
            for count in rig.until(run.seconds):
                outcome(bad.tell("crash now"))
                rig.pause(0.5)
        figures = neighbour.figures["attack"]
        report.calls("attack", figures)
        share = 100 * figures["failed"] / figures["calls"]
        report.say(f"{count + 1} poison requests")
        report.limit("unavailable_percent", share, 1)
        report.must("stage_quarantined" not in shoald.stderr, "no quarantine")


def scarcity(run):
    report = run.report
    with Shoald(served(rascal(quarantine_deaths=3, quarantine_ms=HOUR_MS))) as shoald, \
            Client(shoald.target) as client:
        said(client.tell("echo x", "p").result())
        with rig.infer_neighbour(shoald) as neighbour:
            neighbour.phase("attack")
            shoal_attacks.limit_descriptors(shoald.pid, 12)
            os.kill(shoald.workers("p")[0].pid, signal.SIGKILL)
            shoald.wait_log("worker_start_postponed pipeline=p")
            rig.pause(run.seconds / 2)
            shoal_attacks.limit_descriptors(shoald.pid, 0)
            report.limit("relief_s", rig.seconds_until(
                lambda: client.call("ModelReady", name="p").ready, "the successor"), RELIEF_SECONDS)
        postponed = shoald.pipeline_stat("p")["stages"][0]["starts_postponed"]
        report.say(f"{postponed} starts postponed")
        judge_calls(report, neighbour)
        report.must("stage_quarantined" not in shoald.stderr, "no quarantine")


def hangup(run):
    with Shoald(served(rascal(params={"gate": "shut"}))) as shoald:
        with rig.infer_neighbour(shoald) as neighbour:
            neighbour.phase("attack")
            shoal_attacks.hang_up_amid_a_reload(shoald, shoald.folder / "shut")
        run.report.must(shoald.stderr.count("reloading pipeline=p") == 2, "one more followed")
        judge_calls(run.report, neighbour)


def stopped(run):
    report = run.report
    for verb, healed in (("stop", "worker_silent pipeline=p .* action=continue"),
                         ("wedge", "worker_silent pipeline=p .* action=kill")):
        with Shoald(served(rascal(run_timeout_ms=500))) as shoald, Client(shoald.target) as client:
            with rig.infer_neighbour(shoald) as neighbour:
                neighbour.phase("attack")
                said(client.tell(f"{verb} a", "p").result())
                began = time.monotonic()
                (shoald.folder / "a.now").touch()
                shoald.wait_log(healed)
                said(client.tell("echo again", "p").result())
                report.limit(f"{verb}_healed_s", time.monotonic() - began, 10)
            judge_calls(report, neighbour)


def library(run):
    report = run.report
    with Shoald(served(puppet(), drain_timeout_ms=1000)) as shoald:
        with Client(shoald.target) as client:
            client.call("ServerLive")
            with shoal_attacks.library_stands_still(shoald.pid):
                shoald.signal(signal.SIGTERM)
                began = time.monotonic()
                shoald.wait_log("exit_forced code=3")  # and it is gone when its threads may run
                report.limit("end_s", time.monotonic() - began, 15)
        report.must(shoald.wait_exit() == 3, "exit code 3")


def secrets(run):
    names = {"AWS_SECRET_ACCESS_KEY": "k", "SHOAL_TEST_SECRET": "s3cr3t", "TZ": "UTC"}
    with Shoald(served(rascal()), env=names) as shoald, Client(shoald.target) as client:
        seen = {name: said(client.tell(f"env {name}", "p").result()) for name in names}
        run.report.say(", ".join(f"{name}: {value}" for name, value in seen.items()))
        run.report.must(list(seen.values()) == ["none", "none", "UTC"], "no secret is seen")


def limits(run):
    for limit in (f"--as={100 * MIB}", f"--data={20 * MIB}", "--nofile=16"):
        if run.sanitized and "nofile" not in limit:
            run.report.say(f"{limit}: not with sanitizers, which need terabytes of address space")
            continue
        shoald = Shoald(served(rascal()))
        shoald.command = ["prlimit", limit, *shoald.command]
        with contextlib.ExitStack() as stack:
            stack.callback(shoald.discard)
            code = shoald.start().wait_exit()
        run.report.must(code == 2 and len(shoald.lines) > 0, f"{limit}: exit code 2, "
                        f"{(shoald.lines or [''])[-1][-60:]!r}")


def cgroup(run):
    with shoal_attacks.memory_group(160 * MIB) as group:
        shoald = shoal_attacks.in_group(group, Shoald(node(
            pipeline("p", rascal(), slots=64), pipeline("q", rascal(), slots=64), message_mib=8)))
        with shoald:
            total = sum(int(shoald.wait_log(
                rf"pipeline_serving pipeline={name} .* bytes=([0-9]+)")[1]) for name in "pq")
            run.report.limit("arenas_mib", total / MIB, 80)
            scores = {int(read_proc(worker.pid, "oom_score_adj")) for worker in shoald.workers()}
            run.report.must(scores == {500}, "oom_score_adj of workers is 500")


def stall(run):
    with Shoald(node(pipeline("p", puppet(), slots=256), message_mib=1)) as shoald, \
            Client(shoald.target) as client:
        worker, = shoald.workers("p")
        for _ in range(8):
            outcome(client.tell("slow 20", "p"))
        held = client.tell("hold a", "p")
        wait_until((shoald.folder / "a.held").exists, "a run")
        for pid in (worker.pid, shoald.pid):
            os.kill(pid, signal.SIGSTOP)
        rig.pause(5)
        for pid in (worker.pid, shoald.pid):
            os.kill(pid, signal.SIGCONT)
        (shoald.folder / "a.go").touch()
        outcome(held)
        for _ in range(2):
            outcome(client.tell("slow 25", "p"))
        codes = [outcome(one).name for one in [client.tell("slow 20", "p") for _ in range(100)]]
        run.report.limit("refused", 100 - codes.count("OK"), 0)


def zeroed_region(run):
    with Shoald(served(rascal(params={"zero": "zero"}))) as shoald:
        with rig.infer_neighbour(shoald, "p", "BYTES") as neighbour:
            neighbour.phase("attack")
            (shoald.folder / "zero").touch()
            for _ in rig.until(run.seconds / 2):
                shoalctl("reload", "p", "--counters", shoald.counters, code=NEGATIVE)
        run.report.say(f"{shoald.stderr.count('reload_failed pipeline=p')} reloads failed")
        judge_calls(run.report, neighbour)
        (shoald.folder / "zero").unlink()


def preload(run):
    if run.sanitized:
        raise NotPossible("the build has a sanitizer in it already")
    found = subprocess.run(["cc", "-print-file-name=libasan.so"], capture_output=True, text=True,
                           check=True).stdout.strip()
    if not pathlib.Path(found).exists():
        raise NotPossible("there is no libasan.so")
    longest = 0
    for _ in range(12):
        shoald = Shoald(served(rascal()), env={"ASAN_OPTIONS": "detect_leaks=0"})
        shoald.command = ["setarch", "-R", "env", f"LD_PRELOAD={pathlib.Path(found).resolve()}",
                          *shoald.command]
        try:
            shoald.start().wait_ready()
            for _ in range(2):
                shoald.signal(signal.SIGTERM)
                rig.pause(0.01)
            longest = max(longest, seconds_to_end(shoald))
        finally:
            shoald.discard()
    run.report.limit("longest_end_s", longest, 15)


def grandchildren(run):
    config = served(rascal(sandbox_allow=["reading", "processes"]))
    with Shoald(config) as shoald, Client(shoald.target) as client:
        with rig.infer_neighbour(shoald) as neighbour:
            neighbour.phase("attack")
            pids = [int(pid) for pid in said(client.tell("breed 100", "p").result()).split()]
            os.kill(shoald.workers("p")[0].pid, signal.SIGKILL)
            run.report.limit("gone_s", rig.seconds_until(
                lambda: not any(map(is_alive, pids)), "their end"), 2)
        run.report.must(len(pids) == 100, "100 of them")
        judge_calls(run.report, neighbour)
        shoal_fixture.wait_until(lambda: shoald.stat()["orphans_killed"] == 100, "all to be counted")
