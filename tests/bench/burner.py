# SPDX-License-Identifier: Apache-2.0
"""burner.py MS TIMES: burns so many milliseconds of CPU so many times a second, whenever nobody else
wants the CPU, until it is killed."""

import os
import sys
import threading
import time

burn_s, period_s = float(sys.argv[1]) / 1000, 1 / float(sys.argv[2])
os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
never = threading.Event()
while True:
    due = time.monotonic() + period_s
    begun = time.thread_time()
    while time.thread_time() - begun < burn_s:
        pass
    never.wait(max(0, due - time.monotonic()))
