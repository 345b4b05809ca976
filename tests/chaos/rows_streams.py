# SPDX-License-Identifier: Apache-2.0
"""Answers in pieces, whose workers are killed and whose generations are replaced."""

import random
import re
import struct
import threading

import grpc

from rows_client_regions import Reloader
from rows_workers import NO_WORKER, POISON, choose_victim
from shoal_client import Client
from shoal_fixture import pipeline, stage, wait_until
from shoal_streams import ANSWER, EMIT, WIDE, Stream, argument, emission, is_final

CALLERS = 4
REQUESTS_MAX = 6  # on a stream, at a time
PIECES_MAX = 60
PAUSES_MS = 0, 1, 3  # after each piece
WIDE_BYTES = 3000  # of an output of its own: modelet_probe.c
LEAVE_SHARE = 0.05  # of the streams, whose callers go without a word
ANSWER_SECONDS = 120  # longer than anything here takes
KILL_GAP_SECONDS = 0.03  # on average
BROKEN = r"a worker died in stage \"probe\" after it had begun to answer this request"
SENT = re.compile(r"\((\d+) pieces of the answer were sent\)")
PROBE = pipeline("probe", stage("libprobe.so", workers=8, batch_size=4), slots=64, stream_mib=8)


class Asked:
    """A request, and what has come of its answer."""

    known = BROKEN, POISON, NO_WORKER  # ends of it that a death explains

    def __init__(self, tag, draw):
        self.tag = tag
        self.pieces = draw.randrange(PIECES_MAX)
        self.ending = draw.choice((ANSWER, WIDE))
        self.pause_ms = draw.choice(PAUSES_MS)
        self.got = 0
        self.error = None  # "": it ended well

    def sent(self):
        return EMIT, argument(self.pieces, self.ending, self.pause_ms), self.tag

    def expected(self):
        """The outputs of the next message. The last repeats the request, and no more."""
        if self.got == self.pieces:
            return {"probe": self.sent()}
        outputs = {"probe": (EMIT, self.got, self.tag)}
        if self.ending == WIDE:
            outputs |= {"large": bytes([self.got]) * WIDE_BYTES,
                        "input": self.sent()}
        return outputs

    def take(self, message):
        """An error in the message, or None."""
        if self.error is not None:
            return "a message after the end"
        if message.error_message:
            self.error = message.error_message
            return None if is_final(message) else "an error that is not the end"
        found = {output.name: raw if output.name == "large" else struct.unpack_from("<3q", raw)
                 for output, raw in zip(message.infer_response.outputs,
                                        message.infer_response.raw_output_contents)}
        if found != self.expected():
            return f"after {self.got} of {self.pieces} pieces: {str(found)[:200]}"
        if is_final(message) != (self.got == self.pieces):
            return f"the end is not at {self.pieces} pieces, but {self.got}"
        if is_final(message):
            self.error = ""
        else:
            self.got += 1
        return None

    def judge(self):
        """An error in the end of the stream, or None."""
        if self.error is None:
            return f"no end after {self.got} of {self.pieces} pieces"
        if self.error == "":
            return None
        said = SENT.search(self.error)
        if not any(re.search(known, self.error) for known in self.known):
            return f"failed: {self.error}"
        if self.got != (int(said[1]) if said else 0):
            return f"{self.got} pieces came: {self.error}"
        return None


class Caller(threading.Thread):
    """Asks on one stream after another, and judges all that comes."""

    model, asks = "probe", Asked

    def __init__(self, shoald, number, draw):
        super().__init__(daemon=True)
        self.target, self.number, self.draw = shoald.target, number, draw
        self.ends = threading.Event()
        self.problems = []
        self.asked = []  # requests, of callers that stayed
        self.left = []  # of callers that left
        self.broken = 0
        self.count = 0

    def run(self):
        with Client(self.target) as client:
            while not self.ends.is_set() and not self.problems:
                try:
                    self.one_stream(client)
                except grpc.RpcError as error:
                    self.problems.append(f"a stream ended with {error.code()}: {error.details()}")

    def one_stream(self, client):
        """Sends its requests at once, so that their answers mix."""
        requests = {}
        leaves_after = self.draw.randrange(PIECES_MAX) if self.draw.random() < LEAVE_SHARE else None
        stream = Stream(client, timeout=ANSWER_SECONDS)
        for _ in range(self.draw.randint(1, REQUESTS_MAX)):
            self.count += 1
            tag = self.number << 32 | self.count
            requests[str(tag)] = one = self.asks(tag, self.draw)
            stream.send(self.model, emission(one.pieces, one.ending, tag, one.pause_ms), id=str(tag))
        stream.half_close()
        for i, message in enumerate(stream.call):
            self.take(requests, message)
            if i == leaves_after:
                stream.call.cancel()
                self.left += requests.values()
                return
        self.asked += requests.values()
        self.note(requests.values(), (one.judge() for one in requests.values()))

    def take(self, requests, message):
        one = requests.get(message.infer_response.id)
        if one is None:
            self.problems.append(f"another's answer: {str(message)[:200]}")
        else:
            self.note([one], [one.take(message)])
            self.broken += bool(re.search(BROKEN, message.error_message))

    def note(self, requests, findings):
        self.problems += [f"request {one.tag:x}: {found}" for one, found in zip(requests, findings)
                          if found]


def between(report, what, counted, seen, left):
    """Callers that left saw nothing of what they left behind."""
    report.expect(seen <= counted <= seen + left, f"{counted} {what} counted; {seen} seen, and {left} "
                  "at most by those that left")


def judge_counters(report, stat, callers):
    asked = [one for caller in callers for one in caller.asked]
    left = [one for caller in callers for one in caller.left]
    pieces = sum(one.got for one in asked + left)
    errors = [one.error for one in asked + left if one.error]
    broken = sum(bool(re.search(BROKEN, error)) for error in errors)
    poison = sum(bool(re.search(POISON, error)) for error in errors)
    whole = sum(one.error == "" for one in asked + left)
    between(report, "pieces", stat["pieces"], pieces, sum(one.pieces - one.got for one in left))
    for name, seen in (("replies_ok", whole), ("streams_broken", broken), ("poison", poison)):
        between(report, name, stat[name], seen, len(left))
    between(report, "requests", stat["requests"], len(asked), len(left))
    report.expect(stat["region_resets"] == 0, f"{stat['region_resets']} resets of the region")
    report.expect(stat["streams_slow"] == 0, f"{stat['streams_slow']} were too slow")
    report.expect(whole > 0 and broken > 0, f"{whole} streams ended well, {broken} were broken off")
    report.say(f"{pieces:,} pieces right of {whole:,} whole answers, {broken:,} broken off with the "
               f"number that came, {poison} poison, {stat['run_again']:,} run again, "
               f"{len(left):,} left", pieces=pieces, whole=whole, broken=broken, poison=poison,
               run_again=stat["run_again"])


def is_early(budget, callers):
    """No answer has been broken off yet: slow machines go on."""
    return not any(caller.broken for caller in callers) and budget.elapsed < ANSWER_SECONDS


def storm(shoald, report, budget, draw, callers):
    reloader = Reloader(shoald, "probe")
    killed = 0
    budget.begin()
    while not any(caller.problems for caller in callers) and (
            budget.goes_on(killed) or is_early(budget, callers)):
        pid, _ = choose_victim(shoald, draw)
        killed += bool(pid and shoald.kill_worker(pid))
        reloader.go_on()
        shoald.pause(draw.expovariate(1 / KILL_GAP_SECONDS))
        report.progress(budget, killed)
    reloader.end()
    return killed, reloader


def streams(run, report, budget, draw):
    """SIGKILL to random workers, and reloads, while every piece of every answer is checked."""
    with run.node(PROBE) as shoald:
        callers = [Caller(shoald, i, random.Random(draw.random())) for i in range(CALLERS)]
        for caller in callers:
            caller.start()
        killed, reloader = storm(shoald, report, budget, draw, callers)
        seconds = budget.elapsed
        for caller in callers:
            caller.ends.set()
        for caller in callers:
            caller.join()
            report.problems += caller.problems
        stat = shoald.wait_all_returned("probe")
        judge_counters(report, stat, callers)
        report.expect((stat["reloads"], stat["reloads_failed"]) ==
                      (reloader.done - len(reloader.failed), len(reloader.failed)),
                      f"{reloader.done} reloads, {reloader.failed}; counted: {stat['reloads']}, "
                      f"{stat['reloads_failed']}")
        report.expect(killed > 0, "nobody was killed")
        wait_until(lambda: shoald.stat()["streams"] == shoald.pipeline_stat("probe")["streams"] == 0,
                   "all streams to be gone")
        report.say(f"{killed:,} kills, {killed / seconds:.0f} per second; {reloader.done} reloads, of "
                   f"which {len(reloader.failed)} failed; 0 slots, 0 blocks leaked", kills=killed,
                   reloads=reloader.done)
