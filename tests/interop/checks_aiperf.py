# SPDX-License-Identifier: Apache-2.0
"""aiperf, which loads servers of language models, against the gateway and against a simulated server
without it. The counts of aiperf and of the gateway must be equal."""

import json
import os
import pathlib
import subprocess
import sys
import unittest

import peers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

sys.path.insert(0, str(peers.SOURCE / "tests" / "integration"))

from test_97_gateway import Gateway, Model  # noqa: E402

AIPERF = pathlib.Path(sys.executable).parent / "aiperf"
TOKENIZER = peers.FOLDER / "tokenizer"
REQUESTS, TOKENS = 200, 20
RUN_SECONDS = 180


def write_tokenizer():
    """One of single bytes: those of known models would have to be fetched."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({token: number for number, token in enumerate(["</s>", *alphabet])}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel()
    tokenizer.decoder = decoders.ByteLevel()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="</s>").save_pretrained(TOKENIZER)


class AIPerf(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        write_tokenizer()
        cls.servers = [Model("one"), Model("two")]
        for server in cls.servers:
            cls.addClassCleanup(server.stop)

    def setUp(self):
        self.gateway = Gateway(self.servers)
        self.addCleanup(self.gateway.close)
        self.gateway.wait_up(*self.servers)

    def run_aiperf(self, port, *options):
        """Its report."""
        folder = peers.FOLDER / f"{self.id()}-{port}"
        log = folder.with_suffix(".log")
        with log.open("w") as file:
            done = subprocess.run(
                [AIPERF, "profile", "--model", "red", "--url", f"http://127.0.0.1:{port}",
                 "--endpoint-type", "chat", "--tokenizer", TOKENIZER, "--ui", "none",
                 "--synthetic-input-tokens-mean", "300", "--output-tokens-mean", str(TOKENS),
                 "--output-tokens-stddev", "0", "--concurrency", "8", "--request-count", str(REQUESTS),
                 "--output-artifact-dir", folder, *options],
                stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, check=False,
                timeout=RUN_SECONDS, env={**os.environ, "HOME": str(peers.FOLDER)})
        self.assertEqual(done.returncode, 0, log.read_text()[-2000:])
        return json.loads((folder / "profile_export_aiperf.json").read_text())

    def tokens(self, which):
        return sum(value for name, value in self.gateway.figures().items()
                   if name.startswith(f"{which}_tokens_total{{"))

    def check_streams(self):
        """every request answered in whole; aiperf's usage is the gateway's"""
        ours = self.run_aiperf(self.gateway.port, "--streaming")
        self.confirm_counts(ours)
        self.assertEqual(self.tokens("answer"), ours["total_usage_completion_tokens"]["avg"])
        self.assertEqual(self.tokens("prompt"), ours["total_usage_prompt_tokens"]["avg"])
        theirs = self.run_aiperf(self.servers[0].port, "--streaming")
        self.confirm_counts(theirs)
        self.detail = "p50 of the time to the first token, of 2 servers by the gateway and of 1: " + ", ".join(
            f"{report['time_to_first_token']['p50']:.1f} ms" for report in (ours, theirs))

    def check_whole_answers(self):
        """without streams"""
        ours = self.run_aiperf(self.gateway.port)
        self.confirm_counts(ours)
        self.assertEqual(self.tokens("answer"), REQUESTS * TOKENS)

    def confirm_counts(self, report):
        self.assertEqual(report["error_summary"], [])
        self.assertEqual(report["request_count"]["avg"], REQUESTS)
        self.assertEqual(report["usage_completion_tokens"]["min"], TOKENS)
        self.assertEqual(report["usage_completion_tokens"]["max"], TOKENS)


if __name__ == "__main__":
    peers.main()
