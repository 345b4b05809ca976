# SPDX-License-Identifier: Apache-2.0
"""Attacks by streams that a mesh passes on: a side that does not read must not fill the nodes' memory."""

import time

from shoal_unread import AT_ONCE, LEFT_KIB, LIMIT_KIB, STREAMS, UnreadMesh

BACK_S = 10  # within which memory comes back once the streams have ended


def held_after(mesh):
    deadline = time.monotonic() + BACK_S
    while True:
        mesh.call()
        held = mesh.held_kib()
        if max(held.values()) <= LEFT_KIB or time.monotonic() > deadline:
            return held


def unread(run, streams):
    report = run.report
    with UnreadMesh(AT_ONCE) as mesh:
        for entry_name, entry in mesh.nodes.items():
            held = {}
            with getattr(mesh, streams)(entry):
                held["during"] = mesh.held_kib(), LIMIT_KIB
            held["after"] = held_after(mesh), LEFT_KIB
            for when, (nodes, limit_kib) in held.items():
                for node, kib in nodes.items():
                    name = f"{entry_name}_{when}_{node}_kib"
                    if run.sanitized:
                        report.say(f"{name} {kib:.0f}", **{name: kib})
                    else:
                        report.limit(name, kib, limit_kib)
        report.say(f"{STREAMS} streams each")


def answers(run):
    unread(run, "answers")


def requests(run):
    unread(run, "requests")
