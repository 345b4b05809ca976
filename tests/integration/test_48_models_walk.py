# SPDX-License-Identifier: Apache-2.0
"""Far more models than fit, in short: shoal_walk.py, which says what has to hold. And many callers of
models that are loaded, while others come and go.

`./dev walk` does the first with 10,000 models and 20,000 loads; `./dev bench --only models` says how long
the second takes. With a sanitizer the memory of the workers says nothing, and is not looked at.
ctest: timeout=600
"""

import collections
import pathlib
import random
import tempfile
import unittest

import shoal_boosters
import shoal_fixture
import shoal_walk
from shoal_client import Client
from shoal_fixture import EXAMPLES, Shoald, node, pipeline, stage
from shoal_loads import Loads

CALLERS, SERVED, LOADS_PER_S, LOADS_MIN = 64, 50, 10, 30


class TestWalk(unittest.TestCase):
    def test_short(self):
        small = shoal_fixture.sanitized()
        plan = (shoal_walk.Plan(models=400, fit=40, loads=600, seconds_max=400) if small else
                shoal_walk.Plan(models=300, fit=30, loads=400, seconds_max=400))
        report = shoal_walk.run(plan, shoal_fixture.draw_seed(), small)
        shoal_walk.tell(report)
        self.assertEqual(report["problems"], [])
        self.assertGreater(report["evicted"], 0)


class TestLoadsMeanwhile(unittest.TestCase):
    """Callers of 50 models, 64 requests at once, while ten others a second are loaded and unloaded."""

    def setUp(self):
        self.draw = random.Random(shoal_fixture.draw_seed())
        self.root = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="shoal-test.")))
        shoal_boosters.write_many(self.root, SERVED)
        (self.root / "other.ubj").write_bytes((EXAMPLES / "digits" / "digits.ubj").read_bytes())

    def check(self, future, number, side):
        answer = future.result()  # an error ends the test
        self.assertEqual((shoal_boosters.value_of(answer), answer.model_name),
                         (shoal_boosters.answers(number)[side], shoal_boosters.name(number)))

    def ask(self, client, flying):
        number, side = self.draw.randrange(SERVED), self.draw.randrange(2)
        flying.append((client.start_raw(shoal_boosters.name(number), shoal_boosters.tensor(side)),
                       number, side))
        if len(flying) >= CALLERS:
            self.check(*flying.popleft())

    def test_no_wrong_answer_and_no_error(self):
        config = node(pipeline("boosters", stage("libxgboost_modelet.so", workers=2, batch_size=16),
                               models={"root": str(self.root), "memory_mib": 512}))
        with Shoald(config) as shoald, Client(shoald.target) as client:
            flying = collections.deque()
            with Loads(f"{shoald.counters}.control", "other.ubj", LOADS_PER_S) as loads:
                while loads.count < LOADS_MIN and not loads.failed:
                    self.ask(client, flying)
            while flying:
                self.check(*flying.popleft())
            self.assertIsNone(loads.failed)
            shoald.wait_all_returned("boosters")


if __name__ == "__main__":
    shoal_fixture.main()
