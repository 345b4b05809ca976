# SPDX-License-Identifier: Apache-2.0
"""Shared by the tests of overload: one daemon for a class of tests, and requests to it."""

import unittest

from shoal_client import Client
from shoal_fixture import WAIT_SECONDS, Shoald, stage


def sluggish(fixed_ms, item_ms=0, sigma=0, name="only", **keys):
    """A stage whose runs take a known time."""
    return stage("libsluggish.so", name, **keys, params={
        "fixed_us": 1000 * fixed_ms, "item_us": 1000 * item_ms, "sigma": sigma})


class Overload(unittest.TestCase):
    """One daemon for the tests of a class; `config` is its own."""

    @classmethod
    def setUpClass(cls):
        cls.shoald = cls.enterClassContext(Shoald(cls.config))
        cls.client = cls.enterClassContext(Client(cls.shoald.target))

    def start(self, model, timeout=WAIT_SECONDS, client=None, metadata=(),
              tensor=("x", "INT64", [1], bytes(8)), **fields):
        client = client or self.client
        request, stub = client.stub("ModelInfer")
        return stub.future(request(**client.infer_fields(model, [tensor], **fields)),
                           timeout=timeout, metadata=metadata)
