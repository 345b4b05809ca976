# SPDX-License-Identifier: Apache-2.0
"""packages.py FOLDER: installs, uses, upgrades and removes the packages in a bare Debian.

Run by `./dev package --check`; machine.py boots the folder's systemd, so that the unit does what it
would do on a machine: its user, its limits, its system calls. /packages has the packages, and apt's
cache what they need. The first thing that is not as it should be ends it with the reason.
"""

import contextlib
import http.client
import json
import os
import pathlib
import re
import shutil
import sys
import time

from machine import LATER_VERSION, WAIT_SECONDS, Machine

UPGRADES = 3
# Calls by all that callers keep or make anew, which neither wait nor retry, until it is told to stop.
LOAD = """
import http.client, json, signal, threading
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT]) # before others start threads, which inherit it
import numpy, shoal
x = numpy.arange(64, dtype="f4").reshape(1, 64)
body = json.dumps({"inputs": [{"name": "features", "datatype": "FP32", "shape": [1, 64],
                               "data": x.ravel().tolist()}]})
over, counts, failed = threading.Event(), {}, []

def grpc():
    client = shoal.Client("localhost:8033")
    while True:
        yield client.infer("digits", x)

def rest(headers={}):
    connection = http.client.HTTPConnection("localhost", 8008)
    while True:
        connection.request("POST", "/v2/models/digits/infer", body, headers)
        answer = connection.getresponse()
        text = answer.read()
        assert answer.status == 200, (answer.status, text)
        yield text

def rest_anew():
    return rest({"Connection": "close"})

def run(loop):
    try:
        for counts[loop.__name__], _ in enumerate(loop(), 1):
            if over.is_set():
                break
    except Exception as error:
        failed.append(f"{loop.__name__}: {error!r}")

threads = [threading.Thread(target=run, args=(loop,)) for loop in (grpc, rest, rest_anew)]
for thread in threads:
    thread.start()
open("stop").read()
over.set()
for thread in threads:
    thread.join()
print(json.dumps({"counts": counts, "failed": failed}), flush=True)
signal.sigwait([signal.SIGINT])
"""
PACKAGES = ("shoal", "shoal-modelets", "libshoal-harness1", "libshoal1", "libshoal-dev", "python3-shoal")

machine = Machine(sys.argv[1], "packages")
root, expect, shell = machine.root, machine.expect, machine.shell


def listeners():
    """Addresses and ports that anything here listens on."""
    found = set()
    for table in ("tcp", "tcp6"):
        for line in pathlib.Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            local, _, state = line.split()[1:4]
            if state == "0A":
                address, port = local.split(":")
                found.add((address, int(port, 16)))
    return found


def infer(model):
    """One call over REST; waits until the model is listed and the node serves."""
    body = json.dumps({"inputs": [{"name": "features", "datatype": "FP32", "shape": [1, 64],
                                   "data": list(range(64))}]})
    end = time.monotonic() + WAIT_SECONDS
    while True:
        call = http.client.HTTPConnection("127.0.0.1", 8008, timeout=WAIT_SECONDS)
        try:
            call.request("POST", f"/v2/models/{model}/infer", body,
                         {"Content-Type": "application/json"})
            answer = call.getresponse()
            status, text = answer.status, answer.read().decode()
        except OSError as error: # it is being restarted
            status, text = 503, str(error)
        finally:
            call.close()
        if status == 200:
            return json.loads(text)["outputs"][0]["shape"]
        expect(status in (404, 503) and time.monotonic() < end, f"{status}: {text}")


def versions():
    return {shell(f"dpkg-query -W -f='${{Version}}' {package}") for package in PACKAGES}


def install():
    shell("apt-get install -y -q --no-install-recommends /packages/*.deb")
    expect(machine.service("ActiveState") == "inactive" and listeners() == set(),
           f"the installation starts the service: {listeners()}")


def check_installed():
    expect(len(versions()) == 1, f"versions differ: {versions()}")
    for page in ("man1/shoalctl.1.gz", "man5/shoald.yaml.5.gz", "man8/shoald.8.gz"):
        expect((root / "usr/share/man" / page).stat().st_size > 500, f"{page} is empty")
    for path in ("usr/share/bash-completion/completions/shoalctl", "usr/share/shoal/alerts.yaml",
                 "usr/share/zsh/vendor-completions/_shoalctl", "usr/share/shoal/grafana.json",
                 "usr/include/shoal/modelet.h", "usr/share/doc/shoal/operating.md",
                 "usr/share/bash-completion/completions/shoald",
                 "usr/share/zsh/vendor-completions/_shoald", "usr/share/doc/shoal/grafana.json",
                 "usr/share/doc/python3-shoal/README.md",
                 "usr/share/doc/shoal-modelets/examples/make.py"):
        expect((root / path).exists(), f"{path} is missing")
    said = shell("runuser -u shoal -- shoald --check /etc/shoal/shoald.yaml")
    expect("good" in said, said)
    shell("python3 -c 'import shoal; print(shoal.Client)'")


def check_serves():
    shell("systemctl start shoald")
    check_user()
    status = machine.service("StatusText")
    expect(status == "1 of 1 pipelines serve", f"status: {status}")
    found = listeners()
    expect({port for _, port in found} >= {8033, 8008, 2112}, f"listens on {found}")
    expect(all(address in ("0100007F", "00000000000000000000000001000000") for address, _ in found),
           f"a door beyond loopback: {found}")
    models = root / "var/lib/shoal/models"
    (models / ".new").mkdir()
    shutil.copy(root / "usr/share/shoal/examples/digits/digits.ubj", models / ".new")
    (models / ".new").rename(models / "digits")
    expect(infer("digits") == [1, 10], "the model digits answers in another shape")
    said = shell("shoalctl status")
    expect("whole" in said, f"the unit takes a part of the workers' sandbox: {said}")
    said = shell("runuser -u nobody -- shoalctl status")
    expect("ready" in said, f"another user does not find the service's node: {said}")


def check_user():
    """The main process is shoal's in every respect: real, effective, saved and of files."""
    pid = machine.service("MainPID")
    for key, option in (("Uid", "-u"), ("Gid", "-g")):
        wanted = shell(f"id {option} shoal").split() * 4
        found = shell(f"grep ^{key}: /proc/{pid}/status").split()[1:]
        expect(found == wanted != ["0"] * 4, f"{key} of the main process: {found}, not {wanted}")


def check_unit(configuration):
    shell("systemctl reload shoald")
    expect(infer("digits") == [1, 10], "no answer after a reload")
    good = configuration.read_text()
    configuration.write_text(good.replace("batch_size: 64", "batch_size: many"))
    shell("systemctl reload shoald", code=1)
    expect("batch_size" in machine.log(), "a bad reload does not say why")
    configuration.write_text(good)
    expect(machine.service("WatchdogUSec") == "30s", f"watchdog: {machine.service('WatchdogUSec')}")
    crash(1)
    expect("load_starved" not in machine.log(), "loads cannot run in the idle class")


def crash(restarts):
    before = machine.service("MainPID")
    shell("systemctl kill -s ABRT --kill-who=main shoald")
    end = time.monotonic() + WAIT_SECONDS
    while machine.service("NRestarts") != str(restarts): # until it dies it may answer
        expect(time.monotonic() < end, "not restarted after a crash")
    expect(infer("digits") == [1, 10] and machine.service("MainPID") != before, "was not restarted")


@contextlib.contextmanager
def called(during):
    """Calls all the time, none of which may fail."""
    (root / "root/load.py").write_text(LOAD)
    (root / "root/stop").unlink(missing_ok=True)
    os.mkfifo(root / "root/stop")
    with machine.running("python3 load.py", "root") as output:
        wait_served(10)
        yield
        wait_served(10)
        shell("echo >stop")
        said = json.loads(output.wait_for(r"(?m)^\{.*\}$")[0])
    expect(said["failed"] == [] and min(said["counts"].values()) > 10, f"calls failed: {said}")
    machine.say(f"{during}: {sum(said['counts'].values())} calls, 0 failed")


def wait_served(count):
    """Until so many more calls have been answered."""
    def served():
        return json.loads(shell("shoalctl stat --json"))["pipelines"][0]["requests"]
    first, end = served(), time.monotonic() + WAIT_SECONDS
    while served() < first + count:
        expect(time.monotonic() < end, "no calls are answered")


def replace_process(configuration):
    """`shoalctl upgrade`: systemd follows, and has the new process in hand as it had the old one."""
    good = configuration.read_text()
    restarts = machine.service("NRestarts")
    with called(f"{UPGRADES} upgrades by shoalctl"):
        configuration.write_text(good.replace("batch_size: 64", "batch_size: many"))
        expect("batch_size" in shell("shoalctl upgrade", code=1), "a bad configuration is not named")
        configuration.write_text(good)
        for _ in range(UPGRADES):
            before = machine.service("MainPID")
            pid = re.search(r"pid (\d+) serves", shell("shoalctl upgrade"))[1]
            expect(machine.service("MainPID") == pid != before, f"systemd has not followed to {pid}")
            expect(machine.service("ActiveState") == "active", "not active after the upgrade")
            wait_served(10)
    seen, end = machine.service("WatchdogTimestampMonotonic"), time.monotonic() + WAIT_SECONDS
    while machine.service("WatchdogTimestampMonotonic") == seen:
        expect(time.monotonic() < end, "the new process gives no sign of life")
    expect(machine.service("NRestarts") == restarts, "restarted during the upgrades")
    shell("systemctl reload shoald")
    crash(int(restarts) + 1)
    shell("shoalctl upgrade")
    pid = machine.service("MainPID")
    shell("systemctl restart shoald")
    expect(machine.service("MainPID") not in ("0", pid), "not restarted")
    expect(infer("digits") == [1, 10], "no answer after the restart")
    shell("shoalctl upgrade")
    shell("systemctl stop shoald")
    expect((machine.service("Result"), machine.service("MainPID")) == ("success", "0"),
           f"the stop: {machine.service('Result')}")
    expect(not any(port in (8033, 8008) for _, port in listeners()), "it serves after the stop")
    shell("systemctl start shoald")


def upgrade(configuration):
    configuration.write_text(configuration.read_text() + "# changed by the operator\n")
    machine.add_later_packages()
    restarts = machine.service("NRestarts")
    with called("an upgrade of the packages"):
        said = shell("dpkg -i /later/*.deb")
    found = re.search(r"pid (\d+) serves", said)
    expect(found and machine.service("MainPID") == found[1], f"no new process serves: {said}")
    expect(versions() == {LATER_VERSION}, f"after the upgrade: {versions()}")
    expect("by the operator" in configuration.read_text(), "the upgrade lost the configuration")
    expect((machine.service("ActiveState"), machine.service("NRestarts")) == ("active", restarts),
           "the upgrade has restarted the service")
    check_user()
    expect(infer("digits") == [1, 10], "the upgraded service does not serve")


def upgrade_otherwise():
    """A policy may forbid it; a node that cannot be replaced is restarted."""
    before = machine.service("MainPID")
    policy = root / "usr/sbin/policy-rc.d"
    policy.write_text("#!/bin/sh\nexit 101\n")
    policy.chmod(0o755)
    shell("dpkg -i /later/shoal_*.deb")
    expect(machine.service("MainPID") == before, "the upgrade ignores policy-rc.d")
    policy.unlink()
    shell("shoalctl model load ordered digits")
    said = shell("dpkg -i /later/shoal_*.deb")
    expect("loaded by order" in said and "restarting it" in said, f"no reason for the restart: {said}")
    expect(machine.service("ActiveState") == "active" and machine.service("MainPID") != before,
           f"not restarted: {said}")
    expect(infer("digits") == [1, 10], "the restarted service does not serve")
    shell("systemctl stop shoald")
    shell("dpkg -i /later/shoal_*.deb")
    expect(machine.service("ActiveState") == "inactive", "the upgrade starts a stopped service")
    shell("systemctl start shoald")


def remove(configuration):
    shell(f"dpkg --remove {' '.join(PACKAGES)}")
    expect(not (root / "usr/bin/shoald").exists(), "shoald is left after the removal")
    expect(not any(port == 8033 for _, port in listeners()), "the service runs after the removal")
    expect(configuration.exists(), "the removal took the configuration")
    shell(f"dpkg --purge {' '.join(PACKAGES)}")
    expect(not (root / "etc/shoal").exists(), "/etc/shoal is left after the purge")
    expect((root / "var/lib/shoal/models/digits/digits.ubj").exists(), "the purge took a model")
    left = [str(path) for folder in ("etc", "usr", "var/lib") for path in (root / folder).rglob("*shoal*")
            if not str(path).startswith(str(root / "var/lib/shoal"))]
    expect(left == [], f"left after the purge: {left}")


def main():
    machine.boot()
    configuration = root / "etc/shoal/shoald.yaml"
    install()
    check_installed()
    check_serves()
    check_unit(configuration)
    machine.say("installed: serves under systemd, on loopback alone, reloads, is restarted")
    replace_process(configuration)
    machine.say("`shoalctl upgrade`: systemd follows, restarts and stops the new process")
    upgrade(configuration)
    machine.say("upgraded: serves with the operator's configuration")
    upgrade_otherwise()
    machine.say("upgraded: restarted where it must be, and left alone where a policy says so")
    shell("systemctl stop shoald")
    expect(machine.service("Result") == "success", f"the stop: {machine.service('Result')}")
    shell("systemctl start shoald")
    remove(configuration)
    machine.say("removed and purged: stopped, and models are left")


main()
