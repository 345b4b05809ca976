# SPDX-License-Identifier: Apache-2.0
"""Modelets in Python, in a real node and its whole sandbox.

Datatypes and shapes both ways; batches; what a caller and the log get when the code raises, answers
wrongly, exits or crashes; generators, which answer in pieces; arrays that the code keeps beyond
`run`, of every kind of memory. test_19_python_life.py has the rest.

ctest: timeout=600 presets=release,dev because views of the arena must not outlive it
"""

import os
import pathlib
import signal
import struct
import tempfile
import textwrap
import unittest

import numpy

import shoal_fixture
from shoal_client import Client, bytes_element, failure
from shoal_fixture import (EXAMPLES, WAIT_SECONDS, Shoald, node, pipeline, run_shoald, sanitized,
                           stage, wait_until)
from shoal_rest import ANY_PORT, Rest, port_of

DATATYPES = {"BOOL": "?", "UINT8": "u1", "UINT16": "<u2", "UINT32": "<u4", "UINT64": "<u8",
             "INT8": "i1", "INT16": "<i2", "INT32": "<i4", "INT64": "<i8", "FP16": "<f2",
             "FP32": "<f4", "FP64": "<f8"}
HEADER = "import numpy, shoal, sys, os\n"
VIEW_BYTES = 64 << 10  # from here on a tensor is not copied: examples/python/memory.c
IN_ARENA = "^\\S+ r--s .*/memfd:"  # lines of /proc/PID/maps
OWN = "^\\S+ r(--|w-)p 00000000 00:00 0"


def tensor(name, values, datatype):
    array = numpy.asarray(values, DATATYPES[datatype])
    return name, datatype, list(array.shape), array.tobytes()


def floats(values, name="x"):
    return tensor(name, values, "FP32")


def texts(name, *values):
    return name, "BYTES", [len(values)], b"".join(map(bytes_element, values))


def outputs(answer):
    """name -> an array, or a list of bytes."""
    found = {}
    for output, raw in zip(answer.outputs, answer.raw_output_contents):
        if output.datatype == "BYTES":
            elements = []
            while raw:
                size, = struct.unpack_from("<I", raw)
                elements.append(raw[4:4 + size])
                raw = raw[4 + size:]
            found[output.name] = elements
        else:
            found[output.name] = numpy.frombuffer(raw, DATATYPES[output.datatype]).reshape(output.shape)
    return found


class PythonTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(
            tempfile.TemporaryDirectory(prefix="shoal-test.")))

    def write(self, code, name="code.py"):
        path = self.folder / name
        path.write_text(HEADER + textwrap.dedent(code))
        return path

    def node(self, code, name="code", **keys):
        self.write(code, f"{name}.py")
        return node(pipeline("code", stage(f"./{name}.py", name="code", **keys), slots=128),
                    message_mib=4)

    def start(self, code, **keys):
        self.shoald = self.enterContext(Shoald(self.node(code, **keys), folder=self.folder))
        self.client = self.enterContext(Client(self.shoald.target))
        return self.client

    def infer(self, *tensors):
        return outputs(self.client.infer_raw("code", *tensors))

    def check_fails(self, tensors, code, pattern):
        got, text = failure(self.client.start_raw("code", *tensors))
        self.assertEqual(got.name, code, text)
        self.assertRegex(text, pattern)

    def check_refused(self, code, pattern, **keys):
        exit_code, text = run_shoald(self.node(code, **keys), folder=self.folder)
        self.assertGreater(exit_code, 0, text)
        self.assertRegex(text, pattern)


class TestPieces(PythonTest):
    def pieces(self, *tensors, **fields):
        """(the outputs or the error, whether it is the last) of each message."""
        request, stub = self.client.stub("ModelStreamInfer", kind="stream_stream")
        asked = request(**self.client.infer_fields("code", tensors, **fields))
        messages = stub(iter([asked]), timeout=WAIT_SECONDS)
        return [(message.error_message or outputs(message.infer_response),
                 message.infer_response.parameters["triton_final_response"].bool_param) for message in messages]

    def test_yields(self):
        client = self.start("""
            class Model:
                def run(self, n: shoal.INT32[1], how: shoal.BYTES[1]) -> {"y": shoal.INT32[1]}:
                    how = how[0].decode()
                    for i in range(n[0]):
                        yield {"y": [i]}
                    if how == "return":
                        return {"y": [-1]}
                    if how == "raise":
                        raise shoal.InvalidArgument("INVALID_ARGUMENT", f"{n[0]} is enough")
                    if how in ("None", "extra"):
                        yield None if how == "None" else {"y": [0], "z": [0]}
            """)
        self.assertEqual([(one.name, one.datatype, list(one.shape))
                          for one in client.call("ModelMetadata", name="code").outputs], [("y", "INT32", [1])])

        def ask(n, how):
            return self.pieces(tensor("n", [n], "INT32"), texts("how", how))
        three = [({"y": [i]}, False) for i in range(3)]
        self.assertEqual(ask(3, "end"), three)
        self.assertEqual(ask(3, "return"), [*three, ({"y": [-1]}, True)])
        self.assertEqual(ask(0, "return"), [({"y": [-1]}, True)])
        for n, how, error in ((3, "raise", r"3 is enough \(3 pieces"), (0, "raise", "^0 is enough$"),
                              (3, "None", "run gave NoneType, but a dict of outputs is expected"),
                              (3, "extra", "run gave 2 outputs, but 1 are declared"), (0, "end", "no output")):
            *pieces, (text, final) = ask(n, how)
            self.assertEqual((pieces, final), (three[:n], True), how)
            self.assertRegex(text, error)
        self.check_fails([tensor("n", [2], "INT32"), texts("how", "")], "UNIMPLEMENTED", "ModelStreamInfer")

    def test_collected(self):
        self.start("""
            def run(n):
                yield from ({"y": numpy.full(2, i, "f4")} for i in n)
            """, collect="concat")
        numpy.testing.assert_array_equal(self.infer(floats([1, 2], "n"))["y"], [1, 1, 2, 2])

    def test_a_caller_who_goes(self):
        """The generator is closed at its next piece; its inputs were its own until then."""
        self.start("""
            def run(x):
                try:
                    while True:
                        yield {"y": x[:1]}
                finally:
                    print("closed with", x.sum())
            """)
        request, stub = self.client.stub("ModelStreamInfer", kind="stream_stream")
        call = stub(iter([request(**self.client.infer_fields("code", [floats([1] * VIEW_BYTES)]))]),
                    timeout=WAIT_SECONDS)
        next(call)
        call.cancel()
        self.shoald.wait_log(f"worker_said .*closed with {VIEW_BYTES}")
        self.shoald.wait_all_returned("code")

    def test_deadline(self):
        """The generator is closed at the piece behind it, or notices it and ends: the answer is cut."""
        self.start("""
            import threading
            pause = threading.Event()
            def run(x, how: shoal.BYTES[1]):
                how = how[0].decode()
                try:
                    while how == "yields":
                        yield {"y": x}
                        pause.wait(0.01)
                    yield {"y": x}
                    while not shoal.cancelled():
                        pass
                finally:
                    print("closed", how)
            """)
        for how in "yields", "waits":
            for timeout_us in 300_000, 3_000_000, 30_000_000:  # it must begin earlier
                *pieces, (text, final) = self.pieces(
                    floats([1]), texts("how", how), parameters={"timeout": {"int64_param": timeout_us}})
                if pieces:
                    break
            self.assertTrue(final)
            self.assertRegex(text, f"deadline.*{len(pieces)} pieces")
            self.shoald.wait_log(f"worker_said .*closed {how}")
            self.shoald.wait_all_returned("code")

    def test_cancelled(self):
        """A run that yields nothing learns it, also on a thread of its own; so does one of a batch, if
        all its callers are gone. Outside a run nobody is."""
        client = self.start("""
            import threading, time
            print("at first", shoal.cancelled())
            class Model:
                @shoal.batched
                def run(self, x: shoal.FP32[-1]):
                    print("running", len(x))
                    def wait_gone():
                        while not shoal.cancelled():
                            time.sleep(0.001)
                    thread = threading.Thread(target=wait_gone)
                    thread.start()
                    thread.join()
                    print("gave up", len(x))
                    return {"y": x}
            """, batch_size=2, batch_wait="fixed", batch_wait_ms=60000)
        self.shoald.wait_log("worker_said .*at first False")
        first, second = (client.start_raw("code", floats([1])) for _ in range(2))
        self.shoald.wait_log("worker_said .*running 2")
        first.cancel()
        self.shoald.wait_stat("code", lambda stat: stat["cancelled"] == 1, "the first to be cancelled")
        self.assertNotIn("gave up", self.shoald.stderr)
        second.cancel()
        self.shoald.wait_log("worker_said .*gave up 2")
        self.shoald.wait_all_returned("code")

    def test_batched(self):
        self.check_refused("""
            @shoal.batched
            def run(x):
                yield {"y": x}
            """, "pieces of an answer.*cannot be @shoal.batched", batch_size=4)

    def test_example(self):
        with Shoald(node(pipeline("countdown", stage(EXAMPLES / "python" / "countdown.py", name="count")),
                         http=ANY_PORT)) as shoald, Rest(port_of(shoald)) as rest:
            answer = rest.ask("POST", "/v2/models/countdown/generate_stream", '{"n": 3}')
        self.assertEqual(answer.body.decode(), "".join(
            f'data: {{"model_name":"countdown","model_version":"1","count":{i}}}\n\n' for i in (3, 2, 1)))


class TestTensors(PythonTest):
    def test_the_signature_is_the_metadata(self):
        client = self.start("""
            class Model:
                @shoal.batched
                def run(self, x: shoal.FP32[-1, 4], mask: shoal.BOOL[-1], more=None) -> {
                        "label": shoal.BYTES[-1], "all": shoal.INT64}:
                    pass
            """)
        said = client.call("ModelMetadata", name="code")
        self.assertEqual(said.platform, "python")
        self.assertEqual([(one.name, one.datatype, list(one.shape)) for one in said.inputs],
                         [("x", "FP32", [-1, 4]), ("mask", "BOOL", [-1])])
        self.assertEqual([(one.name, one.datatype) for one in said.outputs],
                         [("label", "BYTES"), ("all", "INT64")])
        self.check_fails([floats([[1, 2, 3]]), tensor("mask", [1], "BOOL")], "INVALID_ARGUMENT",
                         r"\[1, ?3\].*\[-1, ?4\]")

    def test_every_datatype(self):
        """Without annotations, and as a function: what goes in comes out, of any shape."""
        self.start("""
            def run(x):
                assert not x.flags.writeable and x.flags.c_contiguous
                return {"y": x, "dtype": str(x.dtype), "shape": numpy.array(x.shape, "i8")}
            """)
        for datatype, dtype in DATATYPES.items():
            for shape in (), (0,), (3,), (2, 0, 3), (2, 1, 3), (1,) * 8:
                with self.subTest(datatype=datatype, shape=shape):
                    values = (numpy.arange(numpy.prod(shape)).reshape(shape) % 2).astype(dtype)
                    said = self.infer(tensor("x", values, datatype))
                    numpy.testing.assert_array_equal(said["y"], values)
                    self.assertEqual(said["y"].dtype, values.dtype)
                    self.assertEqual(said["dtype"], [str(values.dtype).encode()])
                    self.assertEqual(tuple(said["shape"]), shape)
        self.assertEqual(self.infer(texts("x", "", "ä", b"\xff\0", "a" * 1000))["y"],
                         [b"", "ä".encode(), b"\xff\0", b"a" * 1000])
        self.assertEqual(self.infer(("x", "BYTES", [0, 2], b""))["y"], [])
        said = outputs(self.client.infer_raw("code", ("x", "BF16", [2], b"\0\0\x80\x3f")))
        numpy.testing.assert_array_equal(said["y"], numpy.array([0, 0x3f80], "u2"))

    def test_conversions(self):
        """Lists, scalars and texts of several kinds take the declared datatype."""
        self.start("""
            VALUES = [[1, 2.5], (3,), 4, numpy.float64(5), numpy.arange(6, dtype="f4")[::2],
                      range(2)]
            TEXTS = ["ab", b"ab", numpy.array(["x", "yz"]), numpy.array([b"x", b"yz"]),
                     ["a", b"\\xff"]]
            def run(number: shoal.INT64, text: shoal.INT64) -> {"y": shoal.FP32, "t": shoal.BYTES}:
                return {"y": VALUES[int(number)], "t": TEXTS[int(text)]}
            """)
        ys = [[1, 2.5], [3], 4, 5, [0, 2, 4], [0, 1]]
        ts = [[b"ab"], [b"ab"], [b"x", b"yz"], [b"x", b"yz"], [b"a", b"\xff"]]
        for i in range(6):
            said = self.infer(tensor("number", i, "INT64"), tensor("text", min(i, 4), "INT64"))
            numpy.testing.assert_array_equal(said["y"], numpy.array(ys[i], "f4"))
            self.assertEqual(said["t"], ts[min(i, 4)])

    def test_nul_at_the_end_of_a_text(self):
        """Kept with and without annotations: NumPy's own texts lose it."""
        self.start("""
            def run(x):
                return {"y": [b"a\\0", "b"], "z": "c\\0", "array": numpy.array([b"d\\0"], object)}
            """)
        self.assertEqual(self.infer(floats(1)), {"y": [b"a\0", b"b"], "z": [b"c\0"],
                                                 "array": [b"d\0"]})

    def test_wrong_answers_name_the_output(self):
        self.start("""
            ANSWERS = {
                "dtype": {"y": numpy.zeros((1, 2))}, "shape": {"y": numpy.zeros(2, "f4")},
                "rank": {"y": 1.0}, "none": None, "missing": {}, "more": {"y": [[1, 2]], "z": 1},
                "big-endian": {"y": numpy.zeros((1, 2), ">f4")},
                "complex": {"y": numpy.zeros((1, 2), "c16")},
                "object": {"y": numpy.array([[None, 1]], object)},
                "text": {"y": [["a", "b"]]}, "iterator": iter("a"),
                "high": {"y": numpy.zeros((1,) * 9, "f4")},
            }
            def run(what: shoal.BYTES[1]) -> {"y": shoal.FP32[-1, 2]}:
                return ANSWERS[what[0].decode()]
            """)
        said = {
            "dtype": r'output "y" is FP64 \[1, 2\], but FP32 \[-1, 2\] is declared',
            "shape": r'output "y" is FP32 \[2\], but FP32 \[-1, 2\]', "rank": r'"y" is FP32 \[\],',
            "none": "run gave NoneType, but a dict",
            "missing": 'output "y" is declared, but run did not give it',
            "more": "run gave 2 outputs, but 1 are declared",
            "big-endian": r'output "y": .*no datatype is like ">f"',
            "complex": r'output "y": .*no datatype is like "Zd"',
            "object": 'output "y": TypeError: element 0 is NoneType, neither str nor bytes',
            "text": 'output "y": ValueError: could not convert', "iterator": "run gave str_ascii_iterator",
            "high": 'output "y": .*9 dimensions; at most 8',
        }
        for what, pattern in said.items():
            with self.subTest(what):
                self.check_fails([texts("what", what)], "INTERNAL", pattern)
        self.shoald.wait_log('modelet_log modelet=python text="output ..y.. is FP64')

    def test_a_later_stage_checks_its_inputs(self):
        """The node checks those of the first stage only."""
        self.write("def run(x): return {'x': x}", "first.py")
        self.write("def run(x: shoal.FP32[2], z: shoal.FP32): return {'y': x}", "second.py")
        self.write("def run(x: shoal.FP32[2]): return {'y': x}", "third.py")
        config = node(*[pipeline(name, stage("./first.py", name="first"),
                                 stage(f"./{name}.py", name="second"), slots=8)
                        for name in ("second", "third")])
        with Shoald(config, folder=self.folder) as shoald, Client(shoald.target) as client:
            code, text = failure(client.start_raw("second", floats([1, 2])))
            self.assertEqual((code.name, text), ("INVALID_ARGUMENT", 'there is no input tensor "z"'))
            code, text = failure(client.start_raw("third", floats([1])))
            self.assertIn('input "x" is FP32 [1], expected FP32 [2]', text)
            numpy.testing.assert_array_equal(outputs(client.infer_raw("third", floats([1, 2])))["y"],
                                             [1, 2])


class TestBatches(PythonTest):
    CODE = """
        SIZES = []
        class Model:
            @shoal.batched
            def run(self, x: shoal.FP32[-1, -1], t: shoal.BYTES[-1]) -> {
                    "y": shoal.FP32[-1, -1], "t": shoal.BYTES[-1], "rows": shoal.INT64[-1]}:
                if (x[:1, :1] == 99).any():
                    os.kill(os.getpid(), 19)  # until a batch has gathered
                if (x == 13).any():
                    raise ValueError("an unlucky number")
                return {"y": x * 2, "t": [b.upper() for b in t], "rows": [len(x)] * len(x)}
        """

    def hold(self, first):
        """Stops the only worker, so that what is sent next is gathered."""
        worker, = self.shoald.workers("code")
        future = self.client.start_raw("code", *first)
        wait_until(lambda: shoal_fixture.read_proc(worker.pid, "stat").split()[2] == "T",
                   "the worker to stop itself")
        return future, worker

    def gather(self, *items, first=(floats([[99]]), texts("t", "a"))):
        first, worker = self.hold(first)
        futures = [self.client.start_raw("code", *item) for item in items]
        self.shoald.wait_stat("code", lambda stat: stat["stages"][0]["depth"] == len(items),
                              "all to wait")
        os.kill(worker.pid, signal.SIGCONT)
        first.result()
        return futures

    def test_items_of_several_shapes(self):
        """Each request gets its own rows back from any batch."""
        self.start(self.CODE, batch_size=16)
        items = [(floats(numpy.full((rows, width), rows * 100 + width)),
                  texts("t", *[f"t{i}{row}" for row in range(rows)]))
                 for i, (rows, width) in enumerate([(1, 2), (2, 2), (3, 3), (0, 2), (1, 3), (1, 1)])]
        together = {2: 3, 3: 4, 1: 1}
        for i, (item, future) in enumerate(zip(items, self.gather(*items))):
            said = outputs(future.result())
            sent = numpy.frombuffer(item[0][3], "f4").reshape(item[0][2])
            numpy.testing.assert_array_equal(said["y"], sent * 2)
            self.assertEqual(said["t"], [f"T{i}{row}".encode() for row in range(len(sent))])
            self.assertEqual(list(said["rows"]), [together[sent.shape[1]]] * len(sent))

    def test_one_raises_and_takes_nobody_with_it(self):
        self.start(self.CODE, batch_size=16)
        numbers = [1, 2, 13, 4, 5, 13, 7, 8]
        for number, future in zip(numbers, self.gather(*[(floats([[number]]), texts("t", "a"))
                                                         for number in numbers])):
            if number == 13:
                code, text = failure(future)
                self.assertEqual((code.name, text), ("UNKNOWN", "ValueError: an unlucky number"))
            else:
                self.assertEqual(outputs(future.result())["y"], [[number * 2]])
        self.shoald.wait_log(r'worker_said .*raise ValueError\(')

    def test_more_rows_than_a_dimension_can_count(self):
        """Where another dimension is 0, the sum of two requests' rows may be no int64."""
        self.start("""
            @shoal.batched
            def run(x: shoal.UINT8[-1, -1]):
                if x.shape[1] == 1:
                    os.kill(os.getpid(), 19)
                return {"y": x}
            """, batch_size=16)
        rows = (1 << 63) - 1
        item = [("x", "UINT8", [rows, 0], b"")]
        for future in self.gather(item, item, item, first=[tensor("x", [[1]], "UINT8")]):
            self.assertEqual(outputs(future.result())["y"].shape, (rows, 0))

    def test_rows_that_do_not_fit_together(self):
        self.start(self.CODE, batch_size=16)
        self.check_fails([floats([[1], [2]]), texts("t", "a")], "INVALID_ARGUMENT",
                         'input "t" must have as many rows .* as "x"')

    def test_an_answer_with_too_few_rows(self):
        self.start("""
            @shoal.batched
            def run(x: shoal.FP32[-1]) -> {"y": shoal.FP32[-1]}:
                return {"y": x[1:]}
            """, batch_size=4)
        self.check_fails([floats([1, 2, 3])], "INTERNAL",
                         r'output "y" is FP32 \[2\], but its first dimension must be .* 3')


class TestKept(PythonTest):
    """Arrays that `run` keeps do not change while other requests come and go."""

    CODE = """
        kept = []
        def run(x, how: shoal.BYTES[1]):
            how = how[0].decode()
            if how == "array":
                kept.append(x)
            elif how == "slice":
                kept.append(x[1:][::2])
            elif how == "memoryview":
                kept.append(memoryview(x))
            elif how == "exception":
                raise ValueError(kept.append(x) or "kept")
            elif how == "write":
                x.flags.writeable = True
            elif how == "cycle":
                cycle = [x]
                cycle.append(cycle)
            elif how == "sums":
                return {"y": [float(numpy.asarray(one).sum()) for one in kept]}
            elif how == "forget":
                kept.clear()
            return {"y": x[:1]}
        """

    def keep(self, count):
        """Others' data would be seen by the sums: all of it is other numbers."""
        self.start(self.CODE)
        sums = []
        for number, how in enumerate(["array", "slice", "memoryview", "exception"], 1):
            x = floats(numpy.full(count, number))
            if how == "exception":
                self.check_fails([x, texts("how", how)], "UNKNOWN", "ValueError: kept")
            else:
                self.infer(x, texts("how", how))
            sums.append(number * ((count - 1 + 1) // 2 if how == "slice" else count))
        for number in range(100):
            self.infer(floats(numpy.full(count, 1000 + number)), texts("how", "cycle"))
            said = self.infer(floats(numpy.full(count, 2000)), texts("how", "sums"))["y"]
            numpy.testing.assert_array_equal(said, sums)
        self.check_fails([floats(numpy.zeros(count)), texts("how", "write")], "UNKNOWN",
                         "ValueError: cannot set WRITEABLE flag")
        self.infer(floats(numpy.zeros(count)), texts("how", "forget"))
        self.assertEqual(self.shoald.stage_stat("code", "code")["restarts"], 0)

    def test_small(self):
        self.keep(16)

    def test_large(self):
        """Not copied before the run: the pages of the arena are mapped once more."""
        self.keep(2 * VIEW_BYTES // 4)

    def start_where(self, decorator="", **keys):
        """Says, in the first of as many texts as x has rows, what x lies in, then what the first x lies
        in now."""
        self.start("""
            kept = []
            def where(x):
                address = x.__array_interface__["data"][0]
                for line in open("/proc/self/maps"):
                    first, end = (int(one, 16) for one in line.split()[0].split("-"))
                    if first <= address < end:
                        return line
            class Model:
                {decorator}
                def run(self, x: shoal.UINT8[-1]) -> {"y": shoal.BYTES[-1]}:
                    kept.append(x)
                    return {"y": [where(x) + where(kept[0])] + [""] * (len(x) - 1)}
            """.replace("{decorator}", decorator), sandbox_allow=["reading"], **keys)

    def start_asking(self, count):
        return self.client.start_raw("code", tensor("x", numpy.zeros(count), "UINT8"))

    def where(self, count):
        return outputs(self.start_asking(count).result())["y"][0].decode().splitlines()

    def test_large_lie_in_the_arena(self):
        """Mapped read-only; what is smaller or kept lies in memory of the process."""
        self.start_where()
        self.assertRegex(self.where(2 * VIEW_BYTES)[0], IN_ARENA)
        now, kept = self.where(VIEW_BYTES)
        self.assertRegex(now, IN_ARENA)
        self.assertRegex(kept, OWN)
        self.assertRegex(self.where(VIEW_BYTES - 1)[0], OWN)

    def test_stacked_are_copied(self):
        self.start_where("@shoal.batched", batch_size=2, batch_wait="fixed", batch_wait_ms=60000)
        first, second = (self.start_asking(2 * VIEW_BYTES) for _ in range(2))
        said = b"".join(text for one in (first, second) for text in outputs(one.result())["y"])
        self.assertRegex(said.decode(), OWN)

    def test_large_and_dropped_maps_nothing(self):
        """Views come and go without a trace: neither mappings nor memory."""
        self.start(self.CODE)
        worker, = self.shoald.workers("code")
        x = floats(numpy.zeros(2 * VIEW_BYTES // 4))

        def mappings():
            return len(shoal_fixture.read_proc(worker.pid, "maps").splitlines())
        for _ in range(20):
            self.infer(x, texts("how", ""))
        before = mappings()
        for _ in range(300):
            self.infer(x, texts("how", ""))
        self.assertLess(mappings() - before, 20)

    def test_batches(self):
        """Stacked rows lie in memory that is used again, unless it was kept."""
        self.start("""
            kept = []
            @shoal.batched
            def run(x: shoal.FP32[-1]) -> {"y": shoal.FP32[-1]}:
                kept.append((x, x.copy()))
                del kept[:-50]
                assert all((one == copy).all() for one, copy in kept)
                return {"y": x}
            """, batch_size=8)
        for first in range(0, 400, 100):
            futures = {number: self.client.start_raw("code", floats([number] * (number % 7)))
                       for number in range(first, first + 100)}
            for number, future in futures.items():
                numpy.testing.assert_array_equal(outputs(future.result())["y"],
                                                 [number] * (number % 7))


class TestFaults(PythonTest):
    CODE = """
        def run(do: shoal.BYTES[1]) -> {"y": shoal.BYTES[1]}:
            do = do[0].decode()
            if do == "code":
                raise shoal.InvalidArgument("INVALID_ARGUMENT", "no such flower")
            if do == "long":
                raise ValueError("ä" * 1000)
            if do == "unprintable":
                class Odd(Exception):
                    def __str__(self):
                        raise ValueError
                raise Odd
            if do == "interrupt":
                raise KeyboardInterrupt
            if do == "nul":
                raise ValueError("a\\0b")
            if do == "log":
                import logging
                for text, *args in ("a\\0b",), ("\\udcff",), ("%d", "no number"):
                    logging.warning(text, *args)
            if do == "stderr":
                sys.stderr = object()
                raise ValueError("lost")
            if do == "exit":
                sys.exit(3)
            if do == "segfault":
                import ctypes
                ctypes.string_at(0)
            if do == "abort":
                os.abort()
            if do == "hang":
                while True:
                    pass
            if do == "recursion":
                def again():
                    again()
                again()
            print("did", do)
            return {"y": [do]}
        """

    def check_serves(self):
        self.assertEqual(self.infer(texts("do", "x"))["y"], [b"x"])

    def test_exceptions(self):
        self.start(self.CODE)
        self.check_fails([texts("do", "code")], "INVALID_ARGUMENT", "^no such flower$")
        self.check_fails([texts("do", "long")], "UNKNOWN", "^ValueError: ä{50,}$")
        self.check_fails([texts("do", "unprintable")], "UNKNOWN", "cannot be printed")
        self.check_fails([texts("do", "interrupt")], "UNKNOWN", "^KeyboardInterrupt$")
        self.check_fails([texts("do", "recursion")], "UNKNOWN", "RecursionError: ")
        self.check_fails([texts("do", "nul")], "UNKNOWN", r"^ValueError: a\\0b$")
        self.assertEqual(self.infer(texts("do", "log"))["y"], [b"log"])
        self.check_fails([texts("do", "stderr")], "UNKNOWN", "^ValueError: lost$")
        self.shoald.wait_log(r'worker_said .*text="ValueError: lost"')
        self.check_serves()
        self.shoald.wait_log('worker_said .*text="did x"')
        self.assertEqual(self.shoald.stage_stat("code", "code")["restarts"], 0)

    def test_deaths_are_as_in_c(self):
        """A poisonous request is refused after two deaths, and others are served."""
        self.start(self.CODE, workers=2, run_timeout_ms=1500)
        crash = "abort" if sanitized() else "segfault"  # which a sanitizer reports
        for do in "exit", crash, "hang":
            with self.subTest(do):
                self.check_fails([texts("do", do)], "UNAVAILABLE", r"2 workers died.*code\.py|code\.py.*2 workers were lost")
                self.check_serves()
        self.shoald.wait_log('text="SystemExit: 3: the worker ends"')
        self.assertNotIn("region_corrupt", "".join(self.shoald.lines))

    def test_what_the_sandbox_refuses_while_it_serves(self):
        (self.folder / "beside.txt").write_text("read me")
        self.start("""
            def run(do: shoal.BYTES[1]):
                try:
                    exec(do[0].decode())
                except OSError as error:
                    return {"y": type(error).__name__}
                return {"y": "done"}
            """)
        for do, outcome in [
                (f"open({str(self.folder / 'beside.txt')!r}).read()", b"done"),
                ("import sqlite3, decimal", b"done"),  # maps a library
                ("open('/etc/passwd')", b"PermissionError"), ("os.fork()", b"PermissionError"),
                (f"open({str(self.folder / 'new')!r}, 'w')", b"PermissionError"),
                ("import socket; socket.socket()", b"PermissionError")]:
            self.assertEqual(self.infer(texts("do", do))["y"], [outcome], do)

    def test_folders_that_it_may_read(self):
        """Its own and the configuration's, but none beside them."""
        for name in "mine", "configured", "beside":
            (self.folder / name).mkdir()
            (self.folder / name / "text").write_text("read me")
        self.write("""
            def run(path: shoal.BYTES[1]):
                try:
                    return {"y": open(path[0].decode()).read()}
                except OSError as error:
                    return {"y": type(error).__name__}
            """, "mine/code.py")
        self.shoald = self.enterContext(Shoald(
            node(pipeline("code", stage("../mine/code.py", name="code"), slots=8)),
            folder=self.folder / "configured"))
        self.client = self.enterContext(Client(self.shoald.target))
        for name, outcome in ("mine", b"read me"), ("configured", b"read me"), ("beside", b"PermissionError"):
            path = texts("path", str(self.folder / name / "text"))
            self.assertEqual(self.infer(path)["y"], [outcome], name)

    def test_a_forked_child_does_not_answer_too(self):
        self.start("""
            def run(x: shoal.INT64[1]):
                if os.fork() == 0:
                    if x[0] == 0:
                        raise ValueError("in the child")
                else:
                    os.wait()
                return {"y": x}
            """, sandbox_allow=["processes"])
        for number in range(4):
            self.assertEqual(self.infer(tensor("x", [number], "INT64"))["y"], [number])
        self.shoald.wait_log("a child of os.fork left its function")
        self.assertNotIn("region_corrupt", "".join(self.shoald.lines))

    def test_a_load_that_is_imported_is_none_of_a_model(self):
        self.start("from json import load\ndef run(x): return {'y': x}")
        self.assertEqual(self.infer(floats([1]))["y"], 1)


if __name__ == "__main__":
    shoal_fixture.main()
