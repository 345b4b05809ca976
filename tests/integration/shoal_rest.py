# SPDX-License-Identifier: Apache-2.0
"""A REST client for tests: http.client on the port that shoald has logged, and JSON both ways."""

import http.client
import io
import json
import socket

from shoal_fixture import WAIT_SECONDS

ANY_PORT = "127.0.0.1:0"  # for the key `http`


def port_of(shoald, number=1):
    """The port of the number-th address of the key `http`."""
    return int(shoald.wait_log(r"http_listening address=\S+ port=(\d+)", number)[1])


class Answer:
    def __init__(self, code, headers, body):
        self.code = code
        self.headers = headers
        self.body = body

    @property
    def json(self):
        length = self.headers.get("Inference-Header-Content-Length")
        return json.loads(self.body if length is None else self.body[:int(length)])

    @property
    def binary(self):
        return self.body[int(self.headers["Inference-Header-Content-Length"]):]

    @property
    def error(self):
        """The text of an error, which has the protocol's form."""
        assert self.code >= 400, (self.code, self.body)
        assert self.headers["Content-Type"] == "application/json", str(self.headers)
        found = self.json
        assert list(found) == ["error"] and isinstance(found["error"], str), found
        return found["error"]

    def data(self, name=None):
        """The data of an output, the only one or by its name."""
        assert self.code == 200, (self.code, self.body)
        outputs = self.json["outputs"]
        found, = outputs if name is None else [one for one in outputs if one["name"] == name]
        return found["data"]

    def __repr__(self):
        return f"{self.code} {self.body[:500]!r}"


def tensor(name, datatype, shape, data=None, **parameters):
    members = {"name": name, "datatype": datatype, "shape": shape}
    if data is not None:
        members["data"] = data
    if parameters:
        members["parameters"] = parameters
    return members


class Rest:
    """One connection, kept open as long as the server does."""

    def __init__(self, port, timeout=WAIT_SECONDS):
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.connection.close()

    def send(self, method, path, body=None, headers=None):
        self.connection.request(method, path, body, headers or {})

    def receive(self):
        response = self.connection.getresponse()
        return Answer(response.status, response.headers, response.read())

    def ask(self, method, path, body=None, headers=None):
        self.send(method, path, body, headers)
        return self.receive()

    def get(self, path):
        return self.ask("GET", path)

    def post(self, model, body, headers=None):
        """`body` as it is."""
        return self.ask("POST", f"/v2/models/{model}/infer", body, headers)

    def infer_body(self, inputs, binary=b"", **members):
        text = json.dumps({"inputs": list(inputs), **members}).encode()
        headers = {"Content-Type": "application/json"}
        if binary:
            headers = {"Content-Type": "application/octet-stream",
                       "Inference-Header-Content-Length": str(len(text))}
        return text + binary, headers

    def infer(self, model, *inputs, binary=b"", headers=None, **members):
        body, own = self.infer_body(inputs, binary, **members)
        return self.post(model, body, {**own, **(headers or {})})

    def start(self, model, *inputs, headers=None, **members):
        """Sends only; `receive` gets the answer."""
        body, own = self.infer_body(inputs, **members)
        self.send("POST", f"/v2/models/{model}/infer", body, {**own, **(headers or {})})

    # ---- the puppet: tests/modelets/modelet_puppet.c ----

    def start_tell(self, text, model="puppet", **more):
        self.start(model, tensor("say", "BYTES", [1], [text]), **more)

    def tell(self, text, model="puppet", **more):
        return self.infer(model, tensor("say", "BYTES", [1], [text]), **more)


class SecureRest(Rest):
    """The same over TLS."""

    def __init__(self, port, context):
        super().__init__(port)
        self.connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=WAIT_SECONDS,
                                                      context=context)


class KeptFile(io.BufferedReader):
    """A connection's bytes, of which one answer after the other is read."""

    def __init__(self, connection):
        super().__init__(connection.makefile("rb", buffering=0))

    def makefile(self, *_):
        return self

    def close(self):
        """Not at the end of an answer."""


def raw_answers(port, request, count):
    """Sends bytes as they are, and reads so many answers from the connection."""
    with socket.create_connection(("127.0.0.1", port), WAIT_SECONDS) as connection:
        connection.sendall(request)
        file = KeptFile(connection)
        answers = []
        for _ in range(count):
            response = http.client.HTTPResponse(file)
            response.begin()
            answers.append(Answer(response.status, response.headers, response.read()))
        return answers
