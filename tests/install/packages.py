# SPDX-License-Identifier: Apache-2.0
"""packages.py FOLDER: installs, uses, upgrades and removes the packages in a bare Debian.

Run by `./dev package --check`; machine.py boots the folder's systemd, so that the unit does what it
would do on a machine: its user, its limits, its system calls. /packages has the packages, and apt's
cache what they need. The first thing that is not as it should be ends it with the reason.
"""

import http.client
import json
import pathlib
import shutil
import sys
import time

from machine import LATER_VERSION, WAIT_SECONDS, Machine

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


def check_unit(configuration):
    shell("systemctl reload shoald")
    expect(infer("digits") == [1, 10], "no answer after a reload")
    good = configuration.read_text()
    configuration.write_text(good.replace("batch_size: 64", "batch_size: many"))
    shell("systemctl reload shoald", code=1)
    expect("batch_size" in machine.log(), "a bad reload does not say why")
    configuration.write_text(good)
    before = machine.service("MainPID")
    expect(machine.service("WatchdogUSec") == "30s", f"watchdog: {machine.service('WatchdogUSec')}")
    shell("systemctl kill -s ABRT --kill-who=main shoald")
    end = time.monotonic() + WAIT_SECONDS
    while machine.service("NRestarts") != "1": # until it dies it may answer
        expect(time.monotonic() < end, "not restarted after a crash")
    expect(infer("digits") == [1, 10] and machine.service("MainPID") != before, "was not restarted")
    expect("load_starved" not in machine.log(), "loads cannot run in the idle class")


def upgrade(configuration):
    configuration.write_text(configuration.read_text() + "# changed by the operator\n")
    before = machine.service("MainPID")
    machine.add_later_packages()
    shell("dpkg -i /later/*.deb")
    expect(versions() == {LATER_VERSION}, f"after the upgrade: {versions()}")
    expect("by the operator" in configuration.read_text(), "the upgrade lost the configuration")
    expect(machine.service("ActiveState") == "active" and machine.service("MainPID") != before,
           "the upgrade has not restarted the service")
    expect(infer("digits") == [1, 10], "the upgraded service does not serve")


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
    upgrade(configuration)
    machine.say("upgraded: serves with the operator's configuration")
    shell("systemctl stop shoald")
    expect(machine.service("Result") == "success", f"the stop: {machine.service('Result')}")
    shell("systemctl start shoald")
    remove(configuration)
    machine.say("removed and purged: stopped, and models are left")


main()
