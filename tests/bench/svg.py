# SPDX-License-Identifier: Apache-2.0
"""Two kinds of chart as SVG, for docs/performance.md. Pure: the same data give the same bytes.

There is no background, and text and lines have colours that stand out on a light page and on a dark
one; each line has a dash pattern of its own, so that no colour needs to be told from another. Bars stand
in the order of the legend.
"""

import math
from html import escape

WIDTH, HEIGHT = 760, 400
LEFT, RIGHT, TOP, BOTTOM = 76, 36, 44, 56
LEGEND_ROW = 20
COLOURS = ["#8a8f98", "#2f81c7", "#d9730d", "#2e9e5b", "#b14fc0", "#c9433f", "#9a8300", "#128f9e"]
DASHES = ["", "7 3", "2 3", "9 3 2 3", "12 4", "4 4", "1 2", "9 2 2 2 2 2"]
STYLE = """\
text { font: 12px system-ui, sans-serif; fill: #6e7781 }
.title { font-size: 14px; font-weight: 600 }
.grid { stroke: #8a8f98; stroke-opacity: 0.3; stroke-width: 1 }
.axis { stroke: #8a8f98; stroke-width: 1 }
"""


class Chart:
    """The frame: title, axes, legend. x and y of a point are given as parts of the plot, 0 to 1."""

    def __init__(self, title, x_label, y_label, names, sample):
        self.names = names
        self.sample = sample
        self.rows = self.legend_rows()
        self.top = TOP + LEGEND_ROW * len(self.rows)
        self.height = HEIGHT + LEGEND_ROW * len(self.rows)
        self.parts = []
        self.text(LEFT, 22, title, "title")
        self.text((LEFT + WIDTH - RIGHT) / 2, self.height - 12, x_label, anchor="middle")
        middle = (self.top + self.height - BOTTOM) / 2
        self.add(f'<text x="16" y="{middle:.1f}" text-anchor="middle" '
                 f'transform="rotate(-90 16 {middle:.1f})">{escape(y_label)}</text>')
        self.legend()

    def add(self, part):
        self.parts.append(part)

    def text(self, x, y, text, kind="", anchor="start"):
        named = f' class="{kind}"' if kind else ""
        self.add(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{named}>{escape(text)}</text>')

    def legend_rows(self):
        """Names with their places, as many to a row as fit."""
        rows, x = [[]], LEFT
        for index, name in enumerate(self.names):
            room = 44 + 7 * len(name)
            if rows[-1] and x + room > WIDTH - RIGHT:
                rows.append([])
                x = LEFT
            rows[-1].append((x, index, name))
            x += room
        return rows

    def legend(self):
        for number, row in enumerate(self.rows):
            y = TOP + LEGEND_ROW * number
            for x, index, name in row:
                self.add(self.sample(x, y - 4, index))
                self.text(x + 32, y, name)

    def x(self, part):
        return LEFT + part * (WIDTH - RIGHT - LEFT)

    def y(self, part):
        return self.height - BOTTOM - part * (self.height - BOTTOM - self.top)

    def y_tick(self, part, label):
        y = self.y(part)
        self.add(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        self.text(LEFT - 6, y + 4, label, anchor="end")

    def x_tick(self, part, label):
        x = self.x(part)
        self.add(f'<line class="axis" x1="{x:.1f}" x2="{x:.1f}" '
                 f'y1="{self.y(0):.1f}" y2="{self.y(0) + 5:.1f}"/>')
        self.text(x, self.y(0) + 18, label, anchor="middle")

    def line(self, index, points):
        path = " ".join(f"{self.x(x):.1f},{self.y(y):.1f}" for x, y in points)
        self.add(f'<polyline fill="none" points="{path}" {pen(index)}/>')

    def bar(self, index, x, width, part):
        left, top = self.x(x), self.y(part)
        self.add(f'<rect x="{left:.1f}" y="{top:.1f}" width="{self.x(x + width) - left:.1f}" '
                 f'height="{self.y(0) - top:.1f}" fill="{COLOURS[index % len(COLOURS)]}"/>')

    def finish(self):
        axis = (f'<polyline class="axis" fill="none" points="{LEFT},{self.top} '
                f'{LEFT},{self.y(0):.1f} {WIDTH - RIGHT},{self.y(0):.1f}"/>')
        return "\n".join([
            '<?xml version="1.0" encoding="UTF-8"?>',
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{self.height}" '
            f'viewBox="0 0 {WIDTH} {self.height}">',
            f"<style>\n{STYLE}</style>", *self.parts, axis, "</svg>", ""])


def line_sample(x, y, index):
    return f'<line x1="{x}" x2="{x + 26}" y1="{y}" y2="{y}" {pen(index)}/>'


def bar_sample(x, y, index):
    return (f'<rect x="{x + 12}" y="{y - 6}" width="12" height="12" '
            f'fill="{COLOURS[index % len(COLOURS)]}"/>')


def pen(index):
    dash = DASHES[index % len(DASHES)]
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    return f'stroke="{COLOURS[index % len(COLOURS)]}" stroke-width="2.2"{dashed}'


def ticks_log(low, high):
    """1, 2, 5, 10, 20, … that lie within."""
    ticks = []
    for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1):
        ticks += [digit * 10.0 ** power for digit in (1, 2, 5)]
    return [tick for tick in ticks if low * 0.999 <= tick <= high * 1.001]


def tick_text(value):
    return f"{value:,.0f}" if value >= 1 else f"{value:g}"


NINES_MAX = 4.0


def nines(share):
    """0.9 is 1, 0.99 is 2: so that the slow end of a distribution gets its room."""
    return NINES_MAX if share >= 1 - 10 ** -NINES_MAX else -math.log10(1 - share)


def latency_chart(title, series):
    """Latency over the share of requests that were as fast. series: {name: [[share, µs]]}."""
    drawn = {name: [(share, us) for share, us in points if share <= 0.9999 and us > 0]
             for name, points in series.items()}
    values = [us for points in drawn.values() for _, us in points]
    chart = Chart(title, "share of the requests that were answered within that time",
                  "latency, µs (logarithmic)", list(series), line_sample)
    low, high = (min(values), max(values)) if values else (1.0, 10.0)
    low, high = math.log10(low) - 0.05, math.log10(max(high, low * 1.1)) + 0.05
    for tick in ticks_log(10 ** low, 10 ** high):
        chart.y_tick((math.log10(tick) - low) / (high - low), tick_text(tick))
    for share, label in ((0, "0"), (0.5, "50 %"), (0.9, "90 %"), (0.99, "99 %"), (0.999, "99.9 %"),
                         (0.9999, "99.99 %")):
        chart.x_tick(nines(share) / NINES_MAX, label)
    for index, points in enumerate(drawn.values()):
        chart.line(index, [(nines(share) / NINES_MAX, (math.log10(us) - low) / (high - low))
                           for share, us in points])
    return chart.finish()


def sizes_chart(title, series):
    """The share of batches of each size. series: {name: [[least size, batches]]}."""
    floors = sorted({floor for buckets in series.values() for floor, _ in buckets})
    chart = Chart(title, "requests in a batch (each bar: from this size to the next)",
                  "share of the batches, %", list(series), bar_sample)
    shares = {name: share_of(buckets) for name, buckets in series.items()}
    high = max((share for of in shares.values() for share in of.values()), default=1.0)
    step = next(step for step in (1, 2, 5, 10, 20, 25) if high / step <= 6)
    top = step * math.ceil(high / step)
    for tick in range(0, top + 1, step):
        chart.y_tick(tick / top, str(tick))
    slot = 1 / max(len(floors), 1)
    width = 0.8 * slot / max(len(series), 1)
    for place, floor in enumerate(floors):
        chart.x_tick((place + 0.5) * slot, str(floor))
        for index, of in enumerate(shares.values()):
            if of.get(floor):
                chart.bar(index, place * slot + 0.1 * slot + index * width, width, of[floor] / top)
    return chart.finish()


def share_of(buckets):
    batches = sum(count for _, count in buckets)
    return {floor: 100 * count / batches for floor, count in buckets} if batches else {}
