/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A watch whose server may say anything, in any pieces: lines that come byte by byte, several at
 * once, cut off, repeated, out of any range, without sense. Nothing is shown twice, in part or out
 * of order, memory does not grow; and each callback may close the watch, while more waits to be
 * reported.
 */
#include <malloc.h>

#include "rig.h"
#include "script.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
size_t __sanitizer_get_current_allocated_bytes(void); /* NOLINT: the sanitizers' own */
#define HEAP_BYTES() __sanitizer_get_current_allocated_bytes()
#else
#define HEAP_BYTES() (mallinfo2().uordblks + mallinfo2().hblkhd)
#endif

static struct script *script;
static struct etcd *etcd;

#define HASTY                                                                                      \
    (struct etcd_options)                                                                          \
    {                                                                                              \
        .call_timeout_ns = 30 * NS_PER_S, .retry_ns_max = NS_PER_S / 20                            \
    }

enum { EVENTS_BYTES_MAX = 2048 };

enum moment { NEVER, AT_OPEN, AT_EVENTS, AT_PROGRESS, AT_TROUBLE, AT_END };

struct seen {
    struct etcd_watch *watch;
    enum moment closes;
    char events[EVENTS_BYTES_MAX]; /* "5a 6b ": a revision and a key each, "|" between calls */
    size_t opens, progress, troubles, ends;
    int64_t progress_revision;
};

static struct seen seen;

static int
begin(void **state)
{
    (void)state;
    script = script_start();
    etcd = rig_client_of(script_url(script), HASTY);
    return 0;
}

static void
unwatch(void)
{
    if (seen.watch != NULL)
        etcd_watch_close(seen.watch);
    seen.watch = NULL;
}

static int
end(void **state)
{
    (void)state;
    unwatch(); /* of a test that failed */
    etcd_destroy(etcd);
    script_stop(script);
    return 0;
}

static int
stop(void **state)
{
    (void)state;
    rig_end();
    return 0;
}

static void
close_at(enum moment moment)
{
    if (seen.closes != moment)
        return;
    etcd_watch_close(seen.watch);
    seen.watch = NULL;
}

static void
on_events(void *context, size_t range_index, const struct etcd_event *events, size_t count)
{
    (void)context;
    (void)range_index;
    assert_non_null(seen.watch);
    for (size_t i = 0; i < count; i++) {
        size_t used = strlen(seen.events);
        snprintf(seen.events + used, sizeof(seen.events) - used, "%lld%.*s%s",
                 (long long)events[i].kv.mod_revision, (int)events[i].kv.key.bytes,
                 (const char *)events[i].kv.key.data, i + 1 == count ? "|" : " ");
    }
    close_at(AT_EVENTS);
}

static void
on_progress(void *context, size_t range_index, int64_t revision)
{
    (void)context;
    (void)range_index;
    assert_non_null(seen.watch);
    assert_true(revision >= seen.progress_revision);
    seen.progress_revision = revision;
    seen.progress++;
    close_at(AT_PROGRESS);
}

static void
on_open(void *context)
{
    (void)context;
    assert_non_null(seen.watch);
    seen.opens++;
    close_at(AT_OPEN);
}

static void
on_trouble(void *context, const struct error *error)
{
    (void)context;
    assert_non_null(seen.watch);
    assert_true(error->text[0] != '\0');
    seen.troubles++;
    close_at(AT_TROUBLE);
}

static void
on_end(void *context, enum etcd_watch_end ended, const struct error *error)
{
    (void)context;
    assert_non_null(seen.watch);
    assert_int_equal(ended, ETCD_WATCH_COMPACTED);
    assert_true(error->text[0] != '\0');
    seen.ends++;
    close_at(AT_END);
}

/* Of one range, from revision 5 on; its first request has come. */
static void
watch(enum moment closes)
{
    static const struct etcd_range range = {.span = ETCD_PREFIX, .key = {"k", 1}};
    seen = (struct seen){.closes = closes};
    struct etcd_watch_options options = {
        .ranges = &range,
        .range_count = 1,
        .revision = 5,
        .on_events = on_events,
        .on_progress = on_progress,
        .on_open = on_open,
        .on_trouble = on_trouble,
        .on_end = on_end,
    };
    struct error error = ERROR_NONE;
    size_t requests = script_requests(script);
    assert_int_equal(etcd_watch_open(etcd, &options, &seen.watch, &error), STATUS_OK);
    WAIT_UNTIL(script_requests(script) == requests + 1);
    assert_string_equal(script_path(script), "/v3/watch");
    script_stream(script);
}

/* After the stream has ended: the next one. */
static void
watch_next(size_t requests)
{
    WAIT_UNTIL(script_requests(script) == requests + 1);
    script_stream(script);
}

#define RESULT(revision, rest)                                                                     \
    "{\"result\":{" SCRIPT_HEADER(revision) ",\"watch_id\":\"1\"" rest "}}\n"
#define CREATED(revision) RESULT(revision, ",\"created\":true")
#define EVENT(revision, key) "{\"kv\":{\"key\":\"" key "\",\"mod_revision\":\"" revision "\"}}"
#define PUT(revision, key) RESULT(revision, ",\"events\":[" EVENT(revision, key) "]")
#define PROGRESS(revision) RESULT(revision, "")
#define A "YQ=="
#define B "Yg=="
#define C "Yw=="

TEST_CASE(lines_in_any_pieces)
{
    watch(NEVER);
    static const char slow[] = CREATED("4") PUT("5", A);
    for (size_t i = 0; slow[i] != '\0'; i++) {
        script_chunk(script, (char[]){slow[i], '\0'});
        if (i % 16 == 0)
            rig_turn();
    }
    WAIT_UNTIL(strcmp(seen.events, "5a|") == 0);
    assert_int_equal(seen.opens, 1);
    script_chunk(script, PUT("6", B) PROGRESS("6") PUT("7", C) "{\"result\":");
    WAIT_UNTIL(strcmp(seen.events, "5a|6b|7c|") == 0);
    static const char rest[] = PUT("8", A);
    script_chunk(script, rest + strlen("{\"result\":"));
    WAIT_UNTIL(strcmp(seen.events, "5a|6b|7c|8a|") == 0);
    assert_int_equal(seen.progress, 1);
    assert_int_equal(seen.troubles, 0);
    unwatch();
}

/* A truncated line is not shown and comes again; nothing else does. */
TEST_CASE(lines_are_cut)
{
    watch(NEVER);
    script_chunk(script, CREATED("9") PUT("5", A) "{\"result\":{\"header\"");
    WAIT_UNTIL(strcmp(seen.events, "5a|") == 0);
    script_hang_up(script);
    watch_next(1);
    assert_int_equal(seen.troubles, 1);
    script_chunk(script, CREATED("9") PUT("4", B) PUT("5", A) PROGRESS("3") PUT("6", B));
    static const char line[] = PUT("7", C);
    char half[sizeof(line)];
    snprintf(half, sizeof(half), "%.*s", (int)sizeof(line) - 2, line);
    script_chunk(script, half); /* all but the line's end */
    script_stream_end(script);
    watch_next(2);
    assert_string_equal(seen.events, "5a|6b|");
    script_chunk(script, CREATED("9") PUT("7", C));
    WAIT_UNTIL(strcmp(seen.events, "5a|6b|7c|") == 0);
    assert_int_equal(seen.progress, 0);
    unwatch();
}

TEST_CASE(lines_are_wrong)
{
    static const char *const wrong[] = {
        "no JSON\n",
        "\n",
        "{}\n",
        "[]\n",
        "{\"result\":{}}\n",
        PUT("9223372036854775807", A),
        PUT("-1", A),
        CREATED("9223372036854775807"),
        RESULT("6", ",\"events\":[" EVENT("6", "a") "]"),
        "{\"error\":{\"code\":14,\"message\":\"etcdserver: no leader\",\"details\":[]}}\n",
        "{\"error\":{\"grpc_code\":99,\"http_code\":0,\"message\":7}}\n",
        "{\"error\":\"\"}\n",
        "{\"result\":{\"header\":{\"cluster_id\":\"7\",\"revision\":\"9\"},\"watch_id\":\"1\"}}\n",
        RESULT("6", ",\"canceled\":true,\"cancel_reason\":\"for no reason\""),
    };
    watch(NEVER);
    for (size_t i = 0; i < ARRAY_COUNT(wrong); i++) {
        script_chunk(script, CREATED("4") RESULT("8", ",\"watch_id\":\"7\",\"created\":true"));
        script_chunk(script, wrong[i]);
        script_chunk(script, PUT("5", A)); /* of a stream that is not believed any more */
        watch_next(1 + i);
        assert_int_equal(seen.troubles, i + 1);
        assert_int_equal(seen.opens, i + 1);
        assert_string_equal(seen.events, "");
    }
    script_chunk(script, CREATED("4") PUT("5", A));
    WAIT_UNTIL(strcmp(seen.events, "5a|") == 0);
    unwatch();
}

#define PIECE(rest) RESULT("9", ",\"fragment\":true,\"events\":[" rest "]")

/* Of pieces, whole revisions are shown at once, others when they are whole, and after a break from
 * the first that was not. */
TEST_CASE(pieces)
{
    watch(NEVER);
    script_chunk(script, CREATED("9") PIECE(EVENT("5", A) "," EVENT("6", A) "," EVENT("7", A)));
    WAIT_UNTIL(strcmp(seen.events, "5a 6a|") == 0);
    script_chunk(script, PIECE(EVENT("7", B)) PIECE(EVENT("7", C) "," EVENT("8", A)));
    WAIT_UNTIL(strcmp(seen.events, "5a 6a|7a 7b 7c|") == 0);
    script_chunk(script, PIECE(EVENT("8", B)));
    script_stream_end(script);
    watch_next(1);
    assert_string_equal(seen.events, "5a 6a|7a 7b 7c|");
    script_chunk(script, CREATED("9") PIECE(EVENT("8", A)) PIECE(EVENT("8", B)));
    script_chunk(script, RESULT("9", ",\"events\":[" EVENT("8", C) "," EVENT("9", A) "]"));
    WAIT_UNTIL(strcmp(seen.events, "5a 6a|7a 7b 7c|8a 8b 8c 9a|") == 0);
    script_chunk(script, PIECE(EVENT("10", A) "," EVENT("11", A)));
    WAIT_UNTIL(strcmp(seen.events, "5a 6a|7a 7b 7c|8a 8b 8c 9a|10a|") == 0);
    unwatch(); /* with a piece kept */
    watch(AT_EVENTS);
    script_chunk(script, CREATED("9") PIECE(EVENT("5", A) "," EVENT("6", A)) PUT("6", B));
    WAIT_UNTIL(seen.watch == NULL);
    assert_string_equal(seen.events, "5a|");
}

/* Streams last for months: a line leaves nothing behind, be it long. */
TEST_CASE(memory_is_kept_small)
{
    enum { LONG = 8 << 20, LINES = 2000, ALLOWED = 1 << 20 };
    watch(NEVER);
    script_chunk(script, CREATED("4") PROGRESS("4"));
    WAIT_UNTIL(seen.progress == 1);
    size_t before = HEAP_BYTES();
    char *spaces = malloc(LONG + 1);
    assert_non_null(spaces);
    memset(spaces, ' ', LONG);
    spaces[LONG] = '\0';
    script_chunk(script, spaces);
    free(spaces);
    script_chunk(script, PROGRESS("4"));
    WAIT_UNTIL(seen.progress == 2);
    for (size_t i = 0; i < LINES; i++) {
        script_chunk(script, PUT("4", A) PROGRESS("4"));
        if (i % 100 == 0)
            rig_turn();
    }
    WAIT_UNTIL(seen.progress == 2 + LINES);
    rig_turn();
    if (HEAP_BYTES() > before + ALLOWED)
        fail_msg("%zu bytes more", HEAP_BYTES() - before);
    assert_int_equal(seen.troubles, 0);
    unwatch();
}

/* Closed in each callback, while more lines have come already, and then its client is destroyed. */
TEST_CASE(watch_closes_itself)
{
    for (enum moment moment = AT_OPEN; moment <= AT_END; moment++) {
        watch(moment);
        script_chunk(script, CREATED("9") PUT("5", A) PROGRESS("9") PUT("6", B));
        if (moment == AT_TROUBLE)
            script_chunk(script, "x\n" PUT("7", C));
        script_chunk(script,
                     RESULT("9", ",\"canceled\":true,\"compact_revision\":\"8\"") PUT("7", C));
        WAIT_UNTIL(seen.watch == NULL);
        rig_turn();
        assert_int_equal(seen.opens, 1);
        assert_int_equal(seen.progress, moment >= AT_PROGRESS);
        assert_int_equal(seen.troubles, moment == AT_TROUBLE);
        assert_int_equal(seen.ends, moment == AT_END);
    }
    watch(NEVER);
    script_chunk(script, CREATED("9") PUT("5", A));
    WAIT_UNTIL(seen.opens == 1);
    script_chunk(script, PUT("6", B) PUT("7", C)); /* on its way */
    unwatch();
    etcd_destroy(etcd);
    etcd = NULL;
    rig_turn();
}

TEST_MAIN(.setup = begin, .teardown = end, .group_teardown = stop)
