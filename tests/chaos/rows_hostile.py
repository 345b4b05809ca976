# SPDX-License-Identifier: Apache-2.0
"""Modelets that write anything anywhere into their region, beside the digits."""

import threading

from rig import digits
from test_35_hostile_memory import WAYS, attack, hostile_environment, hostile_pipelines

TURN_SECONDS = 0.25
SLACK_SECONDS = 120  # beyond its time, for an attack that waits for its pipeline to be rebuilt


class Attack(threading.Thread):
    """The attack of the integration test, for as long as it is given."""

    def __init__(self, shoald, seed, seconds):
        super().__init__(daemon=True)
        self.arguments = (shoald, seed, seconds)
        self.found = None
        self.failure = None

    def run(self):
        try:
            self.found = attack(*self.arguments)
        except Exception as error:  # shown by the row
            self.failure = error


def hostile(run, report, budget, draw):
    """Two hostile pipelines in the same daemon. The counters file is within their reach, too, so what
    digits lost is asked of its callers alone."""
    with run.node(digits(1, 2, 1), *hostile_pipelines(), env=hostile_environment()) as shoald, \
            run.load(shoald, outstanding=32) as load:
        budget.begin()
        attacker = Attack(shoald, draw.randrange(1 << 32), budget.seconds)
        attacker.start()
        while attacker.is_alive():
            shoald.pause(TURN_SECONDS)
            load.check_runs()
            assert budget.elapsed < budget.seconds + SLACK_SECONDS, "the attack hangs"
            report.progress(budget, None, load)
        if attacker.failure is not None:
            raise attacker.failure
        load.stop()
        report.judge_load(load)
        judge_attack(report, attacker.found)


def judge_attack(report, found):
    resets = sum(found[name]["resets"] for name in WAYS)
    report.expect(found["unanswered"] == 0, f"{found['unanswered']} hostile requests unanswered")
    report.expect(found["crossed"] == 0, f"{found['crossed']} answers to the wrong caller: {found}")
    report.expect(found["changed_by_tickets"] == 0,
                  f"{found['changed_by_tickets']} answers changed where only tickets were forged")
    report.expect(resets > 0, "no region was ever dropped: nothing was hostile")
    report.say(f"of {found['requests']:,} hostile requests 0 unanswered, 0 crossed; {resets} regions "
               f"rebuilt", attack=found)
