# SPDX-License-Identifier: Apache-2.0
"""Models from S3 with temporary credentials of the node's role: of a web identity, and of a machine.

The services are written from AWS' specifications: AssumeRoleWithWebIdentity (API 2011-06-15), and version 2
of the instance metadata service. The store knows only keys that they have given. ctest: timeout=300
"""

import http.server
import json
import os
import threading
import time
import unittest.mock
import urllib.parse

import shoal_fixture
from shoal_ctl import NEGATIVE, OK
from shoal_fixture import wait_until
from test_71_storage import REGION, Case as Storage

ARN, WEB_TOKEN, SESSION = "arn:aws:iam::123456789012:role/shoal+models", "web.id/token==", "metadata-token=="


class Services:
    """Serves while the block runs, on 127.0.0.2."""

    def __init__(self, store):
        self.store = store
        self.life_s = 3600
        self.failing = None  # (status, code)
        self.role = "shoal-role"
        self.asked = []  # (method, path, headers, body)
        self.roles = []  # that were asked for
        services = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def answer(self):
                body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
                headers = {name.lower(): value for name, value in self.headers.items()}
                services.asked.append((self.command, self.path, headers, body))
                status, text = services.give(self.command, self.path, headers, body)
                self.send_response(status)
                if status == 503:
                    self.send_header("Retry-After", "60")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text.encode())

            do_GET = do_POST = do_PUT = answer

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.2", 0), Handler)
        self.url = f"http://127.0.0.2:{self.server.server_address[1]}"

    def __enter__(self):
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def new_keys(self):
        number = len(self.store.keys)
        keys = f"ASIA{number}", f"role+secret/{number}", f"role+token/{number}=="
        self.store.keys[keys[0]] = keys[1:]
        return keys, time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + self.life_s))

    def give(self, method, path, headers, body):
        if self.failing:
            return self.failing[0], (f"<ErrorResponse><Error><Code>{self.failing[1]}</Code><Message>"
                                     f"{WEB_TOKEN}</Message></Error></ErrorResponse>")
        if (method, path) == ("POST", "/"):
            return self.assume(headers, urllib.parse.parse_qs(body, strict_parsing=True))
        if (method, path) == ("PUT", "/latest/api/token"):
            seconds = int(headers.get("x-aws-ec2-metadata-token-ttl-seconds", 0))
            return (200, SESSION) if 1 <= seconds <= 21600 else (400, "")
        if headers.get("x-aws-ec2-metadata-token") != SESSION:
            return 401, ""
        folder = "/latest/meta-data/iam/security-credentials/"
        if path == folder:
            return 200, self.role
        if path != folder + self.role:
            return 404, ""
        (key, secret, token), expires = self.new_keys()
        return 200, json.dumps({"Code": "Success", "Type": "AWS-HMAC", "AccessKeyId": key, "Token": token,
                                "SecretAccessKey": secret, "Expiration": expires})

    def assume(self, headers, form):
        wanted = {"Action": ["AssumeRoleWithWebIdentity"], "Version": ["2011-06-15"],
                  "RoleSessionName": ["shoald"], "WebIdentityToken": [WEB_TOKEN]}
        self.roles.extend(form.pop("RoleArn"))
        if form != wanted or headers["content-type"] != "application/x-www-form-urlencoded":
            return 400, "<ErrorResponse><Error><Code>ValidationError</Code></Error></ErrorResponse>"
        (key, secret, token), expires = self.new_keys()
        return 200, (f"<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials>"
                     f"<SessionToken>{token}</SessionToken><SecretAccessKey>{secret}</SecretAccessKey>"
                     f"<Expiration>{expires}</Expiration><AccessKeyId>{key}</AccessKeyId></Credentials>"
                     f"</AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>")


class Case(Storage):
    def begin(self, **keys):
        self.services = self.enterContext(Services(self.store))
        self.put()
        common = {"AWS_REGION": REGION, "AWS_ENDPOINT_URL": self.store.url,
                  "http_proxy": "http://127.0.0.1:1", "no_proxy": "127.0.0.1"}
        with unittest.mock.patch.dict(os.environ, {**common, **self.more()}):
            super().begin(**keys)

    def tearDown(self):
        super().tearDown()
        for secret in ("role+", WEB_TOKEN, SESSION):
            self.assertNotIn(secret, self.shoald.stderr)

    def take(self, code=OK):
        """Loads and unloads the model; returns what was reported."""
        told = self.load("m", "s3://models/m", code=code)
        for secret in ("role+", WEB_TOKEN, SESSION):
            self.assertNotIn(secret, told)
        if code == OK:
            self.ask("m")
            self.unload("m")
        return told

    def used(self):
        """The keys with which the store was asked, in order."""
        return [headers["authorization"].partition("Credential=")[2].partition("/")[0]
                for _, headers in self.store.requests]


class TestWebIdentity(Case):
    def more(self):
        token = self.folder / "token"
        token.write_text(WEB_TOKEN + "\n")
        # the proxy of the variables is for this service, too, and there is none
        return {"AWS_ROLE_ARN": ARN, "AWS_WEB_IDENTITY_TOKEN_FILE": str(token), "no_proxy": "*",
                "AWS_ENDPOINT_URL_STS": self.services.url + "/"}

    def test_keys_are_asked_for_before_they_expire(self):
        for _ in range(2):
            self.take()
        self.assertEqual((len(self.services.asked), len(set(self.used()))), (1, 1))
        self.assertEqual(self.count("storage_hits"), 1)

    def test_each_entry_has_its_own_role(self):
        """Beside the node's; each with keys of its own, which are kept apart."""
        for name in ("one", "two"):
            (self.config / name).write_text(json.dumps({
                "type": "s3", "role_arn": f"{ARN}/{name}", "endpoint_url": self.store.url, "region": REGION,
                "bucket": "models"}))
        for _ in range(2):
            self.take()
            for name in ("one", "two"):
                self.load("m", "m", key={"storage_key": name})
                self.unload("m")
        self.assertEqual(self.services.roles, [ARN, f"{ARN}/one", f"{ARN}/two"])
        self.assertEqual(len(set(self.used())), 3)

    def test_near_their_end(self):
        """A service that gives keys which end soon is asked every other second, not for each request."""
        self.services.life_s = 299
        self.put(**{f"w{i}": b"w" for i in range(20)})
        began = time.monotonic()
        self.take()
        asked = len(self.services.asked)
        self.assertLessEqual(asked, 1 + (time.monotonic() - began))
        self.services.life_s = 3600
        wait_until(lambda: self.take() is not None and len(self.services.asked) > asked, "new keys")
        self.take()
        self.assertEqual(len(self.services.asked), asked + 1)
        self.assertEqual(self.used()[-1], f"ASIA{len(self.store.keys) - 1}")
        self.assertGreaterEqual(self.count("storage_hits"), 2)  # other keys of a role are the same source

    def test_old_keys_are_used_until_they_expire(self):
        self.services.life_s = 299
        self.take()
        self.services.failing = 503, "ServiceUnavailable"  # and it wants to be asked in a minute
        asked = len(self.services.asked)
        wait_until(lambda: self.take() is not None and len(self.services.asked) > asked, "a refusal")
        self.take()
        self.assertEqual(len(self.services.asked), asked + 1)  # and not again for a minute
        self.shoald.wait_log("storage_role_kept")

    def test_refused(self):
        self.services.failing = 403, "InvalidIdentityToken"
        self.assertIn(f"the security token service at {self.services.url}/: the server answers 403, "
                      "InvalidIdentityToken", self.take(NEGATIVE))
        self.services.failing = 200, "no credentials"
        self.assertIn("the answer has no credentials with an expiration", self.take(NEGATIVE))
        (self.folder / "token").write_text("")
        self.assertIn("token has no token of at most 64 KiB", self.take(NEGATIVE))
        (self.folder / "token").unlink()
        self.assertIn("token: No such file", self.take(NEGATIVE))
        self.assertEqual(self.store.requests, [])


class TestMetadata(Case):
    def more(self):
        self.nodes = {"storage_metadata": self.services.url + "/"}  # not by the proxy
        return {}

    def test_keys(self):
        for _ in range(2):
            self.take()
        self.assertEqual([(method, path) for method, path, _, _ in self.services.asked], [
            ("PUT", "/latest/api/token"), ("GET", "/latest/meta-data/iam/security-credentials/"),
            ("GET", "/latest/meta-data/iam/security-credentials/shoal-role")])
        self.assertEqual(len(set(self.used())), 1)

    def test_refused(self):
        self.services.role = "../../user-data"
        self.assertIn(f"the metadata service at {self.services.url}/: its answer is no name", self.take(NEGATIVE))
        self.services.role = "shoal-role"
        with unittest.mock.patch.object(self.services, "new_keys", lambda: (("a b", "c", "d"), "2026")):
            self.assertIn("no credentials with an expiration", self.take(NEGATIVE))
        self.assertEqual(self.store.requests, [])


class TestNotConfigured(Case):
    def more(self):
        return {}

    def test_nothing_is_asked(self):
        self.store.keys = {}
        self.take()
        self.assertEqual(self.services.asked, [])
        self.assertEqual([headers for _, headers in self.store.requests if "authorization" in headers], [])


if __name__ == "__main__":
    shoal_fixture.main()
