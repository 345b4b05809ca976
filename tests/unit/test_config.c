/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The configuration, table driven: every key takes the ends of its range and what lies beyond is
 * refused, naming range and unit, in the right line; so is every wrong type of every key; each rule
 * between keys has a file that breaks it; all mistakes of a file come at once and in order.
 * Defaults, units and paths arrive in the struct. test_config_text.c covers texts that are not YAML
 * or too large; files and CPUs, and the manual, in test_config_place.c.
 */
#include "base/clock.h"
#include "base/log_site.h"
#include "coordinator/config/config_keys.h"
#include "ipc/sandbox.h"
#include "test_config_rig.h"

/* ---- files with one line to be filled in ---- */

#define WITH_MODELS "pipelines:\n- name: p\n  models: {root: r, memory_mib: 99}\n" STAGES

struct frame {
    const char *before;
    const char *after;
    int line; /* of what is filled in */
};

#define SECURED "tls:\n  certificate: c\n  key: k\n  client_ca: a\n"

#define SERVER "mesh:\n  instance: i\n  runtime: \"h:1\"\n  adapter:\n"

static const struct frame frames[WHERE_COUNT] = {
    [WHERE_TOP] = {"", "\n" PIPELINES, 1},
    [WHERE_MESH] = {"mesh:\n  instance: i\n  store: etcd:http://e:1\n  ", "\n" WITH_MODELS, 4},
    [WHERE_TLS] = {"tls:\n  certificate: c\n  key: k\n  client_ca: a\n  ", "\n" PIPELINES, 5},
    [WHERE_ADDRESS] = {"tls:\n  certificate: c\n  key: k\nhttp:\n  address: port:1\n  ",
                       "\n" PIPELINES, 6},
    [WHERE_MESH_TLS] = {"mesh:\n  instance: i\n  store: etcd:http://e:1\n  tls:\n"
                        "    certificate: c\n    key: k\n    ca: a\n    ",
                        "\n" WITH_MODELS, 8},
    [WHERE_ADAPTER] = {SERVER "    server_type: triton\n    model_repository: r\n"
                              "    memory_mib: 16777216\n    ",
                       "\n", 8},
    [WHERE_MANAGEMENT] = {SECURED "mesh:\n  instance: i\n  management:\n    ", "\n" WITH_MODELS, 8},
    [WHERE_ALLOW] = {SECURED "mesh:\n  instance: i\n  management:\n    allow:\n"
                             "    - identity: a\n      ",
                     "\n" WITH_MODELS, 10},
    [WHERE_PIPELINE] = {"pipelines:\n- name: p\n  ", "\n" STAGES, 3},
    [WHERE_MODELS] =
        {"pipelines:\n- name: p\n  models:\n    root: r\n    memory_mib: 16777216\n    ",
         "\n" STAGES, 6},
    [WHERE_STAGE] = {"pipelines:\n- name: p\n  slots: 5000\n  stages:\n  - name: s\n"
                     "    modelet: ./m.so\n    ",
                     "\n", 7},
    [WHERE_MODEL] = {"pipelines:\n- name: p\n  stages:\n  - name: s\n    modelet: ./m.so\n"
                     "    model:\n      id: i\n      ",
                     "\n", 8},
};

/* Keys that the frames hold already are tried by themselves. */
static const struct frame required[KEY_COUNT] = {
    [KEY_PIPELINES] = {"log_level: info\n", "\n", 2},
    [KEY_MESH_STORE] = {"mesh:\n  instance: i\n  ", "\n" WITH_MODELS, 3},
    [KEY_MESH_INSTANCE] = {"mesh:\n  ", "\n" WITH_MODELS, 2},
    [KEY_ADDRESS] = {"http:\n  ", "\n" PIPELINES, 2},
    [KEY_TLS_CERTIFICATE] = {"tls:\n  key: k\n  ", "\n" PIPELINES, 3},
    [KEY_TLS_KEY] = {"tls:\n  certificate: c\n  ", "\n" PIPELINES, 3},
    [KEY_TLS_CLIENT_CA] = {"tls:\n  certificate: c\n  key: k\n  ", "\n" PIPELINES, 4},
    [KEY_MESH_TLS_CERTIFICATE] = {"mesh:\n  instance: i\n  store: etcd:http://e:1\n  tls:\n"
                                  "    key: k\n    ca: a\n    ",
                                  "\n" WITH_MODELS, 7},
    [KEY_MESH_TLS_KEY] = {"mesh:\n  instance: i\n  store: etcd:http://e:1\n  tls:\n"
                          "    certificate: c\n    ca: a\n    ",
                          "\n" WITH_MODELS, 7},
    [KEY_MESH_TLS_CA] = {"mesh:\n  instance: i\n  store: etcd:http://e:1\n  tls:\n"
                         "    certificate: c\n    key: k\n    ",
                         "\n" WITH_MODELS, 7},
    [KEY_ADAPTER_TYPE] = {SERVER "    model_repository: r\n    memory_mib: 999\n    ", "\n", 7},
    [KEY_ADAPTER_REPOSITORY] = {SERVER "    server_type: triton\n    memory_mib: 999\n    ", "\n",
                                7},
    [KEY_ADAPTER_MEMORY] = {SERVER "    server_type: triton\n    model_repository: r\n"
                                   "    buffer_mib: 0\n    ",
                            "\n", 8},
    [KEY_ALLOW_IDENTITY] = {SECURED "mesh:\n  instance: i\n  management:\n    allow:\n    - ",
                            "\n" WITH_MODELS, 9},
    [KEY_PIPELINE_NAME] = {"pipelines:\n- ", "\n" STAGES, 2},
    [KEY_STAGES] = {"pipelines:\n- name: p\n  ", "\n", 3},
    [KEY_MODELS_ROOT] = {"pipelines:\n- name: p\n  models:\n    memory_mib: 1\n    ", "\n" STAGES,
                         5},
    [KEY_MODELS_MEMORY] = {"pipelines:\n- name: p\n  models:\n    root: r\n    ", "\n" STAGES, 5},
    [KEY_STAGE_NAME] = {"pipelines:\n- name: p\n  stages:\n  - ", "\n    modelet: ./m.so\n", 4},
    [KEY_MODELET] = {"pipelines:\n- name: p\n  stages:\n  - name: s\n    ", "\n", 5},
    [KEY_MODEL_ID] = {"pipelines:\n- name: p\n  stages:\n  - name: s\n    modelet: m\n    model:\n"
                      "      ",
                      "\n", 7},
};

static const struct frame *
frame_of(size_t key)
{
    return required[key].before != NULL ? &required[key] : &frames[config_keys[key].where];
}

static char *
fill(const struct frame *frame, const char *name, const char *value)
{
    char *text = NULL;
    assert_true(asprintf(&text, "%s%s: %s%s", frame->before, name, value, frame->after) > 0);
    return text;
}

static void
expect_good(size_t key, const char *value)
{
    char *text = fill(frame_of(key), config_keys[key].name, value);
    struct config config = rig_good(text);
    config_free(&config);
    free(text);
}

static void
expect_bad(size_t key, const char *value, const char *part)
{
    char *text = fill(frame_of(key), config_keys[key].name, value);
    rig_bad(text, frame_of(key)->line, part);
    free(text);
}

/* ---- ranges and types ---- */

/* As documented, written out once more: the table must not change by mistake. */
static const struct {
    enum config_key_index key;
    const char *less, *least, *most, *more;
    const char *range;
} ranges[] = {
    {KEY_FRONT_THREADS, "0", "1", "16", "17", "1 to 16"},
    {KEY_MESSAGE_MIB, "0", "1", "2047", "2048", "1 to 2047 MiB"},
    {KEY_DRAIN_TIMEOUT_MS, "-1", "0", "3600000", "3600001", "0 to 3600000 ms"},
    {KEY_UPGRADE_TIMEOUT_MS, "0", "1", "86400000", "86400001", "1 to 86400000 ms"},
    {KEY_KEEPALIVE_TIME_MS, "-1", "0", "86400000", "86400001", "0 to 86400000 ms"},
    {KEY_KEEPALIVE_TIMEOUT_MS, "0", "1", "3600000", "3600001", "1 to 3600000 ms"},
    {KEY_HTTP_CONNECTIONS, "0", "1", "65536", "65537", "1 to 65536"},
    {KEY_HTTP_ADDRESS_CONNECTIONS, "-1", "0", "65536", "65537", "0 to 65536"},
    {KEY_METRICS_CONNECTIONS, "0", "1", "65536", "65537", "1 to 65536"},
    {KEY_PROBE_CONNECTIONS, "0", "1", "65536", "65537", "1 to 65536"},
    {KEY_DASHBOARD_VIEWERS, "0", "1", "1024", "1025", "1 to 1024"},
    {KEY_HTTP_IDLE_TIMEOUT_MS, "0", "1", "3600000", "3600001", "1 to 3600000 ms"},
    {KEY_HTTP_HEADER_TIMEOUT_MS, "0", "1", "3600000", "3600001", "1 to 3600000 ms"},
    {KEY_HTTP_BODY_TIMEOUT_MS, "0", "1", "3600000", "3600001", "1 to 3600000 ms"},
    {KEY_HTTP_WRITE_TIMEOUT_MS, "0", "1", "3600000", "3600001", "1 to 3600000 ms"},
    {KEY_HTTP_LARGE_KIB, "0", "1", "65536", "65537", "1 to 65536 KiB"},
    {KEY_HTTP_LARGE_WAITING, "0", "1", "65536", "65537", "1 to 65536"},
    {KEY_HTTP_LARGE_WAITING_MIB, "0", "1", "1048576", "1048577", "1 to 1048576"},
    {KEY_REPOSITORY_WAITING, "0", "1", "65536", "65537", "1 to 65536"},
    {KEY_TRACE_SAMPLE, "-0.5", "0", "0.0", "1.5", "0 to 1"},
    {KEY_MODELS_CACHE_GIB, "-0.5", "0", "1048576", "1048577", "0 to 1048576 GiB"},
    {KEY_STORAGE_MIB_PER_S, "-1", "0", "1048576", "1048577", "0 to 1048576 MiB"},
    {KEY_STORAGE_FETCHES, "0", "1", "64", "65", "1 to 64"},
    {KEY_MESH_RPM, "9", "10", "10000000", "10000001", "10 to 10000000 calls a minute"},
    {KEY_MESH_STOP_TIMEOUT, "-1", "0", "3600000", "3600001", "0 to 3600000 ms"},
    {KEY_MESH_RESTART_MAX, "99", "100", "3600000", "3600001", "100 to 3600000 ms"},
    {KEY_MESH_FAILURE_EXPIRY, "999", "1000", "86400000", "86400001", "1000 to 86400000 ms"},
    {KEY_SLOTS, "0", "1", "65535", "65536", "1 to 65535 requests"},
    {KEY_ARENA_MIB, "-1", "0", "1048576", "1048577", "0 to 1048576 MiB"},
    {KEY_DEFAULT_TIMEOUT_MS, "-1", "0", "86400000", "86400001", "0 to 86400000 ms"},
    {KEY_QUEUE_LIMIT_MS, "-1", "0", "86400000", "86400001", "0 to 86400000 ms"},
    {KEY_QUEUE_WAIT_MS, "-1", "0", "86400000", "86400001", "0 to 86400000 ms"},
    {KEY_QUEUE_WAIT_MAX, "0", "1", "65535", "65536", "1 to 65535 calls"},
    {KEY_QUEUE_WAIT_MIB, "0", "1", "1048576", "1048577", "1 to 1048576 MiB"},
    {KEY_STREAM_MIB, "-1", "0", "1024", "1025", "0 to 1024 MiB"},
    {KEY_SPIN_US, "-1", "0", "1000", "1001", "0 to 1000 µs"},
    {KEY_LOCAL_CLIENTS, "-1", "0", "32", "33", "0 to 32 clients"},
    {KEY_LOCAL_SLOTS, "0", "1", "256", "257", "1 to 256 requests"},
    {KEY_LOCAL_MIB, "0", "1", "65536", "65537", "1 to 65536 MiB"},
    {KEY_MODELS_MEMORY, "0", "1", "16777216", "16777217", "1 to 16777216 MiB"},
    {KEY_ADAPTER_MEMORY, "1", "2", "16777216", "16777217", "2 to 16777216 MiB"},
    {KEY_ADAPTER_BUFFER, "-1", "0", "4194304", "4194305", "0 to 4194304 MiB"},
    {KEY_ADAPTER_TIMEOUT, "99", "100", "3600000", "3600001", "100 to 3600000 ms"},
    {KEY_ADAPTER_CONCURRENCY, "0", "1", "64", "65", "1 to 64 models"},
    {KEY_ADAPTER_DEFAULT, "0", "1", "4194304", "4194305", "1 to 4194304 MiB"},
    {KEY_ADAPTER_PERCENT, "0", "1", "100000", "100001", "1 to 100000 %"},
    {KEY_MESH_PERCENT, "9", "10", "200", "201", "10 to 200 %"},
    {KEY_MESH_WAITING, "-1", "0", "65536", "65537", "0 to 65536 calls"},
    {KEY_MESH_STORE_WAITING, "0", "1", "65536", "65537", "1 to 65536 writes"},
    {KEY_MESH_CLEARANCE, "-1", "0", "86400000", "86400001", "0 to 86400000 ms"},
    {KEY_CONNECTIONS_MAX, "0", "1", "65535", "65536", "1 to 65535"},
    {KEY_MANAGEMENT_CONNECTIONS_MAX, "0", "1", "65535", "65536", "1 to 65535"},
    {KEY_CONNECTIONS_PER_PEER_MAX, "-1", "0", "65535", "65536", "0 to 65535"},
    {KEY_STREAMS_PER_CONNECTION_MAX, "0", "1", "65535", "65536", "1 to 65535 calls"},
    {KEY_STREAM_WINDOW_KIB, "-1", "0", "16384", "16385", "0 to 16384 KiB"},
    {KEY_ACCESS_LOG, "-1", "0", "1048576", "1048577", "0 to 1048576"},
    {KEY_EVENT_LOG_LINES, "-1", "0", "1048576", "1048577", "0 to 1048576"},
    {KEY_WORKER_LOG_KIB_PER_S, "-1", "0", "1048576", "1048577", "0 to 1048576 KiB"},
    {KEY_SEND_TIMEOUT_MS, "-1", "0", "3600000", "3600001", "0 to 3600000 ms"},
    {KEY_MESH_WAKE_TIMEOUT, "-1", "0", "3600000", "3600001", "0 to 3600000 ms"},
    {KEY_MODELS_CONCURRENCY, "0", "1", "64", "65", "1 to 64 models"},
    {KEY_MODELS_TIMEOUT, "0", "1", "3600000", "3600001", "1 to 3600000 ms"},
    {KEY_MODELS_DEFAULT, "0", "1", "16777216", "16777217", "1 to 16777216 MiB"},
    {KEY_SHARED_MEMORY_REGIONS, "0", "1", "1024", "1025", "1 to 1024"},
    {KEY_WORKERS, "0", "1", "64", "65", "1 to 64 processes"},
    {KEY_BATCH_SIZE, "-1", "0", "4096", "4097", "0 to 4096 requests"},
    {KEY_BATCH_WAIT_MS, "-0.5", "0", "0.0", "60000.5", "0 to 60000 ms"},
    {KEY_START_TIMEOUT_MS, "0", "1", "3600000", "3600001", "1 to 3600000 ms"},
    {KEY_RUN_TIMEOUT_MS, "-1", "0", "3600000", "3600001", "0 to 3600000 ms"},
    {KEY_QUARANTINE_DEATHS, "-1", "0", "1000", "1001", "0 to 1000 deaths"},
    {KEY_QUARANTINE_MS, "0", "1", "86400000", "86400001", "1 to 86400000 ms"},
    {KEY_HALVINGS_MAX, "-1", "0", "16", "17", "0 to 16"},
    {KEY_ATTEMPTS_MAX, "0", "1", "8", "9", "1 to 8"},
};

TEST_CASE(test_ranges)
{
    size_t numbers = 0;
    for (size_t i = 0; i < KEY_COUNT; i++)
        numbers += config_keys[i].type == CONFIG_INTEGER || config_keys[i].type == CONFIG_DECIMAL;
    assert_int_equal(numbers, ARRAY_COUNT(ranges));
    for (size_t i = 0; i < ARRAY_COUNT(ranges); i++) {
        expect_bad(ranges[i].key, ranges[i].less, ranges[i].range);
        expect_good(ranges[i].key, ranges[i].least);
        expect_good(ranges[i].key, ranges[i].most);
        expect_bad(ranges[i].key, ranges[i].more, ranges[i].range);
        expect_bad(ranges[i].key, "99999999999999999999999", "out of range");
    }
}

/* Errors for values of each type; all start with the requirement. */
static const struct {
    enum config_type type;
    const char *value;
    const char *part;
} wrong_types[] = {
    {CONFIG_INTEGER, "many", "must be an integer ("},
    {CONFIG_INTEGER, "1.5", "not \"1.5\""},
    {CONFIG_INTEGER, "0x10", "not \"0x10\""},
    {CONFIG_INTEGER, "1_0", "not \"1_0\""},
    {CONFIG_INTEGER, "+1", "not \"+1\""},
    {CONFIG_INTEGER, "1e1", "not \"1e1\""},
    {CONFIG_INTEGER, "-a", "must be an integer"},
    {CONFIG_INTEGER, "\"1\"", "not \"1\""},
    {CONFIG_INTEGER, "", "not nothing"},
    {CONFIG_INTEGER, "~", "not nothing"},
    {CONFIG_INTEGER, "[1]", "not a list"},
    {CONFIG_INTEGER, "{a: 1}", "not a map"},
    {CONFIG_DECIMAL, "soon", "must be a number (0 to "},
    {CONFIG_DECIMAL, "soon", "), not \"soon\""},
    {CONFIG_DECIMAL, "1.", "not \"1.\""},
    {CONFIG_DECIMAL, ".5", "not \".5\""},
    {CONFIG_DECIMAL, "1.5.5", "not \"1.5.5\""},
    {CONFIG_DECIMAL, ".inf", "not \".inf\""},
    {CONFIG_DECIMAL, "nan", "not \"nan\""},
    {CONFIG_DECIMAL, "[]", "not an empty list"},
    {CONFIG_NAME, "a b", "must be a name (1 to 63 letters"},
    {CONFIG_NAME, "a/b", "must be a name"},
    {CONFIG_NAME, "ä", "must be a name"},
    {CONFIG_NAME, "\"\"", "must be a name"},
    {CONFIG_NAME, "\"a\\nb\"", "not \"a?b\""},
    {CONFIG_NAME, "", "not nothing"},
    {CONFIG_NAME, "[a]", "not a list"},
    {CONFIG_NAME, "a234567890123456789012345678901234567890123456789012345678901234",
     "must be a name"},
    {CONFIG_TEXT, "", "must be text, not nothing"},
    {CONFIG_TEXT, "null", "must be text, not nothing"},
    {CONFIG_TEXT, "[a]", "must be text, not a list"},
    {CONFIG_TEXT, "{}", "must be text, not an empty map"},
    {CONFIG_TEXT, "\"\"", "must have 1 to "},
    {CONFIG_TEXT, "\"a\\nb\"", "control character"},
    {CONFIG_JSON, "", "must be a file, or JSON as text, not nothing"},
    {CONFIG_JSON, "[a]", "must be a file, or JSON as text, not a list"},
    {CONFIG_JSON, "\"a\\nb\"", "control character"},
    {CONFIG_CHOICE, "loud", "must be a word ("},
    {CONFIG_CHOICE, "loud", "), not \"loud\""},
    {CONFIG_CHOICE, "warn|info", "must be a word"},
    {CONFIG_CHOICE, "inf", "must be a word"},
    {CONFIG_CHOICE, "[info]", "not a list"},
    {CONFIG_CHOICES, "files", "must be a list of words ("},
    {CONFIG_CHOICES, "{files: 1}", "not a map"},
    {CONFIG_CHOICES, "", "not nothing"},
    {CONFIG_CHOICES, "['']", "not \"\""},
    {CONFIG_CHOICES, "[~]", "not nothing"},
    {CONFIG_CHOICES, "[[files]]", "not a list"},
    {CONFIG_ADDRESSES, "port:8033", "must be a list of addresses (1 to 16 elements), not \"port:"},
    {CONFIG_ADDRESSES, "[]", "1 to 16 elements, not an empty list"},
    {CONFIG_ADDRESSES, "[[]]", "not an empty list"},
    {CONFIG_ADDRESSES, "[~]", "not nothing"},
    {CONFIG_HTTP_ADDRESSES, "[]", "1 to 16 elements, not an empty list"},
    {CONFIG_HTTP_ADDRESSES, "~", "must be an address or a list of them (1 to 16 elements), not no"},
    {CONFIG_HTTP_ADDRESSES, "{address: 1}", "\"1\" is not an address"},
    {CONFIG_ADDRESS, "2112", "\"2112\" is not an address"},
    {CONFIG_ADDRESS, "[]", "not an empty list"},
    {CONFIG_HTTP_ADDRESSES, "[[]]", "not an empty list"},
    {CONFIG_HTTP_ADDRESSES, "2112",
     "\"2112\" is not an address: write \"port:2112\", \"127.0.0.1:2112\", \"[::1]:2112\" or"},
    {CONFIG_HTTP_ADDRESSES, "'unix:'", "needs a path"},
    {CONFIG_HTTP_ADDRESSES, "[127.0.0.1:1, 127.0.0.1:2, 127.0.0.1:1]",
     "\"127.0.0.1:1\" is given twice"},
    {CONFIG_CPUS, "0", "must be a list of CPU numbers (1 to 64 elements), not \"0\""},
    {CONFIG_CPUS, "[]", "1 to 64 elements, not an empty list"},
    {CONFIG_CPUS, "[a]", "0 to 1023"},
    {CONFIG_CPUS, "[1.0]", "not \"1.0\""},
    {CONFIG_CPUS, "['1']", "not \"1\""},
    {CONFIG_CPUS, "[0, -1]", "not \"-1\""},
    {CONFIG_CPUS, "[1024]", "not \"1024\""},
    {CONFIG_CPUS, "[99999999999999999999]", "not \"99999999999999999999\""},
    {CONFIG_CPUS, "{0: 1}", "not a map"},
    {CONFIG_FIELD_NUMBERS, "1", "must be a list of field numbers (1 to 16 elements), not \"1\""},
    {CONFIG_FIELD_NUMBERS, "{1: 1}", "not a map"},
    {CONFIG_PARAMS, "a", "must be a map of names to single values"},
    {CONFIG_PARAMS, "[a]", "not a list"},
    {CONFIG_PARAMS, "{a: [1]}", "parameter \"a\" must be a single value, not a list"},
    {CONFIG_PARAMS, "{a: 1, b: 2, a: 3}", "parameter \"a\" is given twice"},
    {CONFIG_PARAMS, "{'': 1}", "not a name for a parameter"},
    {CONFIG_PARAMS, "{\"a\\tb\": 1}", "\"a?b\" is not a name for a parameter"},
    {CONFIG_VARIABLES, "a", "must be a map of names to single values"},
    {CONFIG_VARIABLES, "[a]", "not a list"},
    {CONFIG_VARIABLES, "{a: [1]}", "\"a\" must be a single value, not a list"},
    {CONFIG_VARIABLES, "{a: 1, b: 2, a: 3}", "\"a\" is given twice"},
    {CONFIG_VARIABLES, "{'': 1}", "is not a name in"},
    {CONFIG_VARIABLES, "{\"a=b\": 1}", "\"a=b\" is not a name in"},
    {CONFIG_MODEL, "m.bin", "must be a map, not \"m.bin\""},
    {CONFIG_MODEL, "{path: x}", "`id` is missing: a stage's model needs it (text)"},
    {CONFIG_NAMES, "a", "must be a list of names (1 to 64 elements), not \"a\""},
    {CONFIG_NAMES, "[]", "not an empty list"},
    {CONFIG_NAMES, "['a b']",
     "must list names (1 to 63 letters, digits, `.`, `_`, `-`), not \"a b\""},
    {CONFIG_NAMES, "['']", "not \"\""},
    {CONFIG_NAMES, "[[a]]", "not a list"},
    {CONFIG_NAMES, "[a, b, a]", "`types`: \"a\" is given twice"},
    {CONFIG_LABELS, "a", "must be a list of labels (1 to 64 elements), not \"a\""},
    {CONFIG_LABELS, "[]", "not an empty list"},
    {CONFIG_LABELS, "[a, 'b c']",
     "must list labels (1 to 255 bytes without commas and spaces), not \"b c\""},
    {CONFIG_LABELS, "['a,b']", "not \"a,b\""},
    {CONFIG_LABELS, "['']", "not \"\""},
    {CONFIG_LABELS, "[[a]]", "not a list"},
    {CONFIG_MESH, "memory", "must be a map, not \"memory\""},
    {CONFIG_MESH, "[]", "must be a map, not an empty list"},
    {CONFIG_TLS, "yes", "must be a map, not \"yes\""},
    {CONFIG_TLS, "[a]", "must be a map, not a list"},
    {CONFIG_ADAPTER, "triton", "must be a map, not \"triton\""},
    {CONFIG_MANAGEMENT, "foo", "\"foo\" is not an address"},
    {CONFIG_MANAGEMENT, "[]", "`addresses` is out of range"},
    {CONFIG_ALLOW, "a", "must be a list of entries (1 to 64 elements), not \"a\""},
    {CONFIG_ALLOW, "[a]", "must list maps with keys, not \"a\""},
    {CONFIG_PATTERNS, "a", "must be a list of ids (1 to 64 elements), not \"a\""},
    {CONFIG_PATTERNS, "['*a']", "prefixes of ids followed by `*`, not \"*a\""},
    {CONFIG_MODELS, "r", "must be a map, not \"r\""},
    {CONFIG_MODELS, "{memory_mib: 5}", "`root` is missing: a pipeline's models needs it (text)"},
    {CONFIG_MODELS, "{root: r}", "`memory_mib` is missing"},
    {CONFIG_STAGES, "5", "must be a list of stages (1 to 16 elements), not \"5\""},
    {CONFIG_STAGES, "[]", "1 to 16 elements, not an empty list"},
    {CONFIG_STAGES, "[a]", "must list maps with keys, not \"a\""},
    {CONFIG_STAGES, "{name: s, modelet: m}", "not a map"},
    {CONFIG_PIPELINES, "", "must be a list of pipelines (1 to 64 elements), not nothing"},
    {CONFIG_PIPELINES, "[]", "not an empty list"},
    {CONFIG_PIPELINES, "[[]]", "must list maps with keys, not an empty list"},
};

TEST_CASE(test_types)
{
    for (size_t key = 0; key < KEY_COUNT; key++) {
        size_t tried = 0;
        for (size_t i = 0; i < ARRAY_COUNT(wrong_types); i++)
            if (wrong_types[i].type == config_keys[key].type) {
                expect_bad(key, wrong_types[i].value, wrong_types[i].part);
                tried++;
            }
        assert_true(tried > 0);
    }
}

TEST_CASE(test_texts)
{
    expect_good(KEY_PIPELINE_NAME, "A-z.0_9");
    expect_good(KEY_PIPELINE_NAME, "12");
    expect_good(KEY_PIPELINE_NAME, "\"null\"");
    expect_good(KEY_STAGE_NAME, "a23456789012345678901234567890123456789012345678901234567890123");
    static char longer[5000];
    memset(longer, 'x', sizeof(longer) - 1);
    expect_bad(KEY_MODELET, longer, "must have 1 to 4095 bytes, not 4999");
    expect_bad(KEY_MODEL_PATH, longer, "must have 1 to 4095 bytes");
    longer[1025] = '\0';
    expect_bad(KEY_MODEL_ID, longer, "must have 1 to 1024 bytes, not 1025");
    longer[245] = '\0';
    expect_bad(KEY_COUNTERS, longer, "a path of 256 bytes (/etc/shoal/xxx");
    longer[239] = '\0';
    expect_good(KEY_COUNTERS, longer);
    static const char *const levels[] = {"error", "warn", "info", "debug", "'info'"};
    for (size_t i = 0; i < ARRAY_COUNT(levels); i++)
        expect_good(KEY_LOG_LEVEL, levels[i]);
    expect_bad(KEY_LOG_LEVEL, "loud", "must be a word (error|warn|info|debug), not \"loud\"");
    expect_good(KEY_LOG_FORMAT, "logfmt");
    expect_good(KEY_LOG_FORMAT, "json");
    expect_bad(KEY_LOG_FORMAT, "xml", "must be a word (logfmt|json), not \"xml\"");
    expect_good(KEY_SANDBOX, "required");
    expect_good(KEY_SANDBOX, "best_effort");
    expect_bad(KEY_SANDBOX, "off", "must be a word (best_effort|required), not \"off\"");
}

/* A list of words becomes the bits that the worker is told. */
TEST_CASE(test_words)
{
    static const struct {
        const char *list;
        uint32_t allow;
    } cases[] = {
        {"[]", 0},
        {"[reading]", SANDBOX_ALLOW_READING},
        {"[files, network]", SANDBOX_ALLOW_FILES | SANDBOX_ALLOW_NETWORK},
        {"['code', \"processes\"]", SANDBOX_ALLOW_CODE | SANDBOX_ALLOW_PROCESSES},
        {"[all, core, reading, files, network, processes, code]", SANDBOX_ALLOW_EVERY},
    };
    static const struct {
        const char *list;
        const char *part;
    } bad[] = {
        {"files", "must be a list of words (reading|files|network|processes|code|all|core)"},
        {"[file]", "must list words of reading|files|network|processes|code|all|core, not"},
        {"[files, 'files|network']", "not \"files|network\""},
        {"[files, code, files]", "\"files\" is given twice"},
        {"[files, a, b, c, d, e, f, g]", "`sandbox_allow` has 8 elements: must be at most"},
    };
    for (size_t i = 0; i < ARRAY_COUNT(bad); i++)
        expect_bad(KEY_SANDBOX_ALLOW, bad[i].list, bad[i].part);
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        char *text = fill(&frames[WHERE_STAGE], "sandbox_allow", cases[i].list);
        struct config config = rig_good(text);
        assert_int_equal(config.pipelines[0].stages[0].sandbox_allow, cases[i].allow);
        assert_string_equal(config.sandbox, "best_effort");
        config_free(&config);
        free(text);
    }
    struct config config = rig_good(PIPELINES);
    assert_int_equal(config.pipelines[0].stages[0].sandbox_allow, 0);
    config_free(&config);
}

TEST_CASE(test_keys)
{
    char *text;
    static const struct {
        enum config_where where;
        const char *key;
        const char *part;
    } unknown[] = {
        {WHERE_TOP, "front_thread",
         "\"front_thread\" is not a key of the top level: did you mean "
         "`front_threads`?"},
        {WHERE_TOP, "Listen", "did you mean `listen`?"},
        {WHERE_TOP, "batch_size", "\"batch_size\" is not a key of the top level, but of a stage"},
        {WHERE_TOP, "name", "but of a pipeline"},
        {WHERE_TOP, "zebra", "`shoald --help-config` lists them all"},
        {WHERE_TOP, "<<", "not a key of the top level"},
        {WHERE_TOP, "''", "\"\" is not a key of the top level"},
        {WHERE_TOP, "front_threads_front_threads_front_threads", "lists them all"},
        {WHERE_PIPELINE, "slot", "did you mean `slots`?"},
        {WHERE_STAGE, "batchsize",
         "\"batchsize\" is not a key of a stage: did you mean `batch_size`?"},
        {WHERE_STAGE, "param", "did you mean `params`?"},
        {WHERE_STAGE, "\"a\\eb\"", "\"a?b\" is not a key"},
        {WHERE_TLS, "ca", "\"ca\" is not a key of `tls` at the top, but of the mesh's `tls`"},
        {WHERE_MESH_TLS, "client_ca", "but of `tls` at the top"},
        {WHERE_MODELS, "memory_mb", "did you mean `memory_mib`?"},
        {WHERE_MODELS, "slots", "not a key of a pipeline's models, but of a pipeline"},
        {WHERE_MODEL, "pat", "\"pat\" is not a key of a stage's model: did you mean `path`?"},
    };
    for (size_t i = 0; i < ARRAY_COUNT(unknown); i++) {
        text = fill(&frames[unknown[i].where], unknown[i].key, "1");
        rig_bad(text, frames[unknown[i].where].line, unknown[i].part);
        free(text);
    }
    rig_bad(PIPELINES "server_name: my server\n", 4, "not \"my server\"");
    rig_bad(PIPELINES "server_name: \"\"\n", 4, "`server_name` must be a name");
    rig_bad(PIPELINES "caller_metadata: X-Tenant\n", 4, "has capital letters");
    rig_bad(PIPELINES "caller_proxies: [gateway.example]\n", 4,
            "`caller_proxies` needs `tls` at the top with");
    rig_bad(PIPELINES "front_threads: 1\nlog_level: info\nfront_threads: 1\n", 6,
            "`front_threads` is given twice: first on line 4");
    rig_bad(PIPELINES "  name: q\n", 4, "`name` is given twice: first on line 2");
    rig_bad("front_threads: 2\n", 1, "`pipelines` is missing: the top level needs it (a list of");
    rig_bad("pipelines:\n- slots: 1\n" STAGES, 2,
            "`name` is missing: a pipeline needs it (a name)");
    rig_bad("pipelines:\n- name: p\n", 2, "`stages` is missing");
    rig_bad("pipelines:\n- name: p\n  stages:\n  - modelet: m\n", 4, "`name` is missing");
    rig_bad("pipelines:\n- name: p\n  stages:\n  - {workers: 1,\n     name: s}\n", 4,
            "`modelet` is missing: a stage needs it (text)");
}

/* ---- traces ---- */

TEST_CASE(test_traces)
{
    static const struct {
        const char *written, *read;
    } good[] = {
        {"file:/var/log/spans.jsonl", "file:/var/log/spans.jsonl"},
        {"file:spans.jsonl", "file:/etc/shoal/spans.jsonl"},
        {"http://127.0.0.1:4318/v1/traces", "http://127.0.0.1:4318/v1/traces"},
        {"https://collector/v1/traces", "https://collector/v1/traces"},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(good); i++) {
        char *text = fill(&frames[WHERE_TOP], "trace_sample: 0.25\ntraces", good[i].written);
        struct config config = rig_good(text);
        assert_string_equal(config.traces, good[i].read);
        assert_int_equal(config.trace_sample, UINT64_C(1) << 30);
        config_free(&config);
        free(text);
    }
    static const char *const bad[] = {"spans.jsonl", "'file:'", "FILE:/a", "ftp://host/",
                                      "http:/host"};
    for (size_t i = 0; i < ARRAY_COUNT(bad); i++)
        expect_bad(KEY_TRACES, bad[i], "`traces` must be \"file:PATH\" or an http or https URL");
    expect_bad(KEY_TRACE_SAMPLE, "1", "`trace_sample` without `traces`");
    struct config config = rig_good(PIPELINES);
    assert_null(config.traces);
    assert_int_equal(config.trace_sample, 0);
    config_free(&config);
}

/* ---- models ---- */

TEST_CASE(test_models)
{
    struct config config = rig_good(PIPELINES);
    assert_null(config.pipelines[0].models.root);
    assert_int_equal(config.runtime.count, 0);
    config_free(&config);
    config = rig_good("runtime: [port:8085, unix:runtime.sock]\npipelines:\n- name: p\n"
                      "  models: {root: models, memory_mib: 8, types: [a, b.c]}\n" STAGES);
    assert_string_equal(config.runtime.items[0], "port:8085");
    assert_string_equal(config.runtime.items[1], "unix:/etc/shoal/runtime.sock");
    const struct config_models *models = &config.pipelines[0].models;
    assert_string_equal(models->root, "/etc/shoal/models");
    assert_int_equal(models->memory_bytes, UINT64_C(8) << 20);
    assert_int_equal(models->load_concurrency, 2);
    assert_int_equal(models->load_timeout_ns, 60 * NS_PER_S);
    assert_int_equal(models->default_bytes, UINT64_C(4) << 20); /* 16 would never fit */
    assert_int_equal(models->type_count, 2);
    assert_string_equal(models->types[1], "b.c");
    assert_string_equal(models->watch, "yes");
    config_free(&config);
    config = rig_good("pipelines:\n- name: p\n  models:\n    root: /m\n    memory_mib: 800\n"
                      "    watch: no\n    load_concurrency: 3\n    load_timeout_ms: 5\n" STAGES);
    models = &config.pipelines[0].models;
    assert_string_equal(models->root, "/m");
    assert_int_equal(models->load_concurrency, 3);
    assert_int_equal(models->load_timeout_ns, 5 * NS_PER_MS);
    assert_int_equal(models->default_bytes, UINT64_C(16) << 20);
    assert_string_equal(models->watch, "no");
    config_free(&config);
}

/* ---- rules between keys ---- */

#define MODELS "  models: {root: r, memory_mib: 8}\n"
#define STAGE(text)                                                                                \
    "pipelines:\n- name: p\n  slots: 8\n  stages:\n  - name: s\n    modelet: m\n" text

TEST_CASE(test_rules)
{
    static const struct {
        const char *text;
        int line;
        const char *part;
    } cases[] = {
        {PIPELINES "- name: q\n" STAGES "- name: p\n" STAGES, 6,
         "a pipeline named \"p\" begins on line 2"},
        {STAGE("  - modelet: m\n    name: s\n"), 8, "a stage named \"s\" begins on line 5"},
        {STAGE("    workers: 2\n    cpus: [0]\n"), 7, "`workers` and `cpus` exclude each other"},
        {STAGE("    batch_size: 9\n"), 7, "`batch_size` is 9, more than the pipeline's 8 `slots`"},
        {"pipelines:\n- stages:\n  - {name: s, modelet: m, batch_size: 3}\n  name: p\n  slots: 2\n",
         3, "more than the pipeline's 2 `slots`"},
        {STAGE("    batch_wait_ms: 0.5\n"), 7, "`batch_wait_ms` without a `batch_size` above 0"},
        {STAGE("    batch_wait_ms: 1\n    batch_size: 0\n"), 7, "`batch_wait_ms` without"},
        {STAGE("    batch_wait_ms: 1\n    batch_size: x\n"), 8, "must be an integer"},
        {STAGE("    batch_size: 8\n    batch_wait_ms: 0\n    batch_wait: adaptive\n"), 9,
         "`batch_wait: adaptive` with `batch_wait_ms: 0`"},
        {STAGE("    batch_size: 8\n    batch_wait_ms: x\n    batch_wait: adaptive\n"), 8,
         "must be a number"},
        {STAGE("    batch_size: 8\n    batch_wait_ms: 1\n    batch_wait: quick\n"), 9,
         "fixed|adaptive"},
        {"pipelines:\n- name: p\n  local_clients: 1\n" MODELS STAGES, 3,
         "`local_clients` and `models` exclude each other"},
        {"pipelines:\n- name: p\n" MODELS "  stages: [{name: s, modelet: m, model: {id: i}}]\n", 3,
         "every stage has a `model` of its own"},
        {"pipelines:\n- name: p\n  models: {root: r, memory_mib: 8, default_size_mib: 9}\n" STAGES,
         3, "`default_size_mib` is more than `memory_mib` (8)"},
        {"pipelines:\n- name: p\n  models: {root: r, memory_mib: 8, types: [a, b]}\n" STAGES
         "- name: q\n  models:\n    root: r\n    memory_mib: 8\n    types: [c, b]\n" STAGES,
         9, "`types`: \"b\" is also listed by the pipeline that begins on line 2"},
        {"pipelines:\n- name: p\n  arena_mib: 9\n" STAGES, 3,
         "`arena_mib`: an arena of 9 MiB is too small for messages of 16777216 bytes: at least"},
    };
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++)
        rig_bad(cases[i].text, cases[i].line, cases[i].part);
    static const char *const fine[] = {
        STAGE("    batch_size: 8\n    batch_wait_ms: 0.5\n"),
        STAGE("    batch_wait_ms: 0\n"),
        STAGE("    batch_size: 8\n    batch_wait_ms: 60000\n"),
        STAGE("    batch_size: 8\n    batch_wait_ms: 2\n    batch_wait: adaptive\n"),
        STAGE("    batch_wait: fixed\n"),
        STAGE("    batch_wait: adaptive\n"),
        "pipelines:\n- name: p\n" MODELS "  stages:\n  - name: s\n    modelet: m\n"
        "    batch_size: 8\n    batch_wait_ms: 1\n    batch_wait: adaptive\n",
        STAGE("    batch_size: 8\n    batch_wait_ms: 0.000001\n"),
        STAGE("  - {name: t, modelet: m}\n- name: q\n  stages: [{name: s, modelet: m}]\n"),
        "pipelines:\n- name: p\n" MODELS
        "  stages: [{name: s, modelet: m}, {name: t, modelet: m, model: {id: i}}]\n",
        ("message_mib: 1\npipelines:\n- name: p\n  arena_mib: 9\n" STAGES),
    };
    for (size_t i = 0; i < ARRAY_COUNT(fine); i++) {
        struct config config = rig_good(fine[i]);
        config_free(&config);
    }
}

TEST_CASE(test_all_at_once)
{
    static const char text[] = "frontthreads: 1\n"
                               "message_mib: 0\n"
                               "cpus: [a,\n"
                               "  0,\n"
                               "  b]\n"
                               "pipelines:\n"
                               "- name: p\n"
                               "  stages:\n"
                               "  - {name: s, modelet: m, workers: no}\n"
                               "  - {name: s, modelt: m}\n"
                               "- name: p\n"
                               "  stages: []\n";
    static const int lines[] = {1, 2, 3, 5, 9, 10, 10, 10, 11, 12};
    struct config config;
    struct config_errors errors;
    rig_parse(text, sizeof(text) - 1, &config, &errors);
    if (errors.count != ARRAY_COUNT(lines))
        rig_print(&errors);
    assert_int_equal(errors.count, ARRAY_COUNT(lines));
    for (uint32_t i = 0; i < errors.count; i++) {
        char start[64];
        snprintf(start, sizeof(start), RIG_PATH ":%d: ", lines[i]);
        assert_int_equal(strncmp(errors.lines[i], start, strlen(start)), 0);
    }
    config_errors_free(&errors);
    config_free(&config);
}

/* ---- what arrives ---- */

TEST_CASE(test_defaults)
{
    struct config config = rig_good(PIPELINES);
    assert_string_equal(config.path, RIG_PATH);
    assert_int_equal(config.listen.count, 1);
    assert_string_equal(config.listen.items[0], "port:8033");
    assert_int_equal(config.metrics.count, 0);
    assert_int_equal(config.http.count, 0);
    assert_null(config.cpus);
    assert_int_equal(config.front_threads, 1);
    assert_int_equal(config.message_bytes_max, 16 << 20);
    assert_string_equal(config.compression, "on");
    assert_int_equal(config.connections_max, 2048);
    assert_int_equal(config.connections_per_peer_max, 0);
    assert_int_equal(config.streams_per_connection_max, 256);
    assert_int_equal(config.stream_window_bytes, 24 << 10);
    assert_int_equal(config.send_timeout_ns, INT64_C(10000000000));
    assert_int_equal(config.drain_timeout_ns, INT64_C(30000000000));
    assert_int_equal(config.keepalive_time_ns, INT64_C(60000000000));
    assert_int_equal(config.keepalive_timeout_ns, INT64_C(20000000000));
    assert_null(config.counters);
    assert_string_equal(config.log_level, "info");
    assert_int_equal(config.event_log_lines, LOG_SITE_LINES);
    assert_int_equal(config.worker_log_bytes_per_s, 64 << 10);
    assert_int_equal(config.pipeline_count, 1);
    const struct config_pipeline *pipeline = &config.pipelines[0];
    assert_int_equal(pipeline->slot_count, 1024);
    assert_int_equal(pipeline->arena_bytes, 0);
    assert_int_equal(pipeline->default_timeout_ns, 0);
    assert_int_equal(pipeline->spin_ns, 200000);
    assert_int_equal(pipeline->line, 2);
    assert_int_equal(pipeline->stage_count, 1);
    const struct config_stage *stage = &pipeline->stages[0];
    assert_null(stage->cpus);
    assert_int_equal(stage->worker_count, 1);
    assert_int_equal(stage->batch_size, 0);
    assert_int_equal(stage->batch_wait_ns, 0);
    assert_string_equal(stage->batch_wait, "adaptive");
    assert_int_equal(stage->start_timeout_ns, INT64_C(30000000000));
    assert_int_equal(stage->halvings_max, 12);
    assert_int_equal(stage->attempts_max, 2);
    assert_null(stage->model_id);
    assert_int_equal(stage->param_count, 0);
    assert_int_equal(stage->line, 3);
    config_free(&config);
}

static void
assert_addresses(const struct config *config)
{
    assert_int_equal(config->listen.count, 2);
    assert_string_equal(config->listen.items[0], "unix:/etc/shoal/run/s");
    assert_string_equal(config->listen.items[1], "[::1]:9");
    assert_int_equal(config->metrics.count, 2);
    assert_string_equal(config->metrics.items[1], "127.0.0.1:0");
}

TEST_CASE(test_values)
{
    struct config config = rig_good("listen: [\"unix:run/s\", \"[::1]:9\"]\n"
                                    "metrics: [\"port:2112\", \"127.0.0.1:0\"]\n"
                                    "http: \"port:8008\"\n"
                                    "front_threads: 3\n"
                                    "message_mib: 2\n"
                                    "drain_timeout_ms: 4\n"
                                    "keepalive_time_ms: 5\n"
                                    "keepalive_timeout_ms: 6\n"
                                    "counters: run/counters\n"
                                    "log_level: debug\n"
                                    "pipelines:\n"
                                    "- name: p\n"
                                    "  slots: 7\n"
                                    "  arena_mib: 800\n"
                                    "  default_timeout_ms: 9\n"
                                    "  spin_us: 10\n"
                                    "  stages:\n"
                                    "  - name: s\n"
                                    "    modelet: ../m.so\n"
                                    "    cpus: [3, 1, 3]\n"
                                    "    batch_size: 5\n"
                                    "    batch_wait_ms: 1.001\n"
                                    "    batch_wait: adaptive\n"
                                    "    start_timeout_ms: 11\n"
                                    "    halvings_max: 3\n"
                                    "    attempts_max: 4\n"
                                    "    params: {b: 0x1F, a: \"2 \\n\", c: , d: ~}\n"
                                    "    model: {id: m, path: m.bin, key: k}\n");
    assert_addresses(&config);
    assert_int_equal(config.front_threads, 3);
    assert_int_equal(config.message_bytes_max, 2 << 20);
    assert_int_equal(config.drain_timeout_ns, 4000000);
    assert_int_equal(config.keepalive_time_ns, 5000000);
    assert_int_equal(config.keepalive_timeout_ns, 6000000);
    assert_string_equal(config.counters, "/etc/shoal/run/counters");
    assert_string_equal(config.log_level, "debug");
    const struct config_pipeline *pipeline = &config.pipelines[0];
    assert_string_equal(pipeline->name, "p");
    assert_int_equal(pipeline->slot_count, 7);
    assert_int_equal(pipeline->arena_bytes, INT64_C(800) << 20);
    assert_int_equal(pipeline->default_timeout_ns, 9000000);
    assert_int_equal(pipeline->spin_ns, 10000);
    const struct config_stage *stage = &pipeline->stages[0];
    assert_string_equal(stage->name, "s");
    assert_string_equal(stage->modelet, "/etc/shoal/../m.so");
    assert_null(stage->cpus); /* --no-pin */
    assert_int_equal(stage->worker_count, 3);
    assert_int_equal(stage->batch_size, 5);
    assert_int_equal(stage->batch_wait_ns, 1001000);
    assert_string_equal(stage->batch_wait, "adaptive");
    assert_int_equal(stage->start_timeout_ns, 11000000);
    assert_int_equal(stage->halvings_max, 3);
    assert_int_equal(stage->attempts_max, 4);
    assert_int_equal(stage->param_count, 4);
    static const char *const params[][2] = {{"b", "0x1F"}, {"a", "2 \n"}, {"c", ""}, {"d", "~"}};
    for (size_t i = 0; i < ARRAY_COUNT(params); i++) {
        assert_string_equal(stage->params[i].name, params[i][0]);
        assert_string_equal(stage->params[i].value, params[i][1]);
    }
    assert_string_equal(stage->model_id, "m");
    assert_string_equal(stage->model_path, "/etc/shoal/m.bin");
    assert_string_equal(stage->model_key, "k");
    config_free(&config);
}

TEST_MAIN()
