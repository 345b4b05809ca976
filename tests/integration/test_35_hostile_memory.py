# SPDX-License-Identifier: Apache-2.0
"""A modelet that writes anything anywhere into its region harms its own pipeline and nobody else.

The modelet `scribble` overwrites words of the region while requests are under way in two pipelines: headers,
slots, rings, block words, other requests' tensors. shoald must not crash, read out of bounds (the
sanitizers watch), hang, or answer the wrong caller; each request of the hostile pipeline must get some
answer, and after the region was built anew the pipeline must serve again. ctest: timeout=240
"""

import os
import random
import struct
import threading
import time
import unittest

import shoal_fixture
from shoal_client import Client
from shoal_fixture import WAIT_SECONDS, Shoald, draw_seed, node, pipeline, stage, wait_until

ROUND_SECONDS = float(os.environ.get("SHOAL_LOAD_SECONDS", 5))


class Friend(threading.Thread):
    """Traffic in the pipeline that nobody harms: every answer must be there and right."""

    def __init__(self, shoald, number):
        super().__init__()
        self.shoald = shoald
        self.draw = random.Random(number)
        self.over = threading.Event()
        self.right = 0
        self.wrong = []

    def run(self):
        with Client(self.shoald.target) as client:
            while not self.over.is_set():
                asked = [self.draw.randbytes(self.draw.randrange(1, 300)) for _ in range(8)]
                futures = [client.start_raw("friend", ("x", "UINT8", [len(data)], data))
                           for data in asked]
                for data, future in zip(asked, futures):
                    if future.code().name == "OK" and future.result().raw_output_contents[0] == data:
                        self.right += 1
                    else:
                        self.wrong.append((future.code().name, future.details()))


class TestHostile(unittest.TestCase):
    def test_scribbling(self):
        seed = draw_seed()
        config = node(pipeline("hostile", stage("libecho.so", "before"),
                               stage("libscribble.so", workers=2, batch_size=4),
                               stage("libecho.so", "after"), slots=32, arena_mib=0),
                      pipeline("friend", stage("libecho.so", workers=2), slots=64), message_mib=1)
        with Shoald(config) as shoald:
            friends = [Friend(shoald, seed + i) for i in range(2)]
            for friend in friends:
                friend.start()
            try:
                outcome = self.scribble(shoald, random.Random(seed))
            finally:
                for friend in friends:
                    friend.over.set()
                for friend in friends:
                    friend.join()
            resets = shoald.pipeline_stat("hostile")["region_resets"]
            print(f"outcome={outcome} region_resets={resets} "
                  f"friends={[friend.right for friend in friends]}", flush=True)
            shoald.check_still_runs()
            for friend in friends:
                self.assertFalse(friend.wrong, f"{friend.wrong[:5]}\n{shoald.stderr}")
                self.assertGreater(friend.right, 0)
            self.assertGreater(resets, 0, f"the region was never dropped:\n{shoald.stderr}")
            self.check_recovers(shoald)
            shoald.wait_all_returned("friend")

    def scribble(self, shoald, draw):
        """Requests that scribble, and others between them; all must come back somehow. A write rarely
        shows at once: so there are many small attacks rather than few large ones."""
        outcome = {}
        until = time.monotonic() + ROUND_SECONDS
        with Client(shoald.target) as client:
            while time.monotonic() < until:
                futures = []
                began = time.monotonic()
                for _ in range(16):
                    count = draw.choice((0, 0, 1, 3, 10, 100))
                    words = struct.pack("<2q", draw.randrange(1 << 62), count)
                    futures.append(client.start_raw("hostile", ("scribble", "INT64", [2], words)))
                for future in futures:
                    end = future.code().name
                    outcome[end] = outcome.get(end, 0) + 1
                    # Everything may happen to them but one thing. A deadline in scribbled memory may
                    # have passed, too: no answer is what takes the caller's whole time.
                    if end == "DEADLINE_EXCEEDED":
                        self.assertLess(time.monotonic() - began, WAIT_SECONDS,
                                        f"no answer:\n{shoald.stderr}")
                if futures[-1].code().name == "UNAVAILABLE":
                    self.wait_serving(shoald, client)
        return outcome

    def wait_serving(self, shoald, client):
        wait_until(lambda: client.call("ModelReady", name="hostile").ready,
                   lambda: f"recovery; the log:\n{shoald.stderr}", 90)

    def check_recovers(self, shoald):
        """Scribbled memory may still wait to be found: so serving is what counts, in the end."""
        harmless = struct.pack("<2q", 0, 0)

        def served():
            future = client.start_raw("hostile", ("scribble", "INT64", [2], harmless))
            return (future.code().name == "OK"
                    and future.result().raw_output_contents[0] == harmless)
        with Client(shoald.target) as client:
            wait_until(lambda: all(served() for _ in range(50)),
                       lambda: f"50 right answers in a row; the log:\n{shoald.stderr}", 90)


if __name__ == "__main__":
    shoal_fixture.main()
