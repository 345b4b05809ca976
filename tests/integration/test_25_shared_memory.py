# SPDX-License-Identifier: Apache-2.0
"""Triton's system shared memory, over gRPC and REST, with real objects in /dev/shm: tensors go in and
come out there, and the answer has their place and no bytes; every wrong parameter, key and size is
one call's error, the same both ways; memory that is cut short while calls use it costs its owner
answers, and nobody else anything; a region that is unregistered lasts as long as the calls that use
it, and leaves no descriptor behind.
ctest: timeout=240
"""

import fcntl
import json
import os
import pathlib
import signal
import socket
import struct
import threading
import unittest

import grpc

import shoal_fixture
from shoal_client import Client, bytes_element, failure
from shoal_fixture import Shoald, node, pipeline, stage, wait_until
from shoal_rest import ANY_PORT, Rest, port_of, tensor

Code = grpc.StatusCode
CODES = {200: Code.OK, 400: Code.INVALID_ARGUMENT, 403: Code.PERMISSION_DENIED, 404: Code.NOT_FOUND,
         409: Code.ALREADY_EXISTS, 429: Code.RESOURCE_EXHAUSTED, 501: Code.UNIMPLEMENTED}
FLOATS = struct.pack("<4f", 1, 2, 3, 4)
REGIONS_MAX = 4
MIB = 1 << 20


class Memory:
    """An object in /dev/shm, gone at the end."""
    count = 0

    def __init__(self, size, data=b"", at=0):
        Memory.count += 1
        self.key = f"/shoal-test-{os.getpid()}-{Memory.count}"
        self.path = pathlib.Path("/dev/shm" + self.key)
        self.file = self.path.open("x+b", buffering=0)
        os.ftruncate(self.file.fileno(), size)
        self.write(at, data)

    def write(self, at, data):
        os.pwrite(self.file.fileno(), data, at)

    def read(self, at, size):
        return os.pread(self.file.fileno(), size, at)

    def cut(self, size):
        os.ftruncate(self.file.fileno(), size)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.file.close()
        self.path.unlink(missing_ok=True)


def place(region, size, offset=None):
    parameters = {"shared_memory_region": region, "shared_memory_byte_size": size}
    if offset is not None:
        parameters["shared_memory_offset"] = offset
    return parameters


class ByGrpc:
    """The abilities of a caller. Every method returns (code, text or answer)."""
    name = "gRPC"

    def __init__(self, test):
        self.client = test.enterContext(Client(test.shoald.target))

    def ask(self, method, **fields):
        future = self.client.start(method, **fields)
        return (Code.OK, future.result()) if future.code() is Code.OK else failure(future)

    def register(self, name, key, size, offset=0):
        return self.ask("SystemSharedMemoryRegister", name=name, key=key, byte_size=size, offset=offset)

    def unregister(self, name=""):
        return self.ask("SystemSharedMemoryUnregister", name=name)

    def status(self, name=""):
        code, answer = self.ask("SystemSharedMemoryStatus", name=name)
        if code is not Code.OK:
            return code, answer
        for key, region in answer.regions.items():
            assert key == region.name
        return code, sorted((one.name, one.key, one.offset, one.byte_size) for one in answer.regions.values())

    def cuda(self, verb, name=""):
        return self.ask(f"CudaSharedMemory{verb.capitalize()}", name=name)

    def parameters(self, own):
        kinds = {str: "string_param", int: "int64_param", bool: "bool_param", float: "double_param"}
        return {key: self.client.type("inference.InferParameter")(**{kinds[type(value)]: value})
                for key, value in own.items()}

    def start(self, model, inputs, outputs=()):
        """`inputs`: (name, datatype, shape, parameters or contents); `outputs`: (name, parameters)."""
        tensors, raw = [], []
        for name, datatype, shape, what in inputs:
            tensors.append({"name": name, "datatype": datatype, "shape": shape})
            if isinstance(what, dict):
                tensors[-1]["parameters"] = self.parameters(what)
            else:
                raw.append(what)
        wanted = [{"name": name, "parameters": self.parameters(own)} for name, own in outputs]
        return self.client.start("ModelInfer", model_name=model, inputs=tensors, outputs=wanted,
                                 raw_input_contents=raw)

    def finish(self, future):
        if future.code() is not Code.OK:
            return failure(future)
        answer = future.result()
        outputs = {}
        assert len(answer.raw_output_contents) == len(answer.outputs)
        for output, raw in zip(answer.outputs, answer.raw_output_contents):
            own = {key: getattr(value, value.WhichOneof("parameter_choice"))
                   for key, value in output.parameters.items()}
            assert not own or raw == b"", "bytes beside a place in shared memory"
            outputs[output.name] = own or raw
        return Code.OK, outputs

    def infer(self, *call):
        return self.finish(self.start(*call))


class ByRest:
    name = "REST"

    def __init__(self, test):
        self.rest = test.enterContext(Rest(test.port))

    @staticmethod
    def result(answer):
        return CODES[answer.code], answer.json if answer.code == 200 else answer.error

    def order(self, path, body=None):
        return self.result(self.rest.ask("POST", path, None if body is None else json.dumps(body)))

    @staticmethod
    def path(kind, name, verb):
        return f"/v2/{kind}sharedmemory{f'/region/{name}' if name else ''}/{verb}"

    def register(self, name, key, size, offset=0):
        return self.order(self.path("system", name, "register"), {"key": key, "offset": offset, "byte_size": size})

    def unregister(self, name=""):
        return self.order(self.path("system", name, "unregister"))

    def status(self, name=""):
        code, rows = self.result(self.rest.get(self.path("system", name, "status")))
        if code is not Code.OK:
            return code, rows
        return code, sorted((one["name"], one["key"], one["offset"], one["byte_size"]) for one in rows)

    def cuda(self, verb, name=""):
        path = self.path("cuda", name, verb)
        return self.result(self.rest.get(path)) if verb == "status" else self.order(path, {})

    def start(self, model, inputs, outputs=()):
        tensors, binary = [], b""
        for name, datatype, shape, what in inputs:
            own = what if isinstance(what, dict) else {"binary_data_size": len(what)}
            binary += b"" if isinstance(what, dict) else what
            tensors.append({"name": name, "datatype": datatype, "shape": shape, "parameters": own})
        members = {"outputs": [{"name": name, "parameters": own} for name, own in outputs]} if outputs else {}
        body, headers = self.rest.infer_body(tensors, binary, parameters={"binary_data_output": True}, **members)
        self.rest.send("POST", f"/v2/models/{model}/infer", body, headers)

    def finish(self, _):
        answer = self.rest.receive()
        if answer.code != 200:
            return CODES[answer.code], answer.error
        outputs, at = {}, 0
        for output in answer.json["outputs"]:
            own = output["parameters"]
            assert "data" not in output, output
            if "shared_memory_region" in own:
                outputs[output["name"]] = own
                continue
            outputs[output["name"]] = answer.binary[at:at + own["binary_data_size"]]
            at += own["binary_data_size"]
        return Code.OK, outputs

    def infer(self, *call):
        return self.finish(self.start(*call))


class SharedMemory(unittest.TestCase):
    keys = {"http_control": "on"}

    @classmethod
    def pipelines(cls):
        return [pipeline("echo", stage("libecho.so", workers=2), arena_mib=32),
                pipeline("puppet", stage("libpuppet.so", params={"folder": "."}), slots=8)]

    @classmethod
    def setUpClass(cls):
        cls.shoald = cls.enterClassContext(Shoald(node(
            *cls.pipelines(), http=ANY_PORT, message_mib=1, shared_memory_regions=REGIONS_MAX, **cls.keys)))
        cls.port = port_of(cls.shoald)

    def setUp(self):
        self.ways = (ByGrpc(self), ByRest(self))
        self.memory = self.enterContext(Memory(4096, FLOATS, 64))

    def refuse(self, results, code, *words):
        """The same both ways."""
        self.assertEqual(results[0], results[1])
        self.assertIs(results[0][0], code, results)
        for word in words:
            self.assertIn(word, results[0][1])


class TestOn(SharedMemory):
    def setUp(self):
        super().setUp()
        self.assertIs(self.ways[0].register("r", self.memory.key, 4096)[0], Code.OK)
        self.addCleanup(self.ways[0].unregister)

    def descriptors(self):
        folder = pathlib.Path(f"/proc/{self.shoald.pid}/fd")
        found = []
        for link in folder.iterdir():
            try:
                found.append(os.readlink(link))
            except FileNotFoundError:
                continue  # closed meanwhile
        return sum(one.startswith("/dev/shm/shoal-test-") for one in found)

    # ---- tensors ----

    def test_in_and_out(self):
        for way in self.ways:
            self.memory.write(1024, bytes(16))
            code, outputs = way.infer("echo", [("x", "FP32", [4], place("r", 16, 64))], [("x", place("r", 32, 1024))])
            self.assertIs(code, Code.OK, outputs)
            self.assertEqual(outputs, {"x": place("r", 16, 1024)})
            self.assertEqual(self.memory.read(1024, 32), FLOATS + bytes(16))

    def test_a_part_in_the_message(self):
        for way in self.ways:
            code, outputs = way.infer("echo", [("a", "FP32", [4], FLOATS), ("b", "FP32", [4], place("r", 16, 64)),
                                               ("c", "UINT8", [3], b"123")], [("a", {}), ("b", place("r", 16)), ("c", {})])
            self.assertIs(code, Code.OK, outputs)
            self.assertEqual(outputs, {"a": FLOATS, "b": place("r", 16, 0), "c": b"123"})
            self.assertEqual(self.memory.read(0, 16), FLOATS)
            code, outputs = way.infer("echo", [("b", "FP32", [2, 2], place("r", 16, 64))])
            self.assertEqual((code, outputs), (Code.OK, {"b": FLOATS}))

    def test_strings(self):
        text = bytes_element("one") + bytes_element("") + bytes_element("three")
        self.memory.write(200, text)
        for way in self.ways:
            code, outputs = way.infer("echo", [("s", "BYTES", [3], place("r", len(text), 200))],
                                      [("s", place("r", 100, 300))])
            self.assertEqual((code, outputs), (Code.OK, {"s": place("r", len(text), 300)}))
            self.assertEqual(self.memory.read(300, len(text)), text)
        for count, size, words in ((3, len(text) - 1, "beyond"), (2, len(text), "bytes after"), (4, len(text), "beyond"),
                                   (1 << 40, len(text), "beyond")):
            self.refuse([way.infer("echo", [("s", "BYTES", [count], place("r", size, 200))]) for way in self.ways],
                        Code.INVALID_ARGUMENT, 'tensor "s"', words)

    def test_empty(self):
        for way in self.ways:
            self.assertEqual(way.infer("echo", [("x", "FP32", [0], place("r", 0, 4096))], [("x", place("r", 0))]),
                             (Code.OK, {"x": place("r", 0, 0)}))

    # ---- failures ----

    def test_wrong_parameters(self):
        whole = place("r", 16, 64)
        for own, code, words in (
                (place("nobody", 16), Code.NOT_FOUND, "Unable to find shared memory region: 'nobody'"),
                (place("", 16), Code.NOT_FOUND, "Unable to find shared memory region: ''"),
                (place("r" * 128, 16), Code.INVALID_ARGUMENT, "at most"),
                ({"shared_memory_region": "r"}, Code.INVALID_ARGUMENT, "without \"shared_memory_byte_size\""),
                (place("r", 16, 4081), Code.INVALID_ARGUMENT, "has 4096 bytes, not 16 from byte 4081 on"),
                (place("r", 16, 1 << 62), Code.INVALID_ARGUMENT, "has 4096 bytes")):
            with self.subTest(own=own):
                self.refuse([way.infer("echo", [("x", "FP32", [4], own)]) for way in self.ways], code, words)
                self.refuse([way.infer("echo", [("x", "FP32", [4], whole)], [("x", own)]) for way in self.ways],
                            code, words)
        for own, words in (({"shared_memory_byte_size": 16}, "without \"shared_memory_region\""),
                           ({"shared_memory_offset": 16}, "without \"shared_memory_region\"")):
            self.refuse([way.infer("echo", [("x", "FP32", [4], whole)], [("x", own)]) for way in self.ways],
                        Code.INVALID_ARGUMENT, words)
        for own, words in (({"shared_memory_region": 7}, "must be a string"),
                           ({"shared_memory_offset": "64"}, "a number of bytes"),
                           ({"shared_memory_offset": -1}, "a number of bytes"),
                           ({"shared_memory_byte_size": 16.5}, "a number of bytes"),
                           ({"shared_memory_byte_size": True}, "a number"),
                           ({"classification": 3}, "classification")):
            for way in self.ways:
                for call in ([("x", "FP32", [4], {**whole, **own})],), ([("x", "FP32", [4], whole)],
                                                                        [("x", {**whole, **own})]):
                    code, text = way.infer("echo", *call)
                    self.assertIs(code, Code.INVALID_ARGUMENT, (own, text))
                    self.assertIn(words, text)
        for size in (15, 17, 0, 4096):
            self.refuse([way.infer("echo", [("x", "FP32", [4], place("r", size))]) for way in self.ways],
                        Code.INVALID_ARGUMENT, f"shared_memory_byte_size is {size}, FP32 and the shape want 16")
        self.refuse([way.infer("echo", [("x", "FP32", [4], whole)], [("x", place("r", 15))]) for way in self.ways],
                    Code.INVALID_ARGUMENT, 'output "x": has 16 bytes, its shared_memory_byte_size is 15')

    def test_one_output_that_does_not_fit_leaves_all_unwritten(self):
        for way in self.ways:
            self.memory.write(1024, b"-" * 16)
            code, text = way.infer("echo", [("a", "FP32", [4], FLOATS), ("b", "FP32", [4], FLOATS)],
                                   [("a", place("r", 16, 1024)), ("b", place("r", 8, 2048))])
            self.assertIs(code, Code.INVALID_ARGUMENT, text)
            self.assertEqual(self.memory.read(1024, 16), b"-" * 16)

    def test_contents_beside_shared_memory(self):
        by_grpc, by_rest = self.ways
        own = by_grpc.parameters(place("r", 16))
        tensor = {"name": "x", "datatype": "FP32", "shape": [4], "parameters": own}
        for more, words in (({"inputs": [{**tensor, "contents": {"fp32_contents": [1] * 4}}]}, "one or the other"),
                            ({"inputs": [tensor], "raw_input_contents": [FLOATS]}, "1 for 0 inputs")):
            error = failure(by_grpc.client.start("ModelInfer", model_name="echo", **more))
            self.assertIs(error[0], Code.INVALID_ARGUMENT)
            self.assertIn(words, error[1])
        for more in ({"data": [1] * 4}, {"parameters": {**place("r", 16), "binary_data_size": 0}}):
            answer = by_rest.rest.infer("echo", {"name": "x", "datatype": "FP32", "shape": [4],
                                                 "parameters": place("r", 16), **more})
            self.assertEqual(answer.code, 400)
            self.assertIn("one or the other", answer.error)

    def test_larger_than_a_message(self):
        memory = self.enterContext(Memory(3 * MIB))
        self.assertIs(self.ways[0].register("large", memory.key, 3 * MIB)[0], Code.OK)
        most = [("x", "UINT8", [MIB], place("large", MIB, MIB))]
        for way in self.ways:
            self.assertIs(way.infer("echo", most, [("x", place("large", MIB))])[0], Code.OK)
        self.refuse([way.infer("echo", [*most, ("y", "UINT8", [1], place("large", 1))]) for way in self.ways],
                    Code.INVALID_ARGUMENT, "message_mib")

    # ---- regions ----

    def test_status(self):
        for way in self.ways:
            way.register("s", self.memory.key[1:], 100, 50)
            self.assertEqual(way.status(), (Code.OK, [("r", self.memory.key, 0, 4096), ("s", self.memory.key[1:], 50, 100)]))
            self.assertEqual(way.status("s"), (Code.OK, [("s", self.memory.key[1:], 50, 100)]))
            self.assertEqual(way.infer("echo", [("x", "FP32", [4], place("s", 16, 14))]), (Code.OK, {"x": FLOATS}))
            self.shoald.wait_published()
            self.assertEqual(self.shoald.stat()["shared_memory_regions"], 2)
            self.assertIs(way.unregister("s")[0], Code.OK)
            self.assertIs(way.unregister("s")[0], Code.OK)
            self.assertEqual(way.status(), (Code.OK, [("r", self.memory.key, 0, 4096)]))
        self.refuse([way.status("s") for way in self.ways], Code.NOT_FOUND, "'s'")
        self.refuse([way.register("r", self.memory.key, 16) for way in self.ways], Code.ALREADY_EXISTS, '"r"')

    def test_keys(self):
        name = self.memory.key[1:]
        folder = pathlib.Path("/dev/shm")
        link, fifo, directory = (folder / f"{name}-{kind}" for kind in ("link", "fifo", "directory"))
        link.symlink_to(self.memory.path)
        self.addCleanup(link.unlink)
        os.mkfifo(fifo)
        self.addCleanup(fifo.unlink)
        directory.mkdir()
        self.addCleanup(directory.rmdir)
        leased = self.enterContext(Memory(4096))
        leased.file.close()  # nothing else may have it open
        lease = os.open(leased.path, os.O_RDONLY)
        self.addCleanup(os.close, lease)
        before = signal.signal(signal.SIGIO, signal.SIG_IGN)  # somebody wants the object
        self.addCleanup(signal.signal, signal.SIGIO, before)
        fcntl.fcntl(lease, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        for key, code, words in (
                ("", Code.INVALID_ARGUMENT, "1 to 255 bytes"), ("/", Code.INVALID_ARGUMENT, "1 to 255 bytes"),
                (".", Code.INVALID_ARGUMENT, "1 to 255 bytes"), ("/..", Code.INVALID_ARGUMENT, "1 to 255 bytes"),
                ("../../etc/passwd", Code.INVALID_ARGUMENT, "without a slash"),
                (f"/{directory.name}/x", Code.INVALID_ARGUMENT, "without a slash"),
                (f"//{name}", Code.INVALID_ARGUMENT, "without a slash"),
                (f"/{name}/", Code.INVALID_ARGUMENT, "without a slash"),
                (f"/{link.name}", Code.INVALID_ARGUMENT, "symbolic link"),
                (f"/{fifo.name}", Code.INVALID_ARGUMENT, "not shared memory"),
                (f"/{directory.name}", Code.INVALID_ARGUMENT, "not shared memory"),
                (leased.key, Code.INVALID_ARGUMENT, "lease"),
                (f"/{name}-none", Code.NOT_FOUND, "No such file")):
            with self.subTest(key=key):
                self.refuse([way.register("new", key, 1) for way in self.ways], code, words)
        for size, offset in ((0, 0), (4097, 0), (1, 4096), (4096, 1), ((1 << 63) - 1, (1 << 63) - 1)):
            self.refuse([way.register("new", self.memory.key, size, offset) for way in self.ways],
                        Code.INVALID_ARGUMENT, "has 4096 bytes")
        by_grpc, by_rest = self.ways
        self.assertIs(by_grpc.register("", self.memory.key, 1)[0], Code.INVALID_ARGUMENT)
        self.assertIs(by_grpc.register("n" * 128, self.memory.key, 1)[0], Code.INVALID_ARGUMENT)
        for body in ({}, {"key": 1}, {"key": name, "byte_size": "1"}, {"key": name, "byte_size": -1},
                     {"key": name, "byte_size": 1, "offset": 1.5}, [], None):
            self.assertIs(by_rest.order("/v2/systemsharedmemory/region/new/register", body)[0], Code.INVALID_ARGUMENT)
        self.assertEqual(self.descriptors(), 1)

    def test_an_object_of_somebody_else(self):
        if os.geteuid() == 0:
            self.skipTest("root opens every object")
        self.memory.path.chmod(0)
        self.refuse([way.register("new", self.memory.key, 1) for way in self.ways], Code.PERMISSION_DENIED, "mode")

    def test_limit(self):
        for way in self.ways:
            for i in range(1, REGIONS_MAX):
                self.assertIs(way.register(f"r{i}", self.memory.key, 16)[0], Code.OK)
            self.assertEqual(self.descriptors(), REGIONS_MAX)
            for _ in range(3):
                code, text = way.register("more", self.memory.key, 16)
                self.assertIs(code, Code.RESOURCE_EXHAUSTED)
                self.assertIn("shared_memory_regions", text)
            self.assertEqual(self.descriptors(), REGIONS_MAX)
            self.assertIs(way.unregister()[0], Code.OK)
            self.assertEqual(self.descriptors(), 0)
            self.assertEqual(way.status(), (Code.OK, []))
            self.assertIs(way.register("r", self.memory.key, 4096)[0], Code.OK)

    def test_cuda(self):
        for way in self.ways:
            self.assertIs(way.cuda("status")[0], Code.OK)
            self.assertIs(way.cuda("unregister")[0], Code.OK)
            self.assertIs(way.cuda("unregister", "c")[0], Code.OK)
        self.refuse([way.cuda("status", "c") for way in self.ways], Code.NOT_FOUND, "'c'")
        self.refuse([way.cuda("register", "c") for way in self.ways], Code.UNIMPLEMENTED, "GPUs not supported")
        self.assertEqual(self.ways[1].cuda("status"), (Code.OK, []))

    # ---- while calls use it ----

    def test_unregistered_while_a_call_uses_it(self):
        for number, way in enumerate(self.ways):
            text = bytes_element(f"hold {number}")
            self.memory.write(0, text)
            self.memory.write(100, bytes(100))
            call = way.start("puppet", [("say", "BYTES", [1], place("r", len(text)))],
                             [("said", place("r", 100, 100)), ("pid", {})])
            held = self.shoald.folder / f"{number}.held"
            wait_until(held.exists, "the call to be run")
            other = self.ways[1 - number]
            self.assertIs(other.unregister("r")[0], Code.OK)
            self.assertEqual(self.descriptors(), 1)
            (self.shoald.folder / f"{number}.go").touch()
            code, outputs = way.finish(call)
            self.assertIs(code, Code.OK, outputs)
            self.assertEqual(outputs["said"], place("r", len(text), 100))
            self.assertEqual(self.memory.read(100, len(text)), text)
            wait_until(lambda: self.descriptors() == 0, "the last descriptor to be closed")
            self.assertIs(way.infer("echo", [("x", "FP32", [4], place("r", 16))])[0], Code.NOT_FOUND)
            self.assertIs(way.register("r", self.memory.key, 4096)[0], Code.OK)

    def test_a_client_that_leaves_holds_nothing(self):
        text = bytes_element("hold left")
        self.memory.write(0, text)
        call = self.ways[0].start("puppet", [("say", "BYTES", [1], place("r", len(text)))])
        wait_until((self.shoald.folder / "left.held").exists, "the call to be run")
        call.cancel()
        self.ways[1].unregister()
        (self.shoald.folder / "left.go").touch()
        wait_until(lambda: self.descriptors() == 0, "the last descriptor to be closed")
        self.shoald.wait_all_returned("puppet")

    def test_cut_short(self):
        for way in self.ways:
            self.memory.cut(70)
            code, text = way.infer("echo", [("x", "FP32", [4], place("r", 16, 64))])
            self.assertEqual((code, text), (Code.INVALID_ARGUMENT, f"tensor \"x\": shared memory region 'r': "
                                            f"\"{self.memory.key}\" has become too short"))
            code, text = way.infer("echo", [("x", "FP32", [4], FLOATS)], [("x", place("r", 16, 64))])
            self.assertIs(code, Code.INVALID_ARGUMENT)
            self.assertIn("too short", text)
            self.assertEqual(self.memory.path.stat().st_size, 70)
            self.memory.cut(4096)
            self.assertEqual(way.infer("echo", [("x", "FP32", [4], place("r", 16, 64))])[0], Code.OK)
            self.memory.write(64, FLOATS)

    def test_cut_short_under_load(self):
        size = 256 * 1024
        victim = self.enterContext(Memory(2 * size))
        innocent = self.enterContext(Memory(2 * size, b"i" * size))
        self.ways[0].register("victim", victim.key, 2 * size)
        self.ways[0].register("innocent", innocent.key, 2 * size)
        pid, workers = self.shoald.pid, [one.pid for one in self.shoald.workers("echo")]
        enough, seen, wrong = threading.Event(), set(), []

        def cut():
            while not enough.is_set():
                for length in (0, size // 2, 2 * size):
                    victim.cut(length)

        def call(way, region, seconds):
            def calls():
                for i in range(seconds):
                    code, outputs = way.infer("echo", [("x", "UINT8", [size], place(region, size))],
                                              [("x", place(region, size, size))])
                    if region == "victim":
                        seen.add(code)
                        if code is not Code.OK and "too short" not in outputs:
                            wrong.append((i, code, outputs))
                    elif code is not Code.OK or innocent.read(size, size) != b"i" * size:
                        wrong.append((i, code, outputs))
            return threading.Thread(target=calls)

        cutter = threading.Thread(target=cut)
        cutter.start()
        threads = [call(kind(self), region, 60) for kind in (ByGrpc, ByRest) for region in ("victim", "innocent")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        enough.set()
        cutter.join()
        self.assertEqual(wrong, [])
        self.assertEqual(seen, {Code.OK, Code.INVALID_ARGUMENT})
        self.assertEqual((self.shoald.pid, [one.pid for one in self.shoald.workers("echo")]), (pid, workers))
        self.shoald.check_still_runs()
        self.ways[1].unregister()
        wait_until(lambda: self.descriptors() == 0, "all descriptors to be closed")
        self.shoald.wait_all_returned("echo")


class TestOff(SharedMemory):
    keys = {}

    def test_refused(self):
        for results in ([way.register("r", self.memory.key, 1) for way in self.ways],
                        [way.unregister() for way in self.ways], [way.status() for way in self.ways],
                        [way.cuda("status") for way in self.ways],
                        [way.infer("echo", [("x", "FP32", [4], place("r", 16))]) for way in self.ways],
                        [way.infer("echo", [("x", "FP32", [4], FLOATS)], [("x", place("r", 16))]) for way in self.ways]):
            self.refuse(results, Code.PERMISSION_DENIED, "`http_control: on`")


class TestMesh(SharedMemory):
    """Also as callers of one node reach models of another: the region is one machine's."""
    keys = {"http_control": "on", "mesh": {"store": "memory", "instance": "one"}}

    @classmethod
    def pipelines(cls):
        return [*super().pipelines(), pipeline("models", stage("libsimple.so"), models={"root": ".", "memory_mib": 256})]

    def test_refused(self):
        by_grpc, by_rest = self.ways
        self.assertIs(by_rest.register("r", self.memory.key, 1)[0], Code.INVALID_ARGUMENT)
        self.refuse([way.infer("echo", [("x", "FP32", [4], place("r", 16))]) for way in self.ways],
                    Code.INVALID_ARGUMENT, "one of a mesh", "send tensors in the message")
        code, text = by_rest.infer("elsewhere", [("x", "FP32", [4], place("r", 16))])
        self.assertIs(code, Code.INVALID_ARGUMENT)
        self.assertIn("one of a mesh", text)


def own_address():
    """An address of this machine that is not loopback; None: it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return None
        return probe.getsockname()[0]


class TestElsewhere(unittest.TestCase):
    def test_callers_of_another_machine(self):
        address = own_address()
        if address is None or address.startswith("127."):
            self.skipTest("this machine has loopback addresses only")
        target = f"{address}:{shoal_fixture.free_port()}"
        shoald = self.enterContext(Shoald(node(pipeline("echo", stage("libecho.so")), http=[f"{address}:0", ANY_PORT],
                                               http_control="on"), listen=[target]))
        port = port_of(shoald)
        rest = self.enterContext(Rest(port))
        rest.connection.host = address
        answer = rest.ask("POST", "/v2/systemsharedmemory/region/r/register", '{"key": "x", "byte_size": 1}')
        self.assertEqual(answer.code, 403)
        self.assertIn("callers of the same machine", answer.error)
        memory = self.enterContext(Memory(4096, FLOATS))
        near = self.enterContext(Rest(port_of(shoald, 2)))
        body = json.dumps({"key": memory.key, "byte_size": 4096})
        self.assertEqual(near.ask("POST", "/v2/systemsharedmemory/region/r/register", body).code, 200)
        there = tensor("x", "FP32", [4], **place("r", 16))
        sent = tensor("x", "FP32", [4], [5, 6, 7, 8])
        self.assertEqual(near.infer("echo", there).data(), [1, 2, 3, 4])
        for inputs, outputs in ((there, []), (sent, [{"name": "x", "parameters": place("r", 16)}])):
            answer = rest.infer("echo", inputs, outputs=outputs)
            self.assertEqual(answer.code, 403)
            self.assertIn("callers of the same machine", answer.error)
        with Client(target) as client:
            tensors = [{"name": "x", "datatype": "FP32", "shape": [4], "parameters": {
                key: client.type("inference.InferParameter")(**{kind: value}) for key, kind, value in (
                    ("shared_memory_region", "string_param", "r"), ("shared_memory_byte_size", "int64_param", 16))}}]
            self.assertIs(failure(client.start("ModelInfer", model_name="echo", inputs=tensors))[0],
                          Code.PERMISSION_DENIED)
        self.assertEqual(memory.read(0, 16), FLOATS)


if __name__ == "__main__":
    shoal_fixture.main()
