# SPDX-License-Identifier: Apache-2.0
"""TCP ports for servers that a test starts, and may stop and start again.

A process reserves each port that it chooses, until it ends, as tests in C do: tests/ports.h says why
and how.
"""

import errno
import random
import socket

PORTS = range(10000, 32000)  # as in tests/ports.h
RESERVED = {}  # by port: the socket that reserves it


def reserve(port):
    """False: another test has it."""
    name = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        name.bind(f"\0shoal-port-{port}")
    except OSError as error:
        name.close()
        if error.errno == errno.EADDRINUSE:
            return False
        raise
    RESERVED[port] = name
    return True


def is_free(port):
    """Whether nobody listens there, on any address."""
    with socket.socket() as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
        return True


def free_port():
    while True:
        port = random.SystemRandom().choice(PORTS)
        if reserve(port) and is_free(port):
            return port
