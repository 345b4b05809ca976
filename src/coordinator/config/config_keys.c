/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/config/config_keys.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "coordinator/config/config.h"
#include "ipc/counters.h"
#include "ipc/sandbox.h"
#include "shm/client_regions.h"

#define TOP(field) offsetof(struct config, field)
#define PIPELINE(field) offsetof(struct config_pipeline, field)
#define STAGE(field) offsetof(struct config_stage, field)
#define ALLOW(field) offsetof(struct config_allow, field)

enum { PATH_BYTES_MAX = 4095, HOUR_MS = 3600 * 1000, MIB = 1 << 20, CALLS_MAX = 65536 };
enum { SHARED_MEMORY_REGIONS_MAX = 1024 };

const struct config_key config_keys[KEY_COUNT] = {
    /* clang-format off */
[KEY_LISTEN] = {WHERE_TOP, CONFIG_ADDRESSES, OPTIONAL, "listen", 1, CONFIG_LISTEN_MAX,
    NULL, "port:8033", NULL, FIELD_NONE, 0, TOP(listen),
    "Addresses for gRPC: `port:8033` (all interfaces), `127.0.0.1:8033`, `[::1]:8033`, "
    "`unix:/run/shoal/grpc.sock` (at most 107 bytes). Port 0: any free one."},
[KEY_HTTP] = {WHERE_TOP, CONFIG_HTTP_ADDRESSES, OPTIONAL, "http", 1, CONFIG_LISTEN_MAX,
    NULL, NULL, NULL, FIELD_NONE, 0, TOP(http),
    "Addresses for REST, in the forms of `listen`; with TLS: `{address: port:8008, tls: yes}`."},
[KEY_METRICS] = {WHERE_TOP, CONFIG_HTTP_ADDRESSES, OPTIONAL, "metrics", 1, CONFIG_LISTEN_MAX,
    NULL, NULL, NULL, FIELD_NONE, 0, TOP(metrics),
    "Addresses of Prometheus' `/metrics`, such as `port:2112`."},
[KEY_PROBES] = {WHERE_TOP, CONFIG_HTTP_ADDRESSES, OPTIONAL, "probes", 1, CONFIG_LISTEN_MAX,
    NULL, NULL, NULL, FIELD_NONE, 0, TOP(probes),
    "Addresses of an orchestrator's `/ready` and `/live`: `port:8089`."},
[KEY_PRESTOP] = {WHERE_TOP, CONFIG_HTTP_ADDRESSES, OPTIONAL, "prestop", 1, CONFIG_LISTEN_MAX,
    NULL, NULL, NULL, FIELD_NONE, 0, TOP(prestop),
    "Addresses of `/prestop`, for preStop hooks: it answers when the node has drained."},
[KEY_DASHBOARD] = {WHERE_TOP, CONFIG_HTTP_ADDRESSES, OPTIONAL, "dashboard", 1, CONFIG_LISTEN_MAX,
    NULL, NULL, NULL, FIELD_NONE, 0, TOP(dashboard.addresses),
    "Addresses of the dashboard, a web page, such as `127.0.0.1:8088`. Beyond this machine it "
    "needs `dashboard_token`, or `{address: port:8088, tls: yes}` with the `client_ca` of `tls`."},
[KEY_DASHBOARD_TOKEN] = {WHERE_TOP, CONFIG_TEXT, OPTIONAL, "dashboard_token", 1, PATH_BYTES_MAX,
    NULL, NULL, NULL, FIELD_NONE, 0, TOP(dashboard.token_file),
    "File whose first line opens the dashboard: 16 to 256 letters, digits or `-._~+/=`. Programs "
    "send it as `Authorization: Bearer`. Read at the start."},
[KEY_DASHBOARD_VIEWERS] = {WHERE_TOP, CONFIG_INTEGER, OPTIONAL, "dashboard_viewers", 1, 1024, NULL,
    "16", NULL, FIELD_U32, 1, TOP(dashboard.viewers_max),
    "Pages that may be open at once; further ones are refused."},
[KEY_DASHBOARD_INFER] = {WHERE_TOP, CONFIG_CHOICE, OPTIONAL, "dashboard_infer", 0, 0, NULL,
    "off", "on|off", FIELD_NONE, 0, TOP(dashboard.infer),
    "Whether the dashboard's form may call models, with at most `http_large_kib` per request."},
[KEY_RUNTIME] = {WHERE_TOP, CONFIG_ADDRESSES, OPTIONAL, "runtime", 1, CONFIG_LISTEN_MAX,
    NULL, NULL, NULL, FIELD_NONE, 0, TOP(runtime),
    "Addresses of `mmesh.ModelRuntime`, by which a mesh loads and unloads models: `port:8085` "
    "(this machine only), `0.0.0.0:8085`, `unix:/run/shoal/runtime.sock`. An address that is also "
    "in `listen` is one endpoint for both."},
[KEY_SOCKET_MODE] = {WHERE_TOP, CONFIG_TEXT, OPTIONAL, "socket_mode", 1, 4, NULL,
    NULL, NULL, FIELD_NONE, 0, TOP(socket_mode),
    "Octal mode of the unix sockets of `listen` and `runtime`: `0660` is for the node's user and "
    "group. Left out: set by the umask."},
[KEY_CPUS] = {WHERE_TOP, CONFIG_CPUS, OPTIONAL, "cpus", 1, CONFIG_CPUS_MAX, NULL,
    NULL, NULL, FIELD_NONE, 0, TOP(cpus),
    "CPUs that the coordinator runs on. Left out: not pinned."},
[KEY_FRONT_THREADS] = {WHERE_TOP, CONFIG_INTEGER, OPTIONAL, "front_threads", 1, 16, NULL,
    "1", NULL, FIELD_U32, 1, TOP(front_threads),
    "Threads that take calls, each with a completion queue of its own."},
[KEY_MESSAGE_MIB] = {WHERE_TOP, CONFIG_INTEGER, OPTIONAL, "message_mib", 1, 2047, "MiB",
    "16", NULL, FIELD_U64, MIB, TOP(message_bytes_max),
    "Largest message received or sent, by its decompressed size; a larger one gets "
    "RESOURCE_EXHAUSTED."},
[KEY_COMPRESSION] = {WHERE_TOP, CONFIG_CHOICE, OPTIONAL, "compression", 0, 0, NULL,
    "on", "on|off", FIELD_NONE, 0, TOP(compression),
    "Whether callers may compress messages."},
[KEY_CONNECTIONS_MAX] = {WHERE_TOP, CONFIG_INTEGER, OPTIONAL, "connections_max", 1, 65535, NULL,
    "2048", NULL, FIELD_U32, 1, TOP(connections_max),
    "Connections to each address of `listen`; further ones are closed. All together may use a "
    "quarter of the process's descriptors."},
[KEY_CONNECTIONS_PER_PEER_MAX] = {WHERE_TOP, CONFIG_INTEGER, OPTIONAL, "connections_per_peer_max",
    0, 65535, NULL,
    "0", NULL, FIELD_U32, 1, TOP(connections_per_peer_max),
    "Connections from one machine, by its address, to all of `listen`; unix sockets do not count. "
    "0: half of `connections_max`."},
[KEY_STREAMS_PER_CONNECTION_MAX] = {WHERE_TOP, CONFIG_INTEGER, OPTIONAL,
    "streams_per_connection_max", 1, 65535, "calls",
    "256", NULL, FIELD_U32, 1, TOP(streams_per_connection_max),
    "Concurrent calls per connection to `listen`; further ones wait in the client. A connection "
    "that ignores the limit is closed, and so is the largest one when all together have 64 times "
    "as many."},
[KEY_STREAM_WINDOW_KIB] = {WHERE_TOP, CONFIG_INTEGER, OPTIONAL, "stream_window_kib", 0, 16384,
    "KiB", "24", NULL, FIELD_U64, 1024, TOP(stream_window_bytes),
    "How much a caller, or an external runtime, may send ahead on a stream that the node passes "
    "on. A larger message takes one more round trip. Only with `mesh`. 0: as much as the network "
    "takes, many MiB per stream."},
[KEY_SEND_TIMEOUT_MS] = {WHERE_TOP, CONFIG_INTEGER, OPTIONAL, "send_timeout_ms", 0, HOUR_MS,
    "ms", "10000", NULL, FIELD_I64, NS_PER_MS, TOP(send_timeout_ns),
    "A caller that has not taken an answer within this time, plus a second per 64 KiB, is "
    "disconnected; after one second while other calls are refused. Over HTTP for answers with "
    "binary data. 0: never."},
[KEY_DRAIN_TIMEOUT_MS] = {WHERE_TOP, CONFIG_INTEGER, OPTIONAL, "drain_timeout_ms", 0, HOUR_MS,
    "ms", "30000", NULL, FIELD_I64, NS_PER_MS, TOP(drain_timeout_ns),
    "Time that requests in flight have to finish after SIGTERM before the workers are stopped."},
[KEY_UPGRADE_TIMEOUT_MS] = {WHERE_TOP, CONFIG_INTEGER, OPTIONAL, "upgrade_timeout_ms", 1,
    24 * HOUR_MS, "ms", "300000", NULL, FIELD_I64, NS_PER_MS, TOP(upgrade_timeout_ns),
    "Time that the process started by `shoalctl upgrade` has to become ready, its `--check` "
    "included. Then it is killed, and this one serves on."},
[KEY_KEEPALIVE_TIME_MS] = {WHERE_TOP, CONFIG_INTEGER, OPTIONAL, "keepalive_time_ms", 0,
    24 * HOUR_MS, "ms", "60000", NULL, FIELD_I64, NS_PER_MS, TOP(keepalive_time_ns),
    "A client that has been silent for this time is pinged. 0: never."},
[KEY_KEEPALIVE_TIMEOUT_MS] = {WHERE_TOP, CONFIG_INTEGER, OPTIONAL, "keepalive_timeout_ms", 1,
    HOUR_MS, "ms", "20000", NULL, FIELD_I64, NS_PER_MS, TOP(keepalive_timeout_ns),
    "A client that does not answer a ping within this time is disconnected."},
[KEY_HTTP_CONNECTIONS] = {WHERE_TOP, CONFIG_INTEGER, OPTIONAL, "http_connections", 1, CALLS_MAX,
    NULL, "1024", NULL, FIELD_U32, 1, TOP(http_limits.connections_max),
    "Connections to `http`, at most a quarter of the process's descriptors. A further one replaces "
    "the one that has been idle longest; if none is idle, it is answered 503."},
[KEY_HTTP_ADDRESS_CONNECTIONS] = {WHERE_TOP, CONFIG_INTEGER, OPTIONAL,
    "http_connections_per_address", 0, CALLS_MAX, NULL, "512", NULL, FIELD_U32, 1,
    TOP(http_limits.address_connections_max),
    "Connections from one client address to any one of `http`, `metrics`, `probes` and `prestop`. "
    "0: no limit."},
[KEY_METRICS_CONNECTIONS] = {WHERE_TOP, CONFIG_INTEGER, OPTIONAL, "metrics_connections", 1,
    CALLS_MAX, NULL, "64", NULL, FIELD_U32, 1, TOP(http_limits.metrics_connections_max),
    "Connections to `metrics`, likewise."},
[KEY_PROBE_CONNECTIONS] = {WHERE_TOP, CONFIG_INTEGER, OPTIONAL, "probe_connections", 1, CALLS_MAX,
    NULL, "128", NULL, FIELD_U32, 1, TOP(http_limits.probe_connections_max),
    "Connections to `probes`, and as many to `prestop`, likewise."},
[KEY_HTTP_IDLE_TIMEOUT_MS] = {WHERE_TOP, CONFIG_INTEGER, OPTIONAL, "http_idle_timeout_ms", 1,
    HOUR_MS, "ms", "75000", NULL, FIELD_I64, NS_PER_MS, TOP(http_limits.idle_timeout_ns),
    "An HTTP connection on which no request begins for this time is closed."},
[KEY_HTTP_HEADER_TIMEOUT_MS] = {WHERE_TOP, CONFIG_INTEGER, OPTIONAL, "http_header_timeout_ms", 1,
    HOUR_MS, "ms", "10000", NULL, FIELD_I64, NS_PER_MS, TOP(http_limits.header_timeout_ns),
    "Time for the head of an HTTP request, from its first byte."},
[KEY_HTTP_BODY_TIMEOUT_MS] = {WHERE_TOP, CONFIG_INTEGER, OPTIONAL, "http_body_timeout_ms", 1,
    HOUR_MS, "ms", "75000", NULL, FIELD_I64, NS_PER_MS, TOP(http_limits.body_timeout_ns),
    "Time for the body of an HTTP request, plus a second for each 64 KiB, and the longest pause "
    "within it."},
[KEY_HTTP_WRITE_TIMEOUT_MS] = {WHERE_TOP, CONFIG_INTEGER, OPTIONAL, "http_write_timeout_ms", 1,
    HOUR_MS, "ms", "75000", NULL, FIELD_I64, NS_PER_MS, TOP(http_limits.write_timeout_ns),
    "Time in which an HTTP client must take the answer, likewise."},
[KEY_HTTP_LARGE_KIB] = {WHERE_TOP, CONFIG_INTEGER, OPTIONAL, "http_large_kib", 1, CALLS_MAX, "KiB",
    "64", NULL, FIELD_U64, 1024, TOP(http_limits.large_bytes),
    "Larger bodies of REST requests are read by a thread of their own."},
[KEY_HTTP_LARGE_WAITING] = {WHERE_TOP, CONFIG_INTEGER, OPTIONAL, "http_large_waiting", 1, CALLS_MAX,
    NULL, "256", NULL, FIELD_U32, 1, TOP(http_limits.large_waiting_max),
    "Large bodies that may wait for that thread; further ones are answered 429."},
[KEY_HTTP_LARGE_WAITING_MIB] = {WHERE_TOP, CONFIG_INTEGER, OPTIONAL, "http_large_waiting_mib", 1,
    MIB, "MiB", "256", NULL, FIELD_U64, MIB, TOP(http_limits.large_waiting_bytes_max),
    "Bytes of the bodies that wait so, as they came. Beside them two at most are in memory as "
    "decompressed and read: four times `message_mib`."},
[KEY_HTTP_HOSTS] = {WHERE_TOP, CONFIG_LABELS, OPTIONAL, "http_hosts", 1, CONFIG_LABELS_MAX,
    NULL, NULL, NULL, FIELD_NONE, 0, TOP(http_hosts),
    "Names, in lower case and without ports, by which clients of `http` reach this node, such as "
    "the name of a proxy before it, beside its addresses, `localhost` and this machine's name. "
    "Another `Host`, and a web page's `Origin` that is neither the request's own host nor one of "
    "these, is answered 403. Left out: any `Host` is accepted, except on loopback addresses."},
[KEY_HTTP_CONTROL] = {WHERE_TOP, CONFIG_CHOICE, OPTIONAL, "http_control", 0, 0, NULL,
    "off", "on|off", FIELD_NONE, 0, TOP(http_control),
    "Whether callers, over HTTP and gRPC, may load and unload models by Triton's protocol, and "
    "those of this machine send tensors in shared memory. Not in a mesh."},
[KEY_SHARED_MEMORY_REGIONS] = {WHERE_TOP, CONFIG_INTEGER, OPTIONAL, "shared_memory_regions", 1,
    SHARED_MEMORY_REGIONS_MAX, NULL, "64", NULL, FIELD_U32, 1, TOP(shared_memory_regions),
    "Regions of shared memory, each with a descriptor, that may be registered or still used by "
    "calls at a time."},
[KEY_REPOSITORY_WAITING] = {WHERE_TOP, CONFIG_INTEGER, OPTIONAL, "repository_waiting", 1, CALLS_MAX,
    NULL, "64", NULL, FIELD_U32, 1, TOP(repository_waiting_max),
    "Calls, over HTTP and gRPC, that may wait for lists, statistics, loads and unloads of models; "
    "further ones are answered RESOURCE_EXHAUSTED, 429."},
[KEY_COUNTERS] = {WHERE_TOP, CONFIG_TEXT, OPTIONAL, "counters", 1, COUNTERS_PATH_BYTES_MAX, NULL,
    NULL, NULL, FIELD_NONE, 0, TOP(counters),
    "The counters file, which `shoalctl stat` reads. Left out: `/run/shoal/counters` for root, "
    "else `shoal/counters` in `$XDG_RUNTIME_DIR`, or `/tmp/shoal-<uid>/counters`."},
[KEY_LOG_LEVEL] = {WHERE_TOP, CONFIG_CHOICE, OPTIONAL, "log_level", 0, 0, NULL,
    "info", "error|warn|info|debug", FIELD_NONE, 0, TOP(log_level),
    "Lowest severity that is logged on stderr."},
[KEY_LOG_FORMAT] = {WHERE_TOP, CONFIG_CHOICE, OPTIONAL, "log_format", 0, 0, NULL,
    "logfmt", "logfmt|json", FIELD_NONE, 0, TOP(log_format),
    "Form of the log's lines: `logfmt` after time, level and program, or one JSON object a line."},
[KEY_ACCESS_LOG] = {WHERE_TOP, CONFIG_INTEGER, OPTIONAL, "access_log", 0, MIB, NULL,
    "0", NULL, FIELD_U32, 1, TOP(access_log),
    "Logs every n-th inference call (`call`) at level `info`; 0: none."},
[KEY_EVENT_LOG_LINES] = {WHERE_TOP, CONFIG_INTEGER, OPTIONAL, "event_log_lines", 0, MIB, NULL,
    "100", NULL, FIELD_U32, 1, TOP(event_log_lines),
    "Lines per ten seconds for each event that others can cause at will. One line says how many "
    "more were dropped. 0: no limit."},
[KEY_WORKER_LOG_KIB_PER_S] = {WHERE_TOP, CONFIG_INTEGER, OPTIONAL, "worker_log_kib_per_s", 0, MIB,
    "KiB", "64", NULL, FIELD_U64, 1024, TOP(worker_log_bytes_per_s),
    "Output of each worker that is logged per second; bursts may have four seconds' worth. The "
    "rest is dropped and counted. 0: no limit."},
[KEY_SANDBOX] = {WHERE_TOP, CONFIG_CHOICE, OPTIONAL, "sandbox", 0, 0, NULL,
    "best_effort", "best_effort|required", FIELD_NONE, 0, TOP(sandbox),
    "Where the kernel lacks a part of a stage's sandbox, `best_effort` reports it in the log and "
    "`shoalctl status`; `required` does not start the worker."},
[KEY_CALLER_METADATA] = {WHERE_TOP, CONFIG_NAME, OPTIONAL, "caller_metadata", 1,
    CONFIG_NAME_BYTES_MAX, NULL,
    "shoal-caller", NULL, FIELD_NONE, 0, TOP(caller_metadata),
    "Metadata key, in lower case, by which callers identify themselves for fair shares. Callers "
    "with a certificate (`client_ca`) are known by its names, callers with neither by their "
    "machine's address."},
[KEY_CALLER_PROXIES] = {WHERE_TOP, CONFIG_LABELS, OPTIONAL, "caller_proxies", 1, CONFIG_LABELS_MAX,
    NULL, NULL, NULL, FIELD_NONE, 0, TOP(caller_proxies),
    "Certificates of callers that call for others and whose `caller_metadata` is believed: one "
    "exact name, common or alternative, for each. Needs `tls` with `client_ca`."},
[KEY_TRACES] = {WHERE_TOP, CONFIG_TEXT, OPTIONAL, "traces", 1, PATH_BYTES_MAX, NULL,
    NULL, NULL, FIELD_NONE, 0, TOP(traces),
    "Destination of the spans of traced requests, as OTLP/JSON: `file:/var/log/shoal/spans.jsonl`, "
    "or a collector's URL, `http://127.0.0.1:4318/v1/traces`. A request is traced if its W3C "
    "`traceparent` is flagged as sampled."},
[KEY_TRACE_SAMPLE] = {WHERE_TOP, CONFIG_DECIMAL, OPTIONAL, "trace_sample", 0, 1, NULL,
    "0", NULL, FIELD_U64, INT64_C(1) << 32, TOP(trace_sample),
    "Share of the requests without a `traceparent` that are traced, too. Only with `traces`."},
[KEY_MODELS_CACHE_GIB] = {WHERE_TOP, CONFIG_DECIMAL, OPTIONAL, "models_cache_gib", 0, MIB, "GiB",
    "0", NULL, FIELD_U64, INT64_C(1) << 30, TOP(storage.cache_bytes),
    "Disk space for models whose path is an URI or whose key names a storage (docs/storage.md). "
    "Models that are loaded stay in it, of the others those that were used last. 0: such models "
    "are refused. Needs a restart, like the next ones."},
[KEY_MODELS_CACHE] = {WHERE_TOP, CONFIG_TEXT, OPTIONAL, "models_cache", 1, 1023, NULL,
    NULL, NULL, FIELD_NONE, 0, TOP(storage.cache),
    "Folder of that cache. Left out: `models` in systemd's `CacheDirectory=`, else "
    "`shoal/models` in `$XDG_CACHE_HOME`, `/var/cache` for root, or `~/.cache`."},
[KEY_STORAGE_CONFIG] = {WHERE_TOP, CONFIG_TEXT, OPTIONAL, "storage_config", 1, PATH_BYTES_MAX, NULL,
    NULL, NULL, FIELD_NONE, 0, TOP(storage.entries),
    "KServe's `storage-config`: a folder with one JSON file per storage key, read for each fetch."},
[KEY_PVC_MOUNTS] = {WHERE_TOP, CONFIG_TEXT, OPTIONAL, "pvc_mounts", 1, PATH_BYTES_MAX, NULL,
    NULL, NULL, FIELD_NONE, 0, TOP(storage.pvc_mounts),
    "Folder in which each claim of `pvc://CLAIM/PATH` is mounted. Left out: `/pvc_mounts`."},
[KEY_FILES_ROOT] = {WHERE_TOP, CONFIG_TEXT, OPTIONAL, "files_root", 1, PATH_BYTES_MAX, NULL,
    NULL, NULL, FIELD_NONE, 0, TOP(storage.files),
    "Folder whose files `file://` may name. Left out: none."},
[KEY_STORAGE_FETCHES] = {WHERE_TOP, CONFIG_INTEGER, OPTIONAL, "storage_fetches", 1, 64, NULL,
    "4", NULL, FIELD_U32, 1, TOP(storage.fetches_max),
    "Models that are fetched at once, each with four files at a time; further ones wait."},
[KEY_TLS] = {WHERE_TOP, CONFIG_TLS, OPTIONAL, "tls", 0, 0, NULL,
    NULL, NULL, FIELD_NONE, 0, 0,
    "TLS for all addresses of `listen`, and for those of `http`, `dashboard`, `metrics`, `probes` "
    "and `prestop` with `tls: yes`. A separate `runtime` and unix sockets of `management` have "
    "none."},
[KEY_MESH] = {WHERE_TOP, CONFIG_MESH, OPTIONAL, "mesh", 0, 0, NULL,
    NULL, NULL, FIELD_NONE, 0, 0,
    "Makes the node a member of a mesh; `mesh: {}` is a mesh of one. Not together with `runtime` "
    "at the top. Left out: no mesh, unless the environment asks for one."},
[KEY_PIPELINES] = {WHERE_TOP, CONFIG_PIPELINES, OPTIONAL, "pipelines", 1, CONFIG_PIPELINES_MAX,
    NULL, NULL, NULL, FIELD_NONE, 0, TOP(pipelines),
    "The pipelines that the node serves. Required, unless `mesh` has a `runtime`."},

[KEY_ADDRESS] = {WHERE_ADDRESS, CONFIG_ADDRESS, REQUIRED, "address", 0, 0, NULL,
    NULL, NULL, FIELD_NONE, 0, 0,
    "The address, in one of the forms of `listen`."},
[KEY_ADDRESS_TLS] = {WHERE_ADDRESS, CONFIG_CHOICE, OPTIONAL, "tls", 0, 0, NULL,
    NULL, "yes|no", FIELD_NONE, 0, offsetof(struct config_transport, tls),
    "`yes`: its clients use TLS, with the certificates of `tls` at the top, and are asked for "
    "theirs as callers are. Not for `management`, which has TLS whenever there is `tls`."},
[KEY_ADDRESS_PLAIN] = {WHERE_ADDRESS, CONFIG_CHOICE, OPTIONAL, "plain", 0, 0, NULL,
    NULL, "yes|no", FIELD_NONE, 0, offsetof(struct config_transport, plain),
    "`yes`: confirms that an address beyond this machine has no TLS although `tls` has "
    "`client_ca`, or, of `management`, asks for no certificates. Without it such a node does not "
    "start."},

[KEY_TLS_CERTIFICATE] = {WHERE_TLS, CONFIG_TEXT, REQUIRED, "certificate", 1, PATH_BYTES_MAX, NULL,
    NULL, NULL, FIELD_NONE, 0, TOP(tls.certificate),
    "PEM file: this node's certificate, followed by the intermediate ones. All of these files "
    "are read again when they change."},
[KEY_TLS_KEY] = {WHERE_TLS, CONFIG_TEXT, REQUIRED, "key", 1, PATH_BYTES_MAX, NULL,
    NULL, NULL, FIELD_NONE, 0, TOP(tls.key),
    "PEM file of the certificate's private key. An encrypted key needs `key_password_file`."},
[KEY_TLS_PASSWORD] = {WHERE_TLS, CONFIG_TEXT, OPTIONAL, "key_password_file", 1, PATH_BYTES_MAX,
    NULL,
    NULL, NULL, FIELD_NONE, 0, TOP(tls.key_password_file),
    "File whose first line is the password of `key`. Left out: no password."},
[KEY_TLS_CLIENT_CA] = {WHERE_TLS, CONFIG_TEXT, OPTIONAL, "client_ca", 1, PATH_BYTES_MAX, NULL,
    NULL, NULL, FIELD_NONE, 0, TOP(tls.ca),
    "PEM file of the authorities that sign callers' certificates. Left out: callers are not asked "
    "for certificates."},
[KEY_TLS_CLIENT_AUTH] = {WHERE_TLS, CONFIG_CHOICE, OPTIONAL, "client_auth", 0, 0, NULL,
    NULL, "required|optional|none", FIELD_NONE, 0, TOP(tls.client_auth),
    "Whether callers must show a certificate; with `optional` a certificate that is shown must be "
    "valid. Left out: `required` if there is `client_ca`."},

[KEY_MESH_STORE] = {WHERE_MESH, CONFIG_TEXT, OPTIONAL, "store", 1, PATH_BYTES_MAX, NULL,
    "memory", NULL, FIELD_NONE, 0, TOP(mesh.store),
    "Store of the registered models. For one node: `memory`, lost with the process, or "
    "`file:PATH`. Shared by all nodes: `etcd:http://a:2379,http://b:2379`, optionally followed by "
    "`;rootPrefix=/x`, a prefix of all keys, or `etcd:PATH.json`, a file with `endpoints`, "
    "`userid`, `password`, `root_prefix`, `certificate_file` …."},
[KEY_MESH_RUNTIME] = {WHERE_MESH, CONFIG_TEXT, OPTIONAL, "runtime", 1, 255, NULL,
    NULL, NULL, FIELD_NONE, 0, TOP(mesh.runtime),
    "Another process that loads and serves the mesh's models for this node, by "
    "`mmesh.ModelRuntime`: `unix:PATH` or `HOST:PORT`. Pipelines with `models` beside it must have "
    "`types`."},
[KEY_MESH_CALLS] = {WHERE_MESH, CONFIG_TEXT, OPTIONAL, "runtime_calls", 1, 255, NULL,
    NULL, NULL, FIELD_NONE, 0, TOP(mesh.runtime_calls),
    "Address at which that process serves the models, in the same form. Left out: the address of "
    "`runtime`."},
[KEY_MESH_RUNTIME_TYPES] = {WHERE_MESH, CONFIG_LABELS, OPTIONAL, "runtime_types", 1,
    CONFIG_LABELS_MAX, NULL,
    NULL, NULL, FIELD_NONE, 0, TOP(mesh.runtime_types),
    "Model types that `runtime` loads beside pipelines with `models`, named as in their `types`. A "
    "type in none of these lists is refused. Left out: all that no pipeline lists."},
[KEY_MESH_PREFIX] = {WHERE_MESH, CONFIG_NAME, OPTIONAL, "prefix", 1, CONFIG_NAME_BYTES_MAX, NULL,
    "tas-runtime", NULL, FIELD_NONE, 0, TOP(mesh.prefix),
    "Second part of all keys in etcd, after the root prefix."},
[KEY_MESH_SERVICE] = {WHERE_MESH, CONFIG_NAME, OPTIONAL, "service", 1, CONFIG_NAME_BYTES_MAX, NULL,
    "shoal", NULL, FIELD_NONE, 0, TOP(mesh.service),
    "Third part of all keys in etcd: nodes of one service are one mesh."},
[KEY_MESH_INSTANCE] = {WHERE_MESH, CONFIG_NAME, OPTIONAL, "instance", 1, CONFIG_NAME_BYTES_MAX,
    NULL, NULL, NULL, FIELD_NONE, 0, TOP(mesh.instance),
    "This node's id, unique in the mesh. Left out: the last 12 characters of the host's name."},
[KEY_MESH_PEERS] = {WHERE_MESH, CONFIG_ADDRESSES, OPTIONAL, "peers", 1, CONFIG_LISTEN_MAX, NULL,
    "port:8080", NULL, FIELD_NONE, 0, TOP(mesh.peers),
    "Addresses for other nodes of the mesh. Only with etcd."},
[KEY_MESH_UPGRADE_PEERS] = {WHERE_MESH, CONFIG_ADDRESSES, OPTIONAL, "upgrade_peers", 1,
    CONFIG_LISTEN_MAX, NULL, NULL, NULL, FIELD_NONE, 0, TOP(mesh.upgrade_peers),
    "The same for a process that `shoalctl upgrade` starts while the one before has those of "
    "`peers`. Left out: `peers` with any free port."},
[KEY_MESH_ADDRESS] = {WHERE_MESH, CONFIG_TEXT, OPTIONAL, "address", 1, 255, NULL,
    NULL, NULL, FIELD_NONE, 0, TOP(mesh.address),
    "HOST or HOST:PORT at which other nodes reach the first of `peers`. Left out: the host of "
    "that address, or the address of this host's name; a loopback address is refused unless "
    "etcd's is one, too."},
[KEY_MESH_TLS] = {WHERE_MESH, CONFIG_TLS, OPTIONAL, "tls", 0, 0, NULL,
    NULL, NULL, FIELD_NONE, 0, 0,
    "TLS between nodes, with certificates on both sides; all nodes of a mesh have it, or none. "
    "Only with etcd."},
[KEY_MESH_MANAGEMENT] = {WHERE_MESH, CONFIG_MANAGEMENT, OPTIONAL, "management", 1,
    CONFIG_LISTEN_MAX, NULL,
    NULL, NULL, FIELD_NONE, 0, 0,
    "Addresses that serve `mmesh.ModelMesh`: one, a list, or a map, below. A unix socket beside "
    "the file of `counters`, with its name and `.manage`, always serves it to the node's own user. "
    "These serve no inference unless all of `listen` is among them. Left out: that socket; with "
    "`MM_SERVICE_NAME` also the addresses of `listen`."},
[KEY_MESH_LABELS] = {WHERE_MESH, CONFIG_LABELS, OPTIONAL, "labels", 1, CONFIG_LABELS_MAX, NULL,
    NULL, NULL, FIELD_NONE, 0, TOP(mesh.labels),
    "Labels that this node offers, for `type_constraints`."},
[KEY_MESH_TYPES] = {WHERE_MESH, CONFIG_JSON, OPTIONAL, "type_constraints", 1, 65536, NULL,
    NULL, NULL, FIELD_NONE, 0, TOP(mesh.type_constraints),
    "File with the labels that models of a type need or prefer, or the JSON itself: `{\"TYPE\": "
    "{\"required\": [LABEL…], \"preferred\": [LABEL…]}, \"_default\": …}`."},
[KEY_MESH_DATAPLANE] = {WHERE_MESH, CONFIG_JSON, OPTIONAL, "dataplane", 1, 65536, NULL,
    NULL, NULL, FIELD_NONE, 0, TOP(mesh.dataplane),
    "File with the methods that callers may call and the field that has the model's id, or the "
    "JSON itself: `{\"rpcConfigs\": {\"package.Service/Method\": {\"idExtractionPath\": [1], "
    "\"vModelId\": true}, …}, \"allowOtherRpcs\": true}`. Read again when it changes. Left out: "
    "all methods."},
[KEY_MESH_REGISTER] = {WHERE_MESH, CONFIG_JSON, OPTIONAL, "register", 1, 65536, NULL,
    NULL, NULL, FIELD_NONE, 0, TOP(mesh.registered),
    "File with at most 4096 models that the node registers when it starts, or the JSON itself: "
    "`[{\"modelId\": ID, \"modelInfo\": {\"type\": TYPE, \"path\": PATH, \"key\": KEY}, "
    "\"vModelId\": ID, \"retainAfterTransition\": false, \"ensureLoaded\": false}, …]`. The node "
    "is ready when all are registered, and ends if one cannot be."},
[KEY_MESH_RPM] = {WHERE_MESH, CONFIG_INTEGER, OPTIONAL, "scaleup_rpm", 10, 10000000,
    "calls a minute", "2000", NULL, FIELD_U32, 1, TOP(mesh.scaleup_rpm),
    "A model gets one more copy, on another node, when a copy answers more calls than this."},
[KEY_MESH_PERCENT] = {WHERE_MESH, CONFIG_INTEGER, OPTIONAL, "scaleup_percent", 10, 200, "%",
    "90", NULL, FIELD_U32, 1, TOP(mesh.scaleup_percent),
    "For a model whose runtime limits its concurrent calls: it gets one more copy when one is busy "
    "for more than this part of its time."},
[KEY_MESH_WAITING] = {WHERE_MESH, CONFIG_INTEGER, OPTIONAL, "waiting_max", 0, CALLS_MAX, "calls",
    "0", NULL, FIELD_U32, 1, TOP(mesh.waiting_max),
    "For such a model: the calls that may wait for a copy on its node; further ones go to another "
    "copy, or are refused. 0: eight times its concurrent calls, at least 16."},
[KEY_MESH_FAILURE_EXPIRY] = {WHERE_MESH, CONFIG_INTEGER, OPTIONAL, "failure_expiry_ms", 1000,
    24 * HOUR_MS, "ms", "900000", NULL, FIELD_I64, NS_PER_MS, TOP(mesh.failure_expiry_ns),
    "Time after which a node tries again to load a model that it could not load; half of it if "
    "the model is in use."},
[KEY_MESH_CLEARANCE] = {WHERE_MESH, CONFIG_INTEGER, OPTIONAL, "clearance_ms", 0, 24 * HOUR_MS, "ms",
    "180000", NULL, FIELD_I64, NS_PER_MS, TOP(mesh.clearance_ns),
    "A node that, within this time of its start, fails to load three models that other nodes have "
    "loaded is not ready until it is restarted, so that a rolling upgrade stops. 0: it is ready."},
[KEY_MESH_FAIL_FAST] = {WHERE_MESH, CONFIG_CHOICE, OPTIONAL, "fail_fast", 0, 0, NULL,
    "no", "yes|no", FIELD_NONE, 0, TOP(mesh.fail_fast),
    "`yes`: a node that cannot reach its etcd within 10 s of its start ends, with exit code 2. "
    "`no`: it keeps trying and is not ready."},
[KEY_MESH_STORE_WAITING] = {WHERE_MESH, CONFIG_INTEGER, OPTIONAL, "store_waiting_max", 1, 65536,
    "writes", "4096", NULL, FIELD_U32, 1, TOP(mesh.store_waiting_max),
    "Writes of this node that may wait for etcd. Further orders of `mmesh.ModelMesh` are "
    "RESOURCE_EXHAUSTED, and loads for calls are retried each second. Only with etcd."},
[KEY_MESH_NAMES] = {WHERE_MESH, CONFIG_CHOICE, OPTIONAL, "names", 0, 0, NULL,
    "models", "models|vmodels", FIELD_NONE, 0, TOP(mesh.names),
    "Meaning of the name in a request whose metadata name neither a model (`mm-model-id`) nor a "
    "vmodel (`mm-vmodel-id`)."},
[KEY_MESH_OWNER] = {WHERE_MESH, CONFIG_TEXT, OPTIONAL, "vmodel_owner", 1, 255, NULL,
    NULL, NULL, FIELD_NONE, 0, TOP(mesh.vmodel_owner),
    "Owner of vmodels in calls of `mmesh.ModelMesh` that name no owner."},
[KEY_MESH_LOCATION] = {WHERE_MESH, CONFIG_TEXT, OPTIONAL, "location", 1, 255, NULL,
    NULL, NULL, FIELD_NONE, 0, TOP(mesh.location),
    "Place where the node runs, for people who read its record."},
[KEY_MESH_ZONE] = {WHERE_MESH, CONFIG_TEXT, OPTIONAL, "zone", 1, 255, NULL,
    NULL, NULL, FIELD_NONE, 0, TOP(mesh.zone),
    "Failure domain of the node, likewise."},

[KEY_MESH_TLS_CERTIFICATE] = {WHERE_MESH_TLS, CONFIG_TEXT, REQUIRED, "certificate", 1,
    PATH_BYTES_MAX, NULL,
    NULL, NULL, FIELD_NONE, 0, TOP(mesh.tls.certificate),
    "PEM file: this node's certificate, valid for a server and for a client."},
[KEY_MESH_TLS_KEY] = {WHERE_MESH_TLS, CONFIG_TEXT, REQUIRED, "key", 1, PATH_BYTES_MAX, NULL,
    NULL, NULL, FIELD_NONE, 0, TOP(mesh.tls.key),
    "PEM file of the certificate's private key. An encrypted key needs `key_password_file`."},
[KEY_MESH_TLS_PASSWORD] = {WHERE_MESH_TLS, CONFIG_TEXT, OPTIONAL, "key_password_file", 1,
    PATH_BYTES_MAX, NULL,
    NULL, NULL, FIELD_NONE, 0, TOP(mesh.tls.key_password_file),
    "File whose first line is the password of `key`. Left out: no password."},
[KEY_MESH_TLS_CA] = {WHERE_MESH_TLS, CONFIG_TEXT, REQUIRED, "ca", 1, PATH_BYTES_MAX, NULL,
    NULL, NULL, FIELD_NONE, 0, TOP(mesh.tls.ca),
    "PEM file of the authority that signs the certificates of the mesh's nodes. Without "
    "`peer_name` every holder of a certificate from it counts as a node, so it should sign no "
    "others."},
[KEY_MESH_TLS_NAME] = {WHERE_MESH_TLS, CONFIG_TEXT, OPTIONAL, "peer_name", 1, 253,
    NULL,
    NULL, NULL, FIELD_NONE, 0, TOP(mesh.tls.peer_name),
    "DNS name in the certificates of all nodes and in no others; both sides check it. Left out: "
    "the certificate of a node that is called must have its host or address."},

[KEY_MANAGEMENT_ADDRESSES] = {WHERE_MANAGEMENT, CONFIG_HTTP_ADDRESSES, OPTIONAL, "addresses", 1,
    CONFIG_LISTEN_MAX, NULL,
    NULL, NULL, FIELD_NONE, 0, TOP(mesh.management.addresses),
    "`127.0.0.1:8034`, `port:8034` (all interfaces), `unix:/run/shoal/manage.sock`; all of "
    "`listen` or none of it. TCP addresses use the TLS of `tls` at the top; beyond this machine "
    "they need its `client_ca`, or `{address: port:8034, plain: yes}`."},
[KEY_MANAGEMENT_MODE] = {WHERE_MANAGEMENT, CONFIG_TEXT, OPTIONAL, "socket_mode", 1, 4, NULL,
    NULL, NULL, FIELD_NONE, 0, TOP(mesh.management.socket_mode),
    "Octal mode of all unix sockets of management; a user who can connect can manage. Left out: "
    "0600, for the node's own user."},
[KEY_MANAGEMENT_CONNECTIONS_MAX] = {WHERE_MANAGEMENT, CONFIG_INTEGER, OPTIONAL, "connections_max",
    1, 65535, NULL, "256", NULL, FIELD_U32, 1, TOP(mesh.management.connections_max),
    "Connections to each of these addresses and to the socket that is always there; half as many "
    "from one machine. Further ones are closed at once."},
[KEY_MANAGEMENT_ALLOW] = {WHERE_MANAGEMENT, CONFIG_ALLOW, OPTIONAL, "allow", 1, CONFIG_ALLOW_MAX,
    NULL, NULL, NULL, FIELD_NONE, 0, 0,
    "Rights of callers over TLS, by certificate: a call needs one entry that allows all of it, or "
    "gets PERMISSION_DENIED. Needs `tls` with `client_ca`. Left out: every caller has all rights."},

[KEY_ALLOW_IDENTITY] = {WHERE_ALLOW, CONFIG_TEXT, REQUIRED, "identity", 1, 253, NULL,
    NULL, NULL, FIELD_NONE, 0, ALLOW(identity),
    "A name, common or alternative, of the caller's certificate."},
[KEY_ALLOW_METHODS] = {WHERE_ALLOW, CONFIG_CHOICES, OPTIONAL, "methods", 1, 7, NULL,
    NULL, "registerModel|unregisterModel|getModelStatus|ensureLoaded|setVModel|deleteVModel|"
    "getVModelStatus", FIELD_U32, 1, ALLOW(methods),
    "Methods that the caller may call, under their old names, too. Left out: all."},
[KEY_ALLOW_MODELS] = {WHERE_ALLOW, CONFIG_PATTERNS, OPTIONAL, "models", 1, CONFIG_PATTERNS_MAX,
    NULL, NULL, NULL, FIELD_NONE, 0, 0,
    "Ids of models and vmodels that the caller may name; `fraud-*` stands for all that begin so. "
    "A call that names a vmodel and a model needs both. Left out: all."},

[KEY_PIPELINE_NAME] = {WHERE_PIPELINE, CONFIG_NAME, REQUIRED, "name", 1, CONFIG_NAME_BYTES_MAX,
    NULL, NULL, NULL, FIELD_NONE, 0, PIPELINE(name),
    "Model name that callers use, unique in the node."},
[KEY_METHOD] = {WHERE_PIPELINE, CONFIG_TEXT, OPTIONAL, "method", 1, CONFIG_METHOD_BYTES_MAX, NULL,
    NULL, NULL, FIELD_NONE, 0, PIPELINE(method),
    "A unary gRPC method, `/package.Service/Method`, that only this pipeline answers. The modelets "
    "get the request in one input `message` (UINT8), and the last one's output `message` (UINT8, "
    "one dimension) is the answer. Left out: the Open Inference Protocol."},
[KEY_ID_PATH] = {WHERE_PIPELINE, CONFIG_FIELD_NUMBERS, OPTIONAL, "id_path", 1, CONFIG_ID_PATH_MAX,
    NULL, NULL, NULL, FIELD_NONE, 0, PIPELINE(id_path),
    "Place of the model's name in the method's requests: the numbers of the fields that lead to a "
    "string, outermost first. Metadata `mm-model-id` takes precedence. Only with `method` and "
    "`models`."},
[KEY_SLOTS] = {WHERE_PIPELINE, CONFIG_INTEGER, OPTIONAL, "slots", 1, SLOTS_MAX, "requests",
    "1024", NULL, FIELD_U32, 1, PIPELINE(slot_count),
    "Requests in flight; further ones get RESOURCE_EXHAUSTED at once. From 64 on a tenth is kept "
    "for priority 1 and a twentieth for callers with little in flight."},
[KEY_ARENA_MIB] = {WHERE_PIPELINE, CONFIG_INTEGER, OPTIONAL, "arena_mib", 0, MIB, "MiB",
    "0", NULL, FIELD_U64, MIB, PIPELINE(arena_bytes),
    "Memory for the tensors of requests in flight. 0: chosen from `slots` and `message_mib`."},
[KEY_DEFAULT_TIMEOUT_MS] = {WHERE_PIPELINE, CONFIG_INTEGER, OPTIONAL, "default_timeout_ms", 0,
    24 * HOUR_MS, "ms", "0", NULL, FIELD_I64, NS_PER_MS, PIPELINE(default_timeout_ns),
    "Deadline of requests without one. 0: none."},
[KEY_QUEUE_LIMIT_MS] = {WHERE_PIPELINE, CONFIG_INTEGER, OPTIONAL, "queue_limit_ms", 0,
    24 * HOUR_MS, "ms", "0", NULL, FIELD_I64, NS_PER_MS, PIPELINE(queue_limit_ns),
    "A request that is forecast to take longer is refused at once, even if its deadline is later "
    "or it has none. 0: only deadlines count."},
[KEY_QUEUE_WAIT_MS] = {WHERE_PIPELINE, CONFIG_INTEGER, OPTIONAL, "queue_wait_ms", 0,
    24 * HOUR_MS, "ms", "0", NULL, FIELD_I64, NS_PER_MS, PIPELINE(queue_wait_ns),
    "Longest wait of a call that finds no slot, no memory for its tensors, or its caller's share "
    "used up; then it gets RESOURCE_EXHAUSTED. 0: it is refused at once."},
[KEY_QUEUE_WAIT_MAX] = {WHERE_PIPELINE, CONFIG_INTEGER, OPTIONAL, "queue_wait_max", 1, 65535,
    "calls", "256", NULL, FIELD_U32, 1, PIPELINE(queue_wait_max),
    "Calls that may wait for a slot; further ones are refused at once. Shared among callers as "
    "slots are."},
[KEY_QUEUE_WAIT_MIB] = {WHERE_PIPELINE, CONFIG_INTEGER, OPTIONAL, "queue_wait_mib", 1, MIB, "MiB",
    "64", NULL, FIELD_U64, MIB, PIPELINE(queue_wait_bytes),
    "Memory for the messages of waiting calls; each counts 8 KiB more than its size."},
[KEY_SPIN_US] = {WHERE_PIPELINE, CONFIG_INTEGER, OPTIONAL, "spin_us", 0, 1000, "µs",
    "200", NULL, FIELD_I64, NS_PER_US, PIPELINE(spin_ns),
    "Longest time that workers look for work before they sleep."},
[KEY_LOCAL_CLIENTS] = {WHERE_PIPELINE, CONFIG_INTEGER, OPTIONAL, "local_clients", 0,
                         CLIENT_REGIONS_MAX,
    "clients", "0", NULL, FIELD_U32, 1, PIPELINE(local_clients),
    "Programs of root or the node's user on this host that may connect through shared memory "
    "(`shoal/client.h`). Their inputs may change while modelets read them."},
[KEY_LOCAL_SLOTS] = {WHERE_PIPELINE, CONFIG_INTEGER, OPTIONAL, "local_slots", 1, 256, "requests",
    "64", NULL, FIELD_U32, 1, PIPELINE(local_slots),
    "Requests in flight per local client."},
[KEY_LOCAL_MIB] = {WHERE_PIPELINE, CONFIG_INTEGER, OPTIONAL, "local_mib", 1, 65536, "MiB",
    "16", NULL, FIELD_U64, MIB, PIPELINE(local_bytes),
    "Memory for the tensors of each local client; a message may take a fifth of it."},
[KEY_MODELS] = {WHERE_PIPELINE, CONFIG_MODELS, OPTIONAL, "models", 0, 0, NULL,
    NULL, NULL, FIELD_NONE, 0, 0,
    "Models that come and go while the pipeline serves; calls name the model. Not together with "
    "`local_clients`."},
[KEY_STAGES] = {WHERE_PIPELINE, CONFIG_STAGES, REQUIRED, "stages", 1, STAGES_MAX, NULL,
    NULL, NULL, FIELD_NONE, 0, PIPELINE(stages), "The stages that a request passes, in order."},

[KEY_MODELS_ROOT] = {WHERE_MODELS, CONFIG_TEXT, REQUIRED, "root", 1, PATH_BYTES_MAX, NULL,
    NULL, NULL, FIELD_NONE, 0, PIPELINE(models.root),
    "Directory of all models. Paths of models are resolved beneath it, and workers can read "
    "models only there."},
[KEY_MODELS_ID] = {WHERE_MODELS, CONFIG_NAME, OPTIONAL, "id", 1, CONFIG_NAME_BYTES_MAX, NULL,
    NULL, NULL, FIELD_NONE, 0, PIPELINE(models.id),
    "`root` itself is one model, with this id: a folder with the numbered versions of a model."},
[KEY_MODELS_MEMORY] = {WHERE_MODELS, CONFIG_INTEGER, REQUIRED, "memory_mib", 1, 16 * MIB, "MiB",
    NULL, NULL, FIELD_U64, MIB, PIPELINE(models.memory_bytes),
    "Memory for loaded models: counted for each worker that holds them, and once per stage for "
    "mapped files. The least recently used model that nobody has ordered makes room."},
[KEY_MODELS_CONCURRENCY] = {WHERE_MODELS, CONFIG_INTEGER, OPTIONAL, "load_concurrency", 1, 64,
    "models", "2", NULL, FIELD_U32, 1, PIPELINE(models.load_concurrency),
    "Models that are loaded at a time."},
[KEY_MODELS_TIMEOUT] = {WHERE_MODELS, CONFIG_INTEGER, OPTIONAL, "load_timeout_ms", 1, HOUR_MS,
    "ms", "60000", NULL, FIELD_I64, NS_PER_MS, PIPELINE(models.load_timeout_ns),
    "A load that takes longer fails, and the workers that are still loading are replaced."},
[KEY_MODELS_DEFAULT] = {WHERE_MODELS, CONFIG_INTEGER, OPTIONAL, "default_size_mib", 1, 16 * MIB,
    "MiB", "16", NULL, FIELD_U64, MIB, PIPELINE(models.default_bytes),
    "Assumed size of a model of which nothing is known yet; by default at most half of "
    "`memory_mib`, in a mesh nine tenths at most."},
[KEY_MODELS_TYPES] = {WHERE_MODELS, CONFIG_NAMES, OPTIONAL, "types", 1, CONFIG_TYPES_MAX, NULL,
    NULL, NULL, FIELD_NONE, 0, PIPELINE(models.types),
    "Model types that the pipeline loads, where several pipelines have `models` or `mesh` has a "
    "`runtime`: the key's `model_type.name`, else the format of a model's files, `xgboost`, `onnx` "
    "or `mlp`. No type may be in two lists."},
[KEY_MODELS_WATCH] = {WHERE_MODELS, CONFIG_CHOICE, OPTIONAL, "watch", 0, 0, NULL,
    "yes", "yes|no", FIELD_NONE, 0, PIPELINE(models.watch),
    "Whether each sub-directory of `root`, and each file of a known format, is a model of that "
    "name."},
[KEY_MODELS_PRELOAD] = {WHERE_MODELS, CONFIG_CHOICE, OPTIONAL, "preload", 0, 0, NULL,
    "yes", "yes|no", FIELD_NONE, 0, PIPELINE(models.preload),
    "Whether models found in `root` are loaded before the first call, while they fit into "
    "`memory_mib`. In a mesh they are loaded on demand."},

[KEY_STAGE_NAME] = {WHERE_STAGE, CONFIG_NAME, REQUIRED, "name", 1, CONFIG_NAME_BYTES_MAX, NULL,
    NULL, NULL, FIELD_NONE, 0, STAGE(name),
    "Name of the stage in counters and logs, unique in the pipeline."},
[KEY_MODELET] = {WHERE_STAGE, CONFIG_TEXT, REQUIRED, "modelet", 1, PATH_BYTES_MAX, NULL,
    NULL, NULL, FIELD_NONE, 0, STAGE(modelet),
    "The plug-in, or a Python file (`NAME.py`): a path; or a bare file name, searched for in this "
    "file's folder, the folders of `$SHOAL_MODELET_PATH`, and `lib/shoal` beside the folder of "
    "`shoald`."},
[KEY_WORKERS] = {WHERE_STAGE, CONFIG_INTEGER, OPTIONAL, "workers", 1, STAGE_WORKERS_MAX,
    "processes", "1", NULL, FIELD_U32, 1, STAGE(worker_count),
    "Number of workers, not pinned. Not together with `cpus`."},
[KEY_STAGE_CPUS] = {WHERE_STAGE, CONFIG_CPUS, OPTIONAL, "cpus", 1, STAGE_WORKERS_MAX, NULL,
    NULL, NULL, FIELD_NONE, 0, STAGE(cpus),
    "One worker per element, pinned to that CPU; a CPU may occur several times."},
[KEY_BATCH_SIZE] = {WHERE_STAGE, CONFIG_INTEGER, OPTIONAL, "batch_size", 0, 4096, "requests",
    "0", NULL, FIELD_U32, 1, STAGE(batch_size),
    "Largest number of requests that the modelet gets together; at most `slots`. 0: one at a "
    "time."},
[KEY_BATCH_WAIT_MS] = {WHERE_STAGE, CONFIG_DECIMAL, OPTIONAL, "batch_wait_ms", 0, 60000, "ms",
    "2", NULL, FIELD_I64, NS_PER_MS, STAGE(batch_wait_ns),
    "Longest time that the oldest request of a batch waits at this stage for others; fractions "
    "are allowed. 0: no wait, the default of `batch_wait: fixed`. Only with `batch_size`."},
[KEY_BATCH_WAIT] = {WHERE_STAGE, CONFIG_CHOICE, OPTIONAL, "batch_wait", 0, 0, NULL,
    "adaptive", "fixed|adaptive", FIELD_NONE, 0, STAGE(batch_wait),
    "`adaptive`: a batch waits for `batch_wait_ms` at most, and only while recent arrivals "
    "promise that a larger batch saves more than the wait costs. `fixed`: always for that time, "
    "unless the batch is full."},
[KEY_START_TIMEOUT_MS] = {WHERE_STAGE, CONFIG_INTEGER, OPTIONAL, "start_timeout_ms", 1, HOUR_MS,
    "ms", "30000", NULL, FIELD_I64, NS_PER_MS, STAGE(start_timeout_ns),
    "A worker that is not ready within this time is killed, and started again later."},
[KEY_RUN_TIMEOUT_MS] = {WHERE_STAGE, CONFIG_INTEGER, OPTIONAL, "run_timeout_ms", 0, HOUR_MS,
    "ms", "0", NULL, FIELD_I64, NS_PER_MS, STAGE(run_timeout_ns),
    "A worker whose modelet does not return from a run within this time is killed "
    "(`attempts_max`). 0: no limit."},
[KEY_QUARANTINE_DEATHS] = {WHERE_STAGE, CONFIG_INTEGER, OPTIONAL, "quarantine_deaths", 0, 1000,
    "deaths", "10", NULL, FIELD_U32, 1, STAGE(quarantine_deaths),
    "Deaths of workers in a row, without a finished request in between, after which the stage is "
    "quarantined: no worker is started, and requests are refused. 0: never."},
[KEY_QUARANTINE_MS] = {WHERE_STAGE, CONFIG_INTEGER, OPTIONAL, "quarantine_ms", 1, 24 * HOUR_MS,
    "ms", "60000", NULL, FIELD_I64, NS_PER_MS, STAGE(quarantine_ns),
    "Length of a quarantine, after which one worker is tried."},
[KEY_HALVINGS_MAX] = {WHERE_STAGE, CONFIG_INTEGER, OPTIONAL, "halvings_max", 0, 16, NULL,
    "12", NULL, FIELD_U32, 1, STAGE(halvings_max),
    "How often a batch that failed as a whole is divided in two to find the culprit. 0: never."},
[KEY_ATTEMPTS_MAX] = {WHERE_STAGE, CONFIG_INTEGER, OPTIONAL, "attempts_max", 1, 8, NULL,
    "2", NULL, FIELD_U32, 1, STAGE(attempts_max),
    "Deaths of workers that hold a request, after which it fails; 1: it is not run again."},
[KEY_SANDBOX_ALLOW] = {WHERE_STAGE, CONFIG_CHOICES, OPTIONAL, "sandbox_allow", 0,
    SANDBOX_ALLOW_COUNT, NULL, NULL, SANDBOX_ALLOW_NAMES, FIELD_U32, 1, STAGE(sandbox_allow),
    "Rights of this stage's workers beyond the sandbox. `reading`: what a modelet may read while "
    "it starts (its own folder, this file's, its model, the system's libraries), while it "
    "serves, too. `files`: any file that the user may read or write. `network`: sockets. "
    "`processes`: start and signal processes; includes `reading` and `code`. `code`: make memory "
    "executable (a JIT; with `reading`, libraries). `core`: core files, which hold requests. "
    "`all`: no sandbox."},
[KEY_PARAMS] = {WHERE_STAGE, CONFIG_PARAMS, OPTIONAL, "params", 0, CONFIG_PARAMS_MAX, NULL,
    NULL, NULL, FIELD_NONE, 0, STAGE(params),
    "The modelet's own parameters, passed on as written."},
[KEY_ENV] = {WHERE_STAGE, CONFIG_VARIABLES, OPTIONAL, "env", 0, CONFIG_VARIABLES_MAX, NULL,
    NULL, NULL, FIELD_NONE, 0, STAGE(variables),
    "Environment variables of its workers. Of shoald's own they get only PATH, LD_LIBRARY_PATH, "
    "LANG, LC_*, TZ, OMP_*, OPENBLAS_*, SHOAL_ONNXRUNTIME_DIR, VIRTUAL_ENV and *SAN_OPTIONS; a "
    "name given here takes precedence."},
[KEY_MODEL] = {WHERE_STAGE, CONFIG_MODEL, OPTIONAL, "model", 0, 0, NULL,
    NULL, NULL, FIELD_NONE, 0, 0,
    "The model that the modelet loads."},

[KEY_MODEL_ID] = {WHERE_MODEL, CONFIG_TEXT, REQUIRED, "id", 1, 1024, NULL,
    NULL, NULL, FIELD_NONE, 0, STAGE(model_id),
    "Name of the model for the modelet."},
[KEY_MODEL_PATH] = {WHERE_MODEL, CONFIG_TEXT, OPTIONAL, "path", 1, PATH_BYTES_MAX, NULL,
    NULL, NULL, FIELD_NONE, 0, STAGE(model_path),
    "File of the model."},
[KEY_MODEL_KEY] = {WHERE_MODEL, CONFIG_TEXT, OPTIONAL, "key", 1, PATH_BYTES_MAX, NULL,
    NULL, NULL, FIELD_NONE, 0, STAGE(model_key),
    "Text about the model for the modelet."},
    /* clang-format on */
};

static const char *const where_names[WHERE_COUNT] = {
    [WHERE_ADDRESS] = "an address",         [WHERE_TOP] = "the top level",
    [WHERE_TLS] = "`tls` at the top",       [WHERE_MESH] = "the mesh",
    [WHERE_MESH_TLS] = "the mesh's `tls`",  [WHERE_PIPELINE] = "a pipeline",
    [WHERE_MANAGEMENT] = "`management`",    [WHERE_ALLOW] = "an entry of `allow`",
    [WHERE_MODELS] = "a pipeline's models", [WHERE_STAGE] = "a stage",
    [WHERE_MODEL] = "a stage's model",
};

static const char *const type_names[] = {
    [CONFIG_NAME] = "a name",
    [CONFIG_TEXT] = "text",
    [CONFIG_JSON] = "a file, or JSON as text",
    [CONFIG_CHOICE] = "a word",
    [CONFIG_CHOICES] = "a list of words",
    [CONFIG_INTEGER] = "an integer",
    [CONFIG_DECIMAL] = "a number",
    [CONFIG_ADDRESSES] = "a list of addresses",
    [CONFIG_ADDRESS] = "an address",
    [CONFIG_HTTP_ADDRESSES] = "an address or a list of them",
    [CONFIG_CPUS] = "a list of CPU numbers",
    [CONFIG_FIELD_NUMBERS] = "a list of field numbers",
    [CONFIG_PARAMS] = "a map of names to single values",
    [CONFIG_VARIABLES] = "a map of variables to single values",
    [CONFIG_MODEL] = "a map",
    [CONFIG_NAMES] = "a list of names",
    [CONFIG_MODELS] = "a map",
    [CONFIG_LABELS] = "a list of labels",
    [CONFIG_MESH] = "a map",
    [CONFIG_TLS] = "a map",
    [CONFIG_MANAGEMENT] = "an address, a list of them, or a map",
    [CONFIG_ALLOW] = "a list of entries",
    [CONFIG_PATTERNS] = "a list of ids",
    [CONFIG_STAGES] = "a list of stages",
    [CONFIG_PIPELINES] = "a list of pipelines",
};

const char *
config_where_name(enum config_where where)
{
    return where_names[where];
}

const char *
config_type_name(enum config_type type)
{
    return type_names[type];
}

const struct config_key *
config_key_find(enum config_where where, const char *name)
{
    for (size_t i = 0; i < KEY_COUNT; i++)
        if (config_keys[i].where == where && strcmp(config_keys[i].name, name) == 0)
            return &config_keys[i];
    return NULL;
}

/* No typo of a key is longer than this. */
enum { TYPO_BYTES_MAX = 32 };

/* The number of letters to insert, remove or change to make one word of the other. */
static size_t
edit_distance(const char *a, const char *b)
{
    size_t previous[TYPO_BYTES_MAX + 1];
    size_t current[TYPO_BYTES_MAX + 1];
    size_t columns = strlen(b);
    CHECK(columns <= TYPO_BYTES_MAX);
    for (size_t j = 0; j <= columns; j++)
        previous[j] = j;
    for (size_t i = 1; a[i - 1] != '\0'; i++) {
        current[0] = i;
        for (size_t j = 1; j <= columns; j++) {
            size_t change = previous[j - 1] + (a[i - 1] != b[j - 1]);
            size_t other = 1 + (previous[j] < current[j - 1] ? previous[j] : current[j - 1]);
            current[j] = change < other ? change : other;
        }
        memcpy(previous, current, sizeof(previous));
    }
    return previous[columns];
}

const struct config_key *
config_key_nearest(enum config_where where, const char *name)
{
    size_t length = strlen(name);
    if (length > TYPO_BYTES_MAX)
        return NULL;
    const struct config_key *nearest = NULL;
    size_t least = 1 + (length < 3 ? 1 : length / 3 + 1); /* more than that is another word */
    for (size_t i = 0; i < KEY_COUNT; i++) {
        size_t distance = edit_distance(name, config_keys[i].name);
        bool here = config_keys[i].where == where;
        if (distance < least && (here || distance == 0)) {
            nearest = &config_keys[i];
            least = distance;
        }
    }
    return nearest;
}

void
config_range_text(const struct config_key *key, char *text, size_t room)
{
    const char *gap = key->unit != NULL ? " " : "";
    const char *unit = key->unit != NULL ? key->unit : "";
    switch (key->type) {
    case CONFIG_INTEGER:
    case CONFIG_DECIMAL:
        snprintf(text, room, "%.0f to %.0f%s%s", key->min, key->max, gap, unit);
        break;
    case CONFIG_NAME:
        snprintf(text, room, "%.0f to %.0f letters, digits, `.`, `_`, `-`", key->min, key->max);
        break;
    case CONFIG_CHOICE:
    case CONFIG_CHOICES: snprintf(text, room, "%s", key->choices); break;
    case CONFIG_ADDRESSES:
    case CONFIG_HTTP_ADDRESSES:
    case CONFIG_FIELD_NUMBERS:
    case CONFIG_CPUS:
    case CONFIG_PARAMS:
    case CONFIG_VARIABLES:
    case CONFIG_NAMES:
    case CONFIG_LABELS:
    case CONFIG_ALLOW:
    case CONFIG_PATTERNS:
    case CONFIG_STAGES:
    case CONFIG_PIPELINES: snprintf(text, room, "%.0f to %.0f elements", key->min, key->max); break;
    case CONFIG_ADDRESS:
    case CONFIG_TEXT:
    case CONFIG_JSON:
    case CONFIG_MODEL:
    case CONFIG_MESH:
    case CONFIG_MANAGEMENT:
    case CONFIG_TLS:
    case CONFIG_MODELS: text[0] = '\0'; break;
    }
}
