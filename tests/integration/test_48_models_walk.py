# SPDX-License-Identifier: Apache-2.0
"""Far more models than fit, in short: shoal_walk.py, which says what has to hold.

`./dev walk` does it with 10,000 models and 20,000 loads. With a sanitizer the memory of the workers
says nothing, and is not looked at.
ctest: timeout=300
"""

import re
import unittest

import shoal_fixture
import shoal_walk
from shoal_fixture import BUILD


def sanitized():
    cache = (BUILD / "CMakeCache.txt").read_text()
    return bool(re.search(r"^SHOAL_SANITIZE:\w+=.+$", cache, re.M))


class TestWalk(unittest.TestCase):
    def test_short(self):
        plan = (shoal_walk.Plan(models=400, fit=40, loads=600, seconds_max=200) if sanitized() else
                shoal_walk.Plan(models=2000, fit=200, loads=3000, seconds_max=200))
        report = shoal_walk.run(plan, shoal_fixture.draw_seed(), sanitized())
        shoal_walk.tell(report)
        self.assertEqual(report["problems"], [])
        self.assertGreater(report["evicted"], 0)


if __name__ == "__main__":
    shoal_fixture.main()
