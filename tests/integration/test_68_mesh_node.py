# SPDX-License-Identifier: Apache-2.0
"""A mesh of one node, store in memory: mmesh.ModelMesh and calls for models, as clients of KServe
ModelMesh see them, over a real daemon with the pupil's models (shoal_registry.py, shoal_pupil.py).

Proves: every method with every outcome, in the words that clients know; that a call loads
the model that it names; that the least recently used goes for room; vmodels; the results of
cancelled and late calls; that the node takes its orders from the mesh alone; that the file of a
store survives the daemon. ctest: timeout=240
"""

import json
import subprocess
import threading
import time
import unittest
import urllib.error
import urllib.request

import grpc

from shoal_client import Client, failure
from shoal_fixture import BIN, free_port, main, wait_until
from shoal_ctl import NEGATIVE, shoalctl
from shoal_mesh import INFER
from shoal_pupil import Rig, key, prepare, pupil, said
from shoal_registry import (DEFINED, LOADED, LOADING, LOADING_FAILED, NOT_FOUND, NOT_LOADED,
                            OLD_SERVICE, TRANSITION_FAILED, TRANSITIONING, Registrar)

Code = grpc.StatusCode
MIB = 1 << 20


def fetch(port, path):
    """The status of an answer over HTTP; None: nobody listens any more."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return None


class OneNode(Rig, unittest.TestCase):
    """One daemon for all tests of a class: each has ids of its own."""

    mesh_keys = {"instance": "node-1", "vmodel_owner": "somebody"}

    @classmethod
    def setUpClass(cls):
        cls.shoald = prepare(pupil(), mesh=cls.mesh_keys)
        cls.enterClassContext(cls.shoald) if hasattr(cls, "enterClassContext") \
            else cls.shoald.__enter__()
        cls.registrar = Registrar(cls.shoald)

    @classmethod
    def tearDownClass(cls):
        cls.registrar.channel.close()
        if not hasattr(cls, "enterClassContext"):
            cls.shoald.__exit__(None, None, None)

    def name(self, more=""):
        return self.id().rpartition(".")[2] + more

    def registered(self, more="", **fields):
        name = self.name(more)
        self.registrar.register(name, **fields)
        self.addCleanup(lambda: self.registrar.unregister(name))
        return name

    def check_refused(self, method, code, text, **fields):
        found, words = failure(self.registrar.start(method, **fields))
        self.assertEqual((found, words), (code, text))

    def check_infer_fails(self, code, text, *args, **keys):
        found, words = failure(self.registrar.start_infer(*args, **keys))
        self.assertEqual((found, words), (code, text))


class Service(OneNode):
    """Reflection and health, for generic clients and load balancers."""

    def test_reflection_and_health_know_it(self):
        with Client(self.shoald.management) as client:
            request, stub = client.stub("ServerReflectionInfo", "grpc.reflection.v1.ServerReflection",
                                        "stream_stream")
            asked = [request(list_services="*"),
                     request(file_containing_symbol="mmesh.ModelMesh.setVModel"),
                     request(file_containing_symbol="mmesh.ModelStatusInfo")]
            services, *files = stub(iter(asked), timeout=60)
            names = [one.name for one in services.list_services_response.service]
            self.assertEqual(names.count("mmesh.ModelMesh"), 1, names)
            self.assertNotIn("mmesh.ModelRuntime", names)
            for file in files:
                self.assertTrue(file.file_descriptor_response.file_descriptor_proto, file)
            for service in ("", "mmesh.ModelMesh"):
                question, check = client.stub("Check", "grpc.health.v1.Health")
                self.assertEqual(check(question(service=service), timeout=60).status, 1)


class Models(OneNode):
    """registerModel, unregisterModel, getModelStatus, ensureLoaded."""

    def test_register(self):
        name = self.registered()
        status = self.registrar.status(name)
        self.assertEqual(status.status, NOT_LOADED)
        self.assertFalse(status.modelCopyInfos or status.errors)

    def test_the_same_again(self):
        name = self.registered()
        self.assertEqual(self.registrar.register(name).status, NOT_LOADED)

    def test_other_values_under_the_same_id(self):
        name = self.registered()
        for other in ({"path": "folder"}, {"kind": "another"}, {"key": key()}):
            info = {"type": "pupil", "path": "model", **other}
            info["type"] = info.pop("kind", info["type"])
            self.check_refused("registerModel", Code.ALREADY_EXISTS,
                               "Model already exists with different attribute values",
                               modelId=name, modelInfo=info)

    def test_missing_fields(self):
        info = {"type": "pupil", "path": "model"}
        self.check_refused("registerModel", Code.INVALID_ARGUMENT,
                           "must provide non-empty modelId", modelInfo=info)
        self.check_refused("registerModel", Code.INVALID_ARGUMENT,
                           "Must provide non-empty model type string", modelId=self.name())
        for method in ("unregisterModel", "getModelStatus", "ensureLoaded"):
            self.check_refused(method, Code.INVALID_ARGUMENT, "must provide non-empty modelId")

    def test_unknown(self):
        self.assertEqual(self.registrar.status("nobody").status, NOT_FOUND)
        self.registrar.unregister("nobody")
        self.check_refused("ensureLoaded", Code.NOT_FOUND, "model not found", modelId="nobody")

    def test_load_now(self):
        name = self.registered(loadNow=True)
        status = self.registrar.wait_status(name, LOADED)
        self.assertEqual([copy.location for copy in status.modelCopyInfos], ["node-1"])
        self.assertEqual(status.modelCopyInfos[0].copyStatus, LOADED)
        self.assertLess(abs(status.modelCopyInfos[0].time / 1000 - time.time()), 600)

    def test_load_now_and_wait(self):
        name = self.name()
        self.addCleanup(lambda: self.registrar.unregister(name))
        self.assertEqual(self.registrar.register(name, loadNow=True, sync=True).status, LOADED)
        self.assertEqual(self.lessons(name), ["load"])

    def test_ensure_loaded(self):
        name = self.registered()
        self.assertIn(self.registrar.ensure(name).status, (LOADING, LOADED))
        self.assertEqual(self.registrar.ensure(name, sync=True).status, LOADED)
        self.assertEqual(self.registrar.ensure(name).status, LOADED)

    def test_loading_is_seen(self):
        name = self.registered(key=key(load=self.name()))
        self.registrar.ensure(name)
        self.wait_held(name)
        status = self.registrar.wait_status(name, LOADING)
        self.assertEqual(status.modelCopyInfos[0].copyStatus, LOADING)
        self.give(name)
        self.registrar.wait_status(name, LOADED)

    def test_load_fails(self):
        name = self.registered(key=key(fail="it is no good"))
        status = self.registrar.ensure(name, sync=True)
        self.assertEqual(status.status, LOADING_FAILED)
        self.assertEqual(status.modelCopyInfos[0].copyStatus, LOADING_FAILED)
        self.assertIn("it is no good", status.errors[0])
        found, words = failure(self.registrar.start_infer(name))
        self.assertEqual(found, Code.INTERNAL, words)
        self.assertIn("it is no good", words)

    def test_no_such_path(self):
        name = self.registered(path="nothing-there")
        status = self.registrar.ensure(name, sync=True)
        self.assertEqual(status.status, LOADING_FAILED)
        self.assertIn("nothing-there", status.errors[0])

    def test_unregister_unloads(self):
        name = self.name()
        self.registrar.register(name, loadNow=True, sync=True)
        self.registrar.unregister(name)
        wait_until(lambda: self.lessons(name) == ["load", "unload"], lambda: self.lessons(name))
        self.assertEqual(self.registrar.status(name).status, NOT_FOUND)

    def test_old_names(self):
        name = self.name()
        info = {"type": "pupil", "path": "model"}
        self.registrar.call("addModel", modelId=name, modelInfo=info)
        self.assertEqual(self.registrar.call("getModelStatus", service=OLD_SERVICE,
                                             modelId=name).status, NOT_LOADED)
        self.registrar.call("deleteModel", service=OLD_SERVICE, modelId=name)
        self.assertEqual(self.registrar.status(name).status, NOT_FOUND)

    def test_malformed_requests(self):
        stub = self.registrar.management.unary_unary("/mmesh.ModelMesh/registerModel")
        for message, text in ((b"\x0a\xff\xff", "request is not a valid message of mmesh.ModelMesh"),
                              (b"\x0a\x02a\x00", "field 1 of the request is not UTF-8 text without a zero byte"),
                              (b"\x0a\xfe\x7f" + b"x" * 16382, None)):
            found, words = failure(stub.future(message, timeout=30))
            self.assertEqual(found, Code.INVALID_ARGUMENT)
            if text is not None:
                self.assertEqual(words, text)


class Calls(OneNode):
    """Calls for models: the model that they mean, and their outcomes."""

    def test_a_call_loads(self):
        name = self.registered()
        self.assertEqual(said(self.registrar.infer(name)), name)
        self.assertEqual(self.lessons(name), ["load"])
        self.registrar.wait_status(name, LOADED)  # calls do not wait for the registry

    def test_ids(self):
        name = self.registered()
        for metadata in ([("mm-model-id", name)], [("mm-model-id-bin", name.encode())],
                         [("mm-model-id", name), ("mm-model-id-bin", b"another")],
                         [("tas-model-id", name)],
                         [("mm-model-id", name), ("tas-model-id", "another")]):
            self.assertEqual(said(self.registrar.infer("not-this", metadata=metadata)), name)

    def test_ids_that_are_none(self):
        self.check_infer_fails(Code.INVALID_ARGUMENT, "must include mm-model-id header")
        self.check_infer_fails(Code.INVALID_ARGUMENT,
                               "provided model-id header must be non-empty", "a",
                               metadata=[("mm-model-id", "")])
        self.check_infer_fails(Code.INVALID_ARGUMENT,
                               "provided vmodel-id header must be non-empty", "a",
                               metadata=[("mm-vmodel-id", "")])
        self.check_infer_fails(Code.INVALID_ARGUMENT,
                               "must include only one of model id and vmodel id", "a",
                               metadata=[("mm-model-id", "a"), ("mm-vmodel-id", "b")])
        self.check_infer_fails(Code.NOT_FOUND, "model not found", "nobody")
        self.check_infer_fails(Code.NOT_FOUND, "vmodel not found",
                               metadata=[("mm-vmodel-id", "nobody")])

    def test_several_in_one_call(self):
        """The answers are one message, in the order of the ids; pipelines' names are no models."""
        names = [self.registered(f"-{i}") for i in range(3)]
        ids = [names[2], names[0], "nobody", "pupil", names[1], names[0]]
        found = [ids[0], ids[1], ids[4], ids[5]]
        metadata = [("mm-model-id", one) for one in ids]
        for _ in range(2): # loaded nowhere, and here
            answer = self.registrar.infer(metadata=metadata)
            self.assertEqual([one[4:].decode() for one in answer.raw_output_contents[::2]], found)
            self.assertEqual(len(answer.outputs), 2 * len(found))
        self.check_infer_fails(Code.NOT_FOUND, "model not found",
                               metadata=[*metadata, ("mm-required", "all")])
        ready = self.registrar.start_ready(metadata=metadata).result()
        self.assertTrue(ready.ready)
        self.shoald.wait_all_returned("pupil")

    def test_many_wait_for_one_load(self):
        name = self.registered(key=key(load=self.name()))
        calls = [self.registrar.start_infer(name) for _ in range(24)]
        self.wait_held(name)
        self.give(name)
        self.assertEqual({said(call.result()) for call in calls}, {name})
        self.assertEqual(self.lessons(name), ["load"])

    def test_a_caller_goes_while_it_waits(self):
        name = self.registered(key=key(load=self.name()))
        before = self.shoald.pipeline_stat("pupil")["requests"]
        call = self.registrar.start_infer(name)
        self.wait_held(name)
        call.cancel()
        other = self.registrar.start_infer(name, timeout=0.3)
        self.assertEqual(other.code(), Code.DEADLINE_EXCEEDED)
        self.registrar.status(name) # behind both of them, on the same connection
        self.give(name)
        self.assertEqual(said(self.registrar.infer(name)), name)
        self.assertEqual(self.shoald.pipeline_stat("pupil")["requests"], before + 1)

    def test_a_manager_goes_while_it_waits(self):
        name = self.registered(key=key(load=self.name()))
        call = self.registrar.start("ensureLoaded", modelId=name, sync=True)
        self.wait_held(name)
        call.cancel()
        late = self.registrar.start("ensureLoaded", modelId=name, sync=True, timeout=0.3)
        self.assertEqual(late.code(), Code.DEADLINE_EXCEEDED)
        self.give(name)
        self.registrar.wait_status(name, LOADED)

    def test_unregistered_while_a_call_waits(self):
        name = self.registered(key=key(load=self.name()))
        call = self.registrar.start_infer(name)
        self.wait_held(name)
        self.registrar.unregister(name)
        self.assertEqual(failure(call), (Code.NOT_FOUND, "model not found"))
        self.give(name)

    def test_a_request_that_is_no_good(self):
        """Elsewhere it would be no better: it is answered once, in the pipeline's own words."""
        name = self.registered()
        found, words = failure(self.registrar.start_infer(
            name, inputs=(("x", "NOTHING", [1], b"\7"),)))
        self.assertEqual(found, Code.INVALID_ARGUMENT, words)
        self.assertEqual(said(self.registrar.infer(name)), name)
        found, again = failure(self.registrar.start_infer(
            name, inputs=(("x", "NOTHING", [1], b"\7"),)))
        self.assertEqual((found, again), (Code.INVALID_ARGUMENT, words))

    def test_no_message(self):
        name = self.registered()
        call = self.registrar.channel.stream_unary(f"/{INFER}").future(
            iter(()), timeout=60, metadata=[("mm-model-id", name)])
        self.assertEqual(failure(call), (Code.INTERNAL, "Half-closed without a request"))

    def test_questions_go_where_calls_go(self):
        """ModelReady goes to a node that has the model, or loads it."""
        name = self.registered()
        self.assertTrue(self.registrar.start_ready(name).result().ready)
        self.assertEqual(self.lessons(name), ["load"])
        self.assertTrue(self.registrar.start_ready(name).result().ready)
        self.assertTrue(self.registrar.start_ready("x", [("mm-model-id", name)]).result().ready)
        self.assertEqual(failure(self.registrar.start_ready("nobody")),
                         (Code.NOT_FOUND, "model not found"))
        self.assertEqual(failure(self.registrar.start_ready(metadata=[("mm-vmodel-id", "nobody")])),
                         (Code.NOT_FOUND, "vmodel not found"))
        vmodel = self.name("-v")
        self.registrar.call("setVModel", vModelId=vmodel, targetModelId=name)
        self.addCleanup(lambda: self.registrar.call("deleteVModel", vModelId=vmodel))
        self.assertTrue(self.registrar.start_ready(metadata=[("mm-vmodel-id", vmodel)])
                        .result().ready)

    def test_the_operator_is_refused(self):
        done = subprocess.run([BIN / "shoalctl", "model", "load", "m", "model", "--counters",
                               self.shoald.counters], capture_output=True, text=True, timeout=60)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("register the model with mmesh.ModelMesh", done.stderr)


class Vmodels(OneNode):
    """setVModel, deleteVModel, getVModelStatus, and calls for vmodels."""

    def vmodel(self, target, **fields):
        name = self.name("-v")
        self.addCleanup(lambda: self.registrar.call("deleteVModel", vModelId=name))
        return name, self.registrar.call("setVModel", vModelId=name, targetModelId=target, **fields)

    def infer(self, vmodel):
        return said(self.registrar.infer(metadata=[("mm-vmodel-id", vmodel)]))

    def test_set_and_call(self):
        model = self.registered()
        vmodel, status = self.vmodel(model)
        self.assertEqual((status.status, status.activeModelId, status.targetModelId, status.owner),
                         (DEFINED, model, model, "somebody"))
        self.assertEqual(self.infer(vmodel), model)

        def active():
            return self.registrar.call("getVModelStatus", vModelId=vmodel).activeModelStatus.status
        wait_until(lambda: active() == LOADED, "the registry to say so: calls do not wait for it")

    def test_shoalctl(self):
        """By its name alone, as a model; and with metadata."""
        model = self.registered()
        vmodel, _ = self.vmodel(model)
        call = ["--target", self.shoald.target, "--input", "x=UINT8[1]:7", "--json"]
        for arguments in ([vmodel], ["anything", "--metadata", f"mm-vmodel-id={vmodel}"]):
            answer = shoalctl("infer", *arguments, *call).json
            self.assertIn(model, json.dumps(answer))
        done = shoalctl("infer", "nobody", *call, code=NEGATIVE)
        self.assertEqual(done.json["error"], "nobody: NOT_FOUND: model not found")

    def test_move(self):
        first, second = self.registered("-1"), self.registered("-2", key=key(load=self.name()))
        vmodel, _ = self.vmodel(first)
        self.assertEqual(self.infer(vmodel), first)
        status = self.registrar.call("setVModel", vModelId=vmodel, targetModelId=second)
        self.assertEqual((status.status, status.activeModelId, status.targetModelId),
                         (TRANSITIONING, first, second))
        self.wait_held(self.name())
        self.assertEqual(self.infer(vmodel), first)
        self.give(self.name())
        wait_until(lambda: self.registrar.call("getVModelStatus", vModelId=vmodel).status
                   == DEFINED, "the transition's end")
        self.assertEqual(self.infer(vmodel), second)

    def test_inline_and_auto_delete(self):
        first, second = self.name("-1"), self.name("-2")
        info = {"type": "pupil", "path": "model"}
        vmodel, _ = self.vmodel(first, modelInfo=info, autoDeleteTargetModel=True)
        self.assertEqual(self.infer(vmodel), first)
        status = self.registrar.call("setVModel", vModelId=vmodel, targetModelId=second,
                                     modelInfo=info, autoDeleteTargetModel=True, sync=True)
        self.assertEqual((status.status, status.activeModelId), (DEFINED, second))
        self.registrar.wait_status(first, NOT_FOUND)
        self.registrar.call("deleteVModel", vModelId=vmodel)
        self.registrar.wait_status(second, NOT_FOUND)

    def test_transition_fails(self):
        first, second = self.registered("-1"), self.registered("-2", key=key(fail="no good"))
        vmodel, _ = self.vmodel(first)
        self.assertEqual(self.infer(vmodel), first)
        status = self.registrar.call("setVModel", vModelId=vmodel, targetModelId=second, sync=True)
        self.assertEqual((status.status, status.activeModelId), (TRANSITION_FAILED, first))
        self.assertIn("no good", status.targetModelStatus.errors[0])
        self.assertEqual(self.infer(vmodel), first)

    def test_force(self):
        first, second = self.registered("-1"), self.registered("-2")
        vmodel, _ = self.vmodel(first)
        self.assertEqual(self.infer(vmodel), first)
        status = self.registrar.call("setVModel", vModelId=vmodel, targetModelId=second, force=True)
        self.assertEqual((status.status, status.activeModelId), (DEFINED, second))
        self.assertEqual(self.infer(vmodel), second)

    def test_missing_fields(self):
        self.check_refused("setVModel", Code.INVALID_ARGUMENT, "Must provide vModelId",
                           targetModelId="m")
        self.check_refused("setVModel", Code.INVALID_ARGUMENT,
                           "Must provide target modelId for vmodel v", vModelId="v")
        for method in ("deleteVModel", "getVModelStatus"):
            self.check_refused(method, Code.INVALID_ARGUMENT, "Must provide vModelId")

    def test_unknown(self):
        model = self.registered()
        self.assertEqual(self.registrar.call("getVModelStatus", vModelId="nobody").status,
                         NOT_FOUND)
        self.registrar.call("deleteVModel", vModelId="nobody")
        self.check_refused("setVModel", Code.NOT_FOUND,
                           "Target model nobody not found",
                           vModelId=self.name(), targetModelId="nobody")
        self.check_refused("setVModel", Code.NOT_FOUND, f"vmodel {self.name()} not found",
                           vModelId=self.name(), targetModelId=model, updateOnly=True)
        self.check_refused("setVModel", Code.FAILED_PRECONDITION,
                           f"vmodel {self.name()} not found", vModelId=self.name(),
                           targetModelId=model, expectedTargetModelId="another")

    def test_owners(self):
        model = self.registered()
        vmodel, status = self.vmodel(model)
        self.check_refused("setVModel", Code.ALREADY_EXISTS,
                           f'vmodel {vmodel} already exists with different owner "somebody"',
                           vModelId=vmodel, targetModelId=model, owner="else")
        self.assertEqual(self.registrar.call("getVModelStatus", vModelId=vmodel,
                                             owner="else").status, NOT_FOUND)
        self.registrar.call("deleteVModel", vModelId=vmodel, owner="else")
        self.assertEqual(self.registrar.call("getVModelStatus", vModelId=vmodel).status, DEFINED)

    def test_expected_target(self):
        model, other = self.registered("-1"), self.registered("-2")
        vmodel, _ = self.vmodel(model)
        self.check_refused("setVModel", Code.FAILED_PRECONDITION,
                           f"Existing target model {model} does not match expected another",
                           vModelId=vmodel, targetModelId=other, expectedTargetModelId="another")
        status = self.registrar.call("setVModel", vModelId=vmodel, targetModelId=other,
                                     expectedTargetModelId=model, sync=True)
        self.assertEqual(status.activeModelId, other)

    def test_a_model_with_referents_stays(self):
        model = self.registered()
        vmodel, _ = self.vmodel(model)
        self.check_refused("unregisterModel", Code.FAILED_PRECONDITION,
                           f"Model {model} has referents", modelId=model)

    def test_a_model_that_differs(self):
        model = self.registered()
        self.check_refused("setVModel", Code.ALREADY_EXISTS,
                           f"Target model {model} already exists with different attribute values",
                           vModelId=self.name("-v"), targetModelId=model,
                           modelInfo={"type": "another"})


class Nodes(Rig, unittest.TestCase):
    """Tests that need a node of their own."""

    def infer_in_time(self, registrar, model):
        """A model that was just loaded for a caller is not evicted for another: a call waits
        then."""
        self.assertEqual(said(registrar.start_infer(model).result()), model)

    def test_the_least_recently_used_goes(self):
        """Room for eight models: of twelve that are called in turn the last are there, and a
        thirteenth sends away the one that was used longest ago, the fast path's uses counted."""
        self.shoald = prepare(pupil(models={"memory_mib": 40, "default_size_mib": 4}),
                              mesh={"instance": "one"})
        with self.shoald as shoald, Registrar(shoald) as registrar:
            for i in range(4): # how long a load takes is known after a few; until then it is long
                registrar.register(f"w{i}", loadNow=True, sync=True)
                registrar.unregister(f"w{i}")
            for i in range(12):
                registrar.register(f"m{i}", key=key(bytes=4 * MIB))
            for i in range(12):
                self.infer_in_time(registrar, f"m{i}")
            there = [i for i in range(12) if registrar.status(f"m{i}").status == LOADED]
            self.assertEqual(there, list(range(12 - len(there), 12)))
            self.assertGreaterEqual(len(there), 6)
            self.assertLessEqual(len(there), 10)
            hot = f"m{there[0]}" # the next to go; what is used on the fast path stays

            def stays():
                """While all twelve are called in turn; its uses are reported once a second."""
                before = self.lessons(hot)
                for i in range(12):
                    self.infer_in_time(registrar, hot)
                    self.infer_in_time(registrar, f"m{i}")
                return self.lessons(hot) == before
            wait_until(stays, f"{hot} to stay")
            stat = shoald.pipeline_stat("pupil")
            self.assertLessEqual(stat["model_bytes"], 40 * MIB)

    def test_each_pipeline_has_its_own_memory(self):
        """Twelve models fill one pipeline; that of the other stays, though it was used before them
        all."""
        self.shoald = prepare(
            pupil("one", models={"types": ["one"], "memory_mib": 40}),
            pupil("two", models={"types": ["two"], "load_timeout_ms": 90000}),
            mesh={"instance": "node"})
        with self.shoald as shoald, Registrar(shoald) as registrar:
            registrar.register("other", kind="two", key=json.dumps({"bytes": 4 * MIB}))
            self.assertEqual(said(registrar.infer("other")), "other")
            for i in range(12):
                registrar.register(f"m{i}", kind="mt:one:1", key=json.dumps({"bytes": 4 * MIB}))
                self.infer_in_time(registrar, f"m{i}")
            self.assertEqual(registrar.status("m0").status, NOT_LOADED)
            self.assertEqual(registrar.status("other").status, LOADED)
            for name, most in (("one", 40), ("two", 4)):
                stat = shoald.pipeline_stat(name)
                self.assertLessEqual(stat["model_bytes"], most * MIB)
            self.check_fails(registrar.start_infer(registrar.register("x", kind="three") and "x"),
                             Code.INTERNAL, "three", "no pipeline of this node")

    def test_a_file_survives_the_node(self):
        self.shoald = prepare(pupil(), mesh={"instance": "one", "store": "file:registry"})
        with self.shoald as shoald:
            with Registrar(shoald) as registrar:
                registrar.register("m")
                self.assertEqual(said(registrar.infer("m")), "m")
            shoald.kill()
            shoald.start().wait_ready()
            with Registrar(shoald) as registrar:
                self.assertEqual(said(registrar.infer("m")), "m")
                self.assertEqual(said(registrar.infer("m")), "m")

    def test_stopped_while_calls_wait(self):
        self.shoald = prepare(pupil(), mesh={}, drain_timeout_ms=300)
        with self.shoald as shoald, Registrar(shoald) as registrar:
            registrar.register("m", key=key(load="held"))
            calls = [registrar.start_infer("m") for _ in range(8)]
            calls.append(registrar.start_infer(metadata=[("mm-model-id", "m")] * 3))
            order = registrar.start("ensureLoaded", modelId="m", sync=True)
            self.wait_held("held")
            shoald.signal(15)
            for call in (*calls, order):
                self.assertEqual(failure(call)[0], Code.UNAVAILABLE)
            self.give("held")
            shoald.check_end()

    def test_a_load_takes_too_long(self):
        self.shoald = prepare(pupil(models={"load_timeout_ms": 500}), mesh={})
        with self.shoald as shoald, Registrar(shoald) as registrar:
            registrar.register("m", key=key(load="late"))
            self.check_fails(registrar.start_infer("m"), Code.DEADLINE_EXCEEDED,
                             "DEADLINE_EXCEEDED: ", "load_timeout_ms (500)")

    def test_vmodels_by_the_name_in_the_request(self):
        self.shoald = prepare(pupil(), mesh={"names": "vmodels"})
        with self.shoald as shoald, Registrar(shoald) as registrar:
            registrar.register("m")
            registrar.call("setVModel", vModelId="v", targetModelId="m")
            self.assertEqual(said(registrar.infer("v")), "m")
            self.assertEqual(failure(registrar.start_infer("m")),
                             (Code.NOT_FOUND, "vmodel not found"))
            self.assertEqual(said(registrar.infer(metadata=[("mm-model-id", "m")])), "m")

    def test_by_the_environment_alone(self):
        ports = free_port(), free_port()
        self.shoald = prepare(pupil())
        self.shoald.env.update(MM_SERVICE_NAME="mine", WKUBE_POD_NAME="pod-0123456789-abcdef",
                               MM_LABELS="b,a", MM_DEFAULT_VMODEL_OWNER="me", MM_LOG_EACH_INVOKE="true",
                               MM_PROBE_PORT=str(ports[0]), MM_PRESTOP_WAIT_PORT=str(ports[1]))
        with self.shoald as shoald, Registrar(shoald.target) as registrar:
            shoald.wait_log(r'mesh_setting_ignored name=MM_LOG_EACH_INVOKE instead="`traces`"')
            shoald.wait_log(r"mesh_open store=memory service=mine instance=56789-abcdef .*"
                            r'labels="a,b"')
            registrar.register("m", loadNow=True, sync=True)
            self.assertEqual(registrar.status("m").modelCopyInfos[0].location, "56789-abcdef")
            status = registrar.call("setVModel", vModelId="v", targetModelId="m")
            self.assertEqual(status.owner, "me")
            self.assertEqual([fetch(ports[0], "/ready"), fetch(ports[0], "/live"),
                              fetch(ports[0], "/else"), fetch(ports[1], "/ready")],
                             [200, 200, 404, 404])
            registrar.register("slow", key=key(load="held"))
            call = registrar.start_infer("slow")
            self.wait_held("held")
            told = []
            waits = threading.Thread(target=lambda: told.append(fetch(ports[1], "/prestop")))
            waits.start()
            shoald.drain()
            wait_until(lambda: fetch(ports[0], "/ready") in (503, None), "it not to be ready")
            self.give("held")
            waits.join()
            self.assertEqual(told, [200])
            self.assertIn(call.code(), (Code.OK, Code.UNAVAILABLE))
            shoald.check_end()


if __name__ == "__main__":
    main()
