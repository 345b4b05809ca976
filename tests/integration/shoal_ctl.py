# SPDX-License-Identifier: Apache-2.0
"""Runs shoalctl as a user would: a command line, and what came of it."""

import json
import os
import re
import subprocess

from shoal_fixture import BIN, SANITIZER, WAIT_SECONDS

OK, NEGATIVE, USAGE, UNREACHABLE, LATE = range(5)


class Done:
    """A command's output and exit code."""

    def __init__(self, done, arguments):
        self.code = done.returncode
        self.out = done.stdout.decode()
        self.err = done.stderr.decode()
        self.told = f"shoalctl {' '.join(map(str, arguments))}: {self.code}\n{self.out}{self.err}"
        assert not SANITIZER.search(self.err), f"a sanitizer or an assertion spoke: {self.told}"

    @property
    def json(self):
        return json.loads(self.out)

    @property
    def json_lines(self):
        return [json.loads(line) for line in self.out.splitlines()]


def environment(**changes):
    """Ours, without what would choose a node behind the test's back."""
    env = {name: value for name, value in os.environ.items()
           if name not in ("SHOAL_TARGET", "XDG_RUNTIME_DIR")}
    return {**env, **changes}


def shoalctl(*arguments, code=OK, stdin=b"", env=None, seconds=WAIT_SECONDS):
    """Runs it; it must end with this code, within so many seconds."""
    done = Done(subprocess.run([BIN / "shoalctl", *map(str, arguments)], input=stdin,
                               capture_output=True, timeout=seconds,
                               env=env or environment()), arguments)
    assert done.code == code, f"exit code {code} was expected\n{done.told}"
    return done


def refusals(out, pipeline):
    """Those of a pipeline in the tables of `shoalctl stat`, in their order: reasons and numbers."""
    line = re.search(rf"(?ms)^pipeline {pipeline}$.*?^  refused:(.*?)$", out)[1]
    found = re.findall(r"  (\w+) ([\d,]+)", line)
    assert "".join(f"  {reason} {number}" for reason, number in found) == line, line
    return [(f"rejected_{reason}", int(number.replace(",", ""))) for reason, number in found]


def counted_refusals(stat):
    """The same from a pipeline's counters."""
    return [(name, value) for name, value in stat.items() if name.startswith("rejected_")]
