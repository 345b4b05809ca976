# SPDX-License-Identifier: Apache-2.0
"""docs/performance.md and its charts, made of a report (figures.py). Pure, but for write().

What the figures don't say themselves, why a goal is missed, what peers publish, stands beside it in
performance-notes.md, written by hand, and is taken into the page as it is.
"""

import json

from figures import PLACEMENTS, judge, short, spread, wanted
from groups import GROUPS
from svg import latency_chart, sizes_chart

LABELS = {
    "bare": "bare gRPC echo", "shoal_1": "Shoal, 1 stage", "shoal_2": "Shoal, 2 stages",
    "shoal_4": "Shoal, 4 stages", "xgboost": "XGBoost alone", "off": "not batched",
    "wait_0": "wait 0", "wait_0.5": "wait 0.5 ms", "wait_1": "wait 1 ms", "wait_2": "wait 2 ms",
    "wait_5": "wait 5 ms", "adaptive": "wait adaptive", "python": "Python service",
    "shoal": "Shoal, no network", "shoal_grpc": "Shoal, gRPC", "local": "Shoal, local client",
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

Made by `./dev bench --publish` of [performance.json](performance.json); not written by hand.

{about}

Pinned: servers and coordinator on CPU 0, workers and client on CPU 1. Not pinned: as the kernel
likes. Figures are medians of {rounds} rounds of {seconds} s, with their range; in each round the
contenders of a table take turns case by case.

{quiet}

## What is wanted, and what is there

{goals}

{missed}"""

HOW = """\
## How to read it

- **Closed loop**: so many calls are outstanding, each answer is followed by the next call.
- **Open loop**: calls come at random moments (Poisson), at that part of the rate that the one-stage
  echo (of digits: wait 0) had with 128 outstanding in the same round. Latency counts from when a call
  was due, not from when it was sent, so that a stall is charged to everybody who would have come
  meanwhile. Who does not have that capacity is left out. **Lag** is how late the client itself was:
  where it is not small beside the latencies, they are the client's, which on two cores shares one with
  the workers.
- **CPU** is that of all threads, per request: of the server with its workers, and of the client. Where
  there is no network, client and service are one process.
- **switches**: how often a process of the server was put on a CPU, per request.
- **bare gRPC echo** is the ceiling: one thread of gRPC C core that sends the bytes back untouched. It
  has the channel arguments that are best at that size; the client has them before all servers.
- **XGBoost alone** is the ceiling of the digits: the same three steps in one process, one thread; p50
  is that of a call.
- **best fixed wait**: in each round that wait which was best in the other rounds. The best of a
  round itself would partly be the luckiest.
- **second stage**: from a request's arrival at the stage to the end of its run, by the worker's
  counters.
- One table again: `./dev bench --only echo`; in minutes: `--quick`.
"""


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
    return [f"Measured apart, {run['options']['rounds']} rounds of {short(run['options']['seconds'])} s, "
            f"at {run['commit']}: `{run['command']}`."]


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
    return (f"{worth}During {flagged} of {every} measurements the machine was not quiet (more than "
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
                                            for one in placements] for goal in goals]
    return table(["", "wanted", *(PLACEMENTS[one] for one in placements)], rows)


def missed(goals):
    """What is short, by name; both placements have to keep a goal."""
    lines = []
    for goal in goals:
        short_of = [f"{short(of['value'])} {PLACEMENTS[placement]}"
                    for placement, of in goal["placements"].items() if of["met"] is False]
        if short_of:
            lines.append(f"- {goal['text']}: {', '.join(short_of)}; wanted {wanted(goal)}")
    if not lines:
        return "Nothing is short of what is wanted.\n"
    return "## What is short\n\n" + "\n".join(lines) + "\n"


def flag(report, placement, group, name, case):
    """A tilde where more than half of the rounds were not quiet."""
    flagged = sum(1 for entry in report["noise"]["flagged"]
                  if entry[:4] == [placement, group, name, case])
    return " ~" if flagged * 2 > run_of(report, group)["options"]["rounds"] else ""


def group_table(report, placement, group):
    contenders = report["cells"][placement][group.name]
    rows = []
    for case in group.cases:
        for name in group.contenders(case):
            figures = contenders.get(name, {}).get(case.name)
            if not figures:
                continue
            text = case.name + rate_text(figures)
            rows.append([text + flag(report, placement, group.name, name, case.name),
                         label(group.name, name)]
                        + [spread(figures.get(figure, [])) for figure, _ in group.figures])
    return table(["", "", *(title for _, title in group.figures)], rows)


def rate_text(figures):
    if "rate" not in figures:
        return ""
    values = sorted(figures["rate"])
    return f", {short(values[len(values) // 2])}/s"


def group_part(report, group):
    parts = [f"### {group.title}"] + ([group.note] if group.note else [])
    parts += said_of_run(report, group.name)
    head = len(parts)
    for placement, groups in report["cells"].items():
        if group.name in groups:
            flagged, count = report["noise"]["of"][placement][group.name]
            parts.append(f"{PLACEMENTS[placement].capitalize()}; not quiet: {flagged} of {count}.")
            parts.append(group_table(report, placement, group))
    return "\n\n".join(parts) if len(parts) > head else ""


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


def text(report, notes=""):
    goals = judge(report["cells"])
    parts = [HEAD.format(
        about=about(report), rounds=report["options"]["rounds"],
        seconds=short(report["options"]["seconds"]), quiet=quiet(report),
        goals=goals_table(goals, report["options"]["placements"]), missed=missed(goals))]
    if notes:
        parts.append(notes.strip() + "\n")
    parts.append(HOW)
    parts.append("## The figures\n\nA case marked ~ was measured on a machine that was not quiet in "
                 "more than half of its rounds.\n")
    for group in GROUPS:
        for part in (group_part(report, group), chart_part(report, group)):
            if part:
                parts.append(part + "\n")
    skipped = [f"- {part}: {why}" for part, why in report["skipped"].items()]
    if skipped:
        parts.append("## What was not measured\n\n" + "\n".join(skipped) + "\n")
    return "\n".join(parts)


def files(report, notes=""):
    """{file name: content} of everything that is made of a report."""
    return {"performance.md": text(report, notes), **charts(report)}


def write(path):
    """Makes the page and the charts beside this report."""
    report = json.loads(path.read_text())
    notes = path.parent / "performance-notes.md"
    for name, content in files(report, notes.read_text() if notes.exists() else "").items():
        (path.parent / name).write_text(content)
    print(f"written: {path.parent / 'performance.md'} and its charts")
