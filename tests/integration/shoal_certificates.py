# SPDX-License-Identifier: Apache-2.0
"""Certificates for tests, real ones (tests/certificates.sh), in a folder that goes with them."""

import pathlib
import shutil
import subprocess
import tempfile

import grpc

from shoal_fixture import SOURCE
from shoal_registry import Registrar

NAME = "node.example"  # what targets that are no names stand for


class Certificates:
    def __init__(self, *authorities):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="shoal-certificates."))
        self.run("authority", *authorities)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.folder)

    def run(self, *arguments):
        done = subprocess.run(["sh", SOURCE / "tests" / "certificates.sh", self.folder,
                               *map(str, arguments)], check=False)
        assert done.returncode == 0, (self.folder / "openssl.log").read_text()

    def sign(self, name, authority, alternative=f"DNS:{NAME},IP:127.0.0.1", days=2):
        self.run("certificate", name, authority, "/", alternative, days)

    def pem(self, name):
        return str(self.folder / f"{name}.pem")

    def key(self, name):
        return str(self.folder / f"{name}.key")

    def lock(self, name, password, *options):
        """The key of that name from now on has a password, which the file NAME.word holds."""
        word = pathlib.Path(self.word(name))
        word.write_text(f"{password}\n")
        subprocess.run(["openssl", "pkey", "-in", self.key(name), "-out", self.key("locked"),
                        *(options or ("-aes256",)), "-passout", f"file:{word}"], check=True)
        pathlib.Path(self.key("locked")).replace(self.key(name))

    def word(self, name):
        return str(self.folder / f"{name}.word")

    def pair(self, name, **more):
        """Of a configuration: `certificate`, `key`, and what else there is, by its file's name."""
        return {"certificate": self.pem(name), "key": self.key(name),
                **{key: self.pem(file) for key, file in more.items()}}

    def credentials(self, authority, name=None):
        """Of a client that trusts the authority, and shows the certificate `name`."""
        def read(path):
            return pathlib.Path(path).read_bytes()
        if name is None:
            return grpc.ssl_channel_credentials(read(self.pem(authority)))
        return grpc.ssl_channel_credentials(read(self.pem(authority)), read(self.key(name)),
                                            read(self.pem(name)))


class SecureRegistrar(Registrar):
    """The same; models are called over TLS."""

    def __init__(self, shoald, credentials):
        super().__init__(shoald, grpc.secure_channel(
            shoald.target, credentials, options=[("grpc.use_local_subchannel_pool", 1),
                                          ("grpc.ssl_target_name_override", NAME)]))
