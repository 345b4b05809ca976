# SPDX-License-Identifier: Apache-2.0
"""ServingRuntimes that rest (test_69_hosted_rest.py) and nodes.

Proves: a resting runtime makes way for another that is needed; a node that is killed meanwhile leaves
nothing behind, and its successor serves. ctest: timeout=240
"""

import grpc

from shoal_fixture import free_port, main, wait_until
from shoal_hosting import Resting, processes
from shoal_registry import Registrar


class TestOneNode(Resting):
    def test_it_makes_way_for_another_that_is_needed(self):
        self.begin()
        self.wait_rest()
        self.apply(self.manifest("tower", free_port(), formats=("tower",)))
        self.wait_state("tower", "Busy")
        self.registrar.register("o", kind="mt:tower")
        self.wait_state("tower", "Ready")
        self.assertTrue(self.call_model("o").result())
        self.wait_state("sorter", "Busy")


class TestKilledNode(Resting):
    def again(self):
        """The node is killed, and started with the registry that it has left."""
        self.at.kill()
        self.wait_gone()
        self.at.start().wait_ready()
        self.registrar = self.enterContext(Registrar(self.at))

    def test_while_it_rests_and_while_it_wakes(self):
        self.begin(store="file:registry")
        self.wait_rest()
        self.again()
        wait_until(lambda: self.rests() == (1, 0), "the runtime to run and rest")
        self.wait_gone()
        self.open.unlink()
        self.registrar.register("m", kind="mt:sort")
        waiting = self.call_model("m")
        wait_until(lambda: processes(self.marker), "processes")
        self.again()
        self.assertEqual(waiting.exception().code(), grpc.StatusCode.UNAVAILABLE)
        self.open.touch()
        wait_until(lambda: self.call_model("m").exception() is None, "an answer")


if __name__ == "__main__":
    main()
