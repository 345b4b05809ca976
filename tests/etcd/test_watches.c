/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A watch goes on by itself: over connections that are cut, servers that are killed, that do not
 * answer, that fall silent; each event is shown once, in order. It ends when it is behind for good.
 * Its first stream is enough, however long its request is.
 * Closing it closes the server's watchers.
 */
#include "proxy.h"
#include "rig.h"

static struct cluster cluster;
static struct proxy *proxy;
static struct etcd *direct;
static struct etcd *etcd; /* through the proxy */

struct seen {
    struct etcd_watch *watch;
    size_t events, opens, troubles, ends, progress;
    enum etcd_watch_end end;
    int64_t last[2]; /* revision of each range */
    int64_t number;  /* of the last value */
    enum status trouble;
};

static void
on_events(void *context, size_t range_index, const struct etcd_event *events, size_t count)
{
    struct seen *seen = context;
    for (size_t i = 0; i < count; i++) {
        assert_true(events[i].kv.mod_revision > seen->last[range_index]);
        seen->last[range_index] = events[i].kv.mod_revision;
        if (range_index == 0) { /* its values are numbers, one after the other */
            char text[24];
            snprintf(text, sizeof(text), "%.*s", (int)events[i].kv.value.bytes,
                     (const char *)events[i].kv.value.data);
            assert_int_equal(strtoll(text, NULL, 10), seen->number + 1);
            seen->number++;
        }
    }
    seen->events += count;
}

static void
on_progress(void *context, size_t range_index, int64_t revision)
{
    struct seen *seen = context;
    assert_true(revision >= seen->last[range_index]);
    seen->progress++;
}

static void
on_open(void *context)
{
    ((struct seen *)context)->opens++;
}

static void
on_trouble(void *context, const struct error *error)
{
    struct seen *seen = context;
    seen->trouble = error->status;
    seen->troubles++;
}

static void
on_end(void *context, enum etcd_watch_end end, const struct error *error)
{
    struct seen *seen = context;
    assert_true(error->text[0] != '\0');
    seen->ends++;
    seen->end = end;
}

/* Those that a test which fails leaves behind. */
static struct etcd_watch *opened[16];

static void
watch(struct seen *seen, struct etcd *client, struct etcd_watch_options options)
{
    static const struct etcd_range ranges[2] = {
        {.key = {"w/number", 8}},
        {.span = ETCD_PREFIX, .key = {"w/other/", 8}},
    };
    *seen = (struct seen){.number = 0};
    options.ranges = ranges;
    options.range_count = 2;
    options.on_events = on_events;
    options.on_progress = on_progress;
    options.on_open = on_open;
    options.on_trouble = on_trouble;
    options.on_end = on_end;
    options.context = seen;
    struct error error = ERROR_NONE;
    assert_int_equal(etcd_watch_open(client, &options, &seen->watch, &error), STATUS_OK);
    size_t free_place = 0;
    while (opened[free_place] != NULL)
        free_place++;
    opened[free_place] = seen->watch;
}

static void
unwatch(struct seen *seen)
{
    for (size_t i = 0; i < ARRAY_COUNT(opened); i++)
        if (opened[i] == seen->watch)
            opened[i] = NULL;
    etcd_watch_close(seen->watch);
}

static int64_t number;

static int64_t
put_next(void)
{
    char text[24];
    snprintf(text, sizeof(text), "%lld", (long long)++number);
    return done(do_put(direct, "w/number", text))->revision;
}

static int
start(void **state)
{
    (void)state;
    cluster_start(&cluster, 1);
    struct etcd_options options = {.call_timeout_ns = 30 * NS_PER_S};
    direct = rig_client(&cluster, options);
    done(do_get(direct, "ready"));
    return 0;
}

static int
stop(void **state)
{
    (void)state;
    etcd_destroy(direct);
    cluster_stop(&cluster);
    rig_end();
    return 0;
}

static int
begin(void **state)
{
    (void)state;
    number = 0;
    proxy = proxy_start(cluster.members[0].client_port);
    etcd = rig_client_of(proxy_url(proxy), (struct etcd_options){.call_timeout_ns = 30 * NS_PER_S});
    return 0;
}

static int
end(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(opened); i++) {
        if (opened[i] != NULL)
            etcd_watch_close(opened[i]);
        opened[i] = NULL;
    }
    etcd_destroy(etcd);
    proxy_stop(proxy);
    return 0;
}

/* Also before anything was seen: "from now on" is when it was opened the first time. */
TEST_CASE(connection_is_cut)
{
    struct seen seen;
    watch(&seen, etcd, (struct etcd_watch_options){.revision = 0});
    WAIT_UNTIL(seen.opens == 1);
    for (size_t i = 0; i < 10; i++) {
        proxy_cut(proxy);
        put_next();
        if (i % 2 == 0)
            done(do_put(direct, "w/other/a", ""));
        put_next();
        WAIT_UNTIL(seen.number == number);
    }
    WAIT_UNTIL(seen.events == 25);
    assert_true(etcd_figures(etcd)->streams >= 11);
    assert_int_equal(seen.ends, 0);
    unwatch(&seen);
}

TEST_CASE(server_is_killed)
{
    struct seen seen;
    watch(&seen, etcd, (struct etcd_watch_options){.revision = 0});
    WAIT_UNTIL(seen.opens == 1);
    put_next();
    member_kill(&cluster, 0);
    WAIT_UNTIL(seen.troubles >= 3);
    member_start(&cluster, 0);
    put_next();
    put_next();
    WAIT_UNTIL(seen.number == 3);
    unwatch(&seen);
}

/* Accepts connections and never says a word: no header comes. */
TEST_CASE(server_does_not_open)
{
    struct seen seen;
    proxy_set(proxy, PROXY_SWALLOW);
    watch(&seen, etcd, (struct etcd_watch_options){.create_ns = NS_PER_S});
    WAIT_UNTIL(seen.troubles >= 2);
    assert_int_equal(seen.trouble, STATUS_DEADLINE_EXCEEDED);
    assert_int_equal(seen.opens, 0);
    proxy_set(proxy, PROXY_PASS);
    WAIT_UNTIL(seen.opens == 1);
    put_next();
    WAIT_UNTIL(seen.number == 1);
    unwatch(&seen);
}

/* Was open, and says nothing any more, not even that nothing happens. */
TEST_CASE(server_falls_silent)
{
    struct seen seen;
    int64_t revision = put_next();
    watch(&seen, etcd,
          (struct etcd_watch_options){.revision = revision, .progress_ns = 2 * NS_PER_S});
    WAIT_UNTIL(seen.number == 1 && seen.progress >= 4);
    assert_int_equal(seen.troubles, 0); /* reports of progress are as good as events */
    proxy_set(proxy, PROXY_SWALLOW);
    put_next();
    WAIT_UNTIL(seen.troubles >= 1);
    proxy_set(proxy, PROXY_PASS);
    WAIT_UNTIL(seen.number == 2);
    unwatch(&seen);
}

/* Unseen revisions are compacted while it is disconnected. */
TEST_CASE(compacted_meanwhile)
{
    struct seen seen;
    watch(&seen, etcd, (struct etcd_watch_options){.revision = 0});
    WAIT_UNTIL(seen.opens == 1);
    proxy_set(proxy, PROXY_SWALLOW);
    proxy_cut(proxy);
    put_next();
    int64_t last = put_next();
    etcd_compact(direct, last, to_got(0));
    done(got_wait());
    proxy_cut(proxy);
    proxy_set(proxy, PROXY_PASS);
    WAIT_UNTIL(seen.ends == 1);
    assert_int_equal(seen.end, ETCD_WATCH_COMPACTED);
    WAIT_UNTIL(proxy_open(proxy) == 0); /* the server does not close it */
    unwatch(&seen);
}

enum { LATE = 12, LATE_BYTES = 1 << 20 };

struct late {
    size_t events, troubles;
};

static void
on_late_events(void *context, size_t range_index, const struct etcd_event *events, size_t count)
{
    struct late *late = context;
    (void)range_index;
    for (size_t i = 0; i < count; i++)
        assert_int_equal(events[i].kv.value.bytes, LATE_BYTES);
    late->events += count;
}

static void
on_late_trouble(void *context, const struct error *error)
{
    (void)error;
    ((struct late *)context)->troubles++;
}

static void
on_late_end(void *context, enum etcd_watch_end ended, const struct error *error)
{
    (void)context;
    fail_msg("%d %s", ended, error->text);
}

/* The events since come in pieces that together exceed a client's limit. */
TEST_CASE(much_has_happened)
{
    char *value = calloc(1, LATE_BYTES);
    assert_non_null(value);
    struct etcd_op write = {.kind = ETCD_PUT, .range = one("late"), .value = {value, LATE_BYTES}};
    int64_t first = done(do_op(direct, write))->revision;
    for (int i = 1; i < LATE; i++)
        done(do_op(direct, write));
    free(value);
    struct etcd *small =
        rig_client(&cluster, (struct etcd_options){.answer_bytes_max = (size_t)6 << 20});
    struct late late = {0};
    struct etcd_range range = one("late");
    struct etcd_watch_options options = {.ranges = &range,
                                         .range_count = 1,
                                         .revision = first,
                                         .on_events = on_late_events,
                                         .on_trouble = on_late_trouble,
                                         .on_end = on_late_end,
                                         .context = &late};
    struct etcd_watch *late_watch;
    struct error error = ERROR_NONE;
    assert_int_equal(etcd_watch_open(small, &options, &late_watch, &error), STATUS_OK);
    WAIT_UNTIL(late.events == LATE || late.troubles > 0);
    assert_int_equal(late.troubles, 0);
    etcd_watch_close(late_watch);
    etcd_destroy(small);
}

/* From a revision that no endpoint has come to: then what was known is gone. */
TEST_CASE(future)
{
    struct seen seen;
    int64_t revision = put_next();
    watch(&seen, etcd, (struct etcd_watch_options){.revision = revision + 100});
    WAIT_UNTIL(seen.ends == 1);
    assert_int_equal(seen.end, ETCD_WATCH_BEHIND);
    assert_int_equal(seen.events, 0);
    unwatch(&seen);
    watch(&seen, etcd, (struct etcd_watch_options){.revision = revision + 1});
    WAIT_UNTIL(seen.opens == 1); /* the next one is no future */
    unwatch(&seen);
}

static long
server_watchers(void)
{
    char command[256];
    char line[256];
    long watchers = -1;
    snprintf(command, sizeof(command), "curl -s --noproxy '*' %s/metrics", cluster.members[0].url);
    FILE *output = popen(command, "re"); /* NOLINT: a test's own words */
    assert_non_null(output);
    while (fgets(line, sizeof(line), output) != NULL)
        if (strncmp(line, "etcd_debugging_mvcc_watcher_total ", 34) == 0)
            watchers = strtol(line + 34, NULL, 10);
    pclose(output);
    return watchers;
}

TEST_CASE(closing_cancels)
{
    struct seen seen[10];
    WAIT_UNTIL(server_watchers() == 0);
    for (size_t i = 0; i < ARRAY_COUNT(seen); i++)
        watch(&seen[i], etcd, (struct etcd_watch_options){.revision = 0});
    for (size_t i = 0; i < ARRAY_COUNT(seen); i++)
        WAIT_UNTIL(seen[i].opens == 1);
    assert_int_equal(server_watchers(), 20);
    for (size_t i = 0; i < ARRAY_COUNT(seen); i++)
        unwatch(&seen[i]);
    WAIT_UNTIL(server_watchers() == 0);
}

static void
count_events(void *context, size_t range_index, const struct etcd_event *events, size_t count)
{
    struct seen *seen = context;
    (void)events;
    assert_in_range(range_index, 0, ETCD_RANGES_MAX - 1);
    seen->events += count;
}

/* The server answers the first range before it has read the last one's. */
TEST_CASE(long_request)
{
    enum { KEY_BYTES = 3000 };
    static char keys[ETCD_RANGES_MAX][KEY_BYTES + 1];
    struct etcd_range ranges[ETCD_RANGES_MAX];
    for (int i = 0; i < ETCD_RANGES_MAX; i++) {
        memset(keys[i], 'a' + i, KEY_BYTES);
        ranges[i] = (struct etcd_range){.key = {keys[i], KEY_BYTES}};
    }
    struct seen seen = {.number = 0};
    const struct etcd_watch_options options = {
        .ranges = ranges,
        .range_count = ETCD_RANGES_MAX,
        .on_events = count_events,
        .on_open = on_open,
        .on_trouble = on_trouble,
        .on_end = on_end,
        .context = &seen,
    };
    struct error error = ERROR_NONE;
    assert_int_equal(etcd_watch_open(etcd, &options, &seen.watch, &error), STATUS_OK);
    opened[0] = seen.watch;
    WAIT_UNTIL(seen.opens == 1 || seen.troubles > 0);
    assert_int_equal(seen.troubles, 0);
    assert_int_equal(etcd_figures(etcd)->streams, 1);
    for (int i = 0; i < ETCD_RANGES_MAX; i++)
        done(do_put(direct, keys[i], "1"));
    WAIT_UNTIL(seen.events == ETCD_RANGES_MAX);
    unwatch(&seen);
}

TEST_CASE(wrong_options)
{
    struct etcd_range ranges[ETCD_RANGES_MAX + 1] = {{.span = ETCD_PREFIX}};
    struct etcd_watch_options options = {.ranges = ranges, .range_count = 0};
    struct etcd_watch *none;
    struct error error = ERROR_NONE;
    assert_int_equal(etcd_watch_open(etcd, &options, &none, &error), STATUS_INVALID_ARGUMENT);
    options.range_count = ETCD_RANGES_MAX + 1;
    assert_int_equal(etcd_watch_open(etcd, &options, &none, &error), STATUS_INVALID_ARGUMENT);
    options.range_count = 1;
    options.revision = -1; /* some versions would keep such a watch open forever */
    assert_int_equal(etcd_watch_open(etcd, &options, &none, &error), STATUS_INVALID_ARGUMENT);
    options.revision = 0;
    ranges[0].span = ETCD_ONE;
    assert_int_equal(etcd_watch_open(etcd, &options, &none, &error), STATUS_INVALID_ARGUMENT);
}

TEST_MAIN(.setup = begin, .teardown = end, .group_setup = start, .group_teardown = stop)
