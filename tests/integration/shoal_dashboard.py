# SPDX-License-Identifier: Apache-2.0
"""The dashboard of a node, without a browser."""

import http.client
import json
import urllib.parse

from shoal_fixture import WAIT_SECONDS

ANY_PORT = "127.0.0.1:0"  # for the key `dashboard`


def dashboard_port(shoald):
    return int(shoald.wait_log(r"http_listening address=\S+ port=(\d+) service=dashboard")[1])


class Dashboard:
    """Each request on a connection of its own, with the given headers."""

    def __init__(self, port, **headers):
        self.port = port
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}

    def request(self, method, path, body=None, headers=None):
        """The answer, whose body is still to be read."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT_SECONDS)
        connection.request(method, path, body, {**self.headers, **(headers or {})})
        answer = connection.getresponse()
        answer.connection = connection
        return answer

    def get(self, path, headers=None, method="GET", body=None):
        """(code, headers, body) of an answer that ends."""
        answer = self.request(method, path, body, headers)
        text = answer.read().decode()
        answer.connection.close()
        return answer.status, answer.headers, text

    def json(self, path, code=200, **more):
        found, _, text = self.get(path, **more)
        assert found == code, (path, found, text)
        return json.loads(text)

    def ask(self, verb, code=200, **members):
        return self.json("/ask?" + urllib.parse.urlencode({"verb": verb, **members}), code)

    def stream(self):
        return Stream(self.request("GET", "/stream"))


class Stream:
    """Server-sent events."""

    def __init__(self, answer):
        self.answer = answer
        self.code = answer.status

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.answer.close()
        self.answer.connection.close()

    def sample(self):
        """The next one; None: the stream has ended."""
        event = None
        while line := self.answer.readline().decode():
            name, _, value = line.rstrip("\n").partition(": ")
            if name == "event":
                event = value
            elif name == "data":
                assert event == "sample", event
                return json.loads(value)
        return None
