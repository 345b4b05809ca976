# SPDX-License-Identifier: Apache-2.0
"""Runs tests/bench/run.py for a blink on a release build, and checks that its report is whole.

Figures of so short a time are meaningless and not checked. That each contender ran,
answered every request rightly and gave every figure is: run.py fails a round in which one answer
was wrong. The page is made of it, too. Other builds are skipped: what sanitizers slow down is no
yardstick.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

from shoal_fixture import BUILD, SOURCE

sys.path.insert(0, str(SOURCE / "tests" / "bench"))

import groups  # pylint: disable=wrong-import-position


def is_release():
    """By what the build folder says of itself."""
    cache = BUILD / "CMakeCache.txt"
    text = cache.read_text() if cache.exists() else ""
    kind = re.search(r"^CMAKE_BUILD_TYPE:\w+=(.*)$", text, re.M)
    sanitize = re.search(r"^SHOAL_SANITIZE:\w+=(.*)$", text, re.M)
    return kind is not None and kind[1] == "RelWithDebInfo" and not (sanitize and sanitize[1])


RELEASE = unittest.skipUnless(is_release(), f"{BUILD} is not a release build")


@RELEASE
@unittest.skipIf(len(os.sched_getaffinity(0)) < 2, "the bench wants two CPUs")
class BenchTest(unittest.TestCase):
    """Cells, each with all its contenders and cases."""

    def run_bench(self, *arguments):
        with tempfile.TemporaryDirectory(prefix="shoal-test.") as folder:
            path = pathlib.Path(folder, "performance.json")
            run = [sys.executable, SOURCE / "tests" / "bench" / "run.py", "--build", BUILD]
            command = run + ["--rounds", "1", "--seconds", "0.03", "--json", path, *arguments]
            done = subprocess.run(list(map(str, command)), stdin=subprocess.DEVNULL,
                                  capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            report = json.loads(path.read_text())
            self.assertEqual(report["failed"], {}, done.stdout)
            subprocess.run(list(map(str, [*run, "--report", path])), check=True,
                           stdout=subprocess.DEVNULL)
            return report, pathlib.Path(folder, "performance.md").read_text()

    def check_cell(self, cell, placement, absent=()):
        report, text = self.run_bench("--only", cell, "--placement", placement)
        small = {part for part, why in report["skipped"].items() if "MiB of memory" in why}
        self.assertEqual(sorted(set(report["skipped"]) - small),
                         sorted(f"{cell}: {name}" for name in absent))
        for group in groups.GROUPS:
            if group.name.split()[0] != cell:
                continue
            self.assertRegex(text, rf"(?m)^(### |\| \*\*){re.escape(group.title)}")
            for case in group.cases:
                for name in group.contenders(case):
                    if f"{group.name}: {name}" not in report["skipped"]:
                        self.check_case(report["cells"][placement][group.name], case, name, group)
        return report

    def check_case(self, cell, case, name, group):
        figures = cell[name].get(case.name)
        if case.fraction and figures is None:
            return  # beyond its capacity
        where = f"{group.name}, {name}, {case.name}: {figures}"
        shown = {figure for figure, _ in group.figures}
        self.assertTrue(set(figures) & shown, where)
        for figure in set(figures) & shown:
            self.assertEqual(len(figures[figure]), 1, where)
            # a server that nobody calls may well have done nothing for so short a time
            least = 0 if group.name == "idle" else sys.float_info.min
            self.assertGreaterEqual(figures[figure][0], least, f"{figure}: {where}")
        if case.fraction:
            self.assertGreater(len(figures["distribution"]), 1, where)

    def check_goals(self, report, names):
        judged = {goal["name"]: goal["placements"] for goal in report["goals"]}
        for name in names:
            self.assertIn(name, judged)
