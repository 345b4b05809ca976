#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Which folder of src/ may use which, by the symbols of the built objects, and that the objects of one
folder do not use one another in a cycle.

tidy.py judges includes; this judges calls, so a declaration repeated in another header does not
hide one. Functions that are inline in a header have no symbols and are not seen.
"""

import collections
import os
import re
import subprocess

# Folder -> folders whose symbols its own may use. The table has no cycle. A row that nothing needs
# any more is an error: delete it.
MAY_USE = {
    "base": set(),
    "client": {"base", "ipc", "shm"},
    "coordinator": {"base", "coordinator/config", "coordinator/dashboard", "coordinator/front", "coordinator/loop",
        "coordinator/mesh", "coordinator/models", "coordinator/pipeline", "coordinator/protocol",
        "coordinator/telemetry", "coordinator/workers", "ipc", "loop", "rpc", "serving/storage"},
    "coordinator/config": {"base", "rpc", "shm", "yaml"},
    "coordinator/dashboard": {"base", "coordinator/config", "coordinator/front", "coordinator/loop",
        "coordinator/telemetry", "http", "ipc", "loop"},
    "coordinator/entry": {"base", "coordinator/config", "coordinator/models",
        "coordinator/pipeline", "coordinator/protocol"},
    "coordinator/front": {"base", "coordinator/config", "coordinator/entry", "coordinator/mesh",
        "coordinator/models", "coordinator/pipeline", "coordinator/protocol",
        "coordinator/telemetry", "http", "ipc", "loop", "rpc", "wire"},
    "coordinator/loop": {"base", "ipc", "loop"},
    "coordinator/mesh": {"base", "coordinator/config", "coordinator/entry", "coordinator/models",
        "coordinator/pipeline", "coordinator/protocol", "coordinator/runtimes", "coordinator/telemetry", "coordinator/workers", "ipc", "loop", "mesh/edge", "mesh/etcd", "mesh/record",
        "mesh/store", "rpc", "serving/adapter", "serving/leader", "serving/manifest", "serving/runtimes", "serving/storage", "wire"},
    "coordinator/models": {"base", "coordinator/loop", "coordinator/pipeline",
        "coordinator/protocol", "coordinator/workers", "ipc", "loop", "rpc", "serving/storage", "shm",
        "wire"},
    "coordinator/pipeline": {"base", "coordinator/config", "coordinator/protocol",
        "coordinator/telemetry", "ipc", "loop", "rpc", "shm"},
    "coordinator/protocol": {"base", "ipc", "rpc", "shm", "wire"},
    "coordinator/runtimes": {"base", "coordinator/workers", "ipc", "loop"},
    "coordinator/telemetry": {"base", "ipc", "rpc", "shm"},
    "coordinator/workers": {"base", "coordinator/pipeline", "ipc", "loop", "shm"},
    "ctl": {"base", "ipc", "rpc", "serving/manifest"},
    "gateway": {"base", "gateway/config", "gateway/dashboard", "gateway/extproc", "gateway/proxy",
        "gateway/resources", "gateway/store", "loop"},
    "gateway/config": {"base", "gateway/core", "yaml"},
    "gateway/core": {"base"},
    "gateway/dashboard": {"base", "gateway/endpoints", "http", "loop"},
    "gateway/endpoints": {"base", "gateway/config", "gateway/core", "gateway/resources",
        "gateway/scan", "gateway/store", "http", "loop"},
    "gateway/extproc": {"base", "gateway/core", "gateway/endpoints", "gateway/proxy", "gateway/scan",
        "http", "loop", "wire"},
    "gateway/proxy": {"base", "gateway/config", "gateway/core", "gateway/endpoints", "gateway/scan",
        "http", "loop", "wire"},
    "gateway/resources": {"base", "gateway/core", "serving/manifest", "yaml"},
    "gateway/scan": {"base", "gateway/core", "wire"},
    "gateway/store": {"base", "gateway/config", "gateway/resources", "loop", "mesh/etcd", "mesh/record", "serving/manifest"},
    "harness": {"worker"},
    "http": {"base", "loop"},
    "ipc": {"base"},
    "loop": {"base"},
    "mesh/core": {"base", "mesh/core/calls", "mesh/core/cluster", "mesh/core/containers",
        "mesh/core/copies", "mesh/core/orders", "mesh/core/upkeep"},
    "mesh/core/calls": {"base", "mesh/core/cluster", "mesh/core/containers", "mesh/core/copies"},
    "mesh/core/cluster": {"base", "mesh/core/containers"},
    "mesh/core/containers": {"base"},
    "mesh/core/copies": {"base", "mesh/core/cluster", "mesh/core/containers"},
    "mesh/core/orders": {"base", "mesh/core/calls", "mesh/core/cluster", "mesh/core/containers",
        "mesh/core/copies", "mesh/core/upkeep"},
    "mesh/core/upkeep": {"base", "mesh/core/cluster", "mesh/core/containers", "mesh/core/copies"},
    "mesh/edge": {"base", "loop", "mesh/core", "mesh/core/cluster", "mesh/core/copies",
        "mesh/record", "mesh/store", "rpc", "wire"},
    "mesh/etcd": {"base", "loop"},
    "mesh/record": {"base"},
    "mesh/store": {"base", "loop", "mesh/etcd", "mesh/record"},
    "rpc": {"base"},
    "serving/adapter": {"base", "mesh/edge", "rpc", "serving/storage", "wire"},
    "serving/leader": {"base", "loop", "mesh/edge", "mesh/store", "serving/manifest", "serving/reconcile", "yaml"},
    "serving/manifest": {"base", "yaml"},
    "serving/reconcile": set(),
    "serving/runtimes": {"base", "serving/manifest", "yaml"},
    "serving/storage": {"base", "loop"},
    "shm": {"base"},
    "wire": {"base"},
    "worker": {"base", "ipc", "shm"},
    "yaml": {"base"},
}

# Folders whose own objects use one another in a cycle, each with its reason. A folder that no longer
# does is an error: delete it.
CYCLIC = {
    "coordinator": "a phase of the node ends when others are done, which its next phase tells",
    "coordinator/mesh": "a call for several models makes calls, which report their ends to it",
    "coordinator/models": "the end of a load or an unload begins the next one",
    "coordinator/pipeline": "a freed slot admits a waiting request, whose end frees a slot",
    "coordinator/workers": "a start watches for its death, and a death starts a successor",
    "http": "a connection hands its bytes to HTTP/2, whose streams decide its state",
    "mesh/core/calls": "a call that is routed may wait for room, and room routes it",
    "mesh/core/copies": "a load that fails goes elsewhere, and records decide on the next load",
    "mesh/edge": "the runner's step carries out actions, whose ends are steps",
    "rpc": "a queue's step hands events to calls, clients and servers, which queue more",
}

# Functions of libc that a folder defines in its place: callers mean libc's.
OF_LIBC = {"shutdown"}

DEFINED = set("TDBRVWCGS")  # nm's letters


def objects(build, source):
    """(object file, folder) of each object in the build whose source file still exists."""
    found = []
    for path, _, names in os.walk(os.path.join(build, "src")):
        match = re.search(r"^(.*)/CMakeFiles/[^/]+\.dir(.*)$", os.path.relpath(path, build) + "/")
        if not match:
            continue
        folder = os.path.normpath(match.group(1) + match.group(2))
        for name in sorted(names):
            if name.endswith(".c.o") and os.path.exists(os.path.join(source, folder, name[:-2])):
                found.append((os.path.join(path, name), folder[len("src/"):]))
    return found


def uses(found):
    """{(user, used folder): one example} from nm's output for (object file, folder) pairs."""
    folder_of = dict(found)
    homes, wanted = collections.defaultdict(set), collections.defaultdict(set)
    nm = subprocess.run(["nm", "-A", "-g", "--", *folder_of], check=True, capture_output=True, text=True)
    for line in nm.stdout.splitlines():
        place, _, rest = line.partition(":")
        *_, kind, symbol = rest.split()
        if kind in DEFINED:
            homes[symbol].add(folder_of[place])
        elif kind == "U" and symbol not in OF_LIBC:
            wanted[symbol].add(place)
    result = {}
    for symbol, places in sorted(wanted.items()):
        for place in sorted(places):
            if folder_of[place] in homes[symbol]:  # programs that are never linked may share a name
                continue
            for home in sorted(homes[symbol]):
                result.setdefault((folder_of[place], home),
                                  f"{os.path.basename(place)[:-2]} uses {symbol}")
    return result


def cycle(may_use):
    """A list of folders that use one another in turn, or None."""
    done, path = set(), []

    def visit(folder):
        if folder in path:
            return path[path.index(folder):] + [folder]
        if folder in done:
            return None
        path.append(folder)
        for other in sorted(may_use.get(folder, ())):
            found = visit(other)
            if found:
                return found
        done.add(path.pop())
        return None

    return next((found for found in map(visit, sorted(may_use)) if found), None)


def findings(used, may_use):
    """Faults of the uses, or of the table."""
    for (user, other), example in sorted(used.items()):
        if other not in may_use.get(user, ()):
            yield f"src/{user} may not use src/{other}: {example}"
    for user, others in sorted(may_use.items()):
        for other in sorted(others):
            if (user, other) not in used:
                yield f"src/{user} no longer uses src/{other}: delete it from MAY_USE"
    round_trip = cycle(may_use)
    if round_trip:
        yield "MAY_USE has a cycle: " + " -> ".join(round_trip)


def tangles(found, cyclic):
    """Folders whose objects use one another in a cycle, and rows of CYCLIC that nothing needs."""
    for folder in sorted({folder for _, folder in found} | set(cyclic)):
        graph = collections.defaultdict(set)
        inside = [(place, os.path.basename(place)[:-2]) for place, home in found if home == folder]
        for user, other in uses(inside) if inside else ():
            graph[user].add(other)
        round_trip = cycle(graph)
        if round_trip and folder not in cyclic:
            yield f"src/{folder} has a cycle: " + " -> ".join(round_trip)
        if not round_trip and folder in cyclic:
            yield f"src/{folder} has no cycle any more: delete it from CYCLIC"
