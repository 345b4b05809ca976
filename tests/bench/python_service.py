#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A yardstick for the bench: a model service in plain Python, as one writes it in an afternoon.

Stages are classes, each run by one or more worker processes; bounded multiprocessing queues carry
(id, value) pairs from stage to stage, a shared queue carries errors, and an asyncio coordinator
pairs results with the futures of the callers. It polls: 7.8 ms when the first queue is full, 8.9 ms
when nothing has come back. A worker that batches waits up to the wait time for each next element,
not for the batch as a whole.

Run as a program it puts two stages behind the coordinator, scale (times 2, two workers) and shift
(plus 3, one worker), keeps N requests outstanding, checks every answer, and prints one JSON line
for each N.
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import queue
import sys
import time

QUEUE_SIZE = 1024
FULL_SLEEP_S = 0.0078
EMPTY_SLEEP_S = 0.0089

# Forks on every version of Python: the design was made for it, and start-up is not measured.
PROCESSES = multiprocessing.get_context("fork")


class Stage:
    """One step of the pipeline. `infer` gets one value, or a list of values when batch_size > 1."""

    def __init__(self, batch_size=0, batch_wait_s=0.0):
        self.batch_size = batch_size
        self.batch_wait_s = batch_wait_s

    def infer(self, value):
        raise NotImplementedError

    @classmethod
    def work(cls, inbox, outbox, errors, cpu, options):
        """A worker process from its start to its termination by the coordinator."""
        if cpu is not None:
            os.sched_setaffinity(0, {cpu})
        stage = cls(**options)
        step = stage.step_batch if stage.batch_size > 1 else stage.step_single
        try:
            while True:
                step(inbox, outbox, errors)
        except KeyboardInterrupt:
            pass

    def step_single(self, inbox, outbox, errors):
        request_id, value = inbox.get()
        try:
            outbox.put((request_id, self.infer(value)))
        except Exception as error:  # pylint: disable=broad-except
            errors.put((request_id, error))

    def step_batch(self, inbox, outbox, errors):
        batch = self.gather_batch(inbox)
        try:
            results = self.infer([value for _, value in batch])
        except Exception as error:  # pylint: disable=broad-except
            for request_id, _ in batch:
                errors.put((request_id, error))
            return
        for (request_id, _), result in zip(batch, results):
            outbox.put((request_id, result))

    def gather_batch(self, inbox):
        """Waits for a first element; if that came late, takes only what is there besides it."""
        gap_s = self.batch_wait_s
        try:
            first = inbox.get(timeout=gap_s) if gap_s > 0 else inbox.get()
        except queue.Empty:
            gap_s = 0.0
            first = inbox.get()
        batch = [first]
        try:
            while len(batch) < self.batch_size:
                batch.append(inbox.get(timeout=gap_s) if gap_s > 0 else inbox.get_nowait())
        except queue.Empty:
            pass
        return batch


class Service:
    """The coordinator: owns queues and workers, pairs each result with the caller's future."""

    def __init__(self, cpu=None):
        self.queues = [PROCESSES.Queue(QUEUE_SIZE)]
        self.errors = PROCESSES.Queue(QUEUE_SIZE)
        self.waiting = {}
        self.workers = []
        self.gatherer = None
        if cpu is not None:
            os.sched_setaffinity(0, {cpu})

    def add_stage(self, stage, cpus, **options):
        """One worker for each element of cpus; an element None is a worker that is not pinned."""
        inbox, outbox = self.queues[-1], PROCESSES.Queue(QUEUE_SIZE)
        self.queues.append(outbox)
        for cpu in cpus:
            arguments = (inbox, outbox, self.errors, cpu, options)
            self.workers.append(PROCESSES.Process(target=stage.work, args=arguments, daemon=True))

    def start(self):
        for worker in self.workers:
            worker.start()
        self.gatherer = asyncio.create_task(self.gather())

    async def stop(self):
        self.gatherer.cancel()
        await asyncio.gather(self.gatherer, return_exceptions=True)
        for worker in self.workers:
            worker.terminate()
        for worker in self.workers:
            worker.join()

    async def infer(self, value):
        future = asyncio.get_running_loop().create_future()
        request_id = id(future)
        self.waiting[request_id] = future
        first = self.queues[0]
        while first.full():
            await asyncio.sleep(FULL_SLEEP_S)
        while True:
            try:
                first.put_nowait((request_id, value))
                break
            except queue.Full:
                await asyncio.sleep(FULL_SLEEP_S)
        return await future

    async def gather(self):
        results, errors, waiting = self.queues[-1], self.errors, self.waiting
        while True:
            if not results.empty():
                request_id, result = results.get()
                waiting.pop(request_id).set_result(result)
                await asyncio.sleep(0)
            elif not errors.empty():
                request_id, error = errors.get()
                waiting.pop(request_id).set_exception(error)
                await asyncio.sleep(0)
            else:
                await asyncio.sleep(EMPTY_SLEEP_S)


class Scale(Stage):
    def infer(self, value):
        return [x * 2 for x in value] if isinstance(value, list) else value * 2


class Shift(Stage):
    def infer(self, value):
        return [x + 3 for x in value] if isinstance(value, list) else value + 3


class Load:
    """A closed loop: each of N callers sends its next request when its last one is answered."""

    def __init__(self, service):
        self.service = service
        self.wrong = 0
        self.latencies_ns = []

    async def caller(self, value, end_ns):
        now_ns = time.perf_counter_ns()
        while now_ns < end_ns:
            sent_ns = now_ns
            answer = await self.service.infer(value)
            now_ns = time.perf_counter_ns()
            self.latencies_ns.append(now_ns - sent_ns)
            self.wrong += answer != value * 2 + 3
            value += 1

    async def run(self, outstanding, seconds):
        """Returns the seconds it took. A service that stopped answering is an error, not a hang."""
        self.wrong = 0
        self.latencies_ns = []
        begin_ns = time.perf_counter_ns()
        end_ns = begin_ns + int(seconds * 1e9)
        callers = (self.caller(1000 * index, end_ns) for index in range(outstanding))
        await asyncio.wait_for(asyncio.gather(*callers), timeout=seconds + 30)
        return (time.perf_counter_ns() - begin_ns) / 1e9


def cpu_seconds(pids):
    """CPU time of all threads of these processes, by the kernel's clock of a process id."""
    return sum(time.clock_gettime((~pid << 3) | 2) for pid in pids)


def percentile_us(ordered_ns, share):
    """The smallest latency that at least this share of the requests did not exceed."""
    rank = max(1, -(-len(ordered_ns) * share // 100))
    return ordered_ns[rank - 1] / 1000


async def measure(load, outstanding, options):
    pids = [os.getpid()] + [worker.pid for worker in load.service.workers]
    await load.run(outstanding, options.warmup)
    cpu_before = cpu_seconds(pids)
    elapsed_s = await load.run(outstanding, options.seconds)
    cpu_used_s = cpu_seconds(pids) - cpu_before
    ordered_ns = sorted(load.latencies_ns)
    count = len(ordered_ns)
    return {
        "bench": "python_service",
        "outstanding": outstanding,
        "requests": count,
        "wrong": load.wrong,
        "requests_per_s": round(count / elapsed_s, 1),
        "p50_us": percentile_us(ordered_ns, 50),
        "p99_us": percentile_us(ordered_ns, 99),
        "cpu_us_per_request": round(cpu_used_s * 1e6 / count, 2),
    }


async def bench(options):
    service = Service(cpu=options.cpu)
    batching = {"batch_size": options.batch_size, "batch_wait_s": options.batch_wait_ms / 1000}
    service.add_stage(Scale, options.scale_cpus, **batching)
    service.add_stage(Shift, options.shift_cpus, **batching)
    service.start()
    load = Load(service)
    wrong = 0
    try:
        for outstanding in options.outstanding:
            figures = await measure(load, outstanding, options)
            wrong += figures["wrong"]
            print(json.dumps(figures), flush=True)
    finally:
        await service.stop()
    return 1 if wrong else 0


def integers(text):
    return [int(part) for part in text.split(",")]


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    add = parser.add_argument
    add("--outstanding", type=integers, default=[1, 16, 128], help="list, default 1,16,128")
    add("--seconds", type=float, default=3.0, help="measured time for each, default 3")
    add("--warmup", type=float, default=0.5, help="seconds before each, default 0.5")
    add("--batch-size", type=int, default=0, help="0: singletons, the default")
    add("--batch-wait-ms", type=float, default=0.0)
    add("--cpu", type=int, help="pin the coordinator; not pinned by default")
    add("--scale-cpus", type=integers, default=[None, None], help="one worker per element")
    add("--shift-cpus", type=integers, default=[None], help="one worker per element")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(asyncio.run(bench(parse(sys.argv[1:]))))
