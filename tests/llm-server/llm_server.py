#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A simulated language-model server in real time: docs/model-server-protocol.md, without a model.

    llm_server.py --port N [--name NAME] [--model BASE] [--adapters a,b] [--slots N] [--speed X]
                  [--certificate FILE --key FILE [--client-ca FILE]]

Its times are those of the Gateway API Inference Extension's simulator (Llama-2-7B on an A100): a
prefill takes max(0.04, 6.769e-5 t + 0.01969) s for t tokens, a decode step of a batch of b with k
tokens in the KV cache 5.353e-7 k + 1.0265e-4 b + 0.014 s. --speed divides them. An adapter that is
not in one of the --slots is loaded for 0.5 s, in the place of the one unused longest.

POST /test/fault {"fault": F} makes it misbehave: hang (accepts, says nothing), decline (503), drop
(closes before an answer), cut (closes within one), tear (closes within an event), malformed,
blind (no metrics); anything else ends that.
"""

import argparse
import asyncio
import json
import ssl
import sys
import time

KV_TOKENS = 2810 * 16 - 512
BATCH_MAX = 256
REQUESTS_MAX = 4 * BATCH_MAX
LOAD_SECONDS = 0.5
CHARACTERS_PER_TOKEN = 4


class Job:
    def __init__(self, adapter, prompt_tokens, output_tokens):
        self.adapter = adapter
        self.prompt_tokens = prompt_tokens
        self.left = output_tokens
        self.made = 0
        self.tokens = asyncio.Queue()  # one entry for each token
        self.gone = False


class Engine:
    """One step at a time: all waiting jobs that fit are prefilled, then each job gets a token."""

    def __init__(self, options):
        self.options = options
        self.waiting, self.running = [], []
        self.slots = {}  # adapter: when it was last used
        self.loading = set()
        self.hits = self.loads = 0
        self.more = asyncio.Event()

    def kv_tokens(self):
        return sum(job.prompt_tokens + job.made for job in self.running)

    async def lasts(self, seconds):
        await asyncio.sleep(seconds / self.options.speed)

    async def place_adapter(self, adapter):
        """False: all slots are in use."""
        if adapter in self.slots:
            self.hits += 1
        elif adapter is not None:
            used = {job.adapter for job in self.running}
            if len(self.slots) >= self.options.slots:
                free = [name for name in self.slots if name not in used]
                if not free:
                    return False
                del self.slots[min(free, key=self.slots.get)]
            self.slots[adapter] = time.monotonic()
            self.loads += 1
            self.loading.add(adapter)
            await self.lasts(LOAD_SECONDS)
            self.loading.remove(adapter)
        if adapter is not None:
            self.slots[adapter] = time.monotonic()
        return True

    async def admit(self):
        for job in list(self.waiting):
            room = KV_TOKENS - self.kv_tokens()
            if len(self.running) >= BATCH_MAX or (self.running and job.prompt_tokens > room):
                return
            if await self.place_adapter(job.adapter):
                self.waiting.remove(job)
                self.running.append(job)
                await self.lasts(max(0.04, 6.769e-5 * job.prompt_tokens + 0.01969))

    async def run(self):
        while True:
            self.more.clear()
            if not self.waiting and not self.running:
                await self.more.wait()
            self.waiting = [job for job in self.waiting if not job.gone]
            await self.admit()
            await self.lasts(5.353e-7 * self.kv_tokens() + 1.0265e-4 * len(self.running) + 0.014)
            for job in self.running:
                job.made += 1
                job.left -= 1
                job.tokens.put_nowait(f"t{job.made} ")
            self.running = [job for job in self.running if job.left > 0 and not job.gone]

    def loaded(self):
        return sorted(set(self.slots) - self.loading)

    def requests(self, adapter):
        return sum(job.adapter == adapter for job in self.waiting + self.running)

    def figures(self):
        return {"requests_waiting": len(self.waiting), "requests_running": len(self.running),
                "kv_cache_used_ratio": self.kv_tokens() / KV_TOKENS}

    def metrics(self, catalogue):
        label = f'model="{self.options.model}"'
        values = {f"{name}{{{label}}}": value for name, value in
                  {**self.figures(), "requests_max": REQUESTS_MAX}.items()}
        values["adapters_max"] = self.options.slots
        for name in sorted({*catalogue, *self.slots}):
            state = "loaded" if name in self.loaded() else \
                "waiting" if self.requests(name) or name in self.loading else "available"
            values[f'adapter_requests{{adapter="{name}",state="{state}"}}'] = self.requests(name)
        return "".join(f"model_server_{name} {value}\n" for name, value in values.items())

    def report(self):
        values = {**self.figures(), "adapters_loaded": len(self.loaded()),
                  **{f"adapter_requests.{name}": self.requests(name) for name in self.loaded()}}
        return "TEXT " + ", ".join(f"named_metrics.{name}={value}" for name, value in values.items())


class Server:
    def __init__(self, options):
        self.options = options
        self.engine = Engine(options)
        self.adapters = {name: "/adapters/" + name for name in options.adapters.split(",") if name}
        self.fault = ""
        self.last = {}  # the headers and body of the last request, for tests
        self.cancelled = 0

    async def connection(self, reader, writer):
        try:
            while await self.request(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    @staticmethod
    async def read_body(reader, headers):
        if headers.get("transfer-encoding") != "chunked":
            return await reader.readexactly(int(headers.get("content-length", 0)))
        body, size = b"", None
        while size != 0:
            size = int(await reader.readuntil(b"\r\n"), 16)
            body += (await reader.readexactly(size + 2))[:-2]
        return body

    async def request(self, reader, writer):
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, path, _ = head[0].split(" ")
        headers = {name.lower(): value.strip() for name, _, value in
                   (line.partition(":") for line in head[1:] if line)}
        body = await self.read_body(reader, headers)
        if path == "/test/fault":
            self.fault = json.loads(body)["fault"]
            return await self.answer(writer, 200, {})
        if path == "/test/last":
            return await self.answer(writer, 200, {
                "cancelled": self.cancelled, "adapter_hits": self.engine.hits,
                "adapter_loads": self.engine.loads, **self.last})
        if self.fault == "hang":
            await reader.read()
            return False
        if path == "/health":
            return await self.answer(writer, 200, {})
        if path == "/metrics" and self.fault == "blind":
            return await self.answer(writer, 500, {})
        if path == "/metrics":
            return await self.answer(writer, 200, self.engine.metrics(self.adapters), "text/plain")
        if path == "/v1/models":
            models = [{"id": self.options.model, "object": "model", "parent": None}]
            models += [{"id": name, "object": "model", "parent": self.options.model, "root": root}
                       for name, root in self.adapters.items()]
            return await self.answer(writer, 200, {"object": "list", "data": models})
        if path in ("/v1/load_lora_adapter", "/v1/unload_lora_adapter"):
            code, text = await self.change_adapter(path, json.loads(body))
            return await self.answer(writer, code, {"message": text} if code == 200 else {
                "error": {"message": text, "code": code}})
        self.last = {"path": path, "headers": headers, "bytes": len(body)}
        if self.fault == "drop":
            return False
        if self.fault == "malformed":
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx")
            return False
        if self.fault == "decline":
            return await self.answer(writer, 503, {"error": {"message": "declined"}})
        return await self.generate(reader, writer, path, json.loads(body))

    async def change_adapter(self, path, call):
        """(status, text); a path that ends in `/missing` has no adapter."""
        name, root = call.get("lora_name"), call.get("lora_path")
        loads = path == "/v1/load_lora_adapter"
        if not name or (loads and not root):
            return 400, "lora_name or lora_path is missing"
        if not loads:
            self.engine.slots.pop(name, None)
            return (200, "unloaded") if self.adapters.pop(name, None) else (404, "no such adapter")
        if name in self.adapters:
            return 400, "it is there already"
        if root.endswith("/missing"):
            return 404, "nothing is at lora_path"
        self.adapters[name] = root
        if len(self.engine.slots) < self.options.slots:
            await self.engine.place_adapter(name)
        return 200, "loaded"

    async def generate(self, reader, writer, path, call):
        model = call["model"]
        if model != self.options.model and model not in self.adapters:
            return await self.answer(writer, 404, {"error": {"message": "no such model",
                                                             "type": "NotFoundError"}})
        prompt = json.dumps(call.get("messages") or call.get("prompt") or call.get("input"))
        tokens = 1 if path == "/v1/embeddings" else int(
            call.get("max_completion_tokens") or call.get("max_tokens", 16))
        job = Job(model if model in self.adapters else None,
                  len(prompt) // CHARACTERS_PER_TOKEN, tokens)
        self.engine.waiting.append(job)
        self.engine.more.set()
        work = asyncio.ensure_future(self.stream(writer, job, model, (call.get(
            "stream_options") or {}).get("include_usage")) if call.get("stream")
                                     else self.whole(writer, job, path, model))
        gone = asyncio.ensure_future(reader.read(1))  # no client pipelines
        await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
        # A write to a connection that is gone fails, perhaps before the reader says so.
        if work.done() and not isinstance(work.exception(), ConnectionError):
            gone.cancel()
            await asyncio.gather(gone, return_exceptions=True)
            return work.result()
        self.cancelled += 1
        job.gone = True
        work.cancel()
        await asyncio.gather(work, gone, return_exceptions=True)
        return False

    async def whole(self, writer, job, path, model):
        text = "".join([await job.tokens.get() for _ in range(job.left)])
        if self.fault == "cut":
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{")
            return False
        choice = {"message": {"role": "assistant", "content": text}} if "chat" in path else {"text": text}
        kinds = {"object": "list", "data": [{"object": "embedding", "index": 0, "embedding": [0.5] * 4}]} \
            if path == "/v1/embeddings" else {
                "object": "chat.completion" if "chat" in path else "text_completion",
                "choices": [{"index": 0, **choice, "finish_reason": "length"}]}
        return await self.answer(writer, 200, {
            **self.head(model), **kinds, "usage": self.usage(job)})

    @staticmethod
    def head(model):
        return {"id": f"sim-{time.monotonic_ns()}", "created": int(time.time()), "model": model}

    @staticmethod
    def usage(job):
        return {"prompt_tokens": job.prompt_tokens, "completion_tokens": job.made,
                "total_tokens": job.prompt_tokens + job.made}

    async def stream(self, writer, job, model, usage):
        first = await job.tokens.get()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nX-Served-By: "
                     + self.options.name.encode() + self.report_header().encode()
                     + b"\r\nTransfer-Encoding: chunked\r\n\r\n")
        total = job.made + job.left
        for number in range(1, total + 1):
            if self.fault == "cut" and number > 3:
                return False
            if self.fault == "tear" and number > 3:
                self.chunk(writer, b'data: {"choi')
                return False
            text = first if number == 1 else await job.tokens.get()
            event = json.dumps({"object": "chat.completion.chunk", **self.head(model), "choices": [
                {"index": 0, "delta": {"content": text}, "text": text}]})
            self.chunk(writer, f"data: {event}\n\n".encode())
            await writer.drain()
        if usage:
            event = json.dumps({"object": "chat.completion.chunk", **self.head(model), "choices": [],
                                "usage": self.usage(job)})
            self.chunk(writer, f"data: {event}\n\n".encode())
        self.chunk(writer, b"data: [DONE]\n\n")
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True

    @staticmethod
    def chunk(writer, data):
        writer.write(b"%x\r\n%s\r\n" % (len(data), data))

    def report_header(self):
        if "endpoint-load-metrics-format" not in self.last.get("headers", {}):
            return ""
        return "\r\nEndpoint-Load-Metrics: " + self.engine.report()

    async def answer(self, writer, code, body, kind="application/json"):
        data = (body if isinstance(body, str) else json.dumps(body)).encode()
        writer.write(f"HTTP/1.1 {code} X\r\nContent-Type: {kind}\r\nX-Served-By: {self.options.name}"
                     f"{self.report_header()}\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data)
        await writer.drain()
        return True


def tls_context(options):
    if not options.certificate:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=options.client_ca)
    context.load_cert_chain(options.certificate, options.key)
    if options.client_ca:
        context.verify_mode = ssl.CERT_REQUIRED
    return context


async def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--name", default="llm-server")
    parser.add_argument("--model", default="base")
    parser.add_argument("--adapters", default="", help="names, comma-separated")
    parser.add_argument("--slots", type=int, default=4, help="adapters loaded at a time")
    parser.add_argument("--speed", type=float, default=1)
    parser.add_argument("--certificate", help="serve with TLS")
    parser.add_argument("--key")
    parser.add_argument("--client-ca", help="clients must show a certificate of this authority")
    server = Server(parser.parse_args())
    listener = await asyncio.start_server(server.connection, "127.0.0.1", server.options.port,
                                          ssl=tls_context(server.options))
    print(f"{server.options.name}: http://127.0.0.1:{server.options.port}", flush=True)
    async with listener:
        await asyncio.gather(server.engine.run(), listener.serve_forever())


try:
    asyncio.run(main())
except KeyboardInterrupt:
    sys.exit(0)
