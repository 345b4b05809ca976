# SPDX-License-Identifier: Apache-2.0
"""The adaptive wait, in a daemon as it is: judged by why batches closed, never by time.

`batch_wait_ms` is a minute, longer than any client here is patient: a batch that waited for it
would fail the test by itself. The modelet `sluggish` makes runs long enough that a crowd is about
while one goes on, on any machine. ctest: timeout=120
"""

import unittest

import shoal_fixture
from shoal_client import Client
from shoal_fixture import WAIT_SECONDS, Shoald, node, pipeline, stage, wait_until

SIZE = 8


def sluggish(name, **keys):
    return stage("libsluggish.so", name, batch_size=SIZE, batch_wait_ms=60000,
                 params={"fixed_us": 10000, "item_us": 0, "sigma": 0}, **keys)


class AdaptiveWait(unittest.TestCase):
    def setUp(self):
        self.shoald = self.enterContext(Shoald(node(
            pipeline("lone", sluggish("only")), pipeline("crowd", sluggish("only")))))
        self.client = self.enterContext(Client(self.shoald.target))

    def start(self, model):
        request, stub = self.client.stub("ModelInfer")
        tensor = ("x", "INT64", [1], bytes(8))
        return stub.future(request(**self.client.infer_fields(model, [tensor])),
                           timeout=WAIT_SECONDS)

    def closings(self, model):
        stat = self.shoald.stage_stat(model, "only")
        return stat, {key: value for key, value in stat.items()
                      if key.startswith("closed_") and value > 0}

    def test_lone_requests_wait_for_nobody(self):
        for _ in range(10):
            self.start("lone").result()
            self.shoald.wait_all_returned("lone")  # its slot, too: a moment after its answer
        stat, closings = self.closings("lone")
        self.assertEqual(closings, {"closed_adaptive": 10})
        self.assertEqual((stat["batches"], stat["batch_items"]["sum"]), (10, 10))
        self.assertEqual([worker["company_wait"] for worker in stat["workers"]], [0])

    def test_a_crowd_is_waited_for(self):
        """Eight in a loop. Without waiting the first of them would go alone, each time."""
        def full():
            for future in [self.start("crowd") for _ in range(SIZE)]:
                future.result()
            return self.shoald.stage_stat("crowd", "only")["closed_full"] >= 10

        wait_until(full, "ten batches with all eight in them")
        self.shoald.wait_all_returned("crowd")
        stat, closings = self.closings("crowd")
        self.assertEqual(stat["batches"], sum(closings.values()))
        self.assertLessEqual(set(closings), {"closed_full", "closed_adaptive"})
        self.start("crowd").result()  # and a lone caller does not wait for others then
        self.assertNotIn("closed_wait", self.closings("crowd")[1])


if __name__ == "__main__":
    shoal_fixture.main()
