# SPDX-License-Identifier: Apache-2.0
"""OpenAI's own package against the gateway, which has two simulated servers: whole answers, streams,
models, embeddings, errors, limits of a key, a killed server."""

import asyncio
import sys
import unittest

import openai
import peers

sys.path.insert(0, str(peers.SOURCE / "tests" / "integration"))

from shoal_fixture import wait_until  # noqa: E402
from test_97_gateway import Gateway, Model  # noqa: E402

HELLO = [{"role": "user", "content": "How many fish are in a shoal?"}]
KEY_FILE = """
keys:
  - { name: slow, sha256: 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08,
      requests_per_minute: 1 }
"""  # of `test`


class OpenAI(unittest.TestCase):
    def setUp(self):
        self.models = [Model("one"), Model("two")]
        self.gateway = self.start()
        self.client = openai.OpenAI(**self.options(self.gateway), max_retries=0)
        self.addCleanup(self.client.close)

    def tearDown(self):
        for model in self.models:
            if model.process.poll() is None:
                model.kill()

    def start(self, **keys):
        gateway = Gateway(self.models, **keys)
        self.addCleanup(gateway.close)
        gateway.wait_up(*self.models)
        return gateway

    @staticmethod
    def options(gateway):
        return {"base_url": f"http://127.0.0.1:{gateway.port}/v1", "api_key": "test", "timeout": peers.SECONDS}

    def check_chat(self):
        answer = self.client.chat.completions.create(model="red", messages=HELLO, max_tokens=5)
        self.assertEqual(answer.choices[0].message.content, "t1 t2 t3 t4 t5 ")
        self.assertEqual((answer.model, answer.usage.completion_tokens), ("red", 5))

    def check_stream(self):
        chunks = list(self.client.chat.completions.create(
            model="red", messages=HELLO, max_tokens=5, stream=True, stream_options={"include_usage": True}))
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
        self.assertEqual((text, chunks[-1].usage.completion_tokens), ("t1 t2 t3 t4 t5 ", 5))

    def check_completions(self):
        answer = self.client.completions.create(model="base", prompt="shoal", max_tokens=3)
        self.assertEqual((answer.object, answer.choices[0].text), ("text_completion", "t1 t2 t3 "))

    def check_embeddings(self):
        answer = self.client.embeddings.create(model="base", input="shoal", encoding_format="float")
        self.assertEqual(len(answer.data[0].embedding), 4)

    def check_models(self):
        """each model once, adapters with their parents"""
        def found():
            now = self.client.models.list().data
            return now if len(now) == 4 else None
        wait_until(found, "the models of the servers")
        self.assertEqual({model.id: model.parent for model in found()},
                         {"base": None, "red": "base", "blue": "base", "green": "base"})

    def check_errors(self):
        with self.assertRaises(openai.NotFoundError) as caught:
            self.client.chat.completions.create(model="nobody", messages=HELLO)
        self.assertIn("no such model", caught.exception.message)
        with self.assertRaises(openai.BadRequestError):
            self.client.post("/chat/completions", body={"messages": HELLO}, cast_to=object)
        for model in self.models:
            model.fault("decline")
        with self.assertRaises(openai.RateLimitError) as caught:
            self.client.chat.completions.create(model="base", messages=HELLO)
        self.assertEqual(caught.exception.response.headers["retry-after"], "1")
        self.assertEqual(caught.exception.type, "RateLimitError")

    def check_key_and_its_limit(self):
        gateway = self.start(files={"keys.yaml": KEY_FILE}, keys="keys.yaml")
        client = openai.OpenAI(**self.options(gateway), max_retries=0)
        self.addCleanup(client.close)
        self.assertTrue(client.chat.completions.create(model="base", messages=HELLO).choices)
        with self.assertRaises(openai.RateLimitError) as caught:
            client.chat.completions.create(model="base", messages=HELLO)
        self.assertGreater(int(caught.exception.response.headers["retry-after"]), 30)
        with self.assertRaises(openai.AuthenticationError):
            client.with_options(api_key="wrong").chat.completions.create(model="base", messages=HELLO)

    def check_a_killed_server(self):
        """no caller sees it"""
        async def all_calls():
            async with openai.AsyncOpenAI(**self.options(self.gateway), max_retries=0) as client:
                async def call(number):
                    return (await client.chat.completions.create(
                        model="red", messages=HELLO, max_tokens=20 + number)).usage.completion_tokens
                calls = [asyncio.ensure_future(call(number)) for number in range(20)]
                await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
                self.models[0].kill()
                return await asyncio.gather(*calls, *(call(number) for number in range(20)))
        self.assertEqual(asyncio.run(all_calls()), [20 + number for number in range(20)] * 2)


if __name__ == "__main__":
    peers.main()
