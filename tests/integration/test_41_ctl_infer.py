# SPDX-License-Identifier: Apache-2.0
"""shoalctl infer against a real node: what is sent is what was written, what is shown is the answer.

The echo modelet sends every tensor back, so each datatype goes in as text and comes out as JSON, raw
and typed; rows of CSV files, raw files and standard input are divided as asked; errors of the node
end with 1, a deadline that passes while the modelet holds the request with 4. ctest: timeout=180
"""

import base64
import json
import pathlib
import struct
import tempfile
import unittest

import shoal_fixture
from shoal_ctl import LATE, NEGATIVE, environment, shoalctl
from shoal_fixture import EXAMPLES, MODELETS, SOURCE, Shoald, node, pipeline, stage

# As written, as it comes back in JSON.
TENSORS = {
    "BOOL": ("true,false,1", [True, False, True]),
    "UINT8": ("0,1,255", [0, 1, 255]),
    "UINT16": ("0,0x100,65535", [0, 256, 65535]),
    "UINT32": ("0,1,4294967295", [0, 1, 2**32 - 1]),
    "UINT64": ("0,1,18446744073709551615", [0, 1, 2**64 - 1]),
    "INT8": ("-128,0,127", [-128, 0, 127]),
    "INT16": ("-32768,0,32767", [-2**15, 0, 2**15 - 1]),
    "INT32": ("-2147483648,0,2147483647", [-2**31, 0, 2**31 - 1]),
    "INT64": ("-9223372036854775808,0,1", [-2**63, 0, 1]),
    "FP16": ("0.5,-2,65504", [0.5, -2, 65504]),
    "BF16": ("0.5,-2,inf", [0.5, -2, "Infinity"]),
    "FP32": ("0.1,-3.25,1e30", [0.1, -3.25, 1e30]),
    "FP64": ("0.1,nan,1e300", [0.1, "NaN", 1e300]),
    "BYTES": ("a\\,b,,\\xff", ["a,b", "", {"b64": "/w=="}]),
}


class TestInfer(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        puppet = stage(MODELETS / "libpuppet.so", params={"folder": str(cls.folder)})
        cls.shoald = cls.enterClassContext(Shoald(node(
            pipeline("echo", stage("libecho.so"), slots=16),
            pipeline("puppet", puppet, slots=4),
            pipeline("scale-shift", stage("libscale.so"), stage("libshift.so"), slots=16))))

    def infer(self, model, *arguments, **options):
        return shoalctl("infer", model, "--target", self.shoald.target, *arguments, **options)

    def test_every_datatype_raw_and_typed(self):
        inputs = {}
        for datatype, (text, _) in TENSORS.items():
            inputs[datatype] = ("--input", f"in-{datatype}={datatype}[3]:{text}")
        for typed in (False, True):
            chosen = [name for name in TENSORS if not typed or name not in ("FP16", "BF16")]
            arguments = [word for name in chosen for word in inputs[name]]
            answer = self.infer("echo", "--json", *arguments, *(["--typed"] if typed else [])).json
            self.assertEqual(answer["model_name"], "echo")
            self.assertEqual(
                {one["name"]: (one["datatype"], one["shape"], one["data"])
                 for one in answer["outputs"]},
                {f"in-{name}": (name, [3], TENSORS[name][1]) for name in chosen})

    def test_a_pipeline_that_computes(self):
        done = self.infer("scale-shift", "--input", "x=FP32[2,2]:1,2,3,4")
        self.assertIn('model "scale-shift"', done.out)
        self.assertRegex(done.out, r'FP32\[2,2\]\n    5 7\n    9 11\n$')
        self.assertEqual(done.err, "")

    def test_id_outputs_parameters(self):
        answer = self.infer("echo", "--input", "a=INT8[1]:1", "--input", "b=INT8[1]:2", "--output",
                            "b", "--id", "me", "--param", "n=1", "--param-string", "s=1",
                            "--json").json
        self.assertEqual(answer["id"], "me")
        self.assertEqual([one["name"] for one in answer["outputs"]], ["b"])

    def test_files(self):
        file = self.folder / "raw"
        file.write_bytes(struct.pack("<4f", 1, 2, 3, 4))
        answer = self.infer("echo", "--input", f"x=FP32[2,-1]@{file}", "--json").json
        self.assertEqual(answer["outputs"][0]["data"], [1, 2, 3, 4])
        self.assertEqual(answer["outputs"][0]["shape"], [2, 2])
        blob = bytes(range(256)) * 300
        answer = self.infer("echo", "--input", "x=BYTES[1]@-", "--json", stdin=blob).json
        self.assertEqual(base64.b64decode(answer["outputs"][0]["data"][0]["b64"]), blob)

    def test_csv_in_one_request_and_in_several(self):
        rows = b"name,a,b\n" + b"".join(b"row,%d,%d\n" % (i, -i) for i in range(5))
        csv = ["--input", "x=INT16[-1,2]@csv:-", "--input", "k=INT8[1]:9", "--csv-header",
               "--csv-columns", "2-3", "--json"]
        answer, = self.infer("echo", *csv, stdin=rows).json_lines
        self.assertEqual(answer["outputs"][0]["shape"], [5, 2])
        self.assertEqual(answer["outputs"][0]["data"], [0, 0, 1, -1, 2, -2, 3, -3, 4, -4])
        for options, sizes in ((["--rows-per-request", "2"], [2, 2, 1]), (["--each-row"], [1] * 5)):
            done = self.infer("echo", *csv, *options, stdin=rows)
            self.assertEqual([one["outputs"][0]["shape"] for one in done.json_lines],
                             [[size, 2] for size in sizes])
            values = [value for one in done.json_lines for value in one["outputs"][0]["data"]]
            self.assertEqual(values, [0, 0, 1, -1, 2, -2, 3, -3, 4, -4])
            self.assertEqual([one["outputs"][1]["data"] for one in done.json_lines],
                             [[9]] * len(sizes))
            self.assertIn(f"{len(sizes)} requests, one at a time", done.err)

    def test_repeat_sends_all_and_prints_the_last(self):
        before = self.shoald.pipeline_stat("echo")["replies_ok"]
        done = self.infer("echo", "--input", "x=INT8[-1]@csv:-", "--each-row", "--repeat", "7",
                          "--json", stdin=b"1\n2\n")
        self.assertEqual([one["outputs"][0]["data"] for one in done.json_lines], [[1], [2]])
        self.assertRegex(done.err, r"^14 requests, .*p50 .*p99 .*/s\n$")
        self.assertEqual(self.shoald.pipeline_stat("echo")["replies_ok"], before + 14)

    def test_large_tensors_are_cut_for_people_alone(self):
        numbers = ",".join(map(str, range(1000)))
        done = self.infer("echo", "--input", f"x=INT32[1000]:{numbers}")
        self.assertIn("984 more", done.out)
        self.assertNotIn("999", done.out)
        self.assertIn(" 999\n", self.infer("echo", "--input", f"x=INT32[1000]:{numbers}",
                                           "--full").out)
        self.assertEqual(self.infer("echo", "--input", f"x=INT32[1000]:{numbers}",
                                    "--json").json["outputs"][0]["data"], list(range(1000)))

    def test_the_nodes_errors_end_with_1(self):
        done = self.infer("nobody", "--input", "x=INT8[1]:1", "--json", code=NEGATIVE)
        self.assertEqual((done.json["status"], done.json["code"]), ("NOT_FOUND", 5))
        self.assertIn("nobody", done.err)
        done = self.infer("scale-shift", "--input", "y=FP32[1]:1", code=NEGATIVE)
        self.assertIn("INVALID_ARGUMENT", done.err)
        self.assertEqual(done.out, "")
        done = self.infer("puppet", "--input", "say=BYTES[1]:fail 9", code=NEGATIVE)
        self.assertIn("FAILED_PRECONDITION", done.err)
        done = self.infer("echo", "--output", "none", "--input", "x=INT8[-1]@csv:-", "--each-row",
                          stdin=b"1\n2\n", code=NEGATIVE)
        self.assertIn("request 1 of 2", done.err)

    def test_a_deadline_that_passes_ends_with_4(self):
        done = self.infer("puppet", "--input", "say=BYTES[1]:hold late", "--timeout-ms", "300",
                          "--json", code=LATE)
        self.assertEqual(done.json["status"], "DEADLINE_EXCEEDED")
        (self.folder / "late.go").touch()  # on a busy machine the deadline comes before the puppet
        self.shoald.wait_all_returned("puppet")

    def test_the_environment_names_the_node(self):
        done = shoalctl("infer", "echo", "--input", "x=INT8[1]:1",
                        env=environment(SHOAL_TARGET=self.shoald.target))
        self.assertIn('"x"  INT8[1]  1\n', done.out)


class TestDigits(unittest.TestCase):
    def test_the_held_out_digits_from_their_csv_file(self):
        data = SOURCE / "examples" / "digits" / "data" / "digits.csv"
        labels = [int(line.rsplit(",", 1)[1]) for line in data.read_text().split()]
        with Shoald(EXAMPLES / "digits" / "digits.yaml", args=["--no-pin"]) as shoald:
            done = shoalctl("infer", "digits", "--target", shoald.target, "--input",
                            f"image=FP32[-1,64]@csv:{data}", "--csv-columns", "1-64",
                            "--rows-per-request", "100", "--output", "label", "--json")
        got = [label for line in done.out.splitlines()
               for label in json.loads(line)["outputs"][0]["data"]]
        right = sum(a == b for a, b in zip(got, labels, strict=True))
        self.assertGreater(right, 0.95 * len(labels))


if __name__ == "__main__":
    shoal_fixture.main()
