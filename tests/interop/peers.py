# SPDX-License-Identifier: Apache-2.0
"""The checks of other clients share this: the node's addresses, the right answers, and the way of
results to run.py. Runs with the packages of a part, not with Debian's.

A check is a method `check_NAME`. The answers to compare with come from our client and from JSON that is
sent by Python's own library.
"""

import csv
import json
import os
import pathlib
import sys
import unittest
import urllib.error
import urllib.request

SOURCE = pathlib.Path(__file__).resolve().parents[2]
GRPC = os.environ.get("INTEROP_GRPC", "")
HTTP = os.environ.get("INTEROP_HTTP", "")
FOLDER = pathlib.Path(os.environ.get("INTEROP_FOLDER", "."))
SECONDS = 60


def raw_json(path, body=None):
    """(status, JSON) of a request with nothing but Python's library."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"http://{HTTP}{path}", data,
                                     {"Content-Type": "application/json"} if data else {})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=SECONDS) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def digits(count=20):
    """Held-out images, of 64 values of 0 to 16, and the digits that they show."""
    with (SOURCE / "examples/digits/data/digits.csv").open(newline="") as file:
        rows = [[int(value) for value in row] for row in csv.reader(file)][4::5][:count]
    return [row[:64] for row in rows], [row[64] for row in rows]


def digits_body(images):
    return {"inputs": [{"name": "image", "datatype": "FP32", "shape": [len(images), 64],
                        "data": images}]}


def digits_answer(images):
    """Labels and probabilities that every client must get, from JSON."""
    code, answer = raw_json("/v2/models/digits/infer", digits_body(images))
    assert code == 200, answer
    outputs = {output["name"]: output["data"] for output in answer["outputs"]}
    return outputs["label"], outputs["probabilities"]


def documented(document, marker):
    """The Python between two markers of a document."""
    text = (SOURCE / "docs" / document).read_text()
    text = text.split(f"<!-- {marker} -->")[1].split(f"<!-- /{marker} -->")[0]
    return text.split("```python\n")[1].split("```")[0]


class Result(unittest.TestResult):
    def __init__(self, file):
        super().__init__()
        self.file = file

    def note(self, test, result, detail=""):
        name = test.id().rpartition(".")[2].removeprefix("check_").rstrip(")")
        self.file.write(json.dumps([name, result, detail]) + "\n")
        self.file.flush()

    def addSuccess(self, test):
        self.note(test, "ok", getattr(test, "detail", None) or test.shortDescription() or "")

    def addSkip(self, test, reason):
        self.note(test, "skipped", reason)

    def addFailure(self, test, err):
        super().addFailure(test, err)
        print(self.failures[-1][1], file=sys.stderr)
        self.note(test, "FAILED", f"{err[0].__name__}: {err[1]}"[:300])

    def addError(self, test, err):
        super().addError(test, err)
        print(self.errors[-1][1], file=sys.stderr)
        self.note(test, "FAILED", f"{err[0].__name__}: {err[1]}"[:300])


def main(later=None):
    """Runs the checks of the program; `later`: name -> what the node lacks for it."""
    loader = unittest.TestLoader()
    loader.testMethodPrefix = "check_"
    suite = loader.loadTestsFromModule(sys.modules["__main__"])
    with open(os.environ["INTEROP_RESULTS"], "w") as file:
        result = Result(file)
        suite.run(result)
        for name, lacking in (later or {}).items():
            file.write(json.dumps([name, "skipped", lacking]) + "\n")
    sys.exit(0 if result.wasSuccessful() else 1)
