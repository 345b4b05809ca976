# SPDX-License-Identifier: Apache-2.0
"""More calls than can be served, in an open loop: nobody out there waits for our answer to ask
again."""

import json
import subprocess

from rig import BUILD, digits
from shoal_fixture import pipeline, stage

TIMES = (2, 5, 10)  # of the peak
# Of what the modelet should reach by its parameters: one that it can do, two that it can't. The
# peak is the first's goodput or the mean of the others', whichever is more: the largest of all
# would be mostly luck, as runs take random times.
PEAK_SEARCH = (0.95, 1.1, 1.3)
CALM = 0.5  # of the same: what follows each pulse
# A client that was this late in sending was late in reading, too: its figures say nothing of the
# service. Then the pulse is tried again.
LAG_MS_MAX = 3
ATTEMPTS_MAX = 4
BATCH = 4
WORKERS = 2
RUN_MS = 16  # of a full batch, on average
DEADLINE_MS = 200
TURN_SECONDS = 0.25


class Goals:
    """The requirements; builds with a sanitizer are slower and noisier, their clients too: there
    the service is slower as well, and absolute times are only shown. Its pulses are then a few
    dozen runs of random length, so chance alone takes a third of the goodput every now and then; a
    service that admits what it can't finish in time loses nearly all of it."""

    def __init__(self, sanitized):
        self.slower = 5 if sanitized else 1
        self.goodput = 0.5 if sanitized else 0.9
        self.refusal_ms = None if sanitized else 5
        self.recovered_ms = 3000 if sanitized else 1000


def sluggish(slower):
    """Waits instead of computing: 500 items a second, or less, on any machine."""
    fixed_us = 250 * RUN_MS * slower
    item_us = (1000 * RUN_MS * slower - fixed_us) / BATCH
    params = {"fixed_us": fixed_us, "item_us": item_us, "sigma": 0.5}
    return pipeline("sluggish", stage("libsluggish.so", workers=WORKERS, batch_size=BATCH,
                                      params=params), slots=1024)


def open_load(shoald, report, budget, load, draw, slower, phases):
    """Runs the phases, each (calls per second, seconds); returns their figures."""
    command = ["setpriv", "--pdeathsig", "KILL", str(BUILD / "chaos" / "open_load"),
               "--target", shoald.target, "--deadline-ms", str(DEADLINE_MS * slower),
               "--seed", str(draw.randrange(1 << 40))]
    for rate, seconds in phases:
        command += ["--phase", f"{rate:.1f}:{seconds:.2f}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            while process.poll() is None:
                shoald.pause(TURN_SECONDS)
                load.check_runs()
                report.progress(budget, None, load)
        except BaseException:
            process.kill()
            raise
        out, error = process.communicate()
    assert process.returncode == 0, f"open_load: {process.returncode}: {error.decode()}"
    return json.loads(out)["phases"]


class Crowd:
    """Pulses of the same shape, each followed by calm, so that they can be compared: what was sent
    late in a pulse is answered after it."""

    def __init__(self, shoald, report, budget, load, draw, slower):
        self.common = (shoald, report, budget, load, draw, slower)
        self.nominal = 1000 * WORKERS * BATCH / (RUN_MS * slower)
        self.pulse_seconds = max(1.0 if slower > 1 else 2.0, budget.seconds * 0.1)
        # long enough for what may pass until it has recovered
        self.calm_seconds = max(3.5 if slower > 1 else 1.5, budget.seconds * 0.09)

    def pulses(self, *rates):
        """(pulse, calm) for each rate."""
        calm = (CALM * self.nominal, self.calm_seconds)
        found = open_load(*self.common, [phase for rate in rates
                                         for phase in ((rate, self.pulse_seconds), calm)])
        return list(zip(found[::2], found[1::2]))

    def pulse(self, rate, lag_ms_max):
        for _ in range(ATTEMPTS_MAX):
            (pulse, calm), = self.pulses(rate)
            if lag_ms_max is None or pulse["lag_p99_ms"] <= lag_ms_max:
                break
        return pulse, calm


def judge_pulse(report, goals, times, peak, pulse, calm):
    goodput = pulse["goodput_per_s"] / peak
    report.expect(goodput >= goals.goodput, f"{times}x: goodput is {goodput:.1%} of the peak: {pulse}")
    report.expect(0 <= calm["recovered_ms"] <= goals.recovered_ms,
                  f"{times}x: recovered after {calm['recovered_ms']} ms: {calm}")
    if goals.refusal_ms is not None:
        report.expect(pulse["refusal_p99_ms"] <= goals.refusal_ms,
                      f"{times}x: refusals took {pulse['refusal_p99_ms']} ms at p99; the client itself "
                      f"was {pulse['lag_p99_ms']} ms late, after {ATTEMPTS_MAX} attempts if that is "
                      f"more than {LAG_MS_MAX}")
    report.expect(pulse["failed"].get("8", 0) > 0, f"{times}x: nobody was refused: {pulse}")
    report.say(f"{times}x: goodput {goodput:.0%}, refusals p99 {pulse['refusal_p99_ms']:.1f} ms, "
               f"recovered after {calm['recovered_ms']} ms", **{f"pulse_{times}": pulse,
                                                                 f"calm_{times}": calm})


def overload(run, report, budget, draw):
    """A search for the peak, then pulses of several times as much."""
    goals = Goals(run.sanitized)
    with run.node(digits(1, 1, 1), sluggish(goals.slower)) as shoald, \
            run.load(shoald, outstanding=4, think_ms=20) as load:
        budget.begin()
        crowd = Crowd(shoald, report, budget, load, draw, goals.slower)
        found = [pulse for pulse, _ in crowd.pulses(*(crowd.nominal * part for part in PEAK_SEARCH))]
        calm, *full = [phase["goodput_per_s"] for phase in found]
        peak = max(calm, sum(full) / len(full))
        report.expect(peak > 0.4 * crowd.nominal,
                      f"of {crowd.nominal:.0f} per second only {peak:.0f}: {found}")
        report.say(f"peak {peak:.0f} per second", peak_per_s=peak, search=found)
        for times in TIMES:
            lag_ms_max = None if goals.refusal_ms is None else LAG_MS_MAX
            judge_pulse(report, goals, times, peak, *crowd.pulse(times * peak, lag_ms_max))
        load.stop()
        report.judge_load(load)
        report.judge_returned(shoald, load)
        shoald.wait_all_returned("sluggish")
