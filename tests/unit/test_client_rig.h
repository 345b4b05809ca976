/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests of libshoal: a shoald of one's own with the pipeline `probe`, by default one stage with
 * two workers of the modelet `probe` (tests/modelets/probe.h), and what a client's caller does.
 */
#pragma once

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <shoal/client.h>

#include "../modelets/probe.h"
#include "../test.h"
#include "base/clock.h"
#include "client/link.h" /* and with it the library */

#define PATIENCE_NS (60 * NS_PER_S)
enum { TAG = 4711 };

#define PROBE_STAGE(name, workers)                                                                 \
    "      - {name: " name ", modelet: @/tests/modelets/libprobe.so, workers: " workers "}\n"
#define ECHO_STAGE "      - {name: echo, modelet: @/lib/shoal/libecho.so}\n"

struct node {
    char directory[64];
    char config[128];
    char socket[100];
    pid_t pid;
};

struct client_node_options {
    int clients;
    int slots;            /* 0: 8 */
    int drain_timeout_ms; /* 0: 2 s */
    const char *stages;   /* NULL: the default; @ is the build's folder */
};

/* ---- the node ---- */

static inline void
write_config(const struct node *node, const struct client_node_options *options)
{
    FILE *file = fopen(node->config, "w");
    assert_non_null(file);
    const char *build = getenv("SHOAL_BUILD_DIR");
    assert_non_null(build);
    fprintf(file,
            "listen: ['unix:%s/grpc.sock']\n"
            "counters: %s/counters\n"
            "drain_timeout_ms: %d\n"
            "message_mib: 1\n" /* small regions: each daemon and each reload makes them anew */
            "pipelines:\n"
            "  - name: probe\n"
            "    slots: 64\n"
            "    local_clients: %d\n"
            "    local_slots: %d\n"
            "    local_mib: 4\n"
            "    stages:\n",
            node->directory, node->directory,
            options->drain_timeout_ms > 0 ? options->drain_timeout_ms : 2000, options->clients,
            options->slots > 0 ? options->slots : 8);
    const char *stages = options->stages != NULL ? options->stages : PROBE_STAGE("first", "2");
    for (const char *rest = stages; *rest != '\0'; rest++) {
        if (*rest == '@')
            fputs(build, file);
        else
            fputc(*rest, file);
    }
    fclose(file);
}

static inline void
node_spawn(struct node *node)
{
    char program[512];
    char pinned[] = "--no-pin";
    snprintf(program, sizeof(program), "%s/bin/shoald", getenv("SHOAL_BUILD_DIR"));
    char *argv[] = {program, pinned, node->config, NULL};
    node->pid = fork();
    if (node->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that fails leaves nothing behind */
        execv(program, argv);
        _exit(127);
    }
    assert_true(node->pid > 0);
}

static inline void
node_start(struct node *node, const struct client_node_options *options)
{
    snprintf(node->directory, sizeof(node->directory), "/tmp/shoal-client-XXXXXX");
    assert_non_null(mkdtemp(node->directory));
    snprintf(node->config, sizeof(node->config), "%s/node.yaml", node->directory);
    snprintf(node->socket, sizeof(node->socket), "%s/counters.local", node->directory);
    write_config(node, options);
    node_spawn(node);
}

/* It was told to end. A second SIGTERM would end it at once, and not in order. */
static inline void
node_wait(struct node *node)
{
    int status;
    assert_int_equal(waitpid(node->pid, &status, 0), node->pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static inline void
node_stop(struct node *node)
{
    kill(node->pid, SIGTERM);
    node_wait(node);
}

static inline void
node_remove(struct node *node)
{
    char path[256];
    static const char *const files[] = {"node.yaml", "counters", "grpc.sock"};
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        snprintf(path, sizeof(path), "%s/%s", node->directory, files[i]);
        unlink(path);
    }
    assert_int_equal(rmdir(node->directory), 0); /* so the sockets beside the counters are gone */
}

/* ---- the client ---- */

static inline int32_t
try_open(const struct node *node, const char *pipeline, struct shoal_client **client,
         struct shoal_error *error)
{
    struct shoal_client_options options = {
        .struct_size = SHOAL_CLIENT_OPTIONS, .pipeline = pipeline, .socket = node->socket};
    return shoal_client_open(&options, client, error);
}

/* Until the node is up. */
static inline struct shoal_client *
open_client(const struct node *node)
{
    struct shoal_client *client;
    struct shoal_error error = {""};
    int64_t deadline_ns = clock_now_ns() + PATIENCE_NS;
    while (clock_now_ns() < deadline_ns) {
        int32_t status = try_open(node, "probe", &client, &error);
        if (status == SHOAL_OK)
            return client;
        assert_true(status == SHOAL_UNAVAILABLE || status == SHOAL_RESOURCE_EXHAUSTED);
        poll(NULL, 0, 5);
    }
    fail_msg("no client: %s", error.text);
    return NULL;
}

static inline struct shoal_request *
build(struct shoal_client *client, int64_t command, int64_t argument, int64_t tag)
{
    struct shoal_request *request;
    struct shoal_error error = {""};
    int64_t deadline_ns = clock_now_ns() + PATIENCE_NS;
    int32_t status; /* of those released in flight the slots come back in time */
    while ((status = shoal_request_begin(client, &request, &error)) == SHOAL_RESOURCE_EXHAUSTED &&
           clock_now_ns() < deadline_ns)
        poll(NULL, 0, 1);
    if (status != SHOAL_OK)
        fail_msg("no request: %s", error.text);
    int64_t *words =
        shoal_request_input(request, "probe", SHOAL_INT64, 1, (int64_t[]){PROBE_WORDS});
    assert_non_null(words);
    memcpy(words, (int64_t[]){command, argument, tag}, PROBE_WORDS * sizeof(int64_t));
    return request;
}

static inline struct shoal_request *
submit(struct shoal_client *client, int64_t command, int64_t argument, int64_t tag)
{
    struct shoal_request *request = build(client, command, argument, tag);
    assert_int_equal(shoal_request_submit(request, INT64_MAX), SHOAL_OK);
    return request;
}

static inline int32_t
finish(struct shoal_request *request)
{
    int32_t status = shoal_request_wait(request, clock_now_ns() + PATIENCE_NS);
    assert_int_not_equal(status, SHOAL_UNSET);
    return status;
}

static inline int64_t
word_of(const struct shoal_request *request, uint32_t index)
{
    const struct shoal_tensor *tensor = shoal_request_output_named(request, "probe");
    assert_non_null(tensor);
    assert_true(index < tensor->bytes / sizeof(int64_t));
    return ((const int64_t *)tensor->data)[index];
}

static inline void
assert_echo(struct shoal_client *client, int64_t tag)
{
    struct shoal_request *request = submit(client, PROBE_ECHO, 0, tag);
    if (finish(request) != SHOAL_OK)
        fail_msg("echo: %s", shoal_request_text(request));
    assert_int_equal(word_of(request, 2), tag);
    shoal_request_release(request);
}

/* ---- the operator's view ---- */

/* Until shoalctl shows it. */
static inline void
wait_counter(const struct node *node, const char *name, uint64_t value)
{
    char wanted[128];
    char command[600];
    static char json[1 << 16];
    snprintf(wanted, sizeof(wanted), "\"%s\": %llu,", name, (unsigned long long)value);
    snprintf(command, sizeof(command), "%s/bin/shoalctl stat --json --counters %s/counters",
             getenv("SHOAL_BUILD_DIR"), node->directory);
    int64_t deadline_ns = clock_now_ns() + PATIENCE_NS;
    do {
        FILE *stat = popen(command, "r");
        assert_non_null(stat);
        json[fread(json, 1, sizeof(json) - 1, stat)] = '\0';
        assert_int_equal(pclose(stat), 0);
        if (strstr(json, wanted) != NULL)
            return;
    } while (clock_now_ns() < deadline_ns);
    fail_msg("never %s in %s", wanted, json);
}
