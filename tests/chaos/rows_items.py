# SPDX-License-Identifier: Apache-2.0
"""One bad request among good ones, and callers that leave."""

from rig import digits
from shoal_client import Client, failure, said
from shoal_fixture import pipeline, stage, wait_until

BATCH = 64
# The puppet fails the whole batch with one of these, and says so.
CODES = {3: "INVALID_ARGUMENT", 5: "NOT_FOUND", 9: "FAILED_PRECONDITION", 13: "INTERNAL"}
# Nothing but the 64th request closes a batch.
PUPPET = pipeline("puppet", stage("libpuppet.so", batch_size=BATCH, batch_wait="fixed", batch_wait_ms=60000,
                                  params={"folder": "."}), slots=2 * BATCH)
# Requests spend most of their time waiting for company, so that most callers that leave are in the
# pipeline.
CANCEL_BATCH = {"batch_size": 512, "batch_wait": "fixed", "batch_wait_ms": 40}
CANCEL_WITHIN_US = 60000


def one_batch(client, report, draw, number):
    """64 requests, of which one is the culprit. Returns how many of the others succeeded."""
    culprit, code = draw.randrange(BATCH), draw.choice(sorted(CODES))
    texts = [f"fail-batch {code}" if i == culprit else f"echo {number}-{i}" for i in range(BATCH)]
    futures = [client.tell(text) for text in texts]
    fine = 0
    for i, future in enumerate(futures):
        if i == culprit:
            got, text = failure(future)
            report.expect(got.name == CODES[code] and "the whole act failed" in text,
                          f"batch {number}: the culprit got {got.name}: {text}")
        elif future.code().name == "OK" and said(future.result()) == texts[i]:
            fine += 1
        else:
            report.expect(False, f"batch {number}: item {i} got {future.code().name}: "
                                 f"{future.details()}")
    return fine


def bad_item(run, report, budget, draw):
    """Batches that fail as a whole because of one item, while digits are served beside them."""
    with run.node(digits(1, 1, 1), PUPPET) as shoald, run.load(shoald, outstanding=16) as load, \
            Client(shoald.target) as client:
        batches, fewest = 0, BATCH
        budget.begin()
        while budget.goes_on(batches) and report.ok:
            fewest = min(fewest, one_batch(client, report, draw, batches))
            batches += 1
            load.check_runs()
            report.progress(budget, batches, load)
        load.stop()
        stat = shoald.wait_all_returned("puppet")["stages"][0]
        report.expect(stat["closed_full"] == batches,
                      f"{batches} batches were sent, {stat['closed_full']} were closed full")
        report.expect(fewest == BATCH - 1, f"of one batch only {fewest} succeeded")
        report.say(f"{batches:,} batches of {BATCH}, of each at least {fewest} succeeded",
                   batches=batches, fewest=fewest)
        report.judge_load(load)
        report.judge_returned(shoald, load)


def cancels(run, report, budget, draw):
    """Each second call is given up at a random moment."""
    with run.node(digits(1, 2, 1, **CANCEL_BATCH)) as shoald, \
            run.load(shoald, outstanding=256, cancel=50,
                     cancel_within_us=CANCEL_WITHIN_US) as load:
        budget.begin()
        while budget.left > 0:
            shoald.pause(min(0.5, max(0.01, budget.left)))
            load.check_runs()
            report.progress(budget, load.last["cancelled"], load)
        wait_until(lambda: shoald.pipeline_stat("digits")["cancelled"] > 0,  # slow machines go on
                   "a caller to go while its request is in the pipeline")
        load.stop()
        report.judge_load(load)
        stat = report.judge_returned(shoald, load)
        gone = stat["cancelled"]
        dropped = sum(stage["items_cancelled"] for stage in stat["stages"])
        share = max(0.0, 1 - dropped / max(1, gone))
        report.say(f"{load.end['cancelled']:,} callers gone, {gone:,} of them seen in flight, "
                   f"{dropped:,} dropped before a run, {share:.1%} run to the end for nobody",
                   callers_gone=load.end["cancelled"], gone_in_flight=gone, dropped=dropped,
                   run_for_nobody=share)
