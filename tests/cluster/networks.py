# SPDX-License-Identifier: Apache-2.0
"""An etcd of three members that can be cut off from one another: each in a network namespace of its
own, with two links into one more, where nodes are. There is a bridge for what clients say, and one
for what members say to one another; a link that is down loses everything, and nobody is told.
Nothing of this machine's own network is touched, and all of it ends with this process.
"""

import ctypes
import os
import shutil
import subprocess
import threading

from shoal_cluster import Etcds
from shoal_fixture import wait_until

CLONE_NEWNET = 0x40000000
BRIDGES = {"clients": "10.77.0", "peers": "10.77.1"}
ME = 1  # the nodes' number on each
FIRST_MEMBER = 11


def refusal():
    """Why there can be no namespaces here; None: there can."""
    if os.geteuid() != 0:
        return "not root"
    missing = [name for name in ("ip", "unshare", "nsenter") if shutil.which(name) is None]
    if missing:
        return f"no {', '.join(missing)} (Debian: iproute2, util-linux)"
    tried = subprocess.run(["unshare", "--net", "ip", "link", "add", "tried", "type", "bridge"],
                           capture_output=True, text=True, check=False)
    return tried.stderr.strip() if tried.returncode != 0 else None


class Namespace:
    """A network namespace, which lives as long as a process in it."""

    def __init__(self):
        self.holder = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "unshare", "--net", "sleep", "infinity"])
        self.path = f"/proc/{self.holder.pid}/ns/net"
        own = os.readlink("/proc/self/ns/net")
        wait_until(lambda: os.readlink(self.path) != own, "a network namespace")
        self.enter = ["nsenter", f"--net={self.path}"]
        self.ip("link", "set", "lo", "up")

    def ip(self, *words):
        subprocess.run([*self.enter, "ip", *words], check=True)

    def within(self, function):
        """Returns the function's result, from a thread of its own that is in the namespace."""
        got = []

        def run():
            with open(self.path, "rb") as file:
                assert ctypes.CDLL(None).setns(file.fileno(), CLONE_NEWNET) == 0
            try:
                got.append((function(), None))
            except Exception as error:  # pylint: disable=broad-except
                got.append((None, error))
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        (value, error), = got
        if error is not None:
            raise error
        return value

    def close(self):
        self.holder.kill()
        self.holder.wait()


class PartedEtcds(Etcds):
    def __init__(self):
        super().__init__(3)
        self.hub = Namespace()
        self.enter = self.hub.enter
        self.homes = []
        for bridge, net in BRIDGES.items():
            self.hub.ip("link", "add", bridge, "type", "bridge")
            self.hub.ip("address", "add", f"{net}.{ME}/24", "dev", bridge)
            self.hub.ip("link", "set", bridge, "up")
        for index, member in enumerate(self.members):
            self.house(member, FIRST_MEMBER + index)

    def house(self, member, number):
        home = Namespace()
        self.homes.append(home)
        member.enter = home.enter
        member.url = f"http://{BRIDGES['clients']}.{number}:2379"
        member.peer = f"http://{BRIDGES['peers']}.{number}:2380"
        for bridge, net in BRIDGES.items():
            self.hub.ip("link", "add", f"{member.name}-{bridge}", "type", "veth", "peer", "name",
                        bridge, "netns", str(home.holder.pid))
            self.hub.ip("link", "set", f"{member.name}-{bridge}", "master", bridge, "up")
            home.ip("address", "add", f"{net}.{number}/24", "dev", bridge)
            home.ip("link", "set", bridge, "up")

    def set_links(self, member, bridges, state):
        """"down" or "up"."""
        for bridge in bridges:
            self.hub.ip("link", "set", f"{member.name}-{bridge}", state)

    def ask(self, url, path, **request):
        return self.hub.within(lambda: Etcds.ask(url, path, **request))

    def __exit__(self, *more):
        super().__exit__(*more)
        for one in [*self.homes, self.hub]:
            one.close()
