# SPDX-License-Identifier: Apache-2.0
"""Clients and runtimes of KServe ModelMesh, as they are: the client that is generated from the
definitions which its users have (shoal_contract.py), and bytes that are written down here by field
numbers alone, against real nodes. Every rpc of mmesh.ModelMesh and mmesh.ModelRuntime, by all their
names; every field of a request has a value that shows that it arrived, every field of an answer is
looked at, and every value of an enum comes that can come (UNKNOWN is nobody's: the registry says
what is loaded; FAILING is no runtime's of ours).

The incumbent's texts of refusals, and the tests of each:

  no id, an empty one, both kinds of them                  test_texts_of_calls
  model not found, vmodel not found                        the same
  a message too few                                        the same (one too many: streams,
  69_mesh_runtimes) a method that is not permitted                          
  test_status_of_the_runtime, and 69_mesh_runtimes the load failed, nobody has the labels           
         the same the runtime's errors                                     the same (NOT_FOUND: it
         is loaded anew, 68_external_runtime)
  Model queue overload                                     test_concurrency
  refusals of mmesh.ModelMesh                              test_texts_of_orders, test_owners,
  test_expected_target OK for what is not there, LOADING_FAILED as an answer    test_model_states,
  test_unregister, test_owners time-outs and cancelling                                 68_mesh_node

ctest: timeout=120
"""

import base64
import json
import re
import threading
import time
import unittest

import grpc
from google.protobuf import descriptor_pb2

import shoal_contract as contract
from shoal_client import Client, failure
from shoal_contract import (DEFINED, LOADED, LOADING, LOADING_FAILED, MODEL_MESH, MODEL_RUNTIME,
                            NOT_FOUND, NOT_LOADED, OLD_MODEL_MESH, OLD_NAMES, READY,
                            TRANSITION_FAILED, TRANSITIONING, TYPES, Stub)
from shoal_fixture import WAIT_SECONDS, Shoald, main, wait_until
from shoal_mesh import Mesh
from shoal_meshes import Etcd
from shoal_pupil import MIB, SIZE, Rig, key, prepare, pupil, said
from shoal_registry import wait_status
from shoal_runtime import Refusal, Runtime

Code = grpc.StatusCode
ANY = "x.Y/Z"
TIME, LATER = 1_600_000_000_000, 1_700_000_000_000
HOUR_MS = 3_600_000
MEMBER = "node-1"
NO_LABELS = "There are no running instances that meet the label requirements of type "

# Unknown fields at the end: a number, eight bytes, a text and four bytes, of fields
# 99 to 102, and a text where field 1000 would be.
UNKNOWN_FIELDS = (b"\x98\x06\x07" b"\xa1\x06\x01\x02\x03\x04\x05\x06\x07\x08" b"\xaa\x06\x02hi"
                  b"\xb5\x06\x01\x02\x03\x04" b"\xc2\x3e\x01x")

STARTING_BYTES = b""
READY_BYTES = (b"\x08\x01"              # status: READY
               b"\x10\x80\x80\x80\x20"  # capacityInBytes: 64 MiB
               b"\x18\x03"              # maxLoadingConcurrency
               b"\x20\xa0\x9c\x01"      # modelLoadingTimeoutMs: 20,000
               b"\x28\x80\x80\x40"      # defaultModelSizeInBytes: a MiB
               b"\x32\x04v7.1"          # runtimeVersion
               b"\x38\x07"              # numericRuntimeVersion, which nobody looks at
               b"\x42\x09\x0a\x05x.Y/Z\x12\x00"                  # methodInfos: no path
               b"\x42\x0d\x0a\x05x.Y/N\x12\x04\x0a\x02\x03\x02"  # … 3, 2
               b"\x48\x01"              # limitModelConcurrency
               b"\x50\x00"              # allowAnyMethod: no
               + UNKNOWN_FIELDS)


def described(file):
    """All that a proto file says of services, messages, fields and enums, as a set of tuples."""
    facts = set()

    def add_enum(path, enum):
        facts.update((*path, enum.name, value.name, value.number) for value in enum.value)

    def add_message(path, message):
        path = (*path, message.name)
        facts.add((*path, message.options.map_entry))
        facts.update((*path, field.name, field.number, field.type, field.label, field.type_name)
                     for field in message.field)
        for enum in message.enum_type:
            add_enum(path, enum)
        for nested in message.nested_type:
            add_message(path, nested)

    for message in file.message_type:
        add_message((file.package,), message)
    for enum in file.enum_type:
        add_enum((file.package,), enum)
    for service in file.service:
        facts.update((file.package, service.name, method.name, method.input_type,
                      method.output_type, method.client_streaming, method.server_streaming)
                     for method in service.method)
    return facts


def reflected(target, service):
    """The files that a node itself says its service is of."""
    with Client(target) as client:
        request, stub = client.stub("ServerReflectionInfo", "grpc.reflection.v1.ServerReflection",
                                    "stream_stream")
        answer, = stub(iter([request(file_containing_symbol=service)]), timeout=WAIT_SECONDS)
        return [descriptor_pb2.FileDescriptorProto.FromString(file) for file in
                answer.file_descriptor_response.file_descriptor_proto]


class Wire:
    """Shared by both services: bytes, and what a node says of itself."""

    def raw(self, method, message, service=None):
        """Bytes there, bytes back."""
        call = self.channel.unary_unary(f"/{service or self.service}/{method}")
        return call(message, timeout=WAIT_SECONDS)

    def test_reflection(self):
        """To the last field what the users have, but for what is deprecated."""
        facts = set().union(*map(described, reflected(self.reflects(), self.service)))
        names = {fact[1] for fact in facts}
        deprecated = {("mmesh", *one) for one in contract.DEPRECATED}
        wanted = {fact for fact in described(contract.FILE.proto)
                  if fact[1] in names and fact[:3] not in deprecated}
        self.assertEqual(facts, wanted)
        methods = contract.SERVICES[self.service.removeprefix("mmesh.")]
        self.assertEqual({fact[2] for fact in facts if f"mmesh.{fact[1]}" == self.service},
                         set(methods))
        self.assertLess(set().union(*methods.values()), names)


class Incumbents(Runtime):
    """A runtime whose answers are bytes, and whose models do as their paths say: FAIL_…, HOLD_…,
    ASK (for the size), TWO (calls at a time)."""

    def __init__(self):
        super().__init__()
        self.statuses = [STARTING_BYTES, READY_BYTES]
        self.raw = []  # method, request
        self.gates = {}
        self.left = []  # of the time that a load has

    def service(self, details):
        service, _, method = details.method[1:].partition("/")
        if service != MODEL_RUNTIME:
            return super().service(details)

        def answer(message, context):
            self.raw.append((method, message))
            return self.answer(method, contract.request_of(method).FromString(message), context)
        return grpc.unary_unary_rpc_method_handler(answer)

    def bytes_of(self, method):
        return [message for one, message in self.raw if one == method]

    def gate(self, path):
        return self.gates.setdefault(path, threading.Event())

    def runtimeStatus(self, _request, _context):
        return self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]

    def predictModelSize(self, _request, _context):
        return b"\x08\x80\x80\xc0\x01"  # 3 MiB

    def loadModel(self, request, context):
        path = request.modelPath
        self.left.append(context.time_remaining())
        if path.startswith("FAIL_"):
            raise Refusal(Code.INTERNAL, path)
        if path.startswith("HOLD_"):
            self.gate(path).wait(WAIT_SECONDS)
        self.held.add(request.modelId)
        size = b"" if path == "ASK" else b"\x08\x80\x80\x80\x01"  # 2 MiB
        return size + (b"\x10\x02" if path == "TWO" else b"\x10\x80\x08") + UNKNOWN_FIELDS

    def modelSize(self, _request, _context):
        return b"\x08\x80\x80\xc0\x02" + UNKNOWN_FIELDS  # 5 MiB

    def unloadModel(self, request, _context):
        self.held.discard(request.modelId)
        return UNKNOWN_FIELDS


class Managed(Wire, unittest.TestCase):
    """mmesh.ModelMesh of a node with etcd, before a runtime of the incumbent's."""

    service = MODEL_MESH

    @classmethod
    def setUpClass(cls):
        cls.etcd = cls.enterClassContext(Etcd())
        cls.runtime = cls.enterClassContext(Incumbents())
        types = {"_default": {}, "mt:none": {"required": ["_no_runtime"]},
                 "mt:two": {"required": ["mt:gone", "mt:here"]}}
        cls.shoald = cls.enterClassContext(Shoald({"message_mib": 1, "mesh": {
            "store": f"etcd:{cls.etcd.url}", "service": "test", "instance": MEMBER,
            "peers": ["127.0.0.1:0"], "address": "127.0.0.1", "runtime": cls.runtime.address,
            "labels": ["mt:here"], "type_constraints": json.dumps(types),
            "vmodel_owner": "nobody-else"}}))
        cls.shoald.wait_log("mesh_session_begun")
        cls.channel = contract.connect(cls.shoald.management)
        cls.called = contract.connect(cls.shoald.target)
        for channel in (cls.channel, cls.called):
            cls.addClassCleanup(channel.close)
        cls.stub = Stub(cls.channel, MODEL_MESH)

    def setUp(self):
        self.began_ms = time.time() * 1000

    def reflects(self):
        return self.shoald.management

    # ---- what is asked ----

    def name(self, more=""):
        return self.id().rpartition(".")[2] + more

    def call(self, method, **fields):
        return self.stub.call(method, **fields)

    def start(self, method, **fields):
        return self.stub.start(method, **fields)

    def status(self, model):
        return self.call("getModelStatus", modelId=model)

    def register(self, more="", path="a/path", kind="kind", info_key="{}", **fields):
        """A model of this test; returns its id, and the answer."""
        model = self.name(more)
        self.addCleanup(lambda: self.call("unregisterModel", modelId=model))
        info = {"type": kind, "path": path, "key": info_key}
        return model, self.call("registerModel", modelId=model, modelInfo=info, **fields)

    def set_vmodel(self, target, more="", **fields):
        vmodel = self.name("-v" + more)
        owner = fields.get("owner", "")
        self.addCleanup(lambda: self.call("deleteVModel", vModelId=vmodel, owner=owner))
        return vmodel, self.call("setVModel", vModelId=vmodel, targetModelId=target, **fields)

    def vmodel_status(self, vmodel, **fields):
        return self.call("getVModelStatus", vModelId=vmodel, **fields)

    def infer(self, *metadata, message=b"hello", method=ANY):
        return self.called.unary_unary(f"/{method}").future(message, timeout=WAIT_SECONDS,
                                                             metadata=metadata)

    # ---- what can be seen ----

    def record(self, kind, name):
        """etcd's content, as others read it; None: nothing."""
        found = self.etcd.ask("/v3/kv/range", key=f"/tas-runtime/test/{kind}/{name}").get("kvs")
        return json.loads(base64.b64decode(found[0]["value"])) if found else None

    def asked(self, method, model):
        """The requests for a model that the runtime has had, as bytes."""
        return [message for message in self.runtime.bytes_of(method)
                if contract.request_of(method).FromString(message).modelId == model]

    def wait_status(self, model, status):
        return wait_status(self.status, model, status)

    def check_refused(self, code, text, method, **fields):
        self.assertEqual(failure(self.start(method, **fields)), (code, text))

    def check_copy(self, status, wanted, since_ms=None):
        """One copy, here, since then."""
        copy, = status.modelCopyInfos
        self.assertEqual((status.status, copy.location, copy.copyStatus), (wanted, MEMBER, wanted))
        if since_ms is None:
            self.assertLess(self.began_ms - HOUR_MS, copy.time)  # clocks may be set
            self.assertLess(copy.time, self.began_ms + HOUR_MS)
        else:
            self.assertEqual(copy.time, since_ms)

    # ---- models ----

    def test_register(self):
        """Each field is in the registry, and comes to the runtime."""
        model, status = self.register(lastUsedTime=TIME)
        self.assertEqual(status, TYPES["ModelStatusInfo"](status=NOT_LOADED))
        self.assertEqual(self.record("registry", model),
                         {"type": "kind", "mPath": "a/path", "encKey": "{}", "lu": TIME})
        self.assertEqual(self.asked("loadModel", model), [])
        self.call("registerModel", modelId=model, lastUsedTime=LATER,
                  modelInfo={"type": "kind", "path": "a/path", "key": "{}"})
        self.assertEqual(self.record("registry", model)["lu"], LATER)
        self.call("ensureLoaded", modelId=model, sync=True)
        for method in ("predictModelSize", "loadModel"):
            request, = map(contract.request_of(method).FromString, self.asked(method, model))
            self.assertEqual(request, contract.request_of(method)(
                modelId=model, modelType="kind", modelPath="a/path", modelKey="{}"))

    def test_register_without_a_time(self):
        for more, fields, hours in (("", {}, 6), ("-now", {"loadNow": True}, 1)):
            model, _ = self.register(more, path=f"HOLD_{self.name()}", **fields)
            used_ms = self.record("registry", model)["lu"]
            self.assertLess(abs(self.began_ms - hours * HOUR_MS - used_ms), HOUR_MS)
        self.runtime.gate(f"HOLD_{self.name()}").set()

    def test_load_now_and_sync(self):
        path = f"HOLD_{self.name()}"
        model, status = self.register(path=path, loadNow=True)
        self.check_copy(status, LOADING)
        info = {"type": "kind", "path": path, "key": "{}"}
        waits = self.start("registerModel", modelId=model, modelInfo=info, loadNow=True, sync=True)
        self.check_copy(self.status(model), LOADING)
        self.assertFalse(waits.done())
        self.runtime.gate(path).set()
        self.check_copy(waits.result(), LOADED)
        other, status = self.register("-other", path="HOLD_never", sync=True)  # nothing to wait for
        self.assertEqual(status.status, NOT_LOADED)
        self.assertEqual(self.asked("loadModel", other), [])

    def test_model_states(self):
        """Each that there is, with the copies and errors that go with it."""
        for unknown in ("nobody", "***GETSTATE***", "***LOGCACHE***"):
            self.assertEqual(self.status(unknown), TYPES["ModelStatusInfo"]())
        model, _ = self.register()
        self.assertEqual(self.status(model), TYPES["ModelStatusInfo"](status=NOT_LOADED))
        self.call("ensureLoaded", modelId=model, sync=True)
        status = self.status(model)
        self.check_copy(status, LOADED, self.record("registry", model)["loaded"][MEMBER])
        self.assertFalse(status.errors)
        held, _ = self.register("-held", path=f"HOLD_{self.name()}", loadNow=True)
        self.check_copy(self.status(held), LOADING, self.record("registry", held)["instanceIds"][MEMBER])
        self.runtime.gate(f"HOLD_{self.name()}").set()
        bad, status = self.register("-bad", path="FAIL_it is no good", loadNow=True, sync=True)
        for one in (status, self.status(bad), self.call("ensureLoaded", modelId=bad, sync=True)):
            self.check_copy(one, LOADING_FAILED, self.record("registry", bad)["failedIn"][MEMBER])
            self.assertEqual(list(one.errors), ["INTERNAL: FAIL_it is no good"])
        self.assertEqual(self.record("registry", bad)["fails"],
                         {MEMBER: {"msg": "INTERNAL: FAIL_it is no good"}})

    def test_ensure_loaded(self):
        path = f"HOLD_{self.name()}"
        model, _ = self.register(path=path, lastUsedTime=TIME)
        self.check_copy(self.call("ensureLoaded", modelId=model, lastUsedTime=LATER), LOADING)
        waits = self.start("ensureLoaded", modelId=model, lastUsedTime=LATER, sync=True)
        self.check_copy(self.status(model), LOADING)
        self.assertFalse(waits.done())
        self.runtime.gate(path).set()
        self.check_copy(waits.result(), LOADED)
        self.assertEqual(self.record("registry", model)["lu"], LATER)
        other, _ = self.register("-now", lastUsedTime=TIME)
        self.call("ensureLoaded", modelId=other, sync=True)  # used now
        self.assertLess(abs(self.record("registry", other)["lu"] - self.began_ms), HOUR_MS)

    def test_unregister(self):
        model, _ = self.register(loadNow=True, sync=True)
        self.assertEqual(self.call("unregisterModel", modelId=model),
                         TYPES["UnregisterModelResponse"]())
        self.assertIsNone(self.record("registry", model))
        wait_until(lambda: self.asked("unloadModel", model), "unloadModel")
        self.assertEqual(self.status(model).status, NOT_FOUND)
        self.call("unregisterModel", modelId=model)  # that is fine

    def test_sizes(self):
        """Of a model that loadModel has no size of, modelSize is asked, while it counts as
        loaded."""
        model, _ = self.register(path="ASK", loadNow=True, sync=True)
        asked = wait_until(lambda: self.asked("modelSize", model), "modelSize")
        self.assertEqual(asked, [b"\x0a%c" % len(model) + model.encode()])

    # ---- vmodels ----

    def test_set_vmodel(self):
        """Each field is in the registry, or in what happens."""
        target = self.name("-1")
        info = {"type": "kind", "path": "p", "key": "k"}
        vmodel, status = self.set_vmodel(target, modelInfo=info, autoDeleteTargetModel=True,
                                         loadNow=True, sync=True, owner="me")
        self.assertEqual((status.status, status.activeModelId, status.targetModelId, status.owner),
                         (DEFINED, target, target, "me"))
        self.check_copy(status.activeModelStatus, LOADED)
        self.assertFalse(status.HasField("targetModelStatus"))
        self.assertEqual(self.vmodel_status(vmodel, owner="me"), status)
        self.assertEqual(self.record("vmodels", vmodel), {"o": "me", "amid": target, "tmid": target})
        record = self.record("registry", target)
        self.assertEqual({name: record.get(name) for name in
                          ("type", "mPath", "encKey", "autoDel", "refs")},
                         {"type": "kind", "mPath": "p", "encKey": "k", "autoDel": True, "refs": 1})
        self.assertEqual(self.call("deleteVModel", vModelId=vmodel, owner="me"),
                         TYPES["DeleteVModelResponse"]())
        self.assertIsNone(self.record("vmodels", vmodel))
        self.assertIsNone(self.record("registry", target))

    def test_set_vmodel_without_anything(self):
        model, _ = self.register()
        vmodel, status = self.set_vmodel(model)
        self.assertEqual((status.status, status.owner), (DEFINED, "nobody-else"))
        self.assertEqual(status.activeModelStatus, TYPES["ModelStatusInfo"](status=NOT_LOADED))
        record = self.record("registry", model)
        self.assertEqual((record["refs"], record.get("autoDel", False)), (1, False))
        self.call("deleteVModel", vModelId=vmodel)
        self.assertNotIn("refs", self.record("registry", model))

    def test_vmodel_states(self):
        self.assertEqual(self.vmodel_status("nobody"), TYPES["VModelStatusInfo"]())
        path = f"HOLD_{self.name()}"
        first, _ = self.register("-1", loadNow=True, sync=True)
        second, _ = self.register("-2", path=path)
        third, _ = self.register("-3", path="FAIL_no")
        vmodel, status = self.set_vmodel(first)
        self.assertEqual(status.status, DEFINED)
        status = self.call("setVModel", vModelId=vmodel, targetModelId=second)
        for one in (status, self.vmodel_status(vmodel)):
            self.assertEqual((one.status, one.activeModelId, one.targetModelId),
                             (TRANSITIONING, first, second))
            self.assertEqual((one.activeModelStatus.status, one.targetModelStatus.status),
                             (LOADED, LOADING))
        self.assertEqual(self.record("vmodels", vmodel),
                         {"o": "nobody-else", "amid": first, "tmid": second})
        self.runtime.gate(path).set()
        wait_until(lambda: self.vmodel_status(vmodel).status == DEFINED, "the second")
        status = self.call("setVModel", vModelId=vmodel, targetModelId=third, sync=True)
        self.assertEqual((status.status, status.activeModelId, status.targetModelId),
                         (TRANSITION_FAILED, second, third))
        self.check_copy(status.targetModelStatus, LOADING_FAILED)
        self.assertEqual(list(status.targetModelStatus.errors), ["INTERNAL: FAIL_no"])
        self.assertIs(self.record("vmodels", vmodel)["failed"], True)
        status = self.call("setVModel", vModelId=vmodel, targetModelId=third, force=True)
        self.assertEqual((status.status, status.activeModelId), (DEFINED, third))
        self.assertNotIn("failed", self.record("vmodels", vmodel))

    def test_owners(self):
        model, _ = self.register()
        vmodel, _ = self.set_vmodel(model, owner="me")
        self.check_refused(Code.ALREADY_EXISTS,
                           f'vmodel {vmodel} already exists with different owner "me"', "setVModel",
                           vModelId=vmodel, targetModelId=model, owner="you")
        self.assertEqual(self.vmodel_status(vmodel, owner="you"), TYPES["VModelStatusInfo"]())
        self.call("deleteVModel", vModelId=vmodel, owner="you")  # another's is not there, that is fine
        self.assertEqual(self.vmodel_status(vmodel, owner="me").owner, "me")

    def test_expected_target(self):
        """Of one that is not there the new one may be expected, and no other."""
        first, second = self.register("-1")[0], self.register("-2")[0]
        found, _ = failure(self.start("setVModel", vModelId=self.name("-none"), targetModelId=first,
                                      expectedTargetModelId=second))
        self.assertEqual(found, Code.FAILED_PRECONDITION)
        vmodel, _ = self.set_vmodel(first, expectedTargetModelId=first)
        found, _ = failure(self.start("setVModel", vModelId=vmodel, targetModelId=second,
                                      expectedTargetModelId="another"))
        self.assertEqual(found, Code.FAILED_PRECONDITION)
        status = self.call("setVModel", vModelId=vmodel, targetModelId=second,
                           expectedTargetModelId=first)
        self.assertEqual(status.targetModelId, second)

    def test_update_only(self):
        model, _ = self.register()
        found, _ = failure(self.start("setVModel", vModelId=self.name("-none"), targetModelId=model,
                                      updateOnly=True))
        self.assertEqual(found, Code.NOT_FOUND)
        vmodel, _ = self.set_vmodel(model)
        self.assertEqual(self.call("setVModel", vModelId=vmodel, targetModelId=model,
                                   updateOnly=True).status, DEFINED)

    # ---- names, and what is not known ----

    def test_old_names(self):
        """A life by each of the names that there ever were, at both services."""
        for service in (MODEL_MESH, OLD_MODEL_MESH):
            stub = Stub(self.channel, MODEL_MESH, service)
            for register, unregister in (("registerModel", "unregisterModel"), tuple(OLD_NAMES)):
                model, vmodel = self.name(), self.name("-v")
                info = {"type": "kind", "path": "a/path"}
                self.assertEqual(stub.call(register, modelId=model, modelInfo=info).status, NOT_LOADED)
                self.assertEqual(stub.call("ensureLoaded", modelId=model, sync=True).status, LOADED)
                self.assertEqual(stub.call("getModelStatus", modelId=model).status, LOADED)
                stub.call("setVModel", vModelId=vmodel, targetModelId=model)
                self.assertEqual(stub.call("getVModelStatus", vModelId=vmodel).activeModelId, model)
                stub.call("deleteVModel", vModelId=vmodel)
                self.assertEqual(stub.call("getVModelStatus", vModelId=vmodel).status, NOT_FOUND)
                stub.call(unregister, modelId=model)
                self.assertEqual(stub.call("getModelStatus", modelId=model).status, NOT_FOUND)

    def test_unknown_fields(self):
        """They are passed over, and so is a known number with another type than it has."""
        model, vmodel = self.name(), self.name("-v")
        odd = UNKNOWN_FIELDS + b"\x08\x05" b"\x15\x01\x02\x03\x04"  # 1 as a number, 2 as four bytes
        for method, fields in (
                ("registerModel", {"modelId": model, "modelInfo": {"type": "t", "path": "p"}}),
                ("getModelStatus", {"modelId": model}),
                ("ensureLoaded", {"modelId": model, "sync": True}),
                ("setVModel", {"vModelId": vmodel, "targetModelId": model}),
                ("getVModelStatus", {"vModelId": vmodel}),
                ("deleteVModel", {"vModelId": vmodel}),
                ("unregisterModel", {"modelId": model})):
            with self.subTest(method):
                message = contract.request_of(method)(**fields).SerializeToString()
                answer = contract.response_of(method).FromString(self.raw(method, message + odd))
                if method.startswith("get"):
                    self.assertEqual(answer.status, NOT_LOADED if model in fields.values() else DEFINED)

    # ---- bytes ----

    def check_bytes(self, method, message, *answer):
        """`answer`: regular expressions, one behind the other."""
        found = self.raw(method, message)
        self.assertTrue(re.fullmatch(b"".join(answer), found, re.DOTALL), found)

    def test_bytes_of_models(self):
        raw = b"\x0a\x03raw"                        # modelId
        info = b"\x12\x0e" + (b"\x0a\x04kind"       # modelInfo: type,
                              b"\x12\x03p/q"        # path,
                              b"\x1a\x01k")         # key
        used = b"\x80\x80\xba\xbb\xc8\x2e"          # TIME
        later = b"\x80\xd0\x95\xff\xbc\x31"         # LATER
        here = (rb"\x1a\x11\x0a\x06node-1"          # modelCopyInfos: location,
                rb"\x10\x03"                        # copyStatus: LOADED
                rb"\x18[\x80-\xff]{5}.")             # time
        self.check_bytes("getModelStatus", raw)
        self.check_bytes("registerModel", raw + info + b"\x28" + used, rb"\x08\x01")
        self.assertEqual(self.record("registry", "raw"),
                         {"type": "kind", "mPath": "p/q", "encKey": "k", "lu": TIME})
        self.check_bytes("getModelStatus", raw, rb"\x08\x01")
        ensure = raw + b"\x10" + later + b"\x18\x01" + b"\x20\x01"  # lastUsedTime, 3, sync
        self.check_bytes("ensureLoaded", ensure, rb"\x08\x03", here)
        self.assertEqual(self.record("registry", "raw")["lu"], LATER)
        now = b"\x18\x01\x20\x01"                   # loadNow, sync
        self.check_bytes("registerModel", raw + info + now, rb"\x08\x03", here)
        self.check_bytes("unregisterModel", raw)
        wanted = b"\x0a\x03raw" b"\x12\x04kind" b"\x1a\x03p/q" b"\x22\x01k"
        self.assertEqual(self.asked("predictModelSize", "raw"), [wanted])
        self.assertEqual(self.asked("loadModel", "raw"), [wanted])
        self.assertEqual(self.asked("modelSize", "raw"), [])  # the load's answer has it
        wait_until(lambda: self.asked("unloadModel", "raw"), "unloadModel")
        self.assertEqual(self.asked("unloadModel", "raw"), [raw])
        self.check_bytes("registerModel", b"\x0a\x03bad" b"\x12\x0d\x0a\x03any\x12\x06FAIL_x" + now,
                         rb"\x08\x04",              # LOADING_FAILED
                         rb"\x12\x10INTERNAL: FAIL_x",
                         rb"\x1a\x11\x0a\x06node-1\x10\x04\x18[\x80-\xff]{5}.")
        self.check_bytes("unregisterModel", b"\x0a\x03bad")

    def test_bytes_of_vmodels(self):
        vmodel = b"\x0a\x01v"
        mine = vmodel + b"\x12\x02me"               # owner
        info = b"\x22\x08\x0a\x01t\x12\x03p/q"      # modelInfo
        loaded = rb"\x15\x08\x03\x1a\x11\x0a\x06node-1\x10\x03\x18[\x80-\xff]{5}."
        self.check_bytes("getVModelStatus", mine)
        self.check_bytes("setVModel", vmodel + b"\x12\x02r1" + info +
                         b"\x28\x01"                # autoDeleteTargetModel
                         b"\x30\x01"                # loadNow
                         b"\x40\x01"                # sync
                         b"\x52\x02me",             # owner
                         rb"\x08\x01",              # DEFINED
                         rb"\x12\x02r1",            # activeModelId
                         rb"\x1a\x02r1",            # targetModelId
                         rb"\x22", loaded,          # activeModelStatus
                         rb"\x32\x02me")            # owner
        self.assertEqual([self.record("registry", "r1")[name] for name in ("autoDel", "mPath")],
                         [True, "p/q"])
        fails = b"\x22\x0b\x0a\x01t\x12\x06FAIL_x"
        failed = rb"\x27\x08\x04\x12\x10INTERNAL: FAIL_x\x1a\x11\x0a\x06node-1\x10\x04\x18[\x80-\xff]{5}."
        wanted = (rb"\x08\x03\x12\x02r1\x1a\x02r2\x22" + loaded + rb"\x2a" + failed +
                  rb"\x32\x02me")                   # TRANSITION_FAILED, and its targetModelStatus
        self.check_bytes("setVModel", vmodel + b"\x12\x02r2" b"\x18\x01" + fails +  # updateOnly
                         b"\x28\x01" b"\x40\x01" b"\x4a\x02r1" b"\x52\x02me",  # expectedTargetModelId
                         wanted)
        self.check_bytes("getVModelStatus", mine, wanted)
        self.check_bytes("getVModelStatus", vmodel + b"\x12\x03you")
        self.check_bytes("setVModel", vmodel + b"\x12\x02r2" b"\x38\x01" b"\x52\x02me",  # force
                         rb"\x08\x01\x12\x02r2\x1a\x02r2\x22", failed, rb"\x32\x02me")
        self.check_bytes("deleteVModel", mine)
        self.assertIsNone(self.record("registry", "r2"))

    # ---- the runtime's side ----

    def test_status_of_the_runtime(self):
        """Each field of READY_BYTES is known by what follows from it."""
        self.assertEqual(self.runtime.bytes_of("runtimeStatus"), [b"", b""])  # STARTING, then READY
        self.shoald.wait_log(r'external_ready .* version="v7\.1" capacity_bytes=67108864$')
        instance = self.record("instances", MEMBER)
        reserve = 3 * MIB // 4  # of each load a quarter of a model
        self.assertEqual((instance["cap"], instance["lThreads"]), ((64 * MIB - reserve) // 8192, 3))
        model, _ = self.register(loadNow=True, sync=True)
        self.assertLess(abs(self.runtime.left[-1] - 20), 20)
        answer = self.infer(("mm-model-id", model), message=b"\x08\x01" b"\x1a\x04" b"\x12\x02me",
                            method="x.Y/N").result()
        inner = b"\x12%c" % len(model) + model.encode()
        self.assertEqual(answer, b"answer:\x08\x01" b"\x1a%c" % len(inner) + inner)
        self.assertEqual(failure(self.infer(("mm-model-id", model), method="x.Y/Other")),
                         (Code.UNIMPLEMENTED, "Method not found or not permitted: x.Y/Other"))

    def test_concurrency(self):
        """Two calls at a time, because the load said so; sixteen wait, and later calls are
        refused."""
        model, _ = self.register(path="TWO", loadNow=True, sync=True)
        go = threading.Event()
        self.addCleanup(self.runtime.says.pop, ANY)
        was = self.shoald.stat()

        def say(request, context):
            go.wait(WAIT_SECONDS)
            return self.runtime.infer(request, context)
        self.runtime.says[ANY] = say
        calls = [self.infer(("mm-model-id", model)) for _ in range(20)]
        wait_until(lambda: sum(call.done() for call in calls) == 2, "those that are too many")
        go.set()
        ends = [(call.code(), call.details()) for call in calls]
        self.assertEqual(sum(code is Code.OK for code, _ in ends), 18)
        for code, text in ends:
            if code is not Code.OK:
                self.assertEqual((code, text[:20]), (Code.RESOURCE_EXHAUSTED, "Model queue overload"))
        now = self.shoald.stat()
        self.assertEqual(now["mesh_seat_time"]["count"], was["mesh_seat_time"]["count"] + 16)
        self.assertEqual(now["mesh_wait"]["count"], was["mesh_wait"]["count"])
        wait_until(lambda: self.shoald.stat()["mesh_calls_here"] >= was["mesh_calls_here"] + 18,
                   "the calls to be counted: none has waited for a load")

    # ---- texts ----

    def test_texts_of_orders(self):
        model, _ = self.register()
        self.set_vmodel(model)
        for code, text, method, fields in (
                (Code.FAILED_PRECONDITION, f"Model {model} has referents", "unregisterModel",
                 {"modelId": model}),
                (Code.NOT_FOUND, "model not found", "ensureLoaded", {"modelId": "nobody"}),
                *((Code.INVALID_ARGUMENT, "must provide non-empty modelId", method, {}) for method in
                  ("registerModel", "unregisterModel", "getModelStatus", "ensureLoaded")),
                *((Code.ALREADY_EXISTS, "Model already exists with different attribute values",
                   "registerModel", {"modelId": model, "modelInfo": {
                       "type": "kind", "path": "a/path", "key": "{}", **other}})
                  for other in ({"type": "else"}, {"path": "else"}, {"key": "else"}))):
            with self.subTest(method=method, **fields):
                self.check_refused(code, text, method, **fields)
        for code, method, fields in (
                (Code.INVALID_ARGUMENT, "registerModel", {"modelId": "m"}),
                (Code.INVALID_ARGUMENT, "setVModel", {"targetModelId": model}),
                (Code.INVALID_ARGUMENT, "setVModel", {"vModelId": "v"}),
                (Code.NOT_FOUND, "setVModel", {"vModelId": "no-vmodel", "targetModelId": "nobody"}),
                (Code.ALREADY_EXISTS, "setVModel", {"vModelId": "no-vmodel", "targetModelId": model,
                                                    "modelInfo": {"type": "else"}})):
            with self.subTest(method=method, **fields):
                self.assertEqual(failure(self.start(method, **fields))[0], code)

    def test_texts_without_a_runtime(self):
        """The errors of a model that a controller parses."""
        for kind, labels in (("mt:none", "[_no_runtime]"), ("mt:two", "[mt:gone, mt:here]")):
            target = self.name(kind)
            vmodel, status = self.set_vmodel(target, kind, modelInfo={"type": kind}, loadNow=True,
                                             autoDeleteTargetModel=True)
            self.assertEqual((status.status, status.activeModelStatus.status), (DEFINED, LOADING_FAILED))
            self.assertEqual(list(status.activeModelStatus.errors), [f"{NO_LABELS}{kind}: {labels}"])
            self.assertEqual(failure(self.infer(("mm-vmodel-id", vmodel))),
                             (Code.INTERNAL, f"{NO_LABELS}{kind}: {labels}"))

    def test_texts_of_calls(self):
        model, _ = self.register(loadNow=True, sync=True)
        bad, _ = self.register("-bad", path="FAIL_no")
        here = ("mm-model-id", model)
        for metadata, code, text in (
                ((), Code.INVALID_ARGUMENT, "must include mm-model-id header"),
                ((here, ("mm-vmodel-id", "v")), Code.INVALID_ARGUMENT,
                 "must include only one of model id and vmodel id"),
                ((("mm-model-id", ""),), Code.INVALID_ARGUMENT,
                 "provided model-id header must be non-empty"),
                ((("mm-vmodel-id", ""),), Code.INVALID_ARGUMENT,
                 "provided vmodel-id header must be non-empty"),
                ((("mm-model-id", "nobody"),), Code.NOT_FOUND, "model not found"),
                ((("mm-vmodel-id", "nobody"),), Code.NOT_FOUND, "vmodel not found"),
                ((("mm-model-id", bad),), Code.INTERNAL, "INTERNAL: FAIL_no")):
            with self.subTest(text):
                self.assertEqual(failure(self.infer(*metadata)), (code, text))
        found, _ = failure(self.infer(here, method=f"{MODEL_RUNTIME}/unloadModel"))
        self.assertEqual(found, Code.UNIMPLEMENTED)
        nothing = self.called.stream_unary(f"/{ANY}").future(iter(()), timeout=WAIT_SECONDS,
                                                             metadata=[here])
        found, text = failure(nothing)  # by the runtime: to a method that takes a stream it is a call
        self.assertEqual(found, Code.UNIMPLEMENTED)
        self.assertIn("requires exactly one request message", text)
        self.addCleanup(self.runtime.says.pop, ANY)

        def refuse(code, text):
            def say(_request, _context):
                raise Refusal(code, text)
            self.runtime.says[ANY] = say
        refuse(Code.ABORTED, "not today")
        self.assertEqual(failure(self.infer(here)), (Code.ABORTED, f"{ANY}: ABORTED: not today"))
        refuse(Code.UNAVAILABLE, "not now")
        self.assertEqual(failure(self.infer(here)),
                         (Code.INTERNAL, f"ModelRuntime UNAVAILABLE: {ANY}: UNAVAILABLE: not now"))


class AsRuntime(Wire, Rig, unittest.TestCase):
    """mmesh.ModelRuntime of a node whose pipeline somebody else's mesh drives."""

    service = MODEL_RUNTIME

    @classmethod
    def setUpClass(cls):
        cls.shoald = prepare(pupil(), runtime=["unix:runtime.sock"])
        cls.enterClassContext(cls.shoald)
        cls.mesh = cls.enterClassContext(Mesh(f"unix:{cls.shoald.folder}/runtime.sock",
                                              cls.shoald.target))
        cls.channel = cls.mesh.management

    def reflects(self):
        return self.shoald.target

    def test_every_field(self):
        status = self.mesh.status()
        self.assertEqual((status.status, status.capacityInBytes, status.defaultModelSizeInBytes),
                         (READY, 64 * MIB, 4 * MIB))
        model = self.model()
        wait_until(lambda: self.mesh.predict(model, key=key(bytes=2 * MIB)).sizeInBytes == 2 * MIB,
                   "a prediction in time; a late one is the default size")
        loaded = self.mesh.load(model, path="folder/model", key=key(concurrency=7), kind="any")
        self.assertEqual((loaded.sizeInBytes, loaded.maxConcurrency), (SIZE, 7))
        self.assertEqual(self.mesh.size(model).sizeInBytes, SIZE)
        self.assertEqual(said(self.mesh.start_infer(model).result()), model)
        self.assertEqual(self.mesh.unload(model), TYPES["UnloadModelResponse"]())
        self.check_not_known(model)

    def test_bytes(self):
        status = self.raw("runtimeStatus", UNKNOWN_FIELDS)
        figures = (rb"\x08\x01"              # READY
                   rb"\x10\x80\x80\x80\x20"  # capacityInBytes: 64 MiB
                   rb"\x18\x03"              # maxLoadingConcurrency
                   rb"\x20[\x80-\xff]+."     # modelLoadingTimeoutMs
                   rb"\x28\x80\x80\x80\x02"  # defaultModelSizeInBytes: 4 MiB
                   rb"\x32.[0-9.]+")         # runtimeVersion
        methods = b""                       # methodInfos: with idInjectionPath 1
        for method in (b"ModelInfer", b"ModelReady", b"ModelMetadata"):
            name = b"inference.GRPCInferenceService/" + method
            methods += b"\x42%c\x0a%c%b" % (len(name) + 7, len(name), name) + b"\x12\x03\x0a\x01\x01"
        self.assertTrue(re.fullmatch(figures + re.escape(methods), status, re.DOTALL), status)
        model = (b"\x0a\x03raw"               # modelId
                 b"\x12\x04what"              # modelType
                 b"\x1a\x0cfolder/model"      # modelPath
                 b'\x22\x12{"concurrency": 7}')  # modelKey
        size = b"\x08\x88\x27"                # 5,000
        wait_until(lambda: self.raw("predictModelSize", model + UNKNOWN_FIELDS) == size,
                   "a prediction in time; a late one is the default size")
        self.assertEqual(self.raw("loadModel", model + UNKNOWN_FIELDS), size + b"\x10\x07")
        self.assertEqual(self.raw("modelSize", model[:5] + UNKNOWN_FIELDS), size)
        self.assertEqual(said(self.mesh.start_infer("raw").result()), "raw")
        self.assertEqual(self.raw("unloadModel", model[:5] + UNKNOWN_FIELDS), b"")
        self.check_not_known("raw")


if __name__ == "__main__":
    main()
