/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Users and TLS with real certificates (certificates.sh): tokens are asked for once, and again
 * when etcd has forgotten them (a restart), also for watches, whose refusal does not say why; users
 * may be switched on while a client runs; what a user may not do is refused, not tried again.
 * With TLS, HTTP/2 is offered by the server and not taken; strangers are refused on both sides, and
 * trusted ones under another name; and a client certificate with a common name is refused by etcd
 * in words that help.
 */
#include "../certificates.h"
#include "proxy.h"
#include "rig.h"

static struct cluster cluster;

static const struct etcd_options patient = {.call_timeout_ns = 30 * NS_PER_S};

static int
start(void **state)
{
    (void)state;
    struct cluster *tls = &cluster;
    snprintf(tls->folder, sizeof(tls->folder),
             "/tmp/shoal-etcd-XX"
             "XXXX");
    assert_non_null(mkdtemp(tls->folder));
    const char *folder = tls->folder;
    certificates_make(folder, "authority ca stranger");
    certificates_make(folder, "certificate server ca /CN=etcd IP:127.0.0.1");
    certificates_make(folder, "certificate other ca /CN=127.0.0.1 DNS:other.example");
    certificates_make(folder, "certificate san ca / URI:spiffe://test/node");
    certificates_make(folder, "certificate cn ca /CN=root URI:spiffe://test/node");
    certificates_make(folder, "certificate alien stranger / URI:spiffe://test/node");
    return 0;
}

static int
stop(void **state)
{
    (void)state;
    run("rm -rf %s", cluster.folder);
    rig_end();
    return 0;
}

/* etcdctl would need another package: curl does, as a reference that is not ours. */
static void
post(const struct cluster *at, const char *path, const char *body)
{
    run("curl -sf --noproxy '*' --retry 30 --retry-connrefused --retry-delay 1 -o /dev/null"
        " -X POST %s%s -d '%s'",
        at->members[0].url, path, body);
}

/* root; and alice, with the right to read and write what begins with "a/". */
static void
make_users(const struct cluster *at)
{
    post(at, "/v3/auth/user/add", "{\"name\":\"root\",\"password\":\"r\\u0022oot\"}");
    post(at, "/v3/auth/user/grant", "{\"user\":\"root\",\"role\":\"root\"}");
    post(at, "/v3/auth/role/add", "{\"name\":\"a\"}");
    post(at, "/v3/auth/role/grant",
         "{\"name\":\"a\",\"perm\":{\"permType\":\"READWRITE\",\"key\":\"YS8=\",\"range_end\":"
         "\"YTA=\"}}");
    post(at, "/v3/auth/user/add", "{\"name\":\"alice\",\"password\":\"a\"}");
    post(at, "/v3/auth/user/grant", "{\"user\":\"alice\",\"role\":\"a\"}");
}

static void
switch_users_on(const struct cluster *at)
{
    post(at, "/v3/auth/enable", "{}");
}

static struct etcd_options
user(const char *name, const char *password)
{
    struct etcd_options options = patient;
    options.user = name;
    options.password = password;
    return options;
}

struct seen {
    size_t events, opens, ends;
    enum etcd_watch_end end;
};

static void
on_events(void *context, size_t range_index, const struct etcd_event *events, size_t count)
{
    (void)range_index;
    (void)events;
    ((struct seen *)context)->events += count;
}

static void
on_open(void *context)
{
    ((struct seen *)context)->opens++;
}

static void
on_end(void *context, enum etcd_watch_end end, const struct error *error)
{
    struct seen *seen = context;
    assert_int_equal(error->status, STATUS_PERMISSION_DENIED);
    seen->ends++;
    seen->end = end;
}

static struct etcd_watch *
watch(struct seen *seen, struct etcd *etcd, struct etcd_range range)
{
    *seen = (struct seen){0};
    struct etcd_watch_options options = {
        .ranges = &range,
        .range_count = 1,
        .on_events = on_events,
        .on_open = on_open,
        .on_end = on_end,
        .context = seen,
    };
    struct etcd_watch *opened = NULL;
    struct error error = ERROR_NONE;
    assert_int_equal(etcd_watch_open(etcd, &options, &opened, &error), STATUS_OK);
    return opened;
}

TEST_CASE(users)
{
    struct cluster plain = {0};
    static struct seen seen;
    static struct seen refused;
    cluster_start(&plain, 1);
    struct etcd *nobody = rig_client(&plain, patient);
    struct etcd *alice = rig_client(&plain, user("alice", "a"));
    struct etcd *root = rig_client(&plain, user("root", "r\"oot"));
    struct etcd *wrong = rig_client(&plain, user("alice", "b"));
    done(do_put(alice, "a/0", "before there are users"));
    make_users(&plain);
    switch_users_on(&plain);
    done(do_put(alice, "a/1", "1")); /* what it held for "no users" was renewed */
    done(do_put(root, "b/1", "1"));
    assert_int_equal(etcd_figures(alice)->tokens, 1);
    assert_fate(do_put(nobody, "a/1", "2"), ETCD_NOT_DONE, STATUS_INVALID_ARGUMENT);
    assert_int_equal(do_put(wrong, "a/1", "2")->fate, ETCD_NOT_DONE);
    assert_fate(do_put(alice, "b/1", "2"), ETCD_NOT_DONE, STATUS_PERMISSION_DENIED);
    struct etcd_watch *kept = watch(&seen, alice, prefix("a/"));
    struct etcd_watch *denied = watch(&refused, alice, prefix("b/"));
    WAIT_UNTIL(seen.opens == 1 && refused.ends == 1);
    assert_int_equal(refused.end, ETCD_WATCH_REFUSED);
    etcd_watch_close(denied);
    uint64_t tokens = etcd_figures(alice)->tokens;
    for (int i = 0; i < 10; i++)
        done(do_put(alice, "a/2", "1"));
    assert_int_equal(etcd_figures(alice)->tokens, tokens);
    WAIT_UNTIL(seen.events == 10);

    /* and with it go the tokens, unless it was so late that etcd replays its log from there */
    rig_wait_ns(NS_PER_S);
    member_kill(&plain, 0);
    member_start(&plain, 0);
    struct etcd_op read = {.kind = ETCD_RANGE, .range = one("a/2")};
    etcd_op(alice, &read, to_got(60 * NS_PER_S));
    assert_value(got_wait(), "1");
    done(do_put(alice, "a/3", "1"));
    WAIT_UNTIL(seen.events == 11); /* its stream was refused and opened again with a new one */
    assert_int_equal(seen.ends, 0);
    assert_true(etcd_figures(alice)->tokens > tokens);
    assert_value(do_get(root, "b/1"), "1");
    etcd_watch_close(kept);
    etcd_destroy(nobody);
    etcd_destroy(alice);
    etcd_destroy(root);
    etcd_destroy(wrong);
    cluster_stop(&plain);
}

static void
on_written(void *context, const struct etcd_answer *answer)
{
    done(answer);
    *(bool *)context = true;
}

/* etcd replays its log from what it last wrote to its database: so something is written, and has
 * the time to get there; then it is restarted. */
static void
forget_tokens(struct cluster *of, struct etcd *root)
{
    bool written = false;
    struct etcd_op write = {.kind = ETCD_PUT, .range = one("b/1")};
    etcd_op(root, &write, (struct etcd_reply){on_written, &written, 60 * NS_PER_S});
    WAIT_UNTIL(written);
    rig_wait_ns(NS_PER_S);
    member_kill(of, 0);
    member_start(of, 0);
}

/* With what hangs swallowed, from when a token was obtained until that is forgotten, too. */
static void
forget_next_token(struct cluster *of, struct etcd *root, struct proxy *proxy, struct etcd *client)
{
    uint64_t tokens = etcd_figures(client)->tokens;
    WAIT_UNTIL(etcd_figures(client)->tokens > tokens);
    proxy_set(proxy, PROXY_SWALLOW);
    forget_tokens(of, root);
    proxy_set(proxy, PROXY_PASS);
    proxy_cut(proxy);
}

/* The token is forgotten, and so is the next before it was used: that is no refusal of the user. */
TEST_CASE(tokens_lost_twice)
{
    struct cluster plain = {0};
    static struct seen seen;
    cluster_start(&plain, 1);
    make_users(&plain);
    switch_users_on(&plain);
    struct proxy *proxy = proxy_start(plain.members[0].client_port);
    struct etcd *watcher = rig_client_of(proxy_url(proxy), user("alice", "a"));
    struct etcd *caller = rig_client_of(proxy_url(proxy), user("alice", "a"));
    struct etcd *root = rig_client(&plain, user("root", "r\"oot"));
    struct etcd_watch *kept = watch(&seen, watcher, prefix("a/"));
    WAIT_UNTIL(seen.opens == 1);
    done(do_put(caller, "a/1", "1"));
    forget_tokens(&plain, root);
    forget_next_token(&plain, root, proxy, watcher);
    WAIT_UNTIL(seen.opens == 2 || seen.ends > 0);
    assert_int_equal(seen.ends, 0);
    assert_int_equal(etcd_figures(watcher)->tokens, 3);
    struct etcd_op read = {.kind = ETCD_RANGE, .range = one("a/1")};
    etcd_op(caller, &read, to_got(60 * NS_PER_S)); /* its token is long forgotten */
    forget_next_token(&plain, root, proxy, caller);
    assert_value(got_wait(), "1");
    assert_int_equal(etcd_figures(caller)->tokens, 3);
    etcd_watch_close(kept);
    etcd_destroy(watcher);
    etcd_destroy(caller);
    etcd_destroy(root);
    proxy_stop(proxy);
    cluster_stop(&plain);
}

/* A call has more time than the one for its token, which ends while etcd is down. */
TEST_CASE(token_is_waited_for)
{
    struct cluster plain = {0};
    cluster_start(&plain, 1);
    make_users(&plain);
    switch_users_on(&plain);
    struct etcd_options options = user("alice", "a");
    options.call_timeout_ns = 3 * NS_PER_S;
    struct etcd *alice = rig_client(&plain, options);
    member_kill(&plain, 0);
    struct etcd_op read = {.kind = ETCD_RANGE, .range = one("a/1")};
    etcd_op(alice, &read, to_got(60 * NS_PER_S));
    rig_wait_ns(4 * NS_PER_S); /* until that has ended */
    assert_false(got.here);
    member_start(&plain, 0);
    done(got_wait());
    etcd_destroy(alice);
    cluster_stop(&plain);
}

/* A server with these arguments, and clients of it with these files; NULL: none. */
static struct etcd_options
files(struct etcd_options options, const char *ca, const char *pair)
{
    static char paths[3][128];
    snprintf(paths[0], sizeof(paths[0]), "%s/%s.pem", cluster.folder, ca);
    options.ca_file = paths[0];
    if (pair != NULL) {
        snprintf(paths[1], sizeof(paths[1]), "%s/%s.pem", cluster.folder, pair);
        snprintf(paths[2], sizeof(paths[2]), "%s/%s.key", cluster.folder, pair);
        options.cert_file = paths[1];
        options.key_file = paths[2];
    }
    return options;
}

static struct etcd_options
hasty(void)
{
    return (struct etcd_options){.call_timeout_ns = NS_PER_S};
}

TEST_CASE(tls)
{
    char cert[128], key[128];
    snprintf(cert, sizeof(cert), "--cert-file=%s/server.pem", cluster.folder);
    snprintf(key, sizeof(key), "--key-file=%s/server.key", cluster.folder);
    struct cluster secure = {.scheme = "https", .args = {cert, key}};
    static struct seen seen;
    cluster_start(&secure, 1);
    struct etcd *etcd = rig_client(&secure, files(patient, "ca", NULL));
    done(do_put(etcd, "tls", "1"));
    struct etcd_watch *opened = watch(&seen, etcd, prefix("t"));
    WAIT_UNTIL(seen.opens == 1);
    done(do_put(etcd, "tls", "2"));
    WAIT_UNTIL(seen.events == 1);
    etcd_watch_close(opened);
    etcd_destroy(etcd);
    etcd = rig_client(&secure, files(hasty(), "stranger", NULL)); /* its authority is not trusted */
    assert_fate(do_put(etcd, "tls", "3"), ETCD_NOT_DONE, STATUS_UNAVAILABLE);
    etcd_destroy(etcd);
    char url[64];
    snprintf(url, sizeof(url), "http://127.0.0.1:%d", secure.members[0].client_port);
    etcd = rig_client_of(url, hasty());
    do_put(etcd, "tls", "3"); /* etcd ends the connection without a word */
    assert_int_not_equal(got.answer.fate, ETCD_DONE);
    etcd_destroy(etcd);
    cluster_stop(&secure);
}

/* Its certificate is of an authority that we trust, for another name. */
TEST_CASE(other_name)
{
    char cert[128], key[128];
    snprintf(cert, sizeof(cert), "--cert-file=%s/other.pem", cluster.folder);
    snprintf(key, sizeof(key), "--key-file=%s/other.key", cluster.folder);
    struct cluster secure = {.scheme = "https", .args = {cert, key}};
    static struct seen seen;
    cluster_start(&secure, 1);
    run("curl -sf --noproxy '*' --retry 30 --retry-connrefused --retry-delay 1 -o /dev/null"
        " --cacert %s/ca.pem --connect-to other.example:1:127.0.0.1:%d"
        " https://other.example:1/health",
        cluster.folder, secure.members[0].client_port); /* it is valid for its intended clients */
    struct etcd_options options = {.call_timeout_ns = 5 * NS_PER_S};
    struct etcd *etcd = rig_client(&secure, files(options, "ca", NULL));
    struct etcd_watch *opened = watch(&seen, etcd, prefix("t"));
    assert_fate(do_put(etcd, "tls", "1"), ETCD_NOT_DONE, STATUS_UNAVAILABLE);
    if (strstr(got.answer.error.text, "name") == NULL)
        fail_msg("%s", got.answer.error.text);
    assert_int_equal(seen.opens, 0);
    etcd_watch_close(opened);
    etcd_destroy(etcd);
    cluster_stop(&secure);
}

TEST_CASE(mutual_tls)
{
    char cert[128], key[128], ca[128];
    snprintf(cert, sizeof(cert), "--cert-file=%s/server.pem", cluster.folder);
    snprintf(key, sizeof(key), "--key-file=%s/server.key", cluster.folder);
    snprintf(ca, sizeof(ca), "--trusted-ca-file=%s/ca.pem", cluster.folder);
    struct cluster secure = {.scheme = "https", .args = {cert, key, ca, "--client-cert-auth"}};
    cluster_start(&secure, 1);
    struct etcd *etcd = rig_client(&secure, files(patient, "ca", "san"));
    done(do_put(etcd, "tls", "1"));
    etcd_destroy(etcd);
    static const char *const strangers[] = {NULL, "alien"};
    for (size_t i = 0; i < 2; i++) {
        etcd = rig_client(&secure, files(hasty(), "ca", strangers[i]));
        do_put(etcd, "tls", "2");
        assert_int_not_equal(got.answer.fate, ETCD_DONE);
        etcd_destroy(etcd);
    }
    run("cd %s && post() { curl -sf --noproxy '*' --cacert ca.pem --cert san.pem --key san.key"
        " -o /dev/null -X POST %s/v3/auth/$1 -d \"$2\"; } &&"
        " post user/add '{\"name\":\"root\",\"password\":\"r\"}' &&"
        " post user/grant '{\"user\":\"root\",\"role\":\"root\"}' && post enable '{}'",
        cluster.folder, secure.members[0].url);
    etcd = rig_client(&secure, files(user("root", "r"), "ca", "san"));
    assert_value(do_get(etcd, "tls"), "1");
    etcd_destroy(etcd);
    etcd = rig_client(&secure, files(user("root", "r"), "ca", "cn"));
    assert_int_equal(do_get(etcd, "tls")->fate, ETCD_NOT_DONE);
    if (strstr(got.answer.error.text, "subject alternative names alone") == NULL)
        fail_msg("%s", got.answer.error.text);
    etcd_destroy(etcd);
    cluster_stop(&secure);
}

TEST_MAIN(.group_setup = start, .group_teardown = stop)
