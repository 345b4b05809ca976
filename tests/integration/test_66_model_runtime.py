# SPDX-License-Identifier: Apache-2.0
"""mmesh.ModelRuntime, sentence by sentence, as a mesh sees it (shoal_mesh.py), over TCP and unix
sockets, with one endpoint and with two.

The contract of custom serving runtimes, and its check here:

  loads and unloads models from disk on demand              test_load_and_call, test_unload
  exposes a gRPC service for loaded models                  test_load_and_call
  implements the service: load, unload, sizes, capacity     test_every_method_is_there
  served by the inference's endpoint, or by another         the classes One… and Two…
  a localhost port or a unix socket, each                   the classes …Tcp and …Unix
  the socket's file is created in an empty directory        the fixture's folder, in …Unix
  two unix sockets: the same, or in the same directory      OneUnix, TwoUnix
  a default size for all models, conservative               test_ready_says_everything
  predictModelSize: optional, before loadModel              test_predict
  … returns immediately                                     test_predict_does_not_wait
  the precise size in loadModel's answer                    test_size_comes_with_the_load
  … or 0 there, and modelSize has it                        test_model_size
  capacity is indicated once and is constant                test_capacity_is_constant
  runtimeStatus is polled while the runtime starts          67: test_starting_until_all_serve
  … STARTING until ready to load and serve                  the same
  … other fields only with READY                            the same
  … READY once: no more calls until the mesh restarts       test_load_without_another_status
  … purges what is loaded                                   test_status_purges_what_is_loaded
  … and what is loading                                     test_status_purges_what_is_loading
  … no READY before that is complete                        the same
  … typically there is nothing to purge                     test_status_with_nothing_to_purge
  maxLoadingConcurrency: loads in flight at the same time   test_loads_at_once
  modelLoadingTimeoutMs                                     67: test_load_past_its_time_out
  methodInfos: path of field numbers to the id              test_id_is_injected
  … by fully qualified method name                          test_ready_says_everything
  limitModelConcurrency, maxConcurrency                     test_concurrency_is_told
  loadModel: by id, from the path                           test_load_and_call, test_paths
  … modelType is ignored                                    test_model_type_is_ignored
  … modelKey is JSON with model_type's name, version        test_keys
  … version may be absent                                   the same
  … more attributes are ignored gracefully                  the same
  … no response until loaded and ready to use               test_load_answers_when_it_can_be_called
  unloadModel: loaded before                                test_unload
  … or failed                                               test_unload_of_what_failed
  … no response before resources are freed                  test_unload_answers_when_it_is_gone
  … not found: immediately, without error                   test_unload_of_nothing
  only loaded models are called (another: NOT_FOUND)        test_unloaded_model_is_not_found
  … nor unloaded since                                      test_unload
  id from mm-model-id                                       test_id_in_metadata
  … or mm-model-id-bin, not ASCII                           the same
  … or the injected field                                   test_id_is_injected
  storage helper on: an absolute path beneath the models    test_paths
  … off: the path as it was registered                      the same
  … its keys (bucket, storage_key, disk_size_bytes)         test_keys

The rest is what incumbents do. The modelet is the pupil, whose models wait for cues, fail and tell
sizes as their keys say. test_67_model_runtime_node.py has the tests that need a node of their own,
or a real model. ctest: timeout=240 presets=dev
"""

import json
import subprocess
import unittest

import grpc

import shoal_fixture
from shoal_client import Client, failure
from shoal_fixture import BUILD, free_port, wait_until
from shoal_mesh import INFERENCE, READY, SERVICE, STARTING, Mesh
from shoal_pupil import LOAD_CONCURRENCY, MIB, SIZE, Rig, key, known, prepare, pupil, said


class Contract(Rig):
    workers = 1

    @classmethod
    def setUpClass(cls):
        runtime, listen, management, data = cls.endpoints()
        cls.shoald = prepare(pupil(workers=cls.workers), runtime=runtime, listen=listen)
        cls.enterClassContext(cls.shoald)
        folder = cls.shoald.folder
        cls.mesh = cls.enterClassContext(Mesh(management.format(folder), data.format(folder)))

    # ---- the service ----

    def test_every_method_is_there(self):
        for method in ("loadModel", "unloadModel", "predictModelSize", "modelSize",
                       "runtimeStatus"):
            self.assertIsNot(self.mesh.start(method).code(), grpc.StatusCode.UNIMPLEMENTED, method)

    def test_ready_says_everything(self):
        status = self.mesh.status()
        self.assertEqual(status.status, READY)
        self.assertEqual(status.capacityInBytes, 64 * MIB)
        self.assertEqual(status.maxLoadingConcurrency, LOAD_CONCURRENCY)
        self.assertGreaterEqual(status.modelLoadingTimeoutMs, 60000)
        self.assertEqual(status.defaultModelSizeInBytes, 4 * MIB)
        self.assertEqual(status.runtimeVersion, subprocess.run(
            [BUILD / "bin" / "shoald", "--version"], capture_output=True, text=True,
            check=True).stdout.split()[1])
        methods = {name: list(info.idInjectionPath)
                   for name, info in status.methodInfos.items()}
        self.assertEqual(methods, {f"{INFERENCE}/{method}": [1] for method in
                                   ("ModelInfer", "ModelReady", "ModelMetadata")})
        self.assertFalse(status.limitModelConcurrency)
        self.assertFalse(status.allowAnyMethod)

    def test_capacity_is_constant(self):
        before = self.mesh.status().capacityInBytes
        self.mesh.load(self.model(), key=key(bytes=20 * MIB))
        self.assertEqual(self.mesh.status().capacityInBytes, before)

    # ---- loading ----

    def test_load_and_call(self):
        model = self.model()
        self.check_not_known(model)
        self.mesh.load(model, key=key())
        self.assertEqual(said(self.mesh.start_infer(model).result()), model)
        self.assertTrue(self.mesh.ready(model))

    def test_load_answers_when_it_can_be_called(self):
        model = self.model()
        loading = self.mesh.start_load(model, key=key(load=model))
        self.wait_held(model)
        calling = self.mesh.start_infer(model)
        self.assertFalse(self.mesh.ready(model))
        self.assertFalse(loading.done())
        self.assertFalse(calling.done())
        self.give(model)
        loading.result()
        self.assertEqual(said(calling.result()), model)
        for _ in range(4 * self.workers):
            self.assertEqual(said(self.mesh.start_infer(model).result()), model)

    def test_others_are_served_meanwhile(self):
        model = self.model()
        self.mesh.load(model, key=key())
        other = f"{model}-other"
        loading = self.mesh.start_load(other, key=key(load=other))
        self.wait_held(other)
        self.assertEqual(said(self.mesh.start_infer(model).result()), model)
        self.assertFalse(loading.done())
        self.give(other)
        loading.result()
        self.mesh.unload(other)

    def test_loads_at_once(self):
        """As many as were said, the first of which takes its time."""
        name = self.model()
        names = [f"{name}-{i}" for i in range(self.mesh.status().maxLoadingConcurrency)]
        loads = [self.mesh.start_load(one, key=key(load=name)) for one in names]
        self.wait_held(name)
        self.give(name)
        for one, load in zip(names, loads):
            load.result()
            self.assertEqual(said(self.mesh.start_infer(one).result()), one)
            self.mesh.unload(one)

    def test_load_without_another_status(self):
        """After READY a mesh loads and unloads, as often as it likes."""
        self.assertEqual(self.mesh.status().status, READY)
        model = self.model()
        for _ in range(5):
            self.mesh.load(model, key=key())
            self.assertEqual(said(self.mesh.start_infer(model).result()), model)
            self.mesh.unload(model)

    def test_model_type_is_ignored(self):
        model = self.model()
        for kind in ("", "another", "rt:pupil", "mt:pupil:1|pv:v2"):
            self.mesh.load(model, key=key(), kind=kind)
            self.mesh.unload(model)

    def test_keys(self):
        model = self.model()
        for text in (
                json.dumps({"model_type": {"name": "pupil", "version": "2"}}),
                json.dumps({"model_type": {"name": "pupil"}}),
                json.dumps({"model_type": "pupil"}),
                json.dumps({"bucket": "b", "disk_size_bytes": 2415, "storage_key": "k",
                            "storage_params": {"type": "s3"}, "schema_path": None,
                            "model_type": {"name": "pupil", "version": "1", "more": [1, 2]}}),
                json.dumps({"from the future": {"a": [None, 1.5, True]}}),
                "{}", ""):
            self.mesh.load(model, key=text)
            self.assertEqual(said(self.mesh.start_infer(model).result()), model)
            self.mesh.unload(model)

    def test_paths(self):
        model = self.model()
        root = self.shoald.folder / "models"
        for path in ("model", "folder/model", "folder", "folder/", root / "model",
                     f"{root}/folder/"):
            self.mesh.load(model, path=str(path), key=key())
            self.assertEqual(said(self.mesh.start_infer(model).result()), model)
            self.mesh.unload(model)

    def test_load_fails(self):
        """With the modelet's own text; nothing is left, and it can be tried again."""
        model = self.model()
        self.check_fails(self.mesh.start_load(model, key=key(fail="the weights are from Mars")),
                         grpc.StatusCode.FAILED_PRECONDITION, "the weights are from Mars")
        self.check_fails(self.mesh.start_infer(model), grpc.StatusCode.NOT_FOUND)
        self.mesh.unload(model)
        self.mesh.load(model, key=key())
        self.assertEqual(said(self.mesh.start_infer(model).result()), model)

    def test_load_of_what_is_loaded(self):
        """The same again is done already; another under its id must be unloaded first."""
        model = self.model()
        first = self.mesh.load(model, key=key())
        self.assertEqual(self.mesh.load(model, key=key()), first)
        self.assertEqual(self.lessons(model).count("load"), self.workers)
        for other in ({"path": "folder/model", "key": key()}, {"key": key(bytes=1)}):
            self.check_fails(self.mesh.start_load(model, **other),
                             grpc.StatusCode.ALREADY_EXISTS, model)
        self.assertEqual(said(self.mesh.start_infer(model).result()), model)
        self.mesh.unload(model)
        self.mesh.load(model, "folder/model", key())

    def test_load_twice_at_once(self):
        model = self.model()
        loads = [self.mesh.start_load(model, key=key(load=model)) for _ in range(2)]
        self.wait_held(model)
        self.give(model)
        self.assertEqual(loads[0].result(), loads[1].result())
        self.assertEqual(self.lessons(model), ["load"] * self.workers)

    # ---- sizes ----

    def test_size_comes_with_the_load(self):
        model = self.model()
        self.assertEqual(self.mesh.load(model, key=key()).sizeInBytes, SIZE * self.workers)
        self.mesh.unload(model)
        self.assertEqual(self.mesh.load(model, key=key(bytes=7 * MIB)).sizeInBytes,
                         7 * MIB * self.workers)
        self.mesh.unload(model)
        self.assertGreater(self.mesh.load(model, key=key(bytes=0)).sizeInBytes, 0)

    def test_model_size(self):
        model = self.model()
        self.check_fails(self.mesh.start("modelSize", modelId=model), grpc.StatusCode.NOT_FOUND,
                         model)
        self.mesh.load(model, key=key(bytes=3 * MIB))
        self.assertEqual(self.mesh.size(model).sizeInBytes, 3 * MIB * self.workers)
        self.mesh.unload(model)
        self.check_fails(self.mesh.start("modelSize", modelId=model), grpc.StatusCode.NOT_FOUND)

    def test_predict(self):
        """A worker that does not answer within half a second is not waited for: the default is
        said."""
        model = self.model()
        said = set()

        def predicted():
            said.add(self.mesh.predict(model, key=key(bytes=2 * MIB)).sizeInBytes)
            return 2 * MIB * self.workers in said
        wait_until(predicted, "a prediction in time")
        self.assertLessEqual(said, {2 * MIB * self.workers, 4 * MIB})
        self.check_not_known(model)
        self.assertEqual(self.lessons(model), [])

    def test_predict_does_not_wait(self):
        """For a modelet that takes its time, nor for a load."""
        model = self.model()
        answer = self.mesh.predict(model, key=key(predict=model))
        self.assertEqual(answer.sizeInBytes, 4 * MIB)  # the default
        self.wait_held(model)
        self.give(model)
        loading = self.mesh.start_load(model, key=key(load=f"{model}-load"))
        self.wait_held(f"{model}-load")
        self.assertGreater(self.mesh.predict(f"{model}-other", key=key()).sizeInBytes, 0)
        self.assertFalse(loading.done())
        self.give(f"{model}-load")
        loading.result()

    def test_concurrency_is_told(self):
        model = self.model()
        self.assertEqual(self.mesh.load(model, key=key()).maxConcurrency, 0)
        self.mesh.unload(model)
        self.assertEqual(self.mesh.load(model, key=key(concurrency=9)).maxConcurrency, 9)

    # ---- unloading ----

    def test_unload(self):
        model = self.model()
        self.mesh.load(model, key=key())
        self.mesh.unload(model)
        self.assertEqual(sorted(self.lessons(model)),
                         ["load"] * self.workers + ["unload"] * self.workers)
        self.check_not_known(model)

    def test_unload_answers_when_it_is_gone(self):
        model = self.model()
        self.mesh.load(model, key=key(unload=model))
        unloading = self.mesh.start_unload(model)
        self.wait_held(model)
        self.check_fails(self.mesh.start("modelSize", modelId=model), grpc.StatusCode.NOT_FOUND)
        self.assertFalse(unloading.done())
        self.give(model)
        unloading.result()
        self.assertEqual(self.lessons(model).count("unload"), self.workers)
        self.mesh.load(model, key=key())
        self.assertEqual(known(self.mesh.start_infer(model).result()), 1)

    def test_unload_of_nothing(self):
        for name in ("nobody", "", "x" * 127, "x" * 128, "x" * 100000, "../models/model", "/",
                     "pupil", "größe"):
            self.mesh.unload(name)

    def test_unload_of_what_failed(self):
        model = self.model()
        failure(self.mesh.start_load(model, key=key(fail="no")))
        self.mesh.unload(model)

    def test_unload_of_what_is_loading(self):
        """A mesh that has given up a load asks for this."""
        model = self.model()
        loading = self.mesh.start_load(model, key=key(load=model))
        self.wait_held(model)
        unloading = self.mesh.start_unload(model)
        self.assertFalse(unloading.done())
        self.give(model)
        unloading.result()
        wait_until(loading.done, "the load to be answered")
        self.check_not_known(model)

    def test_caller_goes_away(self):
        """Its load goes on; unloaded it is in the end."""
        model = self.model()
        for seconds, give_up in (60, lambda call: call.cancel()), (1, lambda call: failure(call)):
            loading = []

            def begins():
                """On a busy machine the deadline may come before the call has."""
                if not loading or loading[-1].done():
                    loading.append(self.mesh.start_load(model, key=key(load=model),
                                                        timeout=seconds))
                return self.cue_is_held(model)
            wait_until(begins, lambda: f"the load to begin\n{self.shoald.stderr}")
            give_up(loading[-1])
            self.give(model)
            wait_until(lambda: self.mesh.start("modelSize", modelId=model).exception() is None,
                       "the load to end without its caller")
            self.mesh.unload(model)
            for suffix in ("held", "go"):
                (self.shoald.folder / f"{model}.{suffix}").unlink()

    # ---- which model a call means ----

    def test_unloaded_model_is_not_found(self):
        """NOT_FOUND is what a mesh takes for "it has vanished", to load it again."""
        self.check_fails(self.mesh.start_infer("never-heard-of"), grpc.StatusCode.NOT_FOUND,
                         "never-heard-of")

    def test_id_in_metadata(self):
        for model in ("in-metadata", "größer-als-ascii-模型"):
            self.mesh.load(model, key=key())
            self.addCleanup(self.mesh.unload, model)
            binary = [("mm-model-id-bin", model.encode())]
            both = [*binary, ("mm-model-id", model)] if model.isascii() else binary
            for metadata in (binary, both):
                answer = self.mesh.start_infer("what-the-caller-calls-it", metadata).result()
                self.assertEqual(said(answer), model)
                self.assertEqual(said(self.mesh.start_infer("", metadata).result()), model)

    def test_id_is_injected(self):
        status = self.mesh.status()
        for model in (self.model(), "größer-als-ascii-模型"):
            self.mesh.load(model, key=key())
            self.assertEqual(said(self.mesh.start_injected(status, model).result()), model)
            self.mesh.unload(model)

    # ---- runtimeStatus ----

    def test_status_with_nothing_to_purge(self):
        for _ in range(3):
            self.assertEqual(self.mesh.status().status, READY)

    def test_status_purges_what_is_loaded(self):
        names = [f"{self.model()}-{i}" for i in range(5)]
        for name in names:
            self.mesh.load(name, key=key())
        self.assertEqual(self.mesh.status().status, READY)
        for name in names:
            self.assertEqual(self.lessons(name).count("unload"), self.workers)
            self.check_not_known(name)
        model = self.model()
        self.mesh.load(model, key=key())
        self.assertEqual(known(self.mesh.start_infer(model).result()), 1)

    def wait_purging(self):
        """Until loads are refused because of a purge. gRPC keeps no order between calls: a
        runtimeStatus sent any sooner may arrive first, and then it is the one that waits for the
        purge."""
        def is_refused():
            error = self.mesh.start_load("another", key=key()).exception()
            return (error is not None and "READY" in error.details()
                    and error.code() == grpc.StatusCode.FAILED_PRECONDITION)
        wait_until(is_refused, "loads to be refused")

    def test_status_purges_what_is_loading(self):
        model = self.model()
        loading = self.mesh.start_load(model, key=key(load=model))
        self.wait_held(model)
        status = self.mesh.start("runtimeStatus")
        self.wait_purging()
        self.assertEqual(self.mesh.status().status, STARTING)
        self.assertFalse(status.done())
        self.give(model)
        self.assertEqual(status.result().status, READY)
        wait_until(loading.done, "the load to be answered")
        self.check_not_known(model)
        self.assertEqual(self.lessons(model).count("load"), self.lessons(model).count("unload"))

    # ---- what is wrong ----

    def test_refusals(self):
        """Not attempted, and why: which field, and what is wrong with it."""
        invalid = grpc.StatusCode.INVALID_ARGUMENT
        for code, fields, *texts in (
                (invalid, {"model": ""}, "modelId is missing"),
                (invalid, {"model": "x" * 128}, "modelId has 128 bytes", "127"),
                (invalid, {"path": ""}, "modelPath is missing"),
                (invalid, {"path": "x" * 1024}, "modelPath has 1024 bytes", "1023"),
                (invalid, {"key": "x" * 4096}, "modelKey has 4096 bytes", "4095"),
                (invalid, {"key": "no JSON"}, "modelKey is not JSON"),
                (invalid, {"key": '{"model_type": '}, "modelKey is not JSON", "line 1"),
                (invalid, {"key": "[1]"}, "not a JSON object"),
                (invalid, {"key": '{"model_type": 5}'}, "model_type"),
                (invalid, {"key": '{"model_type": {"name": {}}}'}, "model_type"),
                (invalid, {"key": json.dumps({"model_type": "x" * 64})}, "64 bytes"),
                (grpc.StatusCode.NOT_FOUND, {"path": "nowhere"}, "nowhere"),
                (invalid, {"path": "../shoald.yaml"}, "../shoald.yaml"),
                (invalid, {"path": "/etc/passwd"}, ".../passwd", "is not beneath"),
                (invalid, {"model": "pupil"}, "pupil")):
            with self.subTest(**{name: value[:40] for name, value in fields.items()}):
                for start in (self.mesh.start_load, self.mesh.start_predict):
                    if start == self.mesh.start_predict and fields.get("model") == "pupil":
                        continue
                    self.check_fails(start(**{"model": "x", "key": key(), **fields}), code, *texts)

    def test_malformed_messages(self):
        for method in ("loadModel", "unloadModel", "modelSize", "predictModelSize"):
            call = self.mesh.management.unary_unary(f"/{SERVICE}/{method}")
            for message in (b"\x0a\x7fcut", b"\x0b", b"\x0a\x02a\0", b"\x0a\x01\xff"):
                self.check_fails(call.future(message, timeout=60),
                                 grpc.StatusCode.INVALID_ARGUMENT)

    def test_unknown_method(self):
        call = self.mesh.management.unary_unary(f"/{SERVICE}/destroyModel")
        self.check_fails(call.future(b"", timeout=60), grpc.StatusCode.UNIMPLEMENTED)

    # ---- what comes with it ----

    def test_health_and_reflection(self):
        with Client(self.management_target()) as client:
            request, check = client.stub("Check", "grpc.health.v1.Health")
            for name in ("", SERVICE):
                self.assertEqual(check(request(service=name), timeout=60).status, 1)
            request, ask = client.stub("ServerReflectionInfo", "grpc.reflection.v1.ServerReflection",
                                       "stream_stream")
            answer = next(ask(iter([request(list_services="")]), timeout=60))
            names = [one.name for one in answer.list_services_response.service]
            self.assertIn(SERVICE, names)
            self.assertEqual(INFERENCE in names, self.mesh.data is self.mesh.management)

    def management_target(self):
        return self.endpoints()[2].format(self.shoald.folder)


class TestOneUnix(Contract, unittest.TestCase):
    @classmethod
    def endpoints(cls):
        return ["unix:grpc.sock"], None, "unix:{}/grpc.sock", "unix:{}/grpc.sock"


class TestTwoUnix(Contract, unittest.TestCase):
    workers = 2

    @classmethod
    def endpoints(cls):
        return ["unix:runtime.sock"], None, "unix:{}/runtime.sock", "unix:{}/grpc.sock"


class TestOneTcp(Contract, unittest.TestCase):
    port = free_port()

    @classmethod
    def endpoints(cls):
        address = f"localhost:{cls.port}"
        return [f"port:{cls.port}"], [f"port:{cls.port}"], address, address


class TestTwoTcp(Contract, unittest.TestCase):
    port = free_port()

    @classmethod
    def endpoints(cls):
        return [f"port:{cls.port}"], None, f"localhost:{cls.port}", "unix:{}/grpc.sock"


if __name__ == "__main__":
    shoal_fixture.main()
