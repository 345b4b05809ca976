# SPDX-License-Identifier: Apache-2.0
"""Attacks by callers: nobody may deny the node's service to others."""

import contextlib
import errno
import json
import os
import re
import stat
import threading
import time

import rig
from neighbour import INTERVAL_SECONDS
import shoal_attacks
from shoal_attacks import INFER, X, AcceptFails, Limited, infer_bytes
from shoal_certificates import Certificates
from shoal_client import INFERENCE, Client, failure
from shoal_contract import OLD_MODEL_MESH, SERVICES, Stub, connect
from shoal_fixture import Shoald, node, pipeline, run_shoald, stage, wait_until
from shoal_http2 import END_HEADERS, HEADERS, Http2, frame, request_headers
from shoal_pupil import prepare, pupil
from shoal_registry import SERVICE
from shoal_rest import ANY_PORT, Rest, port_of

LIVE = f"/{INFERENCE}/ServerLive"
P99_MS = 100
RELIEF_SECONDS = 1
MEMORY_LEFT_MIB = 64
# AddressSanitizer keeps what is freed for a while, 256 MiB of it, and puts zones around everything.
SANITIZER_MIB = 1024
SLOTS = 64  # where an attack is to take them all; elsewhere the default of 1,024


def echo(message_mib=1, slots=1024, **keys):
    return node(pipeline("echo", stage("libecho.so"), slots=slots), message_mib=message_mib, **keys)


def ask_anew(address, **options):
    """A new connection and a call; in seconds."""
    began = time.monotonic()
    with Http2(address, **options) as caller:
        assert caller.wait_end(caller.ask(LIVE)) != b"", "ServerLive is not answered"
    return time.monotonic() - began


# ---- connections and descriptors ----

def connections(run):
    report = run.report
    shoal_attacks.raise_descriptors()
    with Limited(echo(), 1024) as shoald:
        address = ("127.0.0.1", shoald.port)
        with rig.infer_neighbour(shoald) as neighbour, contextlib.ExitStack() as crowd:
            neighbour.phase("attack")
            others = []
            for i in range(2000):
                with contextlib.suppress(OSError):
                    crowd.enter_context(Http2(address))
                if i % 100 == 0:
                    others.append(ask_anew(address, source=("127.0.0.2", 0)))
            for _ in rig.until(run.seconds / 2):
                others.append(ask_anew(address, source=("127.0.0.2", 0)))
            figures = shoald.stat()
            report.say(f"{figures['grpc_connections']} kept, {figures['grpc_refused']} closed")
            crowd.close()
            began = time.monotonic()

            def served_again():
                with contextlib.suppress(OSError):
                    return ask_anew(address)
            wait_until(served_again, "a new connection from the attacker's machine")
            report.limit("relief_s", time.monotonic() - began, RELIEF_SECONDS)
        report.say(f"another machine's new connections: longest {1e3 * max(others):.0f} ms "
                   f"of {len(others)}", other_longest_ms=1e3 * max(others))
        report.calls("attack", neighbour.figures["attack"])
        report.must(neighbour.figures["attack"]["failed"] == 0, "no call of another failed")


def descriptors(run):
    """EMFILE by a real limit; ENFILE and ENOMEM, which are the whole machine's, as accept4's answer."""
    with Limited(echo(http=ANY_PORT), 1024) as shoald:
        lack_descriptors(run, "EMFILE", shoald, lambda: shoald.limit(8), lambda: shoald.limit(1024))
    for number in (errno.ENFILE, errno.ENOMEM):
        with AcceptFails(echo(http=ANY_PORT)) as shoald:
            lack_descriptors(run, errno.errorcode[number], shoald,
                             lambda: shoald.fail_accept(number), shoald.relieve)


def lack_descriptors(run, name, shoald, take, give_back):
    report = run.report
    with Rest(port_of(shoald)) as rest:
        def ready():
            return rest.get("/v2/health/ready").code == 200

        wait_until(ready, "readiness")  # over a connection that it has already
        with rig.infer_neighbour(shoald) as neighbour:
            neighbour.phase("attack")
            take()
            with Http2(("127.0.0.1", shoald.port)) as waits:
                late = rig.seconds_until(lambda: not ready(), "not ready")
                report.say(f"{name}: not ready after {late:.3f} s")
                rig.pause(run.seconds / 6)
                report.must(not ready(), "and stays so")
                give_back()
                began = time.monotonic()
                waits.wait_end(waits.ask(LIVE))
                report.limit(f"{name.lower()}_relief_s", time.monotonic() - began, RELIEF_SECONDS)
            report.say(f"ready after {rig.seconds_until(ready, 'ready'):.3f} s")
        report.calls(name, neighbour.figures["attack"])
        report.must(neighbour.figures["attack"]["failed"] == 0, "who was connected was served")


# ---- memory ----

def bombs(run):
    report = run.report
    messages = {form: shoal_attacks.bomb(1 << 30, form) for form in ("gzip", "deflate")}
    refused = 0
    with Limited(echo(message_mib=4), 1024) as shoald:
        with rig.infer_neighbour(shoald) as neighbour:
            memory = rig.Memory(shoald.pid)
            neighbour.phase("attack")
            with Http2(("127.0.0.1", shoald.port)) as caller:
                for i in rig.until(run.seconds):
                    form = ("gzip", "deflate")[i % 2]
                    stream, = caller.streams(1)
                    caller.send(frame(HEADERS, END_HEADERS, stream, request_headers(
                        INFER, **{"grpc-encoding": form})))
                    caller.send_body(stream, messages[form])
                    refused += caller.wait_end(stream) == b""
            peak = memory.peak_mib() - memory.before_mib
        size = len(messages["gzip"])
        report.say(f"{refused} bombs of {size >> 10} KiB refused", refused=refused)
        report.must(refused > 0, "they were refused")
        report.limit("memory_added_mib", peak, SANITIZER_MIB if run.sanitized else 64)
        report.calls("attack", neighbour.figures["attack"])
        report.must(neighbour.figures["attack"]["failed"] == 0, "no call of another failed")


def flood(run, attack, streams):
    report = run.report
    with Limited(echo(), 1024) as shoald:
        rounds, begun = 0, 0
        with rig.infer_neighbour(shoald) as neighbour:
            memory = rig.Memory(shoald.pid)
            neighbour.phase("attack")
            end = time.monotonic() + run.seconds
            while time.monotonic() < end:
                with contextlib.suppress(OSError), \
                        Http2(("127.0.0.1", shoald.port), acknowledge=False) as hostile:
                    begun += shoal_attacks.send_flood(hostile, attack, streams)
                rounds += 1
            peak = memory.peak_mib() - memory.before_mib
            neighbour.phase("after")
            returned = memory.wait_returned(MEMORY_LEFT_MIB)
            left = memory.now_mib() - memory.before_mib
        figures = neighbour.figures["attack"]
        counters = shoald.stat()
        report.say(f"{begun:,} streams on {rounds} connections, {counters['grpc_cut']} cut, "
                   f"{counters['grpc_held']} had to wait", streams=begun, rounds=rounds)
        report.calls("quiet", neighbour.figures["quiet"])
        report.calls("attack", figures)
        report.must(figures["failed"] == 0, "no call of another failed")
        report.limit("p99_ms", figures["p99_ms"], P99_MS)
        report.say(f"memory + {peak:.0f} MiB at most, + {left:.0f} MiB "
                   + (f"{returned:.1f} s later" if returned is not None else "after 60 s"),
                   memory_added_mib=peak, memory_left_mib=left, memory_returned_s=returned)
        if not run.sanitized:
            report.must(returned is not None, "memory came back")


def settings(run):
    flood(run, shoal_attacks.settings_never_acknowledged, 100_000)


def resets(run):
    flood(run, shoal_attacks.rapid_reset, 100_000)


def half_sent(run):
    flood(run, shoal_attacks.half_sent_messages, 50_000)


# ---- slots ----

def window(run):
    report = run.report
    with Limited(echo(slots=SLOTS), 1024) as shoald, Client(shoald.target) as client:
        with rig.infer_neighbour(shoald) as neighbour:
            neighbour.phase("attack")
            with Http2(("127.0.0.1", shoald.port), window=0) as hog:
                began = time.monotonic()
                hog.ask(INFER, infer_bytes(client), count=SLOTS)
                wait_until(lambda: not hog.is_open(), "the hog's end")
                report.limit("disconnected_s", time.monotonic() - began, 12)
            neighbour.phase("after")
            rig.pause(2)
        for name in ("attack", "after"):
            report.calls(name, neighbour.figures[name])
        report.limit("refused_s", neighbour.figures["attack"]["failed"] * INTERVAL_SECONDS, 2)
        report.must(neighbour.figures["after"]["failed"] == 0, "all are served after that")
        shoald.wait_all_returned("echo")


# ---- HTTP ----

def ports(shoald):
    return {service: int(shoald.wait_log(
        rf"http_listening address=\S+ port=(\d+) service={service} tls=no")[1])
        for service in ("http", "metrics", "probes")}


def all_http():
    return echo(16, http=ANY_PORT, metrics=ANY_PORT, probes=ANY_PORT)


def judge_probes(report, figures):
    report.calls("attack", figures)
    report.must(figures["failed"] == 0, "no probe failed")
    report.limit("p99_ms", figures["p99_ms"], P99_MS)


def idle(run):
    shoal_attacks.raise_descriptors()
    with Shoald(all_http()) as shoald:
        found = ports(shoald)
        with rig.Neighbour("probe", found["probes"], "/live") as neighbour:
            neighbour.phase("attack")
            with contextlib.ExitStack() as crowd:
                for port in found.values():
                    shoal_attacks.idle_sockets(crowd, port, 1024)
                rig.pause(run.seconds)
                for service, path in (("http", "/v2/health/live"), ("metrics", "/metrics")):
                    with Rest(found[service]) as client:
                        run.report.must(client.get(path).code == 200, f"{service} answers")
        figures = shoald.stat()
        run.report.say(f"{figures['http_evicted']} idle ones gave way")
        judge_probes(run.report, neighbour.figures["attack"])


def json_bodies(run):
    body = shoal_attacks.large_json(7_000_000)
    sent = []

    def send(port):
        with Rest(port) as large:
            for _ in rig.until(run.seconds):
                assert large.post("echo", body).code == 200
                sent.append(1)

    with Shoald(all_http()) as shoald:
        found = ports(shoald)
        with rig.Neighbour("probe", found["probes"], "/live") as neighbour:
            neighbour.phase("attack")
            senders = [threading.Thread(target=send, args=(found["http"],)) for _ in range(2)]
            for one in senders:
                one.start()
            for one in senders:
                one.join()
        run.report.say(f"{len(sent)} bodies of {len(body) >> 20} MiB answered")
        judge_probes(run.report, neighbour.figures["attack"])


# ---- answers ----

def never_fits(run):
    report = run.report
    count = 400_000  # one or two bytes each in the message, eight in the arena
    with Shoald(echo(http=ANY_PORT)) as shoald, Client(shoald.target) as client, \
            Rest(port_of(shoald)) as rest:
        call = client.start_raw("echo", ("x", "INT64", [count], {"int64_contents": [1] * count}),
                                raw=False)
        code, text = failure(call)
        report.say(f"gRPC: {code.name}: {text}")
        report.must(code.name == "INVALID_ARGUMENT" and len(re.findall(r"\d{5,}", text)) > 1,
                    "it names both sizes")
        report.must("grpc-retry-pushback-ms" not in dict(call.trailing_metadata()), "no hint to retry")
        answer = rest.post("echo", shoal_attacks.large_json(count, b"INT64"))
        report.say(f"REST: {answer.code}: {answer.error}")
        report.must(answer.code == 413 and "Retry-After" not in answer.headers, "413, no Retry-After")


def parameters(run):
    with Shoald(echo()) as shoald, Client(shoald.target) as client:
        value = client.type("inference.InferParameter")
        for name, given in (("shared_memory_region", {"string_param": "r"}),
                            ("classification", {"int64_param": 3})):
            fields = client.infer_fields("echo", [X], outputs=["x"])
            fields["outputs"][0]["parameters"] = {name: value(**given)}
            code, text = failure(client.start("ModelInfer", **fields))
            run.report.must(code.name == "INVALID_ARGUMENT" and name in text, f"{name}: refused by name")
        bad = client.start_raw("echo", X, parameters={"timeout": {"string_param": "soon"}})
        run.report.must("timeout" in failure(bad)[1], "a timeout that is none: refused by name")
        good = client.start_raw("echo", X, parameters={"timeout": {"int64_param": 10**7}})
        run.report.must(good.exception() is None, "a good one is taken")


def management(run):
    with prepare(pupil(), mesh={"instance": "one"}) as shoald, connect(shoald.target) as channel:
        for called in (SERVICE, OLD_MODEL_MESH):
            stub = Stub(channel, SERVICE, called)
            codes = {method: failure(stub.start(method))[0].name for method in SERVICES["ModelMesh"]}
            run.report.must(set(codes.values()) == {"UNIMPLEMENTED"},
                            f"{called}: UNIMPLEMENTED to callers of models: {codes}")
        mode = stat.S_IMODE(os.stat(shoald.management.removeprefix("unix:")).st_mode)
        run.report.must(mode == 0o600, f"its own socket is the node's user's alone: {mode:o}")


def plain_http(run):
    with Certificates("ca") as certificates:
        certificates.sign("server", "ca")
        codes = {}
        for name, address in (("plain", "port:8008"), ("meant", {"address": "port:8008", "plain": "yes"})):
            config = echo(http=address, tls=certificates.pair("server", client_ca="ca"))
            codes[name], _ = run_shoald(json.dumps(config), ["--check"])
        run.report.must(codes["plain"] == 2, "it does not start")
        run.report.must(codes["meant"] == 0, "it does with `plain: yes`")
