# SPDX-License-Identifier: Apache-2.0
"""`shoald --check` reads the JSON files that `mesh` names as a start would: a mistake in any of them
is told with the key, the file and the reason, all of them at once, and nothing is connected to. An
encrypted key is refused before anything could ask for its password. With `fail_fast` a node ends whose
etcd cannot be reached at its start, and only then."""

import json
import pathlib
import subprocess
import tempfile
import unittest

from shoal_fixture import BIN, WAIT_SECONDS, Shoald, free_port, main, node
from shoal_meshes import Etcd, mesh_node
from shoal_pupil import pupil

GOOD = {
    "store.json": json.dumps({"endpoints": f"http://127.0.0.1:{free_port()}"}),  # nobody is there
    "types.json": '{"t": {"required": ["l"]}}',
    "dataplane.json": '{"rpcConfigs": {"x.Y/Z": {"idExtractionPath": [1]}}}',
    "listed.json": '[{"modelId": "m", "modelInfo": {"type": "t"}}]',
}
BAD = {
    "store.json": ('{"endpoints": 1}', "mesh: store: ", '"endpoints" must be a string'),
    "types.json": ('{"t": {"required": 1}}', "mesh: type_constraints: ", ""),
    "dataplane.json": ('{"rpcConfigs": 1}', "mesh: dataplane: ", "expected an object, not a number"),
    "listed.json": ("[{}]", "mesh: register: ", "entry 1: modelId: must be given"),
}


class TestCheck(unittest.TestCase):
    def check(self, files, args=("--check",)):
        """Exit code and what was printed, with these files; None: there is none of that name."""
        config = node(pupil(), mesh={
            "instance": "one", "address": "127.0.0.1", "store": "etcd:./store.json", "type_constraints": "types.json",
            "dataplane": "dataplane.json", "register": "listed.json"})
        config["pipelines"][0]["models"]["root"] = "."
        shoald = Shoald(config, args)
        try:
            for name, text in files.items():
                if text is not None:
                    (shoald.folder / name).write_text(text)
            code = shoald.start().wait_exit()
            shoald.check_log()
            return code, shoald.stderr, shoald.folder
        finally:
            shoald.discard()

    def test_good_files(self):
        code, said, _ = self.check(GOOD)
        self.assertEqual(code, 0, said)
        self.assertIn("configuration is good", said)

    def test_every_mistake_at_once(self):
        code, said, folder = self.check({name: text for name, (text, *_) in BAD.items()})
        self.assertEqual(code, 2, said)
        for name, (_, key, why) in BAD.items():
            line, = (line for line in said.splitlines() if name in line)
            self.assertRegex(line, f"^shoald: {key}{folder}/(./)?{name}: .*")
            self.assertIn(why, line)

    def test_each_must_be_json_and_there(self):
        for name in GOOD:
            for text in (None, "{"):
                with self.subTest(name, text=text):
                    code, said, _ = self.check({**GOOD, name: text})
                    self.assertEqual(code, 2, said)
                    line, = said.splitlines()
                    self.assertRegex(line, f"{name}: " + ("it cannot be opened: No such file" if text is None else ""))

    def test_encrypted_key_for_etcd(self):
        """Nobody is asked for the password, neither by --check nor by a start."""
        def key(*options):
            return subprocess.run(["openssl", "genrsa", *options, "2048"], check=True, text=True,
                                  capture_output=True).stdout
        pkcs8, old = key("-aes128", "-passout", "pass:secret"), key("-aes128", "-passout", "pass:secret",
                                                                    "-traditional")
        place = {"endpoints": "https://127.0.0.1:1", "client_certificate": "-"}
        for text in (pkcs8, old):
            for args in ((), ["--check"]):
                with self.subTest(text.splitlines()[0], args=args):
                    code, said, folder = self.check(
                        {**GOOD, "key.pem": text,
                         "store.json": json.dumps({**place, "client_key_file": "key.pem"})}, args)
                    self.assertEqual(code, 2, said)
                    self.assertRegex(said, f'mesh: store: .*"client_key_file": {folder}/(./)?key.pem: the key '
                                     'is encrypted: name a file with its password, "client_key_password_file"')
            for word, words in (({}, 'the key is encrypted: name a file with its password'),
                                ({"word": "wrong"}, "word does not open it"), ({"word": "\n"}, "no password in it"),
                                ({"word": "x" * 1024}, "at most 1023 bytes")):
                with self.subTest(word=word):
                    code, said, _ = self.check({**GOOD, **word, "store.json": json.dumps(
                        {**place, "client_key": text, **({"client_key_password_file": "word"} if word else {})})})
                    self.assertEqual(code, 2, said)
                    self.assertRegex(said, f'"client_key": .*{words}')

    def test_encrypted_key_for_shoalctl(self):
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-passout", "pass:secret", "-subj", "/CN=x",
                        "-keyout", folder / "key.pem", "-out", folder / "cert.pem"], check=True, capture_output=True)
        done = subprocess.run([BIN / "shoalctl", "infer", "m", "--input", "x=INT8[1]:1", "--target", "127.0.0.1:1",
                               "--tls-ca", folder / "cert.pem", "--tls-cert", folder / "cert.pem",
                               "--tls-key", folder / "key.pem"],
                              capture_output=True, text=True, timeout=WAIT_SECONDS, start_new_session=True)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn(f"{folder}/key.pem: the key has a password: set --tls-key-password-file", done.stderr)


class TestFailFast(unittest.TestCase):
    def node(self, etcd):
        node = mesh_node(etcd, "node-a", mesh={"fail_fast": "yes"})
        self.addCleanup(node.discard)
        return node.start()

    def test_ends_without_etcd(self):
        etcd = Etcd()
        self.addCleanup(etcd.__exit__)
        node = self.node(etcd)
        self.assertEqual(node.wait_exit(), 2, node.stderr)
        self.assertRegex(node.stderr, "shoald: mesh: store: etcd was not reached within 4 s: "
                                      f".*127.0.0.1:{etcd.port}")
        self.assertNotIn("ready pipelines=", node.stderr)
        node.check_nothing_left()
        node.check_log()

    def test_stays_once_it_has_reached_etcd(self):
        etcd = Etcd()
        self.addCleanup(etcd.__exit__)
        etcd.start()
        node = self.node(etcd).wait_ready()
        etcd.stop()
        node.wait_log("mesh_store_trouble", 2)  # at most one in 10 s
        node.check_still_runs()
        self.assertEqual(node.terminate(), 0, node.stderr)
        node.check_log()


if __name__ == "__main__":
    main()
