# SPDX-License-Identifier: Apache-2.0
"""packages.py FOLDER: uses, upgrades and removes the packages that are installed in a bare Debian.

Run by `./dev package --check`, as root in namespaces of its own. It boots the folder's systemd as
the first process of further ones, so that the unit does what it would do on a machine: its user,
its limits, its system calls. No network but a loopback can be reached, and nothing that it starts
outlives it. The first thing that is not as it should be ends it with the reason.
"""

import atexit
import fcntl
import http.client
import json
import pathlib
import re
import shutil
import socket
import struct
import subprocess
import sys
import time

WAIT_SECONDS = 120
PACKAGES = ("shoal", "shoal-modelets", "libshoal-harness1", "libshoal1", "libshoal-dev")
UPGRADED = "99.0"
BOOT = """
set -e
mount --bind "$0" "$0"
mount -t proc proc "$0/proc"
mount -t sysfs sysfs "$0/sys"
mount -t cgroup2 cgroup2 "$0/sys/fs/cgroup"
mount -t tmpfs tmpfs "$0/run"
mount -t tmpfs tmpfs "$0/tmp"
mount --rbind /dev "$0/dev"
exec chroot "$0" /usr/bin/env -i container=lxc NOTIFY_SOCKET=@shoal-boot \
    PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd
"""

root = pathlib.Path(sys.argv[1])
machine = []  # the words before a command that runs in it


def expect(condition, what):
    if not condition:
        sys.exit(f"packages: {what}\n{log() if machine else ''}")


def say(text):
    print(f"packages: {text}", flush=True)


def run(*command, code=0):
    """A command in the machine; its output."""
    done = subprocess.run([*machine, "/usr/bin/env", "-i", "LC_ALL=C", "PATH=/usr/sbin:/usr/bin:/sbin:/bin",
                           "DEBIAN_FRONTEND=noninteractive", *command], text=True,
                          stdin=subprocess.DEVNULL, capture_output=True, timeout=WAIT_SECONDS)
    expect(done.returncode == code,
           f"{command} ended with {done.returncode}, not {code}\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def log():
    return subprocess.run([*machine, "journalctl", "-u", "shoald", "--no-pager", "-n", "60"],
                          capture_output=True, text=True, timeout=WAIT_SECONDS).stdout


def boot():
    """Returns when systemd says that everything has started."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, 0x8914, struct.pack("16sh14x", b"lo", 0x1 | 0x40))
    ready = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    ready.bind("\0shoal-boot")
    ready.settimeout(WAIT_SECONDS)
    process = subprocess.Popen(
        ["unshare", "--mount", "--pid", "--cgroup", "--uts", "--ipc", "--fork", "--kill-child",
         "--propagation", "private", "bash", "-c", BOOT, root],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    atexit.register(process.kill)
    while b"READY=1" not in ready.recv(65536):
        expect(process.poll() is None, "systemd does not start here")
    first = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()[0]
    machine.extend(["nsenter", "-t", first, "-a", "-r"])


def service(key):
    return run("systemctl", "show", "-P", key, "shoald").strip()


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


def repack():
    """The packages as those of a later version, for which files and scripts are the same."""
    later = root / "later"
    shutil.rmtree(later, ignore_errors=True)
    later.mkdir()
    for package in (root / "packages").glob("*.deb"):
        tree = later / "tree"
        subprocess.run(["dpkg-deb", "-R", package, tree], check=True)
        control = tree / "DEBIAN" / "control"
        text = control.read_text()
        version = re.search(r"(?m)^Version: (.*)$", text)[1]
        control.write_text(text.replace(version, UPGRADED))
        subprocess.run(["dpkg-deb", "--root-owner-group", "-b", tree, later], check=True,
                       stdout=subprocess.DEVNULL)
        shutil.rmtree(tree)


def versions():
    return {run("dpkg-query", "-W", "-f=${Version}", package) for package in PACKAGES}


def check_installed():
    expect(len(versions()) == 1, f"versions differ: {versions()}")
    for page in ("man1/shoalctl.1.gz", "man5/shoald.yaml.5.gz", "man8/shoald.8.gz"):
        expect((root / "usr/share/man" / page).stat().st_size > 500, f"{page} is empty")
    for path in ("usr/share/bash-completion/completions/shoalctl", "usr/share/shoal/alerts.yaml",
                 "usr/share/zsh/vendor-completions/_shoalctl", "usr/share/shoal/grafana.json",
                 "usr/include/shoal/modelet.h", "usr/share/doc/shoal/operating.md.gz"):
        expect((root / path).exists(), f"{path} is missing")
    said = run("runuser", "-u", "shoal", "--", "shoald", "--check", "/etc/shoal/shoald.yaml")
    expect("good" in said, said)


def check_serves():
    run("systemctl", "start", "shoald")
    expect(service("StatusText") == "1 of 1 pipelines serve", f"status: {service('StatusText')}")
    found = listeners()
    expect({port for _, port in found} >= {8033, 8008, 2112}, f"listens on {found}")
    expect(all(address in ("0100007F", "00000000000000000000000001000000") for address, _ in found),
           f"a door beyond loopback: {found}")
    models = root / "var/lib/shoal/models"
    (models / ".new").mkdir()
    shutil.copy(root / "usr/share/shoal/examples/digits/digits.ubj", models / ".new")
    (models / ".new").rename(models / "digits")
    expect(infer("digits") == [1, 10], "the model digits answers in another shape")
    said = run("shoalctl", "status")
    expect("whole" in said, f"the unit takes a part of the workers' sandbox: {said}")


def check_unit(configuration):
    run("systemctl", "reload", "shoald")
    expect(infer("digits") == [1, 10], "no answer after a reload")
    good = configuration.read_text()
    configuration.write_text(good.replace("batch_size: 64", "batch_size: many"))
    run("systemctl", "reload", "shoald", code=1)
    expect("batch_size" in log(), "a bad reload does not say why")
    configuration.write_text(good)
    before = service("MainPID")
    expect(service("WatchdogUSec") == "30s", f"watchdog: {service('WatchdogUSec')}")
    run("systemctl", "kill", "-s", "ABRT", "--kill-who=main", "shoald")
    expect(infer("digits") == [1, 10], "not restarted after a crash")
    expect(service("MainPID") != before and service("NRestarts") == "1", "was not restarted")
    expect("load_starved" not in log(), "loads cannot run in the idle class")


def upgrade(configuration):
    configuration.write_text(configuration.read_text() + "# changed by the operator\n")
    before = service("MainPID")
    repack()
    run("sh", "-c", "dpkg -i /later/*.deb")
    expect(versions() == {UPGRADED}, f"after the upgrade: {versions()}")
    expect("by the operator" in configuration.read_text(), "the upgrade lost the configuration")
    expect(service("ActiveState") == "active" and service("MainPID") != before,
           "the upgrade has not restarted the service")
    expect(infer("digits") == [1, 10], "the upgraded service does not serve")


def remove(configuration):
    run("dpkg", "--remove", *PACKAGES)
    expect(not (root / "usr/bin/shoald").exists(), "shoald is left after the removal")
    expect(not any(port == 8033 for _, port in listeners()), "the service runs after the removal")
    expect(configuration.exists(), "the removal took the configuration")
    run("dpkg", "--purge", *PACKAGES)
    expect(not (root / "etc/shoal").exists(), "/etc/shoal is left after the purge")
    expect((root / "var/lib/shoal/models/digits/digits.ubj").exists(), "the purge took a model")
    left = [str(path) for folder in ("etc", "usr", "var/lib") for path in (root / folder).rglob("*shoal*")
            if not str(path).startswith(str(root / "var/lib/shoal"))]
    expect(left == [], f"left after the purge: {left}")


def main():
    boot()
    configuration = root / "etc/shoal/shoald.yaml"
    check_installed()
    check_serves()
    check_unit(configuration)
    say("installed: serves under systemd, on loopback alone, reloads, is restarted")
    upgrade(configuration)
    say("upgraded: serves with the operator's configuration")
    run("systemctl", "stop", "shoald")
    expect(service("Result") == "success", f"the stop: {service('Result')}")
    run("systemctl", "start", "shoald")
    remove(configuration)
    say("removed and purged: stopped, and models are left")


main()
