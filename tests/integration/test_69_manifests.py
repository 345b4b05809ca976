# SPDX-License-Identifier: Apache-2.0
"""Folders of manifests (`manifests: DIR`) that nodes apply and watch, and the Secret that their models
are fetched with.

Proves: what files say is in force, and changes with them; a file with a mistake is logged by line and
field, and what it said before serves, also over a restart; a deleted file deletes what it alone
defined, also while the node was down; a change by hand stays, a deletion by hand does not; of two
folders the leader's wins at first sight, and the last change afterwards. Credentials of the Secret are
in use at once, and not told.
ctest: timeout=300
"""

import base64
import json
import os
import unittest

from shoal_ctl import shoalctl
from shoal_fixture import main, wait_until
from shoal_meshes import Etcd, mesh_node
from shoal_pupil import prepare, pupil, said
from shoal_registry import Registrar
from shoal_store import Store


def config_map(name, **data):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def service(name, path="model"):
    return {"apiVersion": "serving.kserve.io/v1beta1", "kind": "InferenceService", "metadata": {"name": name},
            "spec": {"predictor": {"model": {"modelFormat": {"name": "pupil"}, "storage": {"path": path}}}}}


class Folder:
    """The folder of a node that has not started."""

    def __init__(self, shoald):
        self.path = shoald.folder / "manifests"
        self.path.mkdir()

    def write(self, name, *objects):
        self.write_text(name, "\n---\n".join(json.dumps(one) for one in objects))

    def write_text(self, name, text):
        new = self.path / f".{name}.new"
        new.write_text(text)
        new.rename(self.path / name)

    def remove(self, name):
        (self.path / name).unlink()


def get(at, kind, name):
    """The object as a node tells it; None: there is none."""
    listed = shoalctl("get", kind, "-o", "json", "--counters", at.counters).json_lines
    return next((one for one in listed if one["metadata"]["name"] == name), None)


def told(at, name):
    found = get(at, "configmap", name)
    return found["data"] if found else None


def wait_told(at, name, wanted):
    wait_until(lambda: told(at, name) == wanted, lambda: f"{name} to be {wanted}, not {told(at, name)}")


def apply(at, one):
    shoalctl("apply", "-f", "-", "--counters", at.counters, stdin=json.dumps(one).encode())


class TestOneNode(unittest.TestCase):
    def setUp(self):
        self.at = prepare(pupil(), manifests="manifests", mesh={"instance": "me", "store": "file:registry"})
        self.folder = Folder(self.at)

    def test_files_are_followed(self):
        self.folder.write("a.yaml", service("s"), config_map("one", k="1"))
        self.folder.write("b.json", config_map("one", k="other"), config_map("two", k="2"))
        self.folder.write("c.txt", config_map("three"))
        with self.at as at, Registrar(at) as registrar:
            shoalctl("wait", "--for=condition=Ready", "isvc/s", "--counters", at.counters)
            first = said(registrar.infer(metadata=(("mm-vmodel-id", "s"),)))
            wait_told(at, "two", {"k": "2"})
            self.assertEqual(told(at, "one"), {"k": "1"})
            self.assertIsNone(told(at, "three"))
            at.wait_log('manifests_repeated id="ConfigMap/one" file="b.json" in_force="a.yaml"')
            self.assertEqual(get(at, "isvc", "s")["metadata"]["annotations"]["shoal/folder"], "me")

            self.folder.write_text("a.yaml", json.dumps(service("s")) + "\n---\nkind: ConfigMap\napiVersion: v1\n"
                                   "metadata:\n  name: one\nspec: 1\n")
            at.wait_log("manifests_refused")
            self.assertRegex(at.stderr, r'manifests_refused error="[^"]*/manifests/a.yaml:\d: spec: is not a field')
            self.assertEqual(told(at, "one"), {"k": "1"})
            self.folder.write("a.yaml", service("s", path="folder"))
            wait_until(lambda: said(registrar.infer(metadata=(("mm-vmodel-id", "s"),))) != first, "a new model")
            wait_told(at, "one", {"k": "other"})  # the other file has it still
            self.folder.remove("a.yaml")
            wait_until(lambda: get(at, "isvc", "s") is None, "the service to go")

    def test_changes_by_hand(self):
        self.folder.write("a.yaml", config_map("one", k="1"), config_map("two", k="2"))
        with self.at as at:
            wait_told(at, "two", {"k": "2"})
            wait_until(lambda: at.stat()["mesh_manifests"] == 2, "both to be counted")
            shoalctl("delete", "configmap", "one", "--counters", at.counters)
            wait_told(at, "one", {"k": "1"})
            apply(at, config_map("two", k="by hand"))
            self.folder.write("a.yaml", config_map("one", k="3"), config_map("two", k="2"))
            wait_told(at, "one", {"k": "3"})
            self.assertEqual(told(at, "two"), {"k": "by hand"})
            self.folder.remove("a.yaml")
            wait_until(lambda: told(at, "one") is None, "what the file alone has defined to go")
            self.assertEqual(told(at, "two"), {"k": "by hand"})

    def test_links_are_followed(self):
        """As Kubernetes mounts a ConfigMap."""
        for number in ("1", "2"):
            (self.folder.path / f"..{number}").mkdir()
            (self.folder.path / f"..{number}" / "a.yaml").write_text(json.dumps(config_map("one", k=number)))
        os.symlink("..1", self.folder.path / "..data")
        os.symlink("..data/a.yaml", self.folder.path / "a.yaml")
        os.mkfifo(self.folder.path / "b.yaml")  # is none of them, and does not hold up the others
        with self.at as at:
            wait_told(at, "one", {"k": "1"})
            os.symlink("..2", self.folder.path / "..new")
            os.rename(self.folder.path / "..new", self.folder.path / "..data")
            wait_told(at, "one", {"k": "2"})


    def test_a_mistake_at_the_start_deletes_nothing(self):
        self.folder.write("a.yaml", config_map("one", k="1"))
        with self.at as at:
            wait_told(at, "one", {"k": "1"})
            at.terminate()
            self.folder.write_text("a.yaml", "kind: ConfigMap\n")
            self.folder.write("b.yaml", config_map("two", k="2"))
            at.start().wait_ready()
            wait_told(at, "two", {"k": "2"})
            self.folder.write("c.yaml", config_map("three", k="3"))
            wait_told(at, "three", {"k": "3"})
            self.assertEqual(told(at, "one"), {"k": "1"})
            self.folder.remove("a.yaml")
            wait_told(at, "one", None)


class TestCredentials(unittest.TestCase):
    def secret(self, store, key):
        entry = json.dumps(store.entry(key, bucket="models"))
        return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "storage-config"},
                "data": {"default": base64.b64encode(entry.encode()).decode()},
                "stringData": {"default_other": "{}"}}

    def test_a_secret_is_taken_without_a_restart(self):
        store = self.enterContext(Store())
        store.keys = {"AKONE": ("hush-1", None), "AKTWO": ("hush-2", None)}
        store.objects = {"models": {"m/model": b"a model"}}
        at = prepare(pupil(), mesh={"instance": "me"}, models_cache_gib=0.1, models_cache="cache")
        with at, Registrar(at) as registrar:
            def infer(name):
                return said(registrar.infer(metadata=(("mm-vmodel-id", name),)))

            def states():
                found = get(at, "isvc", "s") or {}
                return found.get("status", {}).get("modelStatus", {})

            apply(at, service("s", path="m"))
            wait_until(lambda: "lastFailureInfo" in states(), lambda: f"a failure, not {states()}")
            apply(at, self.secret(store, "AKONE"))
            at.wait_log("storage_entries count=2")
            apply(at, service("t", path="m"))
            shoalctl("wait", "--for=condition=Ready", "isvc/t", "--counters", at.counters)
            self.assertRegex(infer("t"), "^t__isvc-")
            del store.keys["AKONE"]
            apply(at, self.secret(store, "AKTWO"))
            at.wait_log("storage_entries count=2", count=2)
            store.objects["models"]["n/model"] = b"another"
            apply(at, service("t", path="n"))
            wait_until(lambda: any("n/model" in path for path in store.paths()), "the other model to be fetched")
            shoalctl("delete", "secret", "storage-config", "--counters", at.counters)
            at.wait_log("storage_entries count=0", count=2)  # the first is of the start
            self.assertNotRegex(at.stderr, "hush-")


class TestMesh(unittest.TestCase):
    def prepare(self, etcd, name):
        at = mesh_node(etcd, name, manifests="manifests")
        return at, Folder(at)

    def test_two_folders(self):
        etcd = self.enterContext(Etcd())
        (a, of_a), (b, of_b) = self.prepare(etcd, "a"), self.prepare(etcd, "b")
        of_a.write("x.yaml", config_map("x", k="a"), config_map("gone", k="a"), config_map("both", k="same"))
        with a:
            wait_told(a, "x", {"k": "a"})
            with b:
                b.wait_log("mesh_session_begun")  # it follows, and knows it
                of_b.write("x.yaml", config_map("x", k="b"), config_map("both", k="same"))
                b.wait_log('manifests_conflict id="ConfigMap/x" file="x.yaml" in_force="a"')
                self.assertEqual(told(b, "x"), {"k": "a"})
                of_b.write("x.yaml", config_map("x", k="b2"), config_map("both", k="same"))
                wait_told(a, "x", {"k": "b2"})
                a.terminate()
                of_a.write("x.yaml", config_map("x", k="a"))
                wait_until(lambda: etcd.keys("/tas-runtime/test/instances/") == ["b"], "the other node to leave")
                b.wait_log("mesh_leader .*leads=yes")
                a.start().wait_ready()
                wait_until(lambda: told(a, "gone") is None, "what left the folder meanwhile to go")
                a.wait_log("manifests_conflict")
                self.assertEqual(told(a, "x"), {"k": "b2"})
                wait_told(a, "both", {"k": "same"})  # the other folder has it


if __name__ == "__main__":
    main()
