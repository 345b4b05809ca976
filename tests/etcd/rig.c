/* SPDX-License-Identifier: Apache-2.0 */
#include "rig.h"

#include <event2/event.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../ports.h"

enum { TURN_MS = 20, TEXT_MAX = 256 };

/* ---- the loop ---- */

static struct event_base *base;

struct event_base *
rig_base(void)
{
    if (base == NULL)
        base = event_base_new();
    assert_non_null(base);
    return base;
}

struct evconnlistener *
rig_listen(evconnlistener_cb on_accept, void *context, char url[URL_BYTES])
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof(address);
    struct evconnlistener *listener = evconnlistener_new_bind(
        rig_base(), on_accept, context, LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC, -1,
        (struct sockaddr *)&address, sizeof(address));
    assert_non_null(listener);
    assert_int_equal(
        getsockname(evconnlistener_get_fd(listener), (struct sockaddr *)&address, &length), 0);
    snprintf(url, URL_BYTES, "http://127.0.0.1:%d", ntohs(address.sin_port));
    return listener;
}

void
rig_end(void)
{
    got_fini();
    if (base != NULL)
        event_base_free(base);
    base = NULL;
    libevent_global_shutdown();
}

void
rig_turn(void)
{
    struct timeval moment = {.tv_usec = TURN_MS * 1000};
    event_base_loopexit(rig_base(), &moment);
    assert_int_not_equal(event_base_loop(base, EVLOOP_ONCE), -1);
}

void
rig_wait_ns(int64_t ns)
{
    int64_t end_ns = clock_now_ns() + ns;
    while (clock_now_ns() < end_ns)
        rig_turn();
}

void
run(const char *format, ...)
{
    char command[4096];
    va_list args;
    va_start(args, format);
    int bytes = vsnprintf(command, sizeof(command), format, args);
    va_end(args);
    assert_in_range(bytes, 1, (int)sizeof(command) - 1);
    if (system(command) != 0) /* NOLINT: a test's own words */
        fail_msg("failed: %s", command);
}

/* ---- servers ---- */

static const char *
etcd_path(void)
{
    const char *path = getenv("SHOAL_ETCD");
    return path != NULL ? path : "etcd";
}

int
etcd_minor(void)
{
    static int minor;
    char command[TEXT_MAX];
    if (minor != 0)
        return minor;
    snprintf(command, sizeof(command), "%s --version", etcd_path());
    FILE *output = popen(command, "re"); /* NOLINT */
    assert_non_null(output);
    if (fscanf(output, "etcd Version: 3.%d", &minor) != 1) /* NOLINT */
        fail_msg("%s is not there: install etcd-server, or set SHOAL_ETCD", etcd_path());
    pclose(output);
    return minor;
}

static void
format_peers(const struct cluster *cluster, char *text, size_t room)
{
    size_t used = 0;
    for (size_t i = 0; i < cluster->count; i++)
        used += (size_t)snprintf(text + used, room - used, "%sm%zu=http://127.0.0.1:%d",
                                 i == 0 ? "" : ",", i, cluster->members[i].peer_port);
    assert_true(used < room);
}

void
member_start(struct cluster *cluster, size_t index)
{
    struct member *member = &cluster->members[index];
    char name[16], data[TEXT_MAX], client[TEXT_MAX], peer[TEXT_MAX], peers[TEXT_MAX];
    char log[TEXT_MAX], progress[TEXT_MAX];
    snprintf(name, sizeof(name), "m%zu", index);
    snprintf(data, sizeof(data), "%s/%s", cluster->folder, name);
    snprintf(log, sizeof(log), "%s/%s.log", cluster->folder, name);
    snprintf(client, sizeof(client), "%s://127.0.0.1:%d", cluster->scheme, member->client_port);
    snprintf(peer, sizeof(peer), "http://127.0.0.1:%d", member->peer_port);
    format_peers(cluster, peers, sizeof(peers));
    snprintf(progress, sizeof(progress), "--%swatch-progress-notify-interval=200ms",
             etcd_minor() < 6 ? "experimental-" : "");
    const char *argv[32 + ARGS_MAX] = {
        etcd_path(), "--name",
        name,        "--data-dir",
        data,        "--listen-client-urls",
        client,      "--advertise-client-urls",
        client,      "--listen-peer-urls",
        peer,        "--initial-advertise-peer-urls",
        peer,        "--initial-cluster",
        peers,       "--logger",
        "zap",       "--unsafe-no-fsync",
        progress,
    };
    size_t argc = 0;
    while (argv[argc] != NULL) {
        if (strcmp(argv[argc], "--unsafe-no-fsync") == 0 && etcd_minor() < 5)
            memmove(&argv[argc], &argv[argc + 1], (30 - argc) * sizeof(argv[0]));
        argc++;
    }
    for (size_t i = 0; cluster->args[i] != NULL; i++)
        argv[argc++] = cluster->args[i];
    pid_t parent = getpid();
    member->pid = fork();
    assert_true(member->pid >= 0);
    if (member->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent || freopen(log, "a", stderr) == NULL)
            _exit(1);
        execvp(argv[0], (char **)(uintptr_t)argv);
        _exit(1);
    }
}

void
member_kill(struct cluster *cluster, size_t index)
{
    struct member *member = &cluster->members[index];
    if (member->pid == 0)
        return;
    assert_int_equal(kill(member->pid, SIGKILL), 0);
    assert_int_equal(waitpid(member->pid, NULL, 0), member->pid);
    member->pid = 0;
}

void
member_signal(struct cluster *cluster, size_t index, int number)
{
    pid_t pid = cluster->members[index].pid;
    int status;
    assert_int_equal(kill(pid, number), 0);
    if (number != SIGSTOP)
        return;
    assert_int_equal(waitpid(pid, &status, WUNTRACED), pid); /* its threads go on for a moment */
    assert_true(WIFSTOPPED(status));
}

void
member_empty(struct cluster *cluster, size_t index)
{
    run("rm -rf %s/m%zu", cluster->folder, index);
}

void
cluster_start(struct cluster *cluster, size_t count)
{
    if (cluster->scheme == NULL)
        cluster->scheme = "http";
    if (cluster->folder[0] == '\0') {
        snprintf(cluster->folder, sizeof(cluster->folder),
                 "/tmp/shoal-etcd-XX"
                 "XXXX");
        assert_non_null(mkdtemp(cluster->folder));
    }
    cluster->count = count;
    for (size_t i = 0; i < count; i++) {
        struct member *member = &cluster->members[i];
        member->client_port = free_port();
        member->peer_port = free_port();
        snprintf(member->url, sizeof(member->url), "%s://127.0.0.1:%d", cluster->scheme,
                 member->client_port);
    }
    for (size_t i = 0; i < count; i++)
        member_start(cluster, i);
}

void
cluster_stop(struct cluster *cluster)
{
    for (size_t i = 0; i < cluster->count; i++)
        member_kill(cluster, i);
    run("rm -rf %s", cluster->folder);
    *cluster = (struct cluster){0};
}

struct etcd *
rig_client(const struct cluster *cluster, struct etcd_options options)
{
    const char *endpoints[MEMBERS_MAX];
    for (size_t i = 0; i < cluster->count; i++)
        endpoints[i] = cluster->members[i].url;
    options.endpoints = endpoints;
    options.endpoint_count = cluster->count;
    struct etcd *etcd = NULL;
    struct error error = ERROR_NONE;
    if (etcd_create(rig_base(), &options, &etcd, &error) != STATUS_OK)
        fail_msg("%s", error.text);
    return etcd;
}

struct etcd *
rig_client_of(const char *endpoint, struct etcd_options options)
{
    struct cluster lone = {.count = 1};
    snprintf(lone.members[0].url, sizeof(lone.members[0].url), "%s", endpoint);
    return rig_client(&lone, options);
}

/* ---- answers ---- */

struct got got;

void
got_fini(void)
{
    while (got.blocks != NULL) {
        struct bytes_block *next = got.blocks->next;
        free(got.blocks);
        got.blocks = next;
    }
    got.here = false;
}

static struct etcd_bytes
keep(struct etcd_bytes data)
{
    struct bytes_block *block = malloc(sizeof(*block) + data.bytes + 1);
    assert_non_null(block);
    block->next = got.blocks;
    got.blocks = block;
    if (data.bytes > 0)
        memcpy(block->data, data.data, data.bytes);
    return (struct etcd_bytes){block->data, data.bytes};
}

static void
on_answer(void *context, const struct etcd_answer *answer)
{
    (void)context;
    assert_false(got.here);
    assert_in_range(answer->response_count, 0, RESPONSES_MAX);
    got.here = true;
    got.answer = *answer;
    got.answer.responses = got.responses;
    for (size_t i = 0; i < answer->response_count; i++) {
        got.responses[i] = answer->responses[i];
        got.responses[i].kvs = got.kvs[i];
        for (size_t k = 0; k < answer->responses[i].kv_count && k < KVS_MAX; k++) {
            got.kvs[i][k] = answer->responses[i].kvs[k];
            got.kvs[i][k].key = keep(got.kvs[i][k].key);
            got.kvs[i][k].value = keep(got.kvs[i][k].value);
        }
    }
}

struct etcd_reply
to_got(int64_t timeout_ns)
{
    got_fini();
    return (struct etcd_reply){on_answer, NULL, timeout_ns};
}

const struct etcd_answer *
got_wait(void)
{
    WAIT_UNTIL(got.here);
    return &got.answer;
}

const struct etcd_answer *
do_op(struct etcd *etcd, struct etcd_op op)
{
    etcd_op(etcd, &op, to_got(0));
    return got_wait();
}

const struct etcd_answer *
do_put(struct etcd *etcd, const char *key, const char *value)
{
    return do_op(etcd,
                 (struct etcd_op){.kind = ETCD_PUT, .range = one(key), .value = etcd_text(value)});
}

const struct etcd_answer *
do_get(struct etcd *etcd, const char *key)
{
    return do_op(etcd, (struct etcd_op){.kind = ETCD_RANGE, .range = one(key)});
}

const struct etcd_answer *
do_delete(struct etcd *etcd, const char *key)
{
    return do_op(etcd, (struct etcd_op){.kind = ETCD_DELETE, .range = one(key)});
}

const struct etcd_answer *
done(const struct etcd_answer *answer)
{
    if (answer->fate != ETCD_DONE)
        fail_msg("%s: %s", status_name(answer->error.status), answer->error.text);
    return answer;
}

void
assert_fate(const struct etcd_answer *answer, enum etcd_fate fate, enum status status)
{
    if (answer->fate != fate || answer->error.status != status)
        fail_msg("fate %d, not %d; %s, not %s: %s", answer->fate, fate,
                 status_name(answer->error.status), status_name(status), answer->error.text);
}

void
assert_value(const struct etcd_answer *answer, const char *value)
{
    done(answer);
    assert_int_equal(answer->response_count, 1);
    assert_int_equal(answer->responses[0].kv_count, 1);
    assert_true(bytes_are(answer->responses[0].kvs[0].value, value));
}

bool
bytes_are(struct etcd_bytes data, const char *text)
{
    return data.bytes == strlen(text) && memcmp(data.data, text, data.bytes) == 0;
}

struct etcd_range
one(const char *key)
{
    return (struct etcd_range){.span = ETCD_ONE, .key = etcd_text(key)};
}

struct etcd_range
prefix(const char *key)
{
    return (struct etcd_range){.span = ETCD_PREFIX, .key = etcd_text(key)};
}
