# SPDX-License-Identifier: Apache-2.0
"""Answers in pieces through a node that may not load the model, while the nodes that make them and
their workers are killed (the callers, and what they check, are those of `./dev chaos`)."""

import json
import os
import random
import re
import signal
import time

import rows_streams
from shoal_client import Client
from shoal_fixture import pipeline, stage, wait_until
from shoal_meshes import Etcd, Nodes
from shoal_pupil import models
from shoal_streams import Stream, emission

CALLERS = 3
ANSWERED_BETWEEN = 12  # requests, before the next kill
CUT = r"the stream was cut off: the serving node or runtime was lost"
CUT_SECONDS_MAX = 60  # until a kill has cut an answer off
FAR = "node-b", "node-c"
RULES = json.dumps({"probe": {"required": ["there"]}})


class Asked(rows_streams.Asked):
    known = *rows_streams.Asked.known, CUT


class Caller(rows_streams.Caller):
    model, asks = "m", Asked


def mesh(etcd):
    labels = {"node-a": "none", **dict.fromkeys(FAR, "there")}
    each = {name: {"mesh": {"address": "127.0.0.1", "type_constraints": RULES, "labels": [label]}}
            for name, label in labels.items()}
    probe = pipeline("probe", stage("libprobe.so", workers=4, batch_size=4), slots=64, stream_mib=8,
                     models=models())
    return Nodes(etcd, list(labels), each=each, pipelines=[probe])


def is_seen(entry):
    """Whether the node knows who may load the model."""
    with Client(entry.target) as client:
        stream = Stream(client)
        stream.send("m", emission(1))
        return not stream.read_all()[0].error_message


def ended(callers, pattern):
    """How many answers have ended like this."""
    errors = [one.error for caller in callers for one in [*caller.asked, *caller.left] if one.error is not None]
    return sum(bool(re.search(pattern, error)) for error in errors)


def kill_worker(far, draw):
    """One of a node that answers, if any does."""
    busy = [node for node in far if node.pipeline_stat("probe")["slots_used"]] or far
    workers = draw.choice(busy).workers("probe")
    try:
        os.kill(draw.choice(workers).pid, signal.SIGKILL)
    except ProcessLookupError:
        return 0
    return 1


def kill_node(far, draw):
    """One that answers, if any does; it comes back."""
    busy = [node for node in far if node.pipeline_stat("probe")["slots_used"]] or far
    node = draw.choice(busy)
    node.kill()
    node.start()
    node.wait_ready()
    node.wait_log("mesh_session_begun")


def storm(far, amount, draw, callers):
    kills = nodes = 0
    begun = time.monotonic()

    def goes_on():
        if any(caller.problems for caller in callers):
            return False
        early = not ended(callers, CUT) and time.monotonic() - begun < CUT_SECONDS_MAX
        return kills + nodes < amount["kills"] or early
    while goes_on():
        goal = sum(len(caller.asked) for caller in callers) + ANSWERED_BETWEEN
        wait_until(lambda goal=goal: sum(len(caller.asked) for caller in callers) >= goal or
                   any(caller.problems for caller in callers), "answers between two kills")
        if (kills + nodes) % amount["every"] == amount["every"] - 1:
            kill_node(far, draw)
            nodes += 1
        else:
            kills += kill_worker(far, draw)
    return kills, nodes


def streams(report, amount, draw):
    """Workers and nodes are killed; every piece of every answer is checked."""
    with Etcd() as etcd, mesh(etcd) as nodes:
        entry = nodes["node-a"]
        nodes.at("node-a").register("m", kind="probe")
        wait_until(lambda: is_seen(entry), "node-a to see who may load the model")
        callers = [Caller(entry, i, random.Random(draw.random())) for i in range(CALLERS)]
        for caller in callers:
            caller.start()
        kills, lost = storm([nodes[name] for name in FAR], amount, draw, callers)
        for caller in callers:
            caller.ends.set()
        for caller in callers:
            caller.join()
            report.problems += caller.problems
        for node in nodes.nodes.values():
            node.wait_all_returned("probe")
            wait_until(lambda node=node: node.stat()["streams"] == node.stat()["mesh_under_way"] == 0,
                       "all streams and calls to be gone")
    whole, broken, cut = (ended(callers, pattern) for pattern in (r"^$", rows_streams.BROKEN, CUT))
    pieces = sum(one.got for caller in callers for one in caller.asked + caller.left)
    report.expect(whole > 0 and cut > 0, f"{whole} answers ended well, {cut} were cut off")
    report.say(f"{kills} workers and {lost} nodes killed; {pieces:,} pieces right, {whole:,} whole answers, "
               f"{broken} broken off and {cut} cut off with the number that came", kills=kills, nodes=lost,
               pieces=pieces, whole=whole, broken=broken, cut=cut)
