# SPDX-License-Identifier: Apache-2.0
"""The rows of `./dev mesh`: what each does, and what has to hold (run.py has them in a table)."""

import os
import re
import signal
import tempfile
import time

import networks
import shoal_boosters
from hop_streams import streams  # noqa: F401: a row
from rig import percentile
from shoal_cluster import MIB, Call, Cluster, Etcds, Traffic, models_config, zipf
from shoal_fixture import BUILD, Shoald, node, pipeline, read_proc, stage, wait_until
from shoal_registry import DEFINED, NOT_FOUND, NOT_LOADED, Registrar
from shoal_walk import rows

SANITIZED = any((BUILD / "CMakeCache.txt").read_text().find(f"SHOAL_SANITIZE:STRING={one}") >= 0
                for one in ("address", "thread"))
TRIED = 24  # models whose size is measured before
LEAST_MIB = 8  # of a node: the default size of some. A sanitizer hides what models take; all fit then
REGISTRY_MIB_MAX, REGISTRY_SECONDS_MAX = 48, 2.0


def folder_of_models(count):
    folder = tempfile.TemporaryDirectory(prefix="shoal-mesh.")
    shoal_boosters.write_many(folder.name, count)
    return folder


def judge(report, traffic):
    report.say(f"{traffic.answered:,} right answers, {traffic.wrong} wrong, {traffic.failed} failed; "
               f"{traffic.moved} asked again elsewhere when their node was killed; the slowest took "
               f"{traffic.slowest:.2f} s", answered=traffic.answered, wrong=traffic.wrong,
               failed=traffic.failed, moved=traffic.moved, slowest_seconds=round(traffic.slowest, 3),
               failures=traffic.failures)
    report.expect(traffic.answered > 0, "nothing was answered")
    for at, what in traffic.failures:
        report.expect(False, f"{at} s: {what}")


def model_bytes(root):
    """A model's size, by the catalog."""
    config = node(pipeline("one", stage("libxgboost_modelet.so", batch_size=16),
                           models={**models_config(root, 1024), "watch": "yes"}))
    with Shoald(config) as shoald, Registrar(shoald) as registrar:
        for number in range(TRIED):
            registrar.infer(shoal_boosters.name(number), inputs=(shoal_boosters.tensor(0),))
        return max(row["bytes"] for row in rows(shoald, "--state", "loaded"))


# ---- rows ----

def lru(report, amount, draw):
    """Far more models than fit, and many callers; the popular ones stay, the others come and go,
    and callers without room wait for it."""
    models, fit = amount["models"], amount["fit"]
    with folder_of_models(models) as root, Etcds() as etcds:
        size = model_bytes(root)
        memory_mib = max(LEAST_MIB, -(-fit * size // 3 // MIB))
        with Cluster(etcds, root, memory_mib=memory_mib) as cluster:
            cluster.register(range(models))
            with Traffic(cluster, zipf(models, draw), draw, amount["callers"],
                         amount["in_flight"]) as traffic:
                for _ in range(amount["turns"]):
                    traffic.go_on(amount["calls"])
            stats = [one.shoald.pipeline_stat("boosters") for one in cluster.nodes]
    loads = sum(stat["model_loads"] for stat in stats)
    report.say(f"{models:,} models, of {size:,} bytes; {3 * memory_mib} MiB of all nodes: "
               f"{loads:,} loads", loads=loads, model_bytes=size)
    report.expect(loads > 0, "nothing was loaded")
    for stat in stats:
        report.expect(stat["model_bytes"] <= memory_mib * MIB,
                      f"{stat['model_bytes']} bytes of models in {memory_mib} MiB")
    judge(report, traffic)


def kills(report, amount, draw):
    """A node dies at once, its successor comes, and so on."""
    with folder_of_models(amount["models"]) as root, Etcds() as etcds, \
            Cluster(etcds, root) as cluster:
        cluster.register(range(amount["models"]))
        back = []
        with Traffic(cluster, zipf(amount["models"], draw), draw) as traffic:
            done = 0
            while done < amount["count"] and not traffic.failures:
                traffic.go_on(amount["calls"])
                one = draw.choice(cluster.nodes)
                one.kill()
                done += 1
                traffic.go_on(amount["calls"])
                begun = time.monotonic()
                one.start()
                one.wait_ready()
                back.append(time.monotonic() - begun)
            traffic.go_on(amount["calls"])
    report.say(f"{done} of {amount['count']} kills; back after {percentile(back, 50):.2f} s, at most "
               f"{max(back, default=0):.2f} s", kills=done)
    judge(report, traffic)


def drains(report, amount, draw):
    """A rolling upgrade: each node in turn is asked to stop, and comes back."""
    with folder_of_models(amount["models"]) as root, Etcds() as etcds, \
            Cluster(etcds, root) as cluster:
        cluster.register(range(amount["models"]))
        took = []
        with Traffic(cluster, zipf(amount["models"], draw), draw) as traffic:
            for _ in range(amount["rounds"]):
                for one in cluster.nodes:
                    traffic.go_on(amount["calls"])
                    begun = time.monotonic()
                    one.drain()
                    took.append(time.monotonic() - begun)
                    traffic.go_on(amount["calls"])
                    one.start()
                    one.wait_ready()
            traffic.go_on(amount["calls"])
    report.say(f"{len(took)} drains, of {percentile(took, 50):.2f} s, at most {max(took):.2f} s",
               drains=len(took))
    judge(report, traffic)


class Switches:
    """A vmodel's targets: which of them may answer, and when."""

    def __init__(self):
        self.begun, self.over = 0, 0  # the last switch that was asked for, and that is known to be done

    def pick(self, own):
        side, first = own.randrange(2), self.over

        def wanted(value):
            number = (value - 1 - side) / 2
            # A node may learn of a switch a moment after another has said that it is over.
            if max(0, first - 1) <= number <= self.begun:
                return None
            return f"model {number} answered, when {first} was in place and {self.begun} was to come"
        return Call({"metadata": [("mm-vmodel-id", "v")]}, wanted, side)


def vmodels(report, amount, draw):
    """A vmodel goes from model to model, and each that it has left is gone."""
    count = amount["count"]
    with folder_of_models(count + 1) as root, Etcds() as etcds, Cluster(etcds, root) as cluster, \
            cluster.registrar() as manager:
        def switch(number):
            name = shoal_boosters.name(number)
            return manager.call("setVModel", vModelId="v", targetModelId=name, loadNow=True, sync=True,
                                autoDeleteTargetModel=True,
                                modelInfo={"type": "xgboost", "path": name, "key": ""})
        switch(0)  # the watch brings it to the others a moment later; their first calls ask for it
        switches = Switches()
        with Traffic(cluster, switches.pick, draw) as traffic:
            for number in range(1, count + 1):
                traffic.go_on(amount["calls"])
                if traffic.failures:
                    break
                switches.begun = number
                status = switch(number)
                report.expect((status.status, status.activeModelId) ==
                              (DEFINED, shoal_boosters.name(number)),
                              f"switch {number} ended with {status.status}, {status.activeModelId}")
                switches.over = number
            traffic.go_on(amount["calls"])
        left = [number for number in range(switches.over)
                if not gone(manager, shoal_boosters.name(number))]
    report.say(f"{switches.over:,} switches", switches=switches.over)
    report.expect(not left, f"targets that were left, and are still registered: {left[:10]}")
    judge(report, traffic)


def gone(registrar, name):
    return wait_until(lambda: registrar.status(name).status == NOT_FOUND, f"{name} to be unregistered")


# ---- etcd ----

def works(report, cluster, number, count):
    """The registry is right: all is known where it was, and a new model is taken and served."""
    cluster.wait_loaded(range(count))
    cluster.wait_loaded(range(count), index=len(cluster.nodes) - 1)
    name = shoal_boosters.name(number)
    with cluster.registrar() as registrar, cluster.registrar(1) as other:
        def registered():
            call = registrar.start("registerModel", modelId=name,
                                   modelInfo={"type": "xgboost", "path": name, "key": ""})
            return call.code().value[0] == 0
        wait_until(registered, f"{name} to be registered")
        value = shoal_boosters.value_of(other.infer(name, inputs=(shoal_boosters.tensor(1),)))
    report.expect(value == shoal_boosters.answers(number)[1], f"{name} answered {value}")


def pause(traffic, seconds):
    """Lets calls go on for so long, or until one fails."""
    end = time.monotonic() + seconds
    wait_until(lambda: traffic.failures or time.monotonic() > end, "time to pass", seconds + 60)


def etcd_away(etcds, traffic, amount):
    etcds.stop()
    pause(traffic, amount["seconds"])
    etcds.start()


def etcd_compacted(etcds, traffic, amount):
    etcds.compact_aside()


def etcd_emptied(etcds, traffic, amount):
    etcds.empty()


def etcd_cut_off(etcds, traffic, amount):
    """Each member in turn, the leader among them, hears and says nothing."""
    for member in etcds.members:
        member.process.send_signal(signal.SIGSTOP)
        pause(traffic, amount["cut_seconds"])
        member.process.send_signal(signal.SIGCONT)
        etcds.wait_answers(member.url)


HARMS = (("stopped", etcd_away, 1), ("compacted", etcd_compacted, 1), ("emptied", etcd_emptied, 1),
         ("a member of three cut off", etcd_cut_off, 3))
PARTINGS = (("peers",), ("peers", "clients"))


def etcd(report, amount, draw):
    """The store is harmed; what is loaded must not notice."""
    count = amount["models"]
    with folder_of_models(count + max(len(HARMS), 3 * len(PARTINGS))) as root:
        for i, (name, harm, members) in enumerate(HARMS):
            with Etcds(members) as etcds, Cluster(etcds, root) as cluster:
                cluster.register(range(count), loadNow=True)
                cluster.wait_loaded(range(count))
                with Traffic(cluster, zipf(count, draw), draw) as traffic:
                    traffic.go_on(amount["calls"])
                    harm(etcds, traffic, amount)
                    traffic.go_on(amount["calls"])
                    works(report, cluster, count + i, count)
                    traffic.go_on(amount["calls"])
            report.say(name)
            judge(report, traffic)
        refusal = networks.refusal()
        if amount["parted_seconds"] and refusal is not None:
            report.say(f"a member parted from others: skipped: {refusal}")
        elif amount["parted_seconds"]:
            etcd_parted(report, amount, draw, root)


def etcd_parted(report, amount, draw, root):
    """Each member in turn, the leader among them, is lost to its peers, or to everybody. The others
    go on, so the registry does: also for a node that has been talking to the one that is lost."""
    count = amount["models"]
    with networks.PartedEtcds() as etcds, Cluster(etcds, root) as cluster:
        cluster.register(range(count), loadNow=True)
        cluster.wait_loaded(range(count))
        with Traffic(cluster, zipf(count, draw), draw) as traffic:
            for i, (member, bridges) in enumerate(zip(etcds.members * 2, PARTINGS * 3)):
                etcds.set_links(member, bridges, "down")
                pause(traffic, amount["parted_seconds"])
                works(report, cluster, count + i, count)
                etcds.set_links(member, bridges, "up")
                etcds.wait_answers(member.url)
                traffic.go_on(amount["calls"])
    report.say("a member parted from others")
    judge(report, traffic)


# ---- size ----

def resident_mib(pid):
    """Without the regions: what requests lie in is the pipelines', and shared with their
    workers."""
    status = read_proc(pid, "status")
    return sum(int(re.search(rf"^{what}:\s+(\d+) kB", status, re.M)[1])
               for what in ("RssAnon", "RssFile")) / 1024


def cpu_seconds(pid):
    """CPU time of a process; a busy machine changes that little."""
    fields = read_proc(pid, "stat").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def registry(report, amount, draw):
    """One node, many models that are registered and not loaded: memory, and time to be ready."""
    count = amount["models"]
    last = shoal_boosters.name(count - 1)
    with folder_of_models(0) as root, Etcds() as etcds, \
            Cluster(etcds, root, names=("node-a",), slots=16) as cluster:
        (one,) = cluster.nodes
        base = resident_mib(one.shoald.pid)
        cluster.register(range(count))
        registered = resident_mib(one.shoald.pid)
        one.drain()
        begun = time.monotonic()
        one.start()
        one.wait_ready()
        seconds, used = time.monotonic() - begun, cpu_seconds(one.shoald.pid)
        read = one.shoald.wait_log("mesh_registry_read")
        with cluster.registrar() as registrar:
            status = registrar.status(last).status
        resident = resident_mib(one.shoald.pid)
    report.expect(read is not None and status == NOT_LOADED, f"{last} is {status} after the start")
    report.say(f"{count:,} models: {resident:.1f} MiB after a start with them, {registered:.1f} MiB where "
               f"they were registered, {base:.1f} MiB before; ready after {seconds:.2f} s, of which "
               f"the node's processor took {used:.2f} s", resident_mib=resident,
               registered_mib=registered, base_mib=base, ready_seconds=seconds, ready_cpu_seconds=used)
    if not SANITIZED:
        report.expect(max(resident, registered) <= REGISTRY_MIB_MAX,
                      f"more than {REGISTRY_MIB_MAX} MiB")
        report.expect(used <= REGISTRY_SECONDS_MAX,
                      f"{used:.2f} s of processor time until it was ready, more than {REGISTRY_SECONDS_MAX} s")
