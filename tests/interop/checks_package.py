# SPDX-License-Identifier: Apache-2.0
"""The Python client, installed by pip as its README says, beside the newest gRPC and NumPy."""

import asyncio
import subprocess
import sys
import unittest

import numpy as np
import peers

IMAGES, _ = peers.digits()


class Package(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        """Builds in a copy: a build writes beside the sources."""
        copy = peers.FOLDER / "python"
        subprocess.run(["cp", "-r", peers.SOURCE / "clients" / "python", copy], check=True)
        subprocess.run([sys.executable, "-m", "pip", "install", "--disable-pip-version-check",
                        "--force-reinstall", "--no-deps", copy], check=True, timeout=300)
        subprocess.run([sys.executable, "-m", "pip", "check"], check=True, timeout=peers.SECONDS)

    def check_installed(self):
        import shoal
        self.assertIn("site-packages", shoal.__file__)

    def check_digits(self):
        import shoal
        labels, probabilities = peers.digits_answer(IMAGES)
        with shoal.Client(peers.GRPC) as client:
            got = client.infer("digits", IMAGES)
        np.testing.assert_array_equal(got["label"].reshape(-1), labels)
        np.testing.assert_allclose(got["probabilities"].reshape(-1), probabilities, rtol=1e-6)

    def check_every_datatype(self):
        import shoal
        with shoal.Client(peers.GRPC) as client:
            for code in ("?", "u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f4", ">f8"):
                for shape in ((), (0,), (2, 3)):
                    array = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(code)
                    np.testing.assert_array_equal(client.infer("echo", array), array)
            self.assertEqual(client.infer("echo", ["ä", b"\0"]).tolist(), ["ä".encode(), b"\0"])

    def check_asyncio_cancelled(self):
        import shoal

        async def run():
            async with shoal.AsyncClient(peers.GRPC) as client:
                with self.assertRaises(TimeoutError):
                    async with asyncio.timeout(0.5):
                        await client.infer("puppet", "linger package")
                self.assertEqual((await client.infer("echo", [1])).tolist(), [1])
        asyncio.run(run())

    def check_errors(self):
        import shoal
        with shoal.Client(peers.GRPC) as client:
            with self.assertRaises(shoal.NotFound):
                client.infer("nobody", [1])
            with self.assertRaises(shoal.DeadlineExceeded):
                client.infer("puppet", "linger errors", timeout=0.3)
        with shoal.Client("127.0.0.1:1") as client, self.assertRaises(shoal.Unavailable):
            client.infer("echo", [1])


if __name__ == "__main__":
    peers.main()
