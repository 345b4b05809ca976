# SPDX-License-Identifier: Apache-2.0
"""The results of tests/bench from measured values: medians, merged distributions, ratios and goals;
and when it says that the machine was not quiet. All on values written here."""

import contextlib
import copy
import io
import json
import os
import re
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.environ["SHOAL_SOURCE_DIR"], "tests", "bench"))

import contenders  # pylint: disable=wrong-import-position
import groups  # pylint: disable=wrong-import-position
import figures  # pylint: disable=wrong-import-position
import instructions  # pylint: disable=wrong-import-position
import programs  # pylint: disable=wrong-import-position
import quiet  # pylint: disable=wrong-import-position
import run  # pylint: disable=wrong-import-position


class TestStatistics(unittest.TestCase):
    def test_summary(self):
        self.assertEqual(figures.summary([3, 1, 2]), {"median": 2, "min": 1, "max": 3})
        self.assertEqual(figures.summary([4, 1, 2, 3])["median"], 2.5)

    def test_distributions_are_merged_share_by_share(self):
        merged = figures.merge_distributions([[[0.5, 10], [0.99, 100]], [[0.5, 30], [0.99, 20]],
                                              [[0.5, 20], [0.99, 60]]])
        self.assertEqual(merged, [[0.5, 20], [0.99, 60]])

    def test_batch_sizes_are_added(self):
        self.assertEqual(figures.merge_sizes([[[1, 5], [8, 2]], [[8, 3], [64, 1]]]),
                         [[1, 5], [8, 5], [64, 1]])

    def test_only_distributions_are_merged(self):
        merged = figures.merge({"p50_us": [1, 2], "batch_sizes": [[[1, 1]], [[1, 2]]]})
        self.assertEqual(merged, {"p50_us": [1, 2], "batch_sizes": [[1, 3]]})

    def test_histogram_difference(self):
        self.assertEqual(figures.difference([[1, 5], [2, 1]], [[1, 5], [2, 4], [16, 2]]),
                         [[2, 3], [16, 2]])
        self.assertEqual(figures.difference([], []), [])

    def test_mean_size(self):
        self.assertEqual(figures.mean_size([[1, 3], [5, 1]]), 2)
        self.assertEqual(figures.mean_size([]), 0)

    def test_rounded(self):
        self.assertEqual(figures.rounded(123456.0), 123500)
        self.assertEqual(figures.rounded([0.0123456, 7]), [0.01235, 7])

    def test_short(self):
        self.assertEqual([figures.short(value) for value in (None, 0, 0.00123, 0.5, 12.345, 123456)],
                         ["–", "0", "0.00123", "0.5", "12.3", "123,000"])

    def test_report_text(self):
        report = {"a": {"b": [1.5, 2], "c": [[0.5, 1], [1, 2]], "d": {}}, "e": ["[x]  y", []]}
        text = figures.report_text(report)
        self.assertEqual(json.loads(text), {**report, "e": ["[x] y", []]})
        self.assertIn('  "b": [1.5, 2],\n  "c": [[0.5, 1], [1, 2]],\n', text)

    def test_spread(self):
        self.assertEqual(figures.spread([]), "–")
        self.assertEqual(figures.spread([7.0]), "7")
        self.assertEqual(figures.spread([1.0, 3.0, 2.0]), "2 [1 – 3]")


def cells_with(group, case, figure, **values):
    return {group: {name: {case: {figure: list(of)}} for name, of in values.items()}}


CALLGRIND_OUT = """\
ob=(1) /lib/libgrpc.so.29
fl=(1) call.cc
fn=(1) a
16 30
+2 5
cfn=(2) b
cob=(2) /build/bin/shoald
calls=3 20
* 1000
-1 1
ob=(2)
fn=(2)
20 7
ob=(3) /lib/libc.so.6
21 2
totals: 45
"""


class TestInstructions(unittest.TestCase):
    """The results of ./dev bench --instructions from callgrind's files."""

    def test_by_object(self):
        """The cost of a called function is not the caller's own; names are given once."""
        self.assertEqual(instructions.by_object(CALLGRIND_OUT),
                         {"libgrpc.so.29": 36, "shoald": 7, "libc.so.6": 2})

    def test_parts(self):
        sums = instructions.by_object(CALLGRIND_OUT)
        self.assertEqual(instructions.parts(sums, "coordinator", 2), {"gRPC": 19, "Shoal": 3.5})
        self.assertEqual(instructions.parts({"libc.so.6": 4, "libxgboost.so.1": 6, "shoal-worker": 8,
                                             "libxgboost_modelet.so": 2}, "classify", 1),
                         {"XGBoost": 10, "Shoal": 10})

    def test_ratios_without_a_part(self):
        off = {"client": {"gRPC": 30}, "coordinator": {"gRPC": 20, "Shoal": 10},
               "classify": {"XGBoost": 90, "Shoal": 10}}
        on = {"client": {"gRPC": 30}, "coordinator": {"gRPC": 20, "Shoal": 10},
              "classify": {"XGBoost": 15, "Shoal": 5}}
        ratios = dict(instructions.what_if({"off": off, "on": on}))
        self.assertEqual([round(ratio, 3) for ratio in ratios.values()],
                         [2, 2.6, 2.462, 2.154, 2.6, 3.667, 6])
        rows = dict((name, values) for name, *values in instructions.table({"off": off, "on": on}))
        self.assertEqual(rows["all"], [160, 80])
        self.assertEqual(rows["classify: XGBoost"], [90, 15])


class TestAgainst(unittest.TestCase):
    """./dev bench --instructions --against FILE."""

    def setUp(self):
        self.options = instructions.parse(["--requests", "8"])
        self.other = {mode: {role: {"Shoal": 100} for role in instructions.ROLES}
                      for mode in instructions.MODES}

    def printed(self, counted):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            instructions.print_growth(counted, self.read(json.dumps(self.other)))
        return out.getvalue().splitlines()

    def read(self, text):
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            file.write(text)
            file.flush()
            return instructions.read_other(file.name, self.options)

    def test_ratio_of_each_row_and_goals(self):
        counted = copy.deepcopy(self.other)
        counted["off"]["coordinator"] = {"Shoal": 104, "gRPC": 2}
        counted["on"]["client"]["Shoal"] = 200
        counted["off"]["classify"]["XGBoost"] = 100  # not the node's own
        lines = self.printed(counted)
        rows = {line[:44].strip(): line[44:].split() for line in lines if line[44:45] == " "}
        self.assertEqual(rows["coordinator: Shoal"], ["1.040", "1.000", "1.000"])
        self.assertEqual(rows["coordinator: gRPC"], ["–", "–", "–"])
        self.assertEqual(rows["all"], ["1.212", "1.200", "1.000"])
        goals = [line.split("  ")[-1].strip() for line in lines if "instructions of a request" in line]
        self.assertEqual(goals, ["1.015, met", "1.060, NOT met"])

    def test_bound(self):
        counted = copy.deepcopy(self.other)
        for count, verdict in ((103, "1.030, met"), (103.1, "1.031, NOT met")):
            counted["off"]["coordinator"]["Shoal"] = count
            (line,) = [line for line in self.printed(counted)
                       if line.startswith("coordinator, not")]
            self.assertTrue(line.endswith(f"≤ 1.03   {verdict}"), line)

    def test_unusable_files(self):
        for text, why in (("", "Expecting value"), ("[]", "not from --instructions --json"),
                          ("{}", "not from --instructions --json: KeyError('off')"),
                          (json.dumps({**self.other, "options": 5}), "not from"),
                          (json.dumps({**self.other, "options": {"requests": 9}}),
                           "counted with --requests 9, this run has 8: give both the same"),
                          (json.dumps({**self.other, "on": {role: {"Shoal": "100"}
                                                            for role in instructions.ROLES}}),
                           "not from")):
            with self.assertRaisesRegex(instructions.Unusable, re.escape(why)):
                self.read(text)
        with self.assertRaisesRegex(instructions.Unusable, "No such file"):
            instructions.read_other("/nowhere/counted.json", self.options)


class TestGoals(unittest.TestCase):
    def judged(self, name, cells):
        (goal,) = [goal for goal in figures.judge({"pinned": cells}) if goal["name"] == name]
        return goal["placements"]["pinned"]

    def test_least(self):
        for rate, met in ((90.0, True), (89.0, False)):
            cells = cells_with("echo 100 B", "128 outstanding", "requests_per_s",
                               bare=[100, 90, 110], shoal_1=[rate])
            self.assertEqual(self.judged("echo-rate-100", cells), {"value": rate / 100, "met": met})

    def test_most(self):
        for us, met in ((125.0, True), (126.0, False)):
            cells = cells_with("echo 4 KiB", "1 outstanding", "p50_us", bare=[100], shoal_1=[us])
            self.assertEqual(self.judged("echo-lone-4k", cells), {"value": us / 100, "met": met})

    def test_the_local_client(self):
        for us, met in ((4.9, True), (5.1, False)):
            cells = cells_with("local 100 B", "1 outstanding", "p50_us", local=[us],
                               shoal_grpc=[us * 20])
            self.assertEqual(self.judged("local-lone", cells), {"value": us, "met": met})
            self.assertEqual(self.judged("local-grpc", cells), {"value": 20, "met": True})
        cells = cells_with("local 100 B", "1 outstanding", "p50_us", local=[2.0], shoal_grpc=[39.0])
        self.assertEqual(self.judged("local-grpc", cells), {"value": 19.5, "met": False})

    def test_best_of_the_fixed_waits(self):
        cells = cells_with("digits", "128 outstanding", "requests_per_s", off=[10.0], adaptive=[39.0],
                           **{"wait_0": [30.0], "wait_2": [40.0], "wait_0.5": [20.0]})
        self.assertEqual(self.judged("batching", cells), {"value": 4, "met": True})
        self.assertEqual(self.judged("adaptive-best", cells), {"value": 0.975, "met": False})

    def test_the_best_is_chosen_by_the_other_rounds(self):
        """Two waits that are equally good and lucky in turn, as the adaptive one is: the best of
        each round is 1.25 times what they stand for."""
        waits = {"wait_0": [50.0, 40.0, 40.0, 40.0], "wait_1": [40.0, 50.0, 40.0, 40.0]}
        cells = cells_with("digits", "128 outstanding", "requests_per_s", off=[10.0] * 4,
                           adaptive=[40.0] * 4, **waits)
        self.assertEqual(self.judged("adaptive-best", cells), {"value": 1, "met": True})
        self.assertEqual(self.judged("batching", cells), {"value": 4, "met": True})
        # one that is really better is found in every round
        cells["digits"]["wait_2"] = {"128 outstanding": {"requests_per_s": [44.0] * 4}}
        self.assertEqual(self.judged("adaptive-best", cells), {"value": 0.9091, "met": False})
        self.assertEqual(self.judged("batching", cells), {"value": 4.4, "met": True})

    def test_units(self):
        cells = cells_with("stages", "1 outstanding", "second_stage_ns", shoal_2=[1500])
        self.assertEqual(self.judged("stage", cells), {"value": 1.5, "met": True})

    def test_shown_without_a_bound(self):
        cells = cells_with("echo 100 B", "1 outstanding", "p50_us", shoal_1=[10.0], shoal_4=[16.0])
        self.assertEqual(self.judged("stage-grpc", cells), {"value": 2, "met": None})

    def test_not_measured_is_not_judged(self):
        self.assertEqual(figures.judge({"pinned": {}}), [])
        cells = cells_with("echo 100 B", "128 outstanding", "requests_per_s", bare=[100])
        self.assertEqual(figures.judge({"pinned": cells}), [])

    def test_each_goal_is_about_what_is_measured(self):
        """A typing error in a name would leave a goal unjudged forever."""
        every = {}
        for group in groups.GROUPS:
            for case in group.cases:
                for name in group.contenders(case):
                    shown = [figure for figure, _ in group.figures]
                    every.setdefault(group.name, {}).setdefault(name, {})[case.name] = {
                        figure: [1.0] for figure in shown}
        judged = {goal["name"] for goal in figures.judge({"pinned": every})}
        self.assertEqual(judged, {goal.name for goal in figures.GOALS + figures.SHOWN})
        self.assertEqual(len(judged), len(figures.GOALS + figures.SHOWN))


class Look:
    """The samples of quiet.Machine."""

    def __init__(self, at, every, steal, others, switches):
        self.at, self.all, self.steal = at, every, steal
        self.others, self.switches = others, switches


class TestQuiet(unittest.TestCase):
    before = Look(10.0, 100.0, 1.0, 5.0, {7: 100, 8: 50})

    def test_quiet(self):
        heard = quiet.noise(self.before, Look(12.0, 104.0, 1.0, 5.02, {7: 104, 8: 1, 9: 9999}))
        self.assertAlmostEqual(heard["steal_percent"], 0)
        self.assertAlmostEqual(heard["others_percent"], 1)
        self.assertAlmostEqual(heard["others_switches_per_s"], 2)
        self.assertTrue(quiet.is_quiet(heard))

    def test_each_limit(self):
        for after in (Look(12.0, 104.0, 1.2, 5.0, {}), Look(12.0, 104.0, 1.0, 5.2, {}),
                      Look(12.0, 104.0, 1.0, 5.0, {7: 3000})):
            self.assertFalse(quiet.is_quiet(quiet.noise(self.before, after)))

    def test_of_this_machine(self):
        before = quiet.Machine([os.getpid()])
        for value in quiet.noise(before, quiet.Machine([os.getpid()])).values():
            self.assertGreaterEqual(value, 0)
        self.assertGreater(quiet.cpu_seconds([os.getpid()]), 0)


class Timed:
    """A contender that answers with a rate of its own."""

    def __init__(self, rate, log):
        self.rate, self.log = rate, log

    def start(self):
        pass

    def stop(self):
        return None

    def pids(self):
        return []

    def measure(self, case, _seconds, rate, _seed):
        self.log.append((self.rate, case.name, rate))
        return {"requests_per_s": self.rate} if rate is None else {"rate": rate}


class Ill(Timed):
    def start(self):
        raise programs.Missing("not built")


class TestRound(unittest.TestCase):
    """run.Bench with contenders made here: the order, the rates of open loops, what is missing."""

    def run_group(self, names, rounds=1, reference="fast"):
        log = []
        made = {"slow": Timed(100.0, log), "fast": Timed(200.0, log), "absent": Ill(0.0, log)}
        group = contenders.Group(
            "g", "a group", tuple(names), lambda setting: {name: made[name] for name in names},
            contenders.closed(1, 128) + contenders.opened(0.5, 0.8), reference,
            placements=("pinned",))
        options = run.parse(["--rounds", str(rounds), "--seconds", "0.01"])
        report = run.describe(options, [])
        bench = run.Bench(options, report)
        bench.progress = run.Progress(1)
        for turn in range(rounds):
            bench.round(group, "pinned", turn, "/nonexistent")
        bench.finish()
        return report, log

    def test_turns(self):
        report, log = self.run_group(["slow", "fast"], rounds=2)
        closed = [(rate, case) for rate, case, sent in log if sent is None]
        first = [(100.0, "1 outstanding"), (200.0, "1 outstanding"),
                 (100.0, "128 outstanding"), (200.0, "128 outstanding")]
        second = [first[1], first[0], first[3], first[2]]
        self.assertEqual(closed, first + second)
        self.assertEqual(report["cells"]["pinned"]["g"]["slow"]["1 outstanding"],
                         {"requests_per_s": [100.0, 100.0]})
        self.assertEqual(report["noise"]["of"]["pinned"]["g"][1], 12)

    def test_open_loops_are_parts_of_the_reference(self):
        _, log = self.run_group(["slow", "fast"])
        opened = [(rate, case, sent) for rate, case, sent in log if sent is not None]
        # half of 200 would be all that the slow one can do
        self.assertEqual(opened, [(200.0, "open loop, 50 %", 100.0),
                                  (200.0, "open loop, 80 %", 160.0)])

    def test_missing(self):
        report, _ = self.run_group(["fast", "absent"])
        self.assertEqual(report["skipped"], {"g: absent": "not built"})
        self.assertEqual(list(report["cells"]["pinned"]["g"]), ["fast"])
        self.assertEqual(report["failed"], {})

    def test_without_the_reference_there_is_no_open_loop(self):
        report, log = self.run_group(["slow", "absent"], reference="absent")
        self.assertEqual([case for _, case, _ in log], ["1 outstanding", "128 outstanding"])
        self.assertEqual(report["failed"], {})


class TestMessages(unittest.TestCase):
    def test_request(self):
        """By hand: model "m", a tensor "x" of FP32 [1, 2], and eight raw bytes."""
        message = programs.infer_request("m", "x", [1, 2], [1.0, 2.0])
        tensor = b"\x0a\x01x" b"\x12\x04FP32" b"\x1a\x02\x01\x02"
        raw = b"\x00\x00\x80\x3f\x00\x00\x00\x40"
        self.assertEqual(message, b"\x0a\x01m" b"\x2a" + bytes([len(tensor)]) + tensor
                         + b"\x3a\x08" + raw)

    def test_lengths_beyond_a_byte(self):
        self.assertEqual(programs.varint(300), b"\xac\x02")

    def test_digits(self):
        rows = contenders.digit_rows()
        self.assertEqual({len(row) for row in rows}, {64})
        messages = {len(programs.infer_request("digits", "image", [1, 64], row)) for row in rows}
        self.assertEqual(len(messages), 1)


if __name__ == "__main__":
    unittest.main()
