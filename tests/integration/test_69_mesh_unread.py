# SPDX-License-Identifier: Apache-2.0
"""Streams that nobody reads hold a bounded amount of memory in the nodes that pass them on.

Proves, by the resident memory of real daemons, whose allocator gives back at once what is
free: 60 streams of messages of 100 kB, whose caller does not read, or whose runtime does not, hold at
most 256 KiB each, on the node that has the caller and on the node that has the runtime; and that the
memory is free when the streams have ended.
ctest: timeout=300
"""

import unittest

from shoal_fixture import main, sanitized
from shoal_unread import AT_ONCE, LEFT_KIB, LIMIT_KIB, UnreadMesh


@unittest.skipIf(sanitized(), "sanitizers keep memory that is freed")
class Unread(unittest.TestCase):
    def setUp(self):
        self.mesh = self.enterContext(UnreadMesh(AT_ONCE))

    def check(self, streams):
        for name, entry in self.mesh.nodes.items():
            with self.subTest(name):
                with getattr(self.mesh, streams)(entry):
                    print(name, "during", self.mesh.wait_held(LIMIT_KIB), flush=True)
                print(name, "after", self.mesh.wait_held(LEFT_KIB), flush=True)

    def test_callers_that_do_not_read(self):
        self.check("answers")

    def test_runtime_that_does_not_read(self):
        self.check("requests")


if __name__ == "__main__":
    main()
