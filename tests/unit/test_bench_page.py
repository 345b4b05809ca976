# SPDX-License-Identifier: Apache-2.0
"""The bench's charts are well-formed and show what they are given, and its page says what the report
says; the committed page, docs/performance.md, and its charts are those that are made of the committed
docs/performance.json."""

import json
import os
import sys
import unittest
import xml.etree.ElementTree
from pathlib import Path

SOURCE = Path(os.environ["SHOAL_SOURCE_DIR"])
sys.path.insert(0, str(SOURCE / "tests" / "bench"))

import groups  # pylint: disable=wrong-import-position
import page  # pylint: disable=wrong-import-position
import svg  # pylint: disable=wrong-import-position

DOCS = SOURCE / "docs"
SVG = "{http://www.w3.org/2000/svg}"


def parse(text):
    return xml.etree.ElementTree.fromstring(text.encode())


def texts(chart):
    return [element.text for element in chart.iter(f"{SVG}text")]


class TestLatencyChart(unittest.TestCase):
    series = {"a <b> & c": [[0.0, 50.0], [0.5, 100.0], [0.99, 1000.0], [1.0, 9999.0]],
              "d": [[0.0, 20.0], [0.5, 40.0]]}

    def test_well_formed_with_axes_and_legend(self):
        chart = parse(svg.latency_chart("title \"of\" it", self.series))
        shown = texts(chart)
        for wanted in ('title "of" it', "a <b> & c", "d", "latency, µs (logarithmic)", "50 %", "99 %",
                       "100", "1,000"):
            self.assertIn(wanted, shown)

    def test_points_are_where_they_belong(self):
        chart = parse(svg.latency_chart("t", self.series))
        lines = [line.get("points").split() for line in chart.iter(f"{SVG}polyline")]
        (first, second), frame = lines[:2], [float(part) for part in chart.get("viewBox").split()]
        self.assertEqual((len(first), len(second)), (3, 2))  # the slowest of all has no place
        for point in first + second:
            x, y = map(float, point.split(","))
            self.assertTrue(svg.LEFT <= x <= frame[2] - svg.RIGHT and svg.TOP <= y <= frame[3])
        self.assertGreater(float(first[0].split(",")[1]), float(first[2].split(",")[1]))
        self.assertEqual(first[1].split(",")[0], second[1].split(",")[0])

    def test_nothing(self):
        parse(svg.latency_chart("t", {"empty": []}))

    def test_same_data_same_bytes(self):
        self.assertEqual(svg.latency_chart("t", self.series), svg.latency_chart("t", self.series))

    def test_many_names_take_more_rows(self):
        few = parse(svg.latency_chart("t", {"a": [[0.5, 1.0]]}))
        many = parse(svg.latency_chart("t", {f"a rather long name {n}": [[0.5, 1.0]]
                                             for n in range(10)}))
        self.assertGreater(int(many.get("height")), int(few.get("height")))

    def test_ticks(self):
        self.assertEqual(svg.ticks_log(20, 1000), [20, 50, 100, 200, 500, 1000])
        self.assertEqual([svg.nines(share) for share in (0, 0.9, 0.99, 1)][0], 0)
        self.assertAlmostEqual(svg.nines(0.99), 2)
        self.assertEqual(svg.nines(1), svg.NINES_MAX)


class TestSizesChart(unittest.TestCase):
    def test_bars(self):
        chart = parse(svg.sizes_chart("t", {"a": [[1, 3], [64, 1]], "b": [[64, 10]]}))
        bars = [bar for bar in chart.iter(f"{SVG}rect")][2:]  # after those of the legend
        heights = [float(bar.get("height")) for bar in bars]
        self.assertEqual(len(heights), 3)
        self.assertAlmostEqual(heights[0], 3 * heights[1], delta=0.3)
        self.assertAlmostEqual(heights[2], 4 * heights[1], delta=0.3)
        for wanted in ("1", "64", "share of the batches, %"):
            self.assertIn(wanted, texts(chart))

    def test_nothing(self):
        parse(svg.sizes_chart("t", {"empty": []}))


def report_of(placement="pinned"):
    """Every group with the same value everywhere, one of them flagged."""
    cells, counts = {}, {}
    for group in groups.GROUPS:
        counts[group.name] = [1, 10]
        for case in group.cases:
            for name in group.contenders(case):
                figures = {figure: [2.0, 1.0, 3.0] for figure, _ in group.figures}
                if case.fraction:
                    figures["rate"] = [1234.0, 1235.0, 1236.0]
                if case.fraction or group.name.startswith("local "):
                    figures["distribution"] = [[0.0, 1.0], [0.5, 2.0], [1.0, 3.0]]
                figures["batch_sizes"] = [[1, 1]]
                cells.setdefault(group.name, {}).setdefault(name, {})[case.name] = figures
    flagged = [[placement, "echo 100 B", "bare", "1 outstanding", turn, [0, 9, 0]]
               for turn in (1, 2)]
    return {
        "machine": {"cpu": "a CPU", "cores": 2, "memory_gib": 8, "kernel": "6", "system": "a system",
                    "python": "3", "load_average": 0.1},
        "date": "2026-01-01", "commit": "abc", "command": "./dev bench",
        "options": {"rounds": 3, "seconds": 1.0, "placements": [placement]},
        "noise": {"limits": {"steal_percent": 2.0, "others_percent": 5.0,
                             "others_switches_per_s": 1000.0},
                  "of": {placement: counts}, "flagged": flagged},
        "cells": {placement: cells}, "skipped": {"digits: x": "not there"}, "failed": {},
    }


class TestPage(unittest.TestCase):
    def test_says_what_the_report_says(self):
        made = page.text(report_of())
        for wanted in ("a CPU, 2 cores, 8 GiB", "`./dev bench`", "abc", "**not met**", ", met",
                       "(performance-notes.md)", "| bare gRPC echo | 2~ | 2 |", "p99 µs, 128 outstanding",
                       "| plain, hop | 2 |", "| 64 outstanding | p50 µs |", "- digits: x: not there",
                       "performance-batch-sizes.svg"):
            self.assertIn(wanted, made)
        self.assertEqual(made.count("~ |"), 1)
        self.assertNotIn("None", made)

    def test_says_that_a_busy_machine_was_busy(self):
        report = report_of()
        self.assertNotIn("The machine was busy", page.text(report))
        for counts in report["noise"]["of"]["pinned"].values():
            counts[0] = 4
        self.assertIn("The machine was busy", page.text(report))

    def test_a_report_of_before_there_was_a_group(self):
        """Its page is made all the same, and says nothing of the group."""
        report = report_of()
        self.assertIn("local client", page.text(report))
        cells = report["cells"]["pinned"]
        for name in [name for name in cells if name.startswith("local ")]:
            del cells[name], report["noise"]["of"]["pinned"][name]
        made = page.files(report)
        self.assertNotIn("local client", made["performance.md"])
        self.assertNotIn("performance-latency-local.svg", made)

    def test_a_group_that_was_measured_anew(self):
        published, report = report_of(), report_of("free")
        report.update(commit="def", command="./dev bench --publish --only mesh", skipped={})
        report["options"] = {"rounds": 7, "seconds": 0.5, "placements": ["free"]}
        for part in (report["cells"]["free"], report["noise"]["of"]["free"]):
            for name in [name for name in part if name != "mesh"]:
                del part[name]
        for cases in report["cells"]["free"]["mesh"].values():
            for figures in cases.values():
                figures["p50_us"] = [7.0]
        report["noise"]["of"]["free"]["mesh"] = [6, 99]
        report["noise"]["flagged"] = [["free", "mesh", "mesh", "1 outstanding", turn, [9, 9, 0]]
                                      for turn in range(3)]
        self.assertTrue(page.is_of_same_machine(published, report))
        before = page.text(published)
        made = page.text(page.joined(published, report))
        told = "Measured at def: `./dev bench --publish --only mesh`."
        self.assertEqual(made.count(told), 1)
        self.assertNotIn(told, before)
        self.assertIn("| no mesh | 2 |", before)
        self.assertIn("| no mesh | 7 |", made)
        self.assertNotIn("| no mesh | 2 |", made)
        self.assertEqual(made.count("~ |"), 1)  # three of seven rounds are not most of them
        self.assertIn("- digits: x: not there", made)
        report["machine"]["cores"] = 64
        self.assertFalse(page.is_of_same_machine(published, report))

    def test_both_placements_stand_in_one_cell_and_notes_are_not_repeated(self):
        report, free = report_of(), report_of("free")
        report["options"]["placements"].append("free")
        for figures in free["cells"]["free"]["echo 100 B"]["bare"].values():
            figures["p50_us"] = [5.0]
        report["cells"]["free"] = free["cells"]["free"]
        report["noise"]["of"]["free"] = free["noise"]["of"]["free"]
        made = page.text(report)
        self.assertIn("| bare gRPC echo | 2~/5 | 2/2 |", made)
        self.assertEqual(made.count("Both call one stage of echo."), 1)

    def test_tables_are_whole(self):
        made = page.text(report_of())
        tables = [part for part in made.split("\n\n") if part.startswith("|")]
        self.assertEqual(made.count("\n### ") + made.count("\n| **"), len(groups.GROUPS))
        self.assertEqual(len(tables), 2 + made.count("\n### "))  # of the machine and of the goals, too
        for table in tables:
            columns = {line.count("|") for line in table.strip().splitlines()}
            self.assertEqual(len(columns), 1, table)

    def test_files(self):
        made = page.files(report_of())
        self.assertEqual(sorted(made), sorted(["performance.md"] + [
            f"performance-{name}.svg" for name, *_ in page.CHARTS]))
        for name, content in made.items():
            if name.endswith(".svg"):
                parse(content)
                self.assertIn(f"({name})", made["performance.md"])


class TestCommitted(unittest.TestCase):
    """If this fails: ./dev bench --report"""

    def test_page_and_charts_are_made_of_the_report(self):
        report = json.loads((DOCS / "performance.json").read_text())
        made = page.files(report)
        for name, content in made.items():
            self.assertEqual((DOCS / name).read_text(), content, f"docs/{name}")
        there = {path.name for path in DOCS.glob("performance*")}
        self.assertEqual(there - {"performance.json", "performance-notes.md"}, set(made))


if __name__ == "__main__":
    unittest.main()
