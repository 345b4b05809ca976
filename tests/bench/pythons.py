# SPDX-License-Identifier: Apache-2.0
"""The same modelet in Python and in C: rows of four numbers are doubled, in batches of up to 64. The
cost per run comes from the node's own counters."""

from contenders import (BATCH, LOAD_FIGURES, OUTSTANDING, PINNED, Group, Messages, Shoal, closed,
                        floats, infer_request, run_json)

CODE = """\
import shoal

@shoal.batched
def run(x: shoal.FP32[-1, 4]) -> {"x": shoal.FP32[-1, 4]}:
    return {"x": x * 2}
"""


class Doubler(Shoal):
    def __init__(self, setting, name, modelet, messages):
        stages = [("double", modelet, [PINNED["workers"]], f"batch_size: {BATCH}")]
        super().__init__(setting, name, "double", stages, messages)

    def counts(self):
        """Runs, their ns, and their items."""
        (stat,) = run_json([self.setting.program("bin", "shoalctl"), "stat", "--counters",
                            self.counters, "--json"])
        (stage,) = stat["pipelines"][0]["stages"]
        return stage["run"]["count"], stage["run"]["sum"], stage["batch_items"]["sum"]

    def measure(self, case, seconds, rate, seed):
        before = self.counts()
        figures = super().measure(case, seconds, rate, seed)
        runs, ns, items = (now - then for now, then in zip(self.counts(), before))
        figures["run_us"] = ns / runs / 1000
        figures["run_items"] = items / runs
        return figures


def python_contenders(setting):
    setting.program("lib", "shoal", "libpython_modelet.so")
    rows = [[float(number + column) for column in range(4)] for number in range(100)]
    messages = Messages([infer_request("double", "x", [1, 4], row) for row in rows],
                        [floats([2 * number for number in row]) for row in rows])
    code = setting.write("double.py", CODE.encode())
    return {"in_python": Doubler(setting, "in_python", code, messages),
            "in_c": Doubler(setting, "in_c", "libscale.so", messages)}


def python_group():
    return Group("python", "a modelet in Python and in C: four numbers doubled, batches of up to 64",
                 ("in_python", "in_c"), python_contenders, closed(*OUTSTANDING),
                 figures=LOAD_FIGURES[:5] + [("run_us", "run µs"), ("run_items", "requests per run")])
