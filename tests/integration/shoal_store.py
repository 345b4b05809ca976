# SPDX-License-Identifier: Apache-2.0
"""A strict server of S3 and of plain HTTP, which can also behave badly.

Signatures are computed from AWS' specification with `hmac`, from the request as it came, and a request
whose signature, parameters or encoding is not exactly right gets 403 or 400. Badness is set by members of
`Store` and counted in `Store.requests`.
"""

import hashlib
import hmac
import http.server
import re
import socket
import ssl
import threading
import time
import urllib.parse
from xml.sax.saxutils import escape

EMPTY = hashlib.sha256(b"").hexdigest()
UNRESERVED = "-._~"
REGION = "eu-test-7"


def encoded(text, keep=""):
    return urllib.parse.quote(text, safe=UNRESERVED + keep)


def mac(key, text):
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


class Refused(Exception):
    def __init__(self, status, code, message="refused"):
        super().__init__(code)
        self.status, self.code, self.message = status, code, message


def signature(secret, request, headers, names, date, region):
    """The signature of a request by the specification of Signature Version 4."""
    path, _, query = request.partition("?")
    canonical_path = encoded(urllib.parse.unquote(path, errors="strict"), "/")
    pairs = sorted((encoded(urllib.parse.unquote(name)), encoded(urllib.parse.unquote(value)))
                   for name, _, value in (part.partition("=") for part in query.split("&") if part))
    canonical = "\n".join([
        "GET", canonical_path, "&".join(f"{name}={value}" for name, value in pairs),
        *(f"{name}:{' '.join(headers[name].split())}" for name in names), "", ";".join(names),
        headers["x-amz-content-sha256"]])
    scope = f"{date[:8]}/{region}/s3/aws4_request"
    text = "\n".join(["AWS4-HMAC-SHA256", date, scope, hashlib.sha256(canonical.encode()).hexdigest()])
    key = ("AWS4" + secret).encode()
    for part in (date[:8], region, "s3", "aws4_request"):
        key = mac(key, part)
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def accept(connection, context):
    """The same connection in TLS. A caller that is refused reads the alert before the connection ends:
    data that nobody has read would reset it."""
    secured = context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
    try:
        secured.do_handshake()
    except OSError:
        with socket.socket(fileno=secured.detach()) as plain:
            plain.shutdown(socket.SHUT_WR)
            while plain.recv(1 << 16):
                pass
        raise
    return secured


class Store:
    """Serves while the block runs, over TLS with `context`, an ssl.SSLContext. `objects`: {bucket:
    {key: bytes}}; `plain`: {path: bytes}."""

    def __init__(self, context=None):
        self.objects, self.plain = {}, {}
        self.keys = {}  # access key -> (secret, session token or None); none: all is public
        self.page = 1000
        self.needs = {}  # headers that plain requests must have
        self.etags = True  # of plain files
        self.modified = None  # Last-Modified of plain files
        self.lengths = True  # False: a body ends with its connection
        self.range_bytes = None  # most bytes of a range's answer
        self.heeds_if_range = True
        self.etag_end = ""  # added to each ETag in listings, as XML
        self.redirects = {}  # path -> URL
        self.types = {}  # path -> Content-Type
        self.endless = False  # listings are of empty pages
        self.cut_bytes = None  # each body's connection ends after so many
        self.lies = 0  # added to each Content-Length
        self.listed_lies = 0  # added to each size in listings
        self.pause_s = 0  # before each 64 KiB
        self.hold = None  # an event that bodies wait for, after their first half
        self.failures = []  # statuses of the next answers
        self.refusals = {}  # path -> status
        self.requests = []  # (path with query, headers)
        self.sent = 0  # bytes of bodies
        self.lock = threading.Lock()
        store = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_GET(self):
                Answer(store, self).give()

            def log_message(self, *_):
                pass

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 64

            def finish_request(self, request, client_address):
                if context is None:
                    super().finish_request(request, client_address)
                    return
                with accept(request, context) as secured:
                    super().finish_request(secured, client_address)

            def handle_error(self, *_):
                pass

        self.server = Server(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        self.url = f"{'https' if context else 'http'}://127.0.0.1:{self.port}"

    def __enter__(self):
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def paths(self):
        return [path for path, _ in self.requests]

    def entry(self, key="AKTEST", **more):
        """An entry of storage-config for this server."""
        secret, token = self.keys.get(key, ("unused", None))
        entry = {"type": "s3", "access_key_id": key, "secret_access_key": secret,
                 "endpoint_url": self.url, "region": REGION, **more}
        return {**entry, "session_token": token} if token else entry


class Answer:
    def __init__(self, store, handler):
        self.store, self.handler = store, handler
        self.headers = {name.lower(): value for name, value in handler.headers.items()}

    def give(self):
        with self.store.lock:
            self.store.requests.append((self.handler.path, self.headers))
            failure = self.store.failures.pop(0) if self.store.failures else None
        path = self.handler.path.partition("?")[0]
        failure = failure or self.store.refusals.get(path)
        try:
            if failure:
                raise Refused(failure, "InternalError" if failure >= 500 else "AccessDenied")
            if path in self.store.redirects:
                self.send(302, b"", {"Location": self.store.redirects[path]})
            elif path.startswith("/plain/"):
                self.give_plain(urllib.parse.unquote(path))
            else:
                self.give_s3()
        except Refused as refused:
            body = (f"<?xml version='1.0'?><Error><Code>{refused.code}</Code><Message>{refused.message}"
                    f"</Message><RequestId>1</RequestId></Error>").encode()
            self.send(refused.status, body, {"Content-Type": "application/xml"})

    # ---- S3

    def check_signature(self):
        if not self.store.keys:
            return
        stated = re.fullmatch(r"AWS4-HMAC-SHA256 Credential=(\w+)/(\d{8})/([\w-]+)/s3/aws4_request, "
                              r"SignedHeaders=([a-z0-9;-]+), Signature=([0-9a-f]{64})",
                              self.headers.get("authorization", ""))
        if not stated:
            raise Refused(403, "AccessDenied", "no signature")
        key, day, region, names, signed = stated.groups()
        names = names.split(";")
        secret, token = self.store.keys.get(key, (None, None))
        if secret is None:
            raise Refused(403, "InvalidAccessKeyId")
        if self.headers.get("x-amz-security-token") != token:
            raise Refused(403, "InvalidToken")
        amz = {name for name in self.headers if name.startswith("x-amz-")} | {"host"}
        date = self.headers.get("x-amz-date", "")
        now = time.strftime("%Y%m%dT%H", time.gmtime())
        if not amz <= set(names) or names != sorted(names) or date[:8] != day or abs(
                int(date[9:11]) - int(now[9:11])) not in (0, 1, 23):
            raise Refused(403, "AccessDenied", "not all is signed, or at another time")
        if region != REGION:
            raise Refused(400, "AuthorizationHeaderMalformed")
        if signature(secret, self.handler.path, self.headers, names, date, region) != signed:
            raise Refused(403, "SignatureDoesNotMatch")

    def give_s3(self):
        self.check_signature()
        path, _, query = self.handler.path.partition("?")
        bucket, _, key = urllib.parse.unquote(path, errors="strict")[1:].partition("/")
        if path != encoded(urllib.parse.unquote(path), "/"):
            raise Refused(400, "InvalidURI")
        objects = self.store.objects.get(bucket)
        if objects is None:
            raise Refused(404, "NoSuchBucket", f"no {bucket}")
        if not key:
            self.give_listing(bucket, objects, dict(urllib.parse.parse_qsl(query, True, True)))
        elif key not in objects:
            raise Refused(404, "NoSuchKey")
        else:
            etag = f'"{hashlib.md5(objects[key]).hexdigest()}"'
            if self.headers.get("if-match", etag) != etag:
                raise Refused(412, "PreconditionFailed")
            self.give_body(objects[key], {"ETag": etag})

    def give_listing(self, bucket, objects, query):
        if not set(query) <= {"list-type", "prefix", "continuation-token", "encoding-type", "max-keys"} or \
                query.get("list-type") != "2":
            raise Refused(400, "InvalidArgument")
        begin = query.get("continuation-token", "")
        if begin and not begin.startswith("token=/+ "):
            raise Refused(400, "InvalidArgument", "no such token")
        keys = sorted(key for key in objects if key.startswith(query.get("prefix", ""))
                      and key.encode() > begin[len("token=/+ "):].encode())
        most = min(self.store.page, int(query.get("max-keys", 1000)))
        more = len(keys) > most
        name = urllib.parse.quote_plus if query.get("encoding-type") == "url" else escape
        parts = [f"<Contents><Key>{name(key)}</Key><LastModified>2026-01-01T00:00:00Z</LastModified>"
                 f"<ETag>&quot;{hashlib.md5(objects[key]).hexdigest()}&quot;{self.store.etag_end}</ETag>"
                 f"<Size>{len(objects[key]) + self.store.listed_lies}</Size>"
                 f"<Owner><ID>me</ID></Owner></Contents>" for key in keys[:most]]
        if self.store.endless:
            more, parts, keys = True, [], ["k"] * most
        token = (f"<NextContinuationToken>token=/+ {escape(keys[most - 1])}</NextContinuationToken>"
                 if more else "")
        body = (f"<?xml version='1.0' encoding='UTF-8'?>\n<ListBucketResult xmlns='http://s3/'><Name>{bucket}"
                f"</Name><IsTruncated>{str(more).lower()}</IsTruncated>{''.join(parts)}{token}"
                f"</ListBucketResult>").encode()
        self.send(200, body, {"Content-Type": "application/xml"})

    # ---- plain files

    def give_plain(self, path):
        for name, value in self.store.needs.items():
            if self.headers.get(name.lower()) != value:
                raise Refused(401, "Unauthorized")
        data = self.store.plain.get(path)
        if data is None:
            raise Refused(404, "NoSuchKey")
        headers = {"Content-Type": self.store.types.get(path, "application/octet-stream")}
        etag = f'"{hashlib.sha1(data).hexdigest()}"'
        if self.store.etags:
            headers["ETag"] = etag
            if self.headers.get("if-none-match") == etag:
                self.send(304, b"", headers)
                return
        if self.store.modified:
            headers["Last-Modified"] = self.store.modified
            if self.headers.get("if-modified-since") == self.store.modified:
                self.send(304, b"", headers)
                return
        self.give_body(data, headers)

    # ---- bodies

    def give_body(self, data, headers):
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("range", ""))
        heeds = not self.store.heeds_if_range or self.headers.get(
            "if-range", headers.get("ETag")) == headers.get("ETag")
        if asked and heeds:
            first = int(asked[1])
            if first >= len(data):
                raise Refused(416, "InvalidRange")
            last = min(len(data), first + (self.store.range_bytes or len(data))) - 1
            headers = {**headers, "Content-Range": f"bytes {first}-{last}/{len(data)}"}
            self.send(206, data[first:last + 1], headers, True)
        else:
            self.send(200, data, headers, True)

    def wait_as_told(self, is_second_half):
        if self.store.pause_s:
            time.sleep(self.store.pause_s)
        if self.store.hold and is_second_half:
            self.store.hold.wait(60)

    def send(self, status, body, headers, is_model=False):
        store, handler = self.store, self.handler
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name, value)
        if is_model and not store.lengths:
            handler.close_connection = True
            handler.send_header("Connection", "close")
        elif status != 304:
            handler.send_header("Content-Length", str(len(body) + (store.lies if is_model else 0)))
        handler.end_headers()
        step = 64 << 10
        for at in range(0, len(body), step):
            part = body[at:at + step]
            if is_model:
                self.wait_as_told(at >= len(body) // 2)
            if is_model and store.cut_bytes and at + len(part) > store.cut_bytes:
                handler.close_connection = True
                handler.connection.close()
                return
            handler.wfile.write(part)
            with store.lock:
                store.sent += len(part) if is_model else 0
        if is_model and store.lies > 0:
            handler.close_connection = True
