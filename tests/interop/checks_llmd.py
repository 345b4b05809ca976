# SPDX-License-Identifier: Apache-2.0
"""llm-d's simulator of vLLM, the program that $SHOAL_LLMD_SIM names, behind the gateway: adapters that
one server has, answers that echo the question, and a killed server."""

import json
import os
import re
import subprocess
import sys
import unittest
import urllib.request

import openai
import peers

sys.path.insert(0, str(peers.SOURCE / "tests" / "integration"))

from shoal_fixture import free_port, wait_until  # noqa: E402
from test_97_gateway import Gateway  # noqa: E402

SIMULATOR = os.environ.get("SHOAL_LLMD_SIM", "")
TEXT = "How many fish are in a shoal?"


class Simulator:
    """One server. The gateway's fixture needs `name`, `port` and `keys`."""

    keys = {}

    def __init__(self, name, adapter):
        self.name, self.port, self.adapter = name, free_port(), adapter
        with open(peers.FOLDER / f"{name}.log", "w") as log:
            self.process = subprocess.Popen(
                [SIMULATOR, "--model", "base", "--port", str(self.port), "--mode", "echo", "--max-loras", "2",
                 "--force-dummy-tokenizer",  # those of known models would have to be fetched
                 "--lora-modules", json.dumps({"name": adapter, "path": f"/{adapter}"})],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def load(self, adapter):
        body = json.dumps({"lora_name": adapter, "lora_path": f"/{adapter}"}).encode()
        urllib.request.urlopen(urllib.request.Request(
            f"http://127.0.0.1:{self.port}/v1/load_lora_adapter", body, {"Content-Type": "application/json"}),
            timeout=peers.SECONDS).close()

    def stop(self):
        self.process.kill()
        self.process.wait()


@unittest.skipUnless(SIMULATOR, "$SHOAL_LLMD_SIM names no program")
class LLMD(unittest.TestCase):
    def setUp(self):
        self.asked = 0
        self.servers = [Simulator("one", "red"), Simulator("two", "blue")]
        for server in self.servers:
            self.addCleanup(server.stop)
        self.gateway = Gateway(self.servers, access_log=1)
        self.addCleanup(self.gateway.close)
        self.gateway.wait_up(*self.servers)
        self.client = openai.OpenAI(base_url=f"http://127.0.0.1:{self.gateway.port}/v1", api_key="none",
                                    max_retries=0, timeout=peers.SECONDS)
        self.addCleanup(self.client.close)
        self.wait_models({"base", "red", "blue"})

    def wait_models(self, names):
        wait_until(lambda: {model.id for model in self.client.models.list().data} == names,
                   f"the models {names}")

    def ask(self, model, text=TEXT):
        """The name of the server that echoed it, by the gateway's log."""
        self.asked += 1
        answer = self.client.chat.completions.create(
            model=model, messages=[{"role": "user", "content": text}],
            extra_headers={"x-request-id": f"ask-{self.asked}"})
        self.assertEqual(answer.choices[0].message.content, text)
        line = rf'call id="?ask-{self.asked}"? .* endpoint="(\w+)"'
        return wait_until(lambda: re.search(line, self.gateway.read_log()), line)[1]

    def finds(self, model):
        """Whether each of some calls is answered: catalogues are read now and then."""
        try:
            return all(self.ask(model) for _ in range(8))
        except openai.NotFoundError:
            return False

    def check_adapters(self):
        """each call reaches the server that has its adapter"""
        for number in range(20):
            for server in self.servers:
                self.assertEqual(self.ask(server.adapter, f"{TEXT} {number}"), server.name)

    def check_a_new_adapter(self):
        """loaded by vLLM's own route, it is found and called there"""
        self.servers[1].load("green")
        self.wait_models({"base", "red", "blue", "green"})
        wait_until(lambda: self.finds("green"), "calls of the new adapter")
        for number in range(10):
            self.assertEqual(self.ask("green", f"{TEXT} {number}"), "two")

    def check_models(self):
        self.assertEqual({model.id: model.parent for model in self.client.models.list().data},
                         {"base": None, "red": "base", "blue": "base"})

    def check_stream(self):
        pieces = list(self.client.chat.completions.create(
            model="red", messages=[{"role": "user", "content": TEXT}], stream=True,
            stream_options={"include_usage": True}))
        self.assertEqual("".join(piece.choices[0].delta.content or "" for piece in pieces if piece.choices), TEXT)
        self.assertGreater(pieces[-1].usage.completion_tokens, 1)

    def check_a_killed_server(self):
        """no caller sees it, except for the adapter that has gone"""
        self.servers[0].stop()
        for number in range(20):
            self.assertEqual(self.ask("base", f"{TEXT} {number}"), "two")
        wait_until(lambda: not self.gateway.is_up(self.servers[0]), "the ejection")
        with self.assertRaises(openai.APIStatusError) as caught:
            self.ask("red")
        self.assertIn(caught.exception.status_code, (404, 503))


if __name__ == "__main__":
    peers.main()
