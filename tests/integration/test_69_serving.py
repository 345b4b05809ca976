# SPDX-License-Identifier: Apache-2.0
"""Manifests of ModelMesh Serving, applied with shoalctl to real nodes with the pupil's models.

Proves: an InferenceService becomes a vmodel that answers, moves when it changes, serves on when its
new model does not load, comes back when the change is taken back, and goes when it is deleted; its
status has the controller's words, and the documents' texts when nothing fits; a change that another
one overtook is refused; values of secrets are nowhere; a leader killed amid 2,000 services loses
nothing, and nothing is done twice. ctest: timeout=300
"""

import json
import re
import signal
import subprocess
import tempfile
import time
import unittest

import grpc

from shoal_client import failure
from shoal_contract import STRING, U64, File
from shoal_ctl import LATE, NEGATIVE, USAGE, environment, shoalctl
from shoal_fixture import BIN, WAIT_SECONDS, main, sanitized, wait_until
from shoal_meshes import Etcd, Nodes
from shoal_pupil import prepare, pupil, said
from shoal_registry import Registrar


def service(name, path="model", form="pupil", **more):
    return {"apiVersion": "serving.kserve.io/v1beta1", "kind": "InferenceService",
            "metadata": {"name": name, "annotations": {"serving.kserve.io/deploymentMode": "ModelMesh"}},
            "spec": {"predictor": {"model": {"modelFormat": {"name": form}, "storage": {"path": path},
                                             **more}}}}


def predictor(name, form="pupil"):
    return {"apiVersion": "serving.kserve.io/v1alpha1", "kind": "Predictor", "metadata": {"name": name},
            "spec": {"modelType": {"name": form}, "storage": {"path": "model"}}}


def runtime(name, *formats, **more):
    return {"apiVersion": "serving.kserve.io/v1alpha1", "kind": "ServingRuntime", "metadata": {"name": name},
            "spec": {"supportedModelFormats": list(formats), "multiModel": True,
                     "containers": [{"name": "model-server", "image": "samplemodelserver:latest"}], **more}}


def config_map(name, **data):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def text_of(manifests):
    return "\n---\n".join(map(json.dumps, manifests)).encode()


MESSAGES = File("shoal.manifests", {
    "PutRequest": [("manifest", 1, STRING), ("version", 2, U64)],
    "Done": [("version", 1, U64), ("done", 2, STRING)],
}).classes()


def start_put(channel, manifest, version):
    """A change by a caller that has seen this version, as a future."""
    put = channel.unary_unary("/shoal.manifests.Manifests/put",
                              request_serializer=MESSAGES["PutRequest"].SerializeToString,
                              response_deserializer=MESSAGES["Done"].FromString)
    return put.future(MESSAGES["PutRequest"](manifest=json.dumps(manifest), version=version),
                      timeout=WAIT_SECONDS)


class Case(unittest.TestCase):
    """`self.at`: the node that is asked."""

    def ctl(self, verb, *arguments, **options):
        return shoalctl(verb, *arguments, "--counters", self.at.counters, **options)

    def apply(self, *manifests, **options):
        return self.ctl("apply", "-f", "-", stdin=text_of(manifests), **options)

    def get(self, kind, name):
        return self.ctl("get", kind, name, "-o", "json").json

    def told(self, name):
        return self.get("isvc", name).get("status", {}).get("modelStatus", {})

    def wait_told(self, name, **wanted):
        def look():
            told = self.told(name)
            flat = {**told, **told.get("states", {}), **told.get("lastFailureInfo", {})}
            return told if all(flat.get(key) == value for key, value in wanted.items()) else None
        return wait_until(look, lambda: f"{name} to be {wanted}, not {self.told(name)}")

    def remove(self, kind, name):
        self.ctl("delete", kind, name)
        self.ctl("wait", "--for=delete", f"{kind}/{name}")

    def wait_ready(self, name):
        self.ctl("wait", "--for=condition=Ready", f"isvc/{name}")


class TestOneNode(Case):
    @classmethod
    def setUpClass(cls):
        cls.at = prepare(pupil(), mesh={"instance": "the-node"})
        cls.enterClassContext(cls.at)
        cls.registrar = cls.enterClassContext(Registrar(cls.at))

    def infer(self, vmodel):
        return said(self.registrar.infer(metadata=(("mm-vmodel-id", vmodel),)))

    def test_the_life_of_a_service(self):
        self.assertEqual(self.apply(service("life")).out,
                         "inferenceservice.serving.kserve.io/life created\n")
        self.wait_ready("life")
        first = self.infer("life")
        self.assertRegex(first, r"^life__isvc-[0-9a-f]{10}$")
        self.assertRegex(self.ctl("get", "isvc").out,
                         r"(?m)^ +NAME +URL +READY +PREV +LATEST +PREVROLLEDOUTREVISION +LATESTREADYREVISION +AGE"
                         r"[^\n]*\n(.*\n)* +life +True +\d+s")
        self.assertEqual(self.apply(service("life")).out,
                         "inferenceservice.serving.kserve.io/life unchanged\n")

        self.assertEqual(self.apply(service("life", path="folder")).out,
                         "inferenceservice.serving.kserve.io/life configured\n")
        self.wait_ready("life")
        wait_until(lambda: self.infer("life") != first, "the vmodel to move")
        second = self.infer("life")

        self.apply(service("life", path="missing"))
        told = self.wait_told("life", transitionStatus="BlockedByFailedLoad", reason="ModelLoadFailed",
                              activeModelState="Loaded", targetModelState="FailedToLoad")
        self.assertIn("missing", told["lastFailureInfo"]["message"])
        self.assertEqual(told["lastFailureInfo"]["location"], "the-node")
        self.assertEqual(self.infer("life"), second)
        self.assertRegex(self.ctl("describe", "isvc", "life").out,
                         r"(?s)transitionStatus:  BlockedByFailedLoad.*Events:\n.*"
                         r"Warning +ModelLoadFailed +\d{4}-")

        self.apply(service("life", path="folder"))
        self.wait_told("life", transitionStatus="UpToDate", activeModelState="Loaded", targetModelState="")
        self.assertEqual(self.infer("life"), second)

        self.assertEqual(self.ctl("delete", "isvc", "life").out,
                         "inferenceservice.serving.kserve.io/life deleted\n")
        self.ctl("wait", "--for=delete", "isvc/life")
        code, _ = failure(self.registrar.start_infer(metadata=(("mm-vmodel-id", "life"),)))
        self.assertEqual(code, grpc.StatusCode.NOT_FOUND)
        self.ctl("delete", "isvc", "life", code=NEGATIVE)
        self.assertEqual(self.registrar.status(second).status, self.registrar.status("none").status)

    def test_nothing_fits(self):
        for kind, name in (("isvc", "fits-not"), ("predictor", "fits-neither"),
                           ("servingruntime", "example-runtime")):
            self.addCleanup(self.remove, kind, name)
        self.apply(runtime("example-runtime", {"name": "new-modelformat"}))
        self.apply(service("fits-not", form="new-modelformat"), predictor("fits-neither", "new-modelformat"))
        told = self.wait_told("fits-not", reason="NoSupportingRuntime", activeModelState="FailedToLoad")
        self.assertEqual(told["lastFailureInfo"]["message"],
                         "No ServingRuntime supports specified model type and/or protocol")
        status = wait_until(lambda: self.get("predictor", "fits-neither")["status"].get("lastFailureInfo"),
                            "the predictor's failure")
        self.assertEqual(status["message"], "No ServingRuntime supports specified model type")
        self.assertRegex(self.ctl("get", "predictor", "fits-neither").out,
                         r"(?m)^ +fits-neither +new-modelformat +false +FailedToLoad +UpToDate +\d+s")
        self.ctl("wait", "--for=condition=Ready", "isvc/fits-not", "--timeout-ms", "300", code=LATE)

        self.apply(service("fits-not", form="new-modelformat", runtime="no-such"))
        self.wait_told("fits-not", reason="RuntimeNotRecognized",
                       message="Specified runtime name not recognized")
        # A runtime that no node has been started for: the model waits, in the words of the mesh.
        self.apply(service("fits-not", form="new-modelformat", runtime="example-runtime"))
        self.wait_told("fits-not", reason="RuntimeUnhealthy", activeModelState="Loading",
                       message="Waiting for supporting runtime Pod to become available")

    def test_two_runtimes_of_one_name(self):
        """A service that names a runtime gets the ServingRuntime, not the ClusterServingRuntime."""
        for kind, name in (("isvc", "names"), ("clusterservingruntime", "shared")):
            self.addCleanup(self.remove, kind, name)
        form = {"name": "shared-format"}
        self.apply({**runtime("shared", form), "kind": "ClusterServingRuntime"},
                   runtime("shared", form, disabled=True),
                   service("names", form="shared-format", runtime="shared"))
        self.wait_told("names", reason="RuntimeDisabled")
        self.remove("servingruntime", "shared")
        self.wait_told("names", reason="RuntimeUnhealthy")  # no node runs the one that is left

    def test_two_kinds_of_one_name(self):
        self.apply(service("twice"))
        self.wait_ready("twice")
        self.apply(predictor("twice"))
        status = wait_until(lambda: self.get("predictor", "twice").get("status", {}).get("lastFailureInfo"),
                            "the predictor's failure")
        self.assertEqual((status["reason"], status["message"]),
                         ("InvalidPredictorSpec",
                          "Predictor already exists with the same name from a different source"))
        self.remove("predictor", "twice")
        self.assertRegex(self.infer("twice"), "^twice__isvc-")
        self.remove("isvc", "twice")

    def test_secrets_are_not_shown(self):
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "storage-config"},
                  "stringData": {"minio": '{"secret_access_key": "hush-hush"}'}}
        self.assertEqual(self.apply(secret).out, "secret/storage-config created\n")
        self.assertEqual(self.apply(secret).out, "secret/storage-config unchanged\n")
        self.assertRegex(self.ctl("get", "secret").out, r"(?m)^ +storage-config +1 +\d+s")
        for told in (self.ctl("get", "secret", "storage-config", "-o", "json"),
                     self.ctl("describe", "secret", "storage-config"), self.at.stderr):
            self.assertNotIn("hush-hush", getattr(told, "out", told))
        secret["stringData"]["minio"] = "{}"
        self.assertEqual(self.apply(secret).out, "secret/storage-config configured\n")
        self.ctl("delete", "secret", "storage-config")

    def test_the_url_is_that_of_the_configuration(self):
        self.addCleanup(self.remove, "isvc", "reached")
        self.addCleanup(self.ctl, "delete", "configmap", "model-serving-config")
        self.apply(service("reached"))
        self.wait_ready("reached")
        self.assertNotIn("url", self.get("isvc", "reached")["status"])
        self.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "model-serving-config"},
                    "data": {"config.yaml": "podsPerRuntime: 1\ninferenceServiceName: models.example\n"}})
        wait_until(lambda: self.get("isvc", "reached")["status"].get("url") == "grpc://models.example:8033",
                   "the URL")
        self.assertRegex(self.ctl("get", "isvc", "reached").out, r"reached +grpc://models.example:8033 +True")

    def test_a_change_of_another_version_is_refused(self):
        first, second = (service("stale", path=path) for path in ("model", "folder"))
        with grpc.insecure_channel(self.at.management) as channel:
            def check_aborted(manifest, version, present):
                code, told = failure(start_put(channel, manifest, version))
                self.assertEqual(code, grpc.StatusCode.ABORTED, told)
                self.assertIn(f"its version is {present}, not {version}: it was changed meanwhile", told)
            check_aborted(first, 7, 0)
            created = start_put(channel, first, 0).result()
            configured = start_put(channel, second, created.version).result()
            self.assertEqual((created.done, configured.done), ("created", "configured"))
            for version in (0, created.version, configured.version + 1):
                check_aborted(first, version, configured.version)
            found = self.get("isvc", "stale")
            self.assertEqual(found["spec"], second["spec"])
            self.assertEqual(found["metadata"]["resourceVersion"], str(configured.version))
            again = start_put(channel, second, configured.version).result()
            self.assertEqual((again.done, again.version), ("unchanged", configured.version))
        self.remove("isvc", "stale")

    def test_a_nul_does_not_cut_a_manifest(self):
        text = (json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "cut"}}) + "\0more").encode()
        with grpc.insecure_channel(self.at.management) as channel:
            put = channel.unary_unary("/shoal.manifests.Manifests/put")
            code, told = failure(put.future(b"\x0a" + bytes([len(text)]) + text, timeout=60))
        self.assertEqual(code, grpc.StatusCode.INVALID_ARGUMENT)
        self.assertIn("NUL byte", told)

    def test_differences(self):
        one = runtime("differs", {"name": "f"})
        text = json.dumps(one).encode()
        self.assertRegex(self.ctl("diff", "-f", "-", stdin=text, code=NEGATIVE).out,
                         r"(?s)^servingruntime.serving.kserve.io/differs\n.*\+ spec.multiModel: true\n")
        self.apply(one)
        self.assertEqual(self.ctl("diff", "-f", "-", stdin=text).out, "")
        one["spec"]["disabled"] = True
        self.assertEqual(self.ctl("diff", "-f", "-", stdin=json.dumps(one).encode(), code=NEGATIVE).out,
                         "servingruntime.serving.kserve.io/differs\n+ spec.disabled: true\n")
        self.ctl("delete", "-f", "-", stdin=text)

    def test_texts_do_not_steer_the_terminal(self):
        steers = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "steers"},
                  "data": {"seven": "\x1b]0;title\x07", "eight": "\u009b2J", "plain": "h\u00e9"}}
        self.apply(steers)
        told = self.ctl("describe", "configmap", "steers").out
        self.assertNotRegex(told, "[\x00-\x09\x0b-\x1f\x7f-\x9f]")
        self.assertRegex(told, r"plain:  h\u00e9\n")
        self.ctl("delete", "configmap", "steers")
        self.apply(service("steers", path="missing\x1b[2J"))
        self.wait_told("steers", reason="ModelLoadFailed")
        told = self.ctl("describe", "isvc", "steers").out
        self.assertIn("missing?[2J", told)
        self.assertNotIn("\x1b", told)
        self.remove("isvc", "steers")

    def test_mistakes(self):
        wrong = service("wrong")
        wrong["spec"]["predictor"]["minReplicas"] = 1
        told = self.apply(service("right"), wrong, code=NEGATIVE)
        self.assertRegex(told.err, r"stdin:\d+: spec.predictor.minReplicas: is not supported: ")
        self.ctl("get", "isvc", "right", code=NEGATIVE)
        self.ctl("get", "pod", code=USAGE)
        self.ctl("wait", "isvc/right", code=USAGE)
        self.ctl("delete", "isvc", code=USAGE)


class TestLeader(Case):
    COUNT = 30
    MANY = 500 if sanitized() else 2000
    LONG_SECONDS = 2 * WAIT_SECONDS  # for many steps, one after the other

    def setUp(self):
        self.etcd = self.enterContext(Etcd())
        self.nodes = self.enterContext(Nodes(self.etcd, ["node-a", "node-b", "node-c"]))

    def leader(self):
        def look():
            for name, node in self.nodes.nodes.items():
                if re.findall(r"mesh_leader [^\n]*leads=(\w+)", node.stderr)[-1:] == ["yes"]:
                    return name
            return None
        return wait_until(look, "a leader")

    def of_area(self, area):
        return self.etcd.keys(f"/tas-runtime/test/{area}/")

    def test_records_of_others(self):
        """A record that is no manifest, or has a longer name than one may have, is left alone; the status
        of none goes, however long its name."""
        self.leader()
        keys = [f"InferenceService/{name}" for name in ("x" * (1024 - 24), "short")]
        long = "y" * (1024 - 17)  # as long as a key may be: with its status it is longer
        others = [f"InferenceService/{name}" for name in ("other", long)]
        self.etcd.put(f"/tas-runtime/test/manifests/{others[0]}", "not ours")
        self.etcd.put(f"/tas-runtime/test/manifests/{others[1]}",
                      '{"created_ms":1,"deleted":false,"manifest":%s}' % json.dumps(service(long)))
        for key in keys:
            self.etcd.put(f"/tas-runtime/test/manifests/{key}/status", "{}")
        wait_until(lambda: self.of_area("manifests") == others,
                   lambda: f"only what is not ours, not {self.of_area('manifests')}")
        for node in self.nodes.nodes.values():
            for key in others:
                node.wait_log(f'serving_record_skipped id="{key}')

    def config_maps(self):
        """As each node shows them: names, versions and data."""
        return [[(one["metadata"]["name"], one["metadata"]["resourceVersion"], one["data"])
                 for one in shoalctl("get", "configmap", "-o", "json", "--counters", node.counters).json_lines]
                for node in self.nodes.nodes.values()]

    def test_of_changes_at_once_one_is_made(self):
        """Each node is asked for another change of the same version."""
        channels = {name: self.enterContext(grpc.insecure_channel(node.management))
                    for name, node in self.nodes.nodes.items()}
        version = 0
        for turn in range(10):
            calls = {name: start_put(channel, config_map("contested", by=name, turn=str(turn)), version)
                     for name, channel in channels.items()}
            made = [name for name, call in calls.items() if call.exception() is None]
            self.assertEqual(len(made), 1, calls)
            for name in set(calls) - set(made):
                code, told = failure(calls[name])
                self.assertEqual(code, grpc.StatusCode.ABORTED, told)
                self.assertIn("it was changed meanwhile", told)
            version = calls[made[0]].result().version
            wanted = [("contested", str(version), {"by": made[0], "turn": str(turn)})]
            wait_until(lambda wanted=wanted: self.config_maps() == [wanted] * 3,
                       lambda wanted=wanted: f"{wanted}, not {self.config_maps()}")

    def start_apply(self, *manifests):
        """A process, which is given its manifests by a file."""
        with tempfile.TemporaryFile() as file:
            file.write(text_of(manifests))
            file.seek(0)
            return subprocess.Popen([BIN / "shoalctl", "apply", "-f", "-", "--counters", self.at.counters,
                                     "--timeout-ms", str(self.LONG_SECONDS * 1000)],
                                    stdin=file, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment())

    def test_of_two_applies_at_once_one_changes_an_object(self):
        """The first has listed the objects, and is stopped. Usually it has not come to its last one yet, which
        the second creates; else the second changes it."""
        self.at = self.nodes["node-a"]
        first = self.start_apply(*(config_map(f"c{i}") for i in range(500)), config_map("last", by="first"))
        self.addCleanup(first.kill)
        wait_until(lambda: self.of_area("manifests"), "the first to begin")
        first.send_signal(signal.SIGSTOP)
        self.at = self.nodes["node-b"]
        done = self.apply(config_map("last", by="second")).out
        first.send_signal(signal.SIGCONT)
        out, err = first.communicate(timeout=WAIT_SECONDS)
        self.assertIn('{"by":"second"}', self.etcd.get("/tas-runtime/test/manifests/ConfigMap/last"))
        self.assertEqual(out.count(b" created\n"), 501 if "configured" in done else 500)
        if "configured" in done:
            self.assertEqual((first.returncode, err), (0, b""))
        else:
            self.assertEqual(first.returncode, NEGATIVE)
            self.assertRegex(err, rb"^shoalctl: configmap/last: ABORTED: [^\n]*it was changed meanwhile[^\n]*\n$")

    def ready(self):
        """The names of the services that are."""
        return {one["metadata"]["name"] for one in self.ctl("get", "isvc", "-o", "json").json_lines
                for condition in one.get("status", {}).get("conditions", [])
                if (condition["type"], condition["status"]) == ("Ready", "True")}

    def test_the_leader_is_killed_midway(self):
        """Each service has its vmodel, written once, and its model, and there is no other one."""
        leader = self.leader()
        others = [name for name in self.nodes.nodes if name != leader]
        names = [f"s{i}" for i in range(self.MANY)]
        services = [service(name) for name in names]
        self.at = self.nodes[others[0]]
        valid = self.ctl("apply", "--dry-run", "-f", "-", stdin=text_of(services)).out
        models = re.findall(r"(?m)^  model (\S+)$", valid)
        began = time.monotonic()
        apply = self.start_apply(*services)
        self.addCleanup(apply.kill)
        wait_until(lambda: len(self.of_area("vmodels")) >= self.MANY / 20, "vmodels")
        self.nodes[leader].kill()
        count = len(self.of_area("vmodels"))
        self.assertLess(count, self.MANY * 19 / 20)
        self.etcd.expire(leader)
        out, err = apply.communicate(timeout=self.LONG_SECONDS)
        self.assertEqual((apply.returncode, err, out.count(b" created\n")), (0, b"", self.MANY))
        self.at = self.nodes[others[1]]
        wait_until(lambda: self.ready() == set(names), lambda: f"all to be Ready, not {self.ready()}",
                   self.LONG_SECONDS)
        print(f"{self.MANY} services are Ready {time.monotonic() - began:.1f} s after apply; the leader was killed "
              f"when {count} had a vmodel", flush=True)
        vmodels = self.etcd.records("/tas-runtime/test/vmodels/")
        self.assertEqual(set(vmodels), set(names))
        self.assertEqual([name for name, one in vmodels.items()
                          if one["version"] != "1" or one["create_revision"] != one["mod_revision"]], [])
        self.assertEqual(sorted(self.of_area("registry")), sorted(models))
        for name in names[::self.MANY // 20]:
            self.assertRegex(said(self.nodes.at(others[0]).infer(metadata=(("mm-vmodel-id", name),))),
                             f"^{name}__isvc-")

        self.ctl("delete", "-f", "-", stdin=text_of(services[:self.COUNT]))
        left = set(names[self.COUNT:])
        wait_until(lambda: set(self.of_area("vmodels")) == left, "the deleted services' vmodels to go")
        wait_until(lambda: self.ready() == left, "the deleted services to go")
        wait_until(lambda: set(self.of_area("registry")) == set(models[self.COUNT:]), "their models to go")

    def conditions(self, names):
        """With their times; copies may come and go."""
        return {name: self.get("isvc", name)["status"]["conditions"] for name in names}

    def test_a_leader_that_returns_overwrites_nothing(self):
        """It was stopped amid its work, another took over, and its writes under way come late."""
        leader = self.leader()
        others = [name for name in self.nodes.nodes if name != leader]
        self.at = self.nodes[others[0]]
        names = [f"s{i}" for i in range(self.COUNT)]
        self.apply(*(service(name) for name in names))
        stopped = self.nodes[leader]
        stopped.signal(signal.SIGSTOP)
        self.addCleanup(stopped.signal, signal.SIGCONT)
        self.etcd.expire(leader)
        self.apply(*(service(name, path="folder") for name in names[:5]))
        for name in names:
            self.wait_ready(name)
        written = self.conditions(names)
        places = self.of_area("vmodels"), self.of_area("registry")
        stopped.signal(signal.SIGCONT)
        stopped.wait_log(r"mesh_leader [^\n]*leads=no")
        stopped.wait_log("mesh_session_begun", count=2)
        self.assertEqual(self.conditions(names), written)
        self.assertEqual((self.of_area("vmodels"), self.of_area("registry")), places)


if __name__ == "__main__":
    main()
