# SPDX-License-Identifier: Apache-2.0
"""Answers in pieces: a `run` that yields counts down from n.

    shoald serve countdown.py
    curl -N localhost:8008/v2/models/countdown/generate_stream --json '{"n": 3}'
"""

import time

import shoal


def run(n: shoal.INT32[1]) -> {"count": shoal.INT32[1]}:
    for count in range(n[0], 0, -1):
        yield {"count": [count]}
        time.sleep(0.1)
