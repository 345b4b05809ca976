# SPDX-License-Identifier: Apache-2.0
"""SeaweedFS, which verifies signatures, as the place of a node's models; AWS' own client fills it."""

import json
import os
import pathlib
import socket
import socketserver
import subprocess
import sys
import tempfile
import threading
import unittest
from concurrent.futures import ThreadPoolExecutor

import boto3
import botocore.exceptions
import peers
from boto3.s3.transfer import TransferConfig
from botocore.config import Config

sys.path.insert(0, str(peers.SOURCE / "tests" / "integration"))

import shoal_boosters  # noqa: E402
from shoal_ctl import NEGATIVE, OK, shoalctl  # noqa: E402
from shoal_fixture import Shoald, free_port, node, pipeline, stage, wait_until  # noqa: E402
from shoal_rest import ANY_PORT, port_of  # noqa: E402

WEED = pathlib.Path(sys.executable).parent / "weed"
KEY, SECRET = "AKSHOAL", "s3cr3t/with+signs=="
MIB = 1 << 20
CUT_BYTES = 3 * MIB  # of each connection through the cutter


class Cutter(socketserver.ThreadingTCPServer):
    """Passes connections on to a server, and ends each after so many bytes of answers."""

    daemon_threads = allow_reuse_address = True

    def __init__(self, port):
        self.to, self.cuts = port, 0
        super().__init__(("127.0.0.1", 0), Cut)
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Cut(socketserver.BaseRequestHandler):
    def pass_on(self, server):
        while data := self.request.recv(1 << 16):
            server.sendall(data)

    def handle(self):
        left = CUT_BYTES
        with socket.create_connection(("127.0.0.1", self.server.to)) as server:
            threading.Thread(target=self.ignore_errors, args=(self.pass_on, server), daemon=True).start()
            while left > 0 and (data := server.recv(min(left, 1 << 16))):
                self.request.sendall(data)
                left -= len(data)
            self.server.cuts += left == 0
            server.shutdown(socket.SHUT_RDWR)

    @staticmethod
    def ignore_errors(call, *arguments):
        try:
            call(*arguments)
        except OSError:
            pass


class S3(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory(prefix="shoal-interop.")))
        cls.start_server()
        cls.s3 = boto3.client("s3", endpoint_url=cls.url, aws_access_key_id=KEY, aws_secret_access_key=SECRET,
                              region_name="us-east-1", config=Config(s3={"addressing_style": "path"},
                                                                     max_pool_connections=16))
        wait_until(cls.answers, "SeaweedFS to answer")
        cls.s3.create_bucket(Bucket="models")
        with tempfile.TemporaryDirectory() as folder:
            shoal_boosters.write(pathlib.Path(folder) / "m", 1)
            cls.model = (pathlib.Path(folder) / "m" / "model.json").read_bytes()
        cls.start_node()

    @classmethod
    def start_server(cls):
        (cls.folder / "data").mkdir()
        (cls.folder / "s3.json").write_text(json.dumps({"identities": [
            {"name": "shoal", "credentials": [{"accessKey": KEY, "secretKey": SECRET}],
             "actions": ["Admin", "Read", "List", "Write"]}]}))
        cls.port = free_port()
        cls.url = f"http://127.0.0.1:{cls.port}"
        ports = [f"-{part}.port{kind}={free_port()}" for part in ("master", "volume", "filer")
                 for kind in ("", ".grpc")]
        log = cls.enterClassContext((peers.FOLDER / "weed.log").open("w"))
        server = subprocess.Popen(
            [WEED, "server", f"-dir={cls.folder / 'data'}", "-ip=127.0.0.1",
             "-ip.bind=127.0.0.1", *ports, "-master.telemetry=false", "-filer", "-s3", f"-s3.port={cls.port}",
             f"-s3.port.grpc={free_port()}", "-s3.port.iceberg=0", "-s3.port.lance=0",
             f"-s3.config={cls.folder / 's3.json'}"], stdout=log, stderr=log)
        cls.addClassCleanup(server.wait)
        cls.addClassCleanup(server.kill)

    @classmethod
    def start_node(cls):
        (cls.folder / "config").mkdir()
        (cls.folder / "root").mkdir()
        for name, more in (("mine", {}), ("wrong", {"secret_access_key": "other"}),
                           ("unknown", {"access_key_id": "AKOTHER"})):
            cls.write_entry(name, **more)
        cls.shoald = cls.enterClassContext(Shoald(node(
            pipeline("boosters", stage("libxgboost_modelet.so"), models={
                "root": str(cls.folder / "root"), "memory_mib": 256, "watch": "no", "load_timeout_ms": 120000}),
            http=ANY_PORT, models_cache_gib=1, models_cache=str(cls.folder / "cache"),
            storage_config=str(cls.folder / "config"))))

    @classmethod
    def write_entry(cls, name, **more):
        (cls.folder / "config" / name).write_text(json.dumps(
            {"type": "s3", "access_key_id": KEY, "secret_access_key": SECRET, "endpoint_url": cls.url,
             "region": "us-east-1", "bucket": "models", **more}))

    @classmethod
    def answers(cls):
        try:
            return bool(cls.s3.list_buckets())
        except (botocore.exceptions.ClientError, botocore.exceptions.BotoCoreError):
            return False

    def put(self, objects):
        with ThreadPoolExecutor(16) as pool:
            for done in [pool.submit(self.s3.put_object, Bucket="models", Key=key, Body=data)
                         for key, data in objects.items()]:
                done.result()

    def load(self, name, path, entry="mine", code=OK, **key):
        given = {**({"storage_key": entry} if entry else {}), **key}
        return shoalctl("model", "load", "--counters", self.shoald.counters, name, path, "--key",
                        json.dumps(given), code=code).told

    def unload(self, name):
        shoalctl("model", "unload", "--counters", self.shoald.counters, name)

    def count(self, name):
        self.shoald.wait_published()
        return self.shoald.stat()[name]

    def ask(self, name):
        peers.HTTP = f"127.0.0.1:{port_of(self.shoald)}"
        code, answer = peers.raw_json(f"/v2/models/{name}/infer", {"inputs": [
            {"name": shoal_boosters.INPUT, "datatype": "FP32", "shape": [1, 1], "data": [0]}]})
        self.assertEqual((code, answer["outputs"][0]["data"]), (200, [shoal_boosters.answers(1)[0]]))

    def fetched(self, mark):
        """The files of the one model in the cache that has such a file."""
        model, = (file.parents[len(pathlib.Path(mark).parts) - 1]
                  for file in (self.folder / "cache" / "models").glob(f"*/{mark}"))
        return {str(file.relative_to(model)): file.read_bytes() for file in model.rglob("*") if file.is_file()}

    # ---- checks ----

    def check_a_folder_of_1200_objects(self):
        """keys with space, +, =, ~, UTF-8; a listing of two pages"""
        folder = "a b/+=~&%25/größe/日本"
        files = {f"part {i:04}+a=b~ü/{i}'(x).bin": str(i).encode() for i in range(1199)} | {"model.json": self.model}
        self.put({f"{folder}/{name}": data for name, data in files.items()} | {f"{folder}2/decoy": b"not this"})
        self.assertTrue(self.s3.list_objects_v2(Bucket="models", Prefix=folder + "/")["IsTruncated"])
        self.load("many", folder)
        self.ask("many")
        self.assertTrue(self.fetched("part 0000+a=b~ü/0'(x).bin") == files, "other files, or others' contents")
        self.unload("many")

    def check_a_file_in_several_ranges(self):
        """20 MiB over connections that are cut every 3 MiB; sent to the server in parts, so its ETag is no MD5"""
        weights = os.urandom(20 * MIB)
        self.put({"big/model.json": self.model})
        path = self.folder / "weights"
        path.write_bytes(weights)
        self.s3.upload_file(str(path), "models", "big/weights",
                            Config=TransferConfig(multipart_threshold=MIB, multipart_chunksize=8 * MIB))
        self.assertIn("-", self.s3.head_object(Bucket="models", Key="big/weights")["ETag"])
        with Cutter(self.port) as cutter:
            self.addCleanup(cutter.shutdown)
            self.write_entry("cut", endpoint_url=f"http://127.0.0.1:{cutter.server_address[1]}")
            self.load("big", "big", "cut")
            self.assertGreaterEqual(cutter.cuts, 6)
        self.ask("big")
        self.assertTrue(self.fetched("weights") == {"weights": weights, "model.json": self.model}, "other bytes")
        self.assertEqual(self.count("storage_failed"), 0)
        self.unload("big")

    def check_one_object_and_its_change(self):
        """what did not change is not fetched again"""
        self.put({"one/model.json": self.model})
        self.load("one", "s3://models/one/model.json")
        self.ask("one")
        self.unload("one")
        hits = self.count("storage_hits")
        self.load("one", "s3://models/one/model.json")
        self.assertEqual(self.count("storage_hits"), hits + 1)
        self.unload("one")
        self.put({"one/model.json": self.model + b" "})
        self.load("one", "s3://models/one/model.json")
        self.assertEqual(self.count("storage_hits"), hits + 1)
        self.ask("one")

    def check_refusals(self):
        """a wrong secret, an unknown key, none; no such bucket or object"""
        self.put({"there/model.json": self.model})
        for entry, path, key, said in (
                ("wrong", "there", {}, "403, SignatureDoesNotMatch"),
                ("unknown", "there", {}, "403, InvalidAccessKeyId"),
                (None, "s3://models/there", {"storage_params": {"endpoint_url": self.url}}, "403, AccessDenied"),
                ("mine", "there", {"bucket": "absent"}, "404, NoSuchBucket"),
                ("mine", "absent", {}, "there is no file")):
            with self.subTest(said):
                told = self.load("refused", path, entry, NEGATIVE, **key)
                self.assertIn(said, told)
                self.assertNotIn(SECRET, told)


if __name__ == "__main__":
    peers.main()
