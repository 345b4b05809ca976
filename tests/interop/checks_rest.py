# SPDX-License-Identifier: Apache-2.0
"""General HTTP clients against the REST address, as their documentation has one call it."""

import asyncio
import json
import subprocess
import unittest

import aiohttp
import httpx
import peers
import requests

IMAGES, _ = peers.digits(5)
BODY = peers.digits_body(IMAGES)
URL = f"http://{peers.HTTP}/v2/models/digits/infer"


class Rest(unittest.TestCase):
    def assert_labels(self, answer):
        labels, = (one["data"] for one in answer["outputs"] if one["name"] == "label")
        self.assertEqual(labels, peers.digits_answer(IMAGES)[0])

    def curl(self, *options):
        done = subprocess.run(["curl", "-s", "--noproxy", "*", *options, URL], capture_output=True,
                              timeout=peers.SECONDS, check=True)
        return json.loads(done.stdout)

    def check_curl_json(self):
        self.assert_labels(self.curl("--json", json.dumps(BODY)))

    def check_curl_d(self):
        """as a form, which is what curl -d says it sends"""
        answer = self.curl("-d", json.dumps(BODY))
        if "Content-Type" in answer.get("error", ""):
            self.skipTest(f"the node: {answer['error']}")
        self.assert_labels(answer)

    def check_curl_two_on_one_connection(self):
        body = json.dumps(BODY)
        done = subprocess.run(["curl", "-s", "--noproxy", "*", "--json", body, URL, "--next", "-s",
                               "--noproxy", "*", "--json", body, URL, "-w", "\n%{num_connects}"],
                              capture_output=True, text=True, timeout=peers.SECONDS, check=True)
        self.assertEqual(done.stdout.splitlines()[-1], "0", "the second call made a connection")

    def check_requests(self):
        with requests.Session() as session:
            session.trust_env = False
            for _ in range(3):
                answer = session.post(URL, json=BODY, timeout=peers.SECONDS)
                self.assertEqual(answer.status_code, 200, answer.text)
                self.assert_labels(answer.json())
            answer = session.get(f"http://{peers.HTTP}/v2/models/nobody", timeout=peers.SECONDS)
            self.assertEqual(answer.status_code, 404)
            self.assertIn("nobody", answer.json()["error"])

    def check_requests_data(self):
        """requests.post(url, data=json.dumps(...)), without a Content-Type"""
        with requests.Session() as session:
            session.trust_env = False
            answer = session.post(URL, data=json.dumps(BODY), timeout=peers.SECONDS)
        self.assertEqual(answer.status_code, 200, answer.text)
        self.assert_labels(answer.json())

    def check_httpx(self):
        with httpx.Client(trust_env=False) as client:
            for _ in range(3):
                answer = client.post(URL, json=BODY).raise_for_status()
                self.assert_labels(answer.json())

    def check_httpx_async(self):
        async def run():
            async with httpx.AsyncClient(trust_env=False) as client:
                return await asyncio.gather(*(client.post(URL, json=BODY) for _ in range(20)))
        for answer in asyncio.run(run()):
            self.assert_labels(answer.raise_for_status().json())

    def check_httpx_chunked(self):
        """a body of unknown length"""
        def parts():
            yield from (bytes((byte,)) for byte in json.dumps(BODY).encode())
        with httpx.Client(trust_env=False) as client:
            answer = client.post(URL, content=parts(), headers={"Content-Type": "application/json"})
        self.assert_labels(answer.raise_for_status().json())

    def check_aiohttp(self):
        async def one(session):
            async with session.post(URL, json=BODY) as answer:
                return await answer.json()

        async def run():
            async with aiohttp.ClientSession() as session:
                return await asyncio.gather(*(one(session) for _ in range(20)))
        for answer in asyncio.run(run()):
            self.assert_labels(answer)


if __name__ == "__main__":
    peers.main()
