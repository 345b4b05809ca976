# SPDX-License-Identifier: Apache-2.0
"""docs/performance.md and its charts, made from a report (figures.py). Pure, but for write().

The page has the goals and the medians of the lightest and the heaviest closed loop; the report has
every figure of every round. performance-notes.md, written by hand, says why a goal is missed.
"""

import json
import statistics

from figures import PLACEMENTS, judge, short, wanted
from groups import GROUPS
from svg import latency_chart, sizes_chart

LABELS = {
    "bare": "bare gRPC echo", "shoal_1": "Shoal, 1 stage", "shoal_2": "Shoal, 2 stages",
    "shoal_4": "Shoal, 4 stages", "xgboost": "XGBoost alone", "off": "not batched",
    "wait_0": "wait 0", "wait_0.5": "wait 0.5 ms", "wait_1": "wait 1 ms", "wait_2": "wait 2 ms",
    "wait_5": "wait 5 ms", "adaptive": "wait adaptive", "python": "Python service",
    "shoal": "Shoal, no network", "shoal_grpc": "Shoal, gRPC", "local": "Shoal, local client",
    "in_python": "in Python", "in_c": "in C",
    "no_mesh": "no mesh", "mesh": "a mesh of one", "bare_proxy": "behind a bare proxy",
    "mesh_forwarded": "behind another node", "mesh_external": "in a runtime", "plain": "plain",
    "plain_cached": "plain, indices cached", "plain_record": "plain, a record per item",
}
RING_LABELS = {"shoal": "Shoal's"}

# file, kind, title, group, case, contenders
CHARTS = [
    ("latency-echo", "latency", "Echo, 100 B, open loop at 50 % of the capacity of one stage",
     "echo 100 B", "open loop, 50 %", ("bare", "shoal_1")),
    ("latency-local", "latency", "Echo, 100 B, 1 outstanding", "local 100 B", "1 outstanding",
     ("shoal_grpc", "local")),
    ("latency-digits", "latency", "Digits, open loop at 20 % of the batched capacity", "digits",
     "open loop, 20 %", ("off", "wait_0", "wait_0.5", "wait_2", "wait_5", "adaptive")),
    ("latency-digits-high", "latency", "Digits, open loop at 80 % of the batched capacity", "digits",
     "open loop, 80 %", ("wait_0", "wait_0.5", "wait_2", "wait_5", "adaptive")),
    ("batch-sizes", "sizes", "Digits, 128 outstanding: sizes of the batches", "digits",
     "128 outstanding", ("wait_0", "wait_0.5", "wait_2", "adaptive")),
]

HEAD = """\
# Performance

`./dev bench --publish` measures and makes this page; `./dev bench --report` makes it again from
[performance.json](performance.json), which has every figure of every round and case.

{about}

Figures are medians of {rounds} rounds of {seconds} s. *Pinned*: servers and coordinator on CPU 0,
workers and client on CPU 1. *Not pinned*: where the kernel places them.
{quiet}

## Goals

[Why some are missed](performance-notes.md).

{goals}
"""

HOW = """\
## Reproduce and read

`./dev bench` takes over an hour, `--quick` a few; `--only digits` measures one cell, `./dev bench --help`
lists them. [The bench](../tests/bench/DESIGN.md) has its rules.

- **N outstanding** is a closed loop: each answer is followed by the next call. The charts of an
  **open loop** show calls at random moments, at a part of the rate that the group's reference reached;
  latency counts from when a call was due.
- **CPU** is that of the server and its workers, per request.
- **bare gRPC echo** is one thread of gRPC C core that returns the bytes. **XGBoost alone** runs the
  same three steps in one thread of one process.
- **best fixed wait**: in each round, the wait that was best in the other rounds.
- **second stage**: from a request's arrival at the stage to the end of its run.
"""

FIGURES = """\
## Figures

Medians, {placements}. A ~ marks a value of which more than half of the rounds were not quiet.
"""

LIGHT = ("p50_us",)
HEAVY = ("requests_per_s", "p99_us", "batch_mean", "run_us", "run_items", "loads_per_s",
         "second_stage_ns")


def label(group, name):
    return RING_LABELS.get(name, LABELS.get(name, name)) if group == "ring" else LABELS.get(name, name)


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


# ---- a run that has measured some groups anew


def is_of_same_machine(published, report):
    return all(published["machine"][key] == report["machine"][key]
               for key in ("cpu", "cores", "system"))


def joined(published, report):
    """The published report with the groups of another run in the place of its own."""
    anew = {group for groups in report["cells"].values() for group in groups}
    noise = published["noise"]
    for groups in [*published["cells"].values(), *noise["of"].values()]:
        for group in anew:
            groups.pop(group, None)
    for placement, groups in report["cells"].items():
        published["cells"].setdefault(placement, {}).update(groups)
        noise["of"].setdefault(placement, {}).update(report["noise"]["of"][placement])
    noise["flagged"] = [entry for entry in noise["flagged"] if entry[1] not in anew]
    noise["flagged"] += report["noise"]["flagged"]
    run = {key: report[key] for key in ("date", "commit", "command", "options")}
    published.setdefault("anew", {}).update({group: run for group in anew})
    published["skipped"] = {part: why for part, why in published["skipped"].items()
                            if part.split(":")[0] not in anew} | report["skipped"]
    published["goals"] = judge(published["cells"])
    return published


def run_of(report, group):
    return report.get("anew", {}).get(group, report)


def said_of_run(report, group):
    run = report.get("anew", {}).get(group)
    if run is None:
        return []
    return [f"Measured at {run['commit']}: `{run['command']}`."]


# ---- parts


FLAGGED_PART_MAX = 0.25


def about(report):
    machine = report["machine"]
    rows = [
        ["machine", f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_gib']} GiB"],
        ["system", f"{machine['system']}, kernel {machine['kernel']}, Python {machine['python']}"],
        ["date, commit", f"{report['date']}, {report['commit']}"],
        ["command", f"`{report['command']}`"],
    ]
    return table(["", ""], rows)


def quiet(report):
    counts = [count for groups in report["noise"]["of"].values() for count in groups.values()]
    flagged, every = (sum(count[index] for count in counts) for index in (0, 1))
    limits = report["noise"]["limits"]
    load = report["machine"]["load_average"]
    worth = ""
    if flagged > every * FLAGGED_PART_MAX:
        worth = "**The machine was busy: these figures only show that the bench runs.** "
    return (f"{worth}The machine was not quiet during {flagged} of {every} measurements (more than "
            f"{short(limits['steal_percent'])} % of CPU time stolen, "
            f"{short(limits['others_percent'])} % of a core or "
            f"{short(limits['others_switches_per_s'])} switches a second by others); "
            f"the load average before was {load}.")


def verdict(of):
    if of is None:
        return "–"
    mark = {None: "", True: ", met", False: ", **not met**"}[of["met"]]
    return short(of["value"]) + mark


def goals_table(goals, placements):
    rows = [[goal["text"], wanted(goal)] + [verdict(goal["placements"].get(one))
                                            for one in placements]
            for goal in goals if wanted(goal)]
    return table(["", "wanted", *(PLACEMENTS[one] for one in placements)], rows)


def flag(report, placement, group, name, case):
    """A tilde where more than half of the rounds were not quiet."""
    flagged = sum(1 for entry in report["noise"]["flagged"]
                  if entry[:4] == [placement, group, name, case])
    return "~" if flagged * 2 > run_of(report, group)["options"]["rounds"] else ""


def columns(group):
    """[(figure, whether of the heaviest case)] in the order of the table."""
    figures = [figure for figure, _ in group.figures]
    loads = [case for case in group.cases if case.outstanding]
    if not loads:
        return [(figure, None) for figure in figures]
    return ([(figure, False) for figure in LIGHT]
            + [(figure, True) for figure in HEAVY if figure in figures])


def cases_of(group, name):
    """A contender's closed loops, the lightest first; or its cases without a load."""
    return [case for case in group.cases if not case.fraction and name in group.contenders(case)]


def value(report, group, name, case, figure):
    """The medians of all placements; empty: not measured."""
    texts = []
    for placement, groups in report["cells"].items():
        rounds = groups.get(group.name, {}).get(name, {}).get(case.name, {}).get(figure)
        if rounds:
            texts.append(short(statistics.median(rounds))
                         + flag(report, placement, group.name, name, case.name))
    return "/".join(texts)


def group_rows(report, group):
    """A row for each contender; without loads, for each of its cases."""
    shown = columns(group)
    rows = []
    for name in group.names:
        cases = cases_of(group, name)
        for row in [cases] if shown[0][1] is not None else [[case] for case in cases]:
            values = [value(report, group, name, row[-1 if heavy else 0], figure)
                      for figure, heavy in shown]
            if any(values):
                text = label(group.name, name)
                rows.append([text if len(group.cases) == 1 or shown[0][1] is not None
                             else f"{text}, {row[0].name}"] + values)
    return rows


def heads(group):
    loads = [case.name for case in group.cases if case.outstanding]
    titles = dict(group.figures)
    return [loads[0] if len(loads) == 1 else ""] + [
        titles[figure] if heavy is None or len(loads) == 1
        else f"{titles[figure]}, {loads[-1 if heavy else 0]}" for figure, heavy in columns(group)]


def group_part(report, group, above):
    """The group's rows, below the head of `above`, the last group, if that fits; else a section."""
    rows = group_rows(report, group)
    if not rows:
        return ""
    notes = [group.note] if group.note and not (above and above.note == group.note) else []
    notes += said_of_run(report, group.name)
    if above and not notes and heads(above) == heads(group) and not chart_part(report, above):
        rows.insert(0, [f"**{group.title}**"] + [""] * (len(heads(group)) - 1))
        return table(heads(group), rows).split("\n", 2)[2]
    return "\n\n".join([f"### {group.title}", *notes, table(heads(group), rows)])


# ---- charts


def charts(report):
    """{file name: SVG}; the first placement that was measured."""
    made = {}
    for name, kind, title, group, case, contenders in CHARTS:
        for placement, cells in report["cells"].items():
            figure = "distribution" if kind == "latency" else "batch_sizes"
            series = {label(group, one): cells[group][one][case][figure] for one in contenders
                      if cells.get(group, {}).get(one, {}).get(case, {}).get(figure)}
            if series:
                draw = latency_chart if kind == "latency" else sizes_chart
                made[f"performance-{name}.svg"] = draw(f"{title}, {PLACEMENTS[placement]}", series)
                break
    return made


def chart_part(report, group):
    names = [f"performance-{name}.svg" for name, _, _, of, _, _ in CHARTS if of == group.name]
    titles = {f"performance-{name}.svg": title for name, _, title, _, _, _ in CHARTS}
    there = charts(report)
    return "\n\n".join(f"![{titles[name]}]({name})" for name in names if name in there)


# ---- the page


def text(report):
    goals = judge(report["cells"])
    placements = report["options"]["placements"]
    parts = [HEAD.format(
        about=about(report), rounds=report["options"]["rounds"],
        seconds=short(report["options"]["seconds"]), quiet=quiet(report),
        goals=goals_table(goals, placements))]
    parts.append(HOW)
    parts.append(FIGURES.format(placements="/".join(PLACEMENTS[one] for one in report["cells"])))
    above = None
    for group in GROUPS:
        made = group_part(report, group, above)
        if made.startswith("|"):
            parts[-1] += made + "\n"
        elif made:
            parts.append(made + "\n")
        if chart_part(report, group):
            parts.append(chart_part(report, group) + "\n")
        above = group if made else above
    skipped = [f"- {part}: {why}" for part, why in report["skipped"].items()]
    if skipped:
        parts.append("## Not measured\n\n" + "\n".join(skipped) + "\n")
    return "\n".join(parts)


def files(report):
    """{file name: content} of everything that is made from a report."""
    return {"performance.md": text(report), **charts(report)}


def write(path):
    """Makes the page and the charts beside this report."""
    report = json.loads(path.read_text())
    for name, content in files(report).items():
        (path.parent / name).write_text(content)
    print(f"written: {path.parent / 'performance.md'} and its charts")
