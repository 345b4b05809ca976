/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file of traces: whole lines, in a new file after the old one was moved or deleted; a file
 * that may not grow any further keeps no half line and goes on when it may; anything but a file is
 * refused. And URLs that make no sense, a collector that is not there, an end that does not wait
 * for one that does not answer.
 */
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../test.h"
#include "base/clock.h"
#include "coordinator/telemetry/trace_sink.h"

/* Half of what an attempt may take that nobody hurries. */
#define HURRIED_NS_MAX (5 * NS_PER_S)

static char folder[64];
static char path[128];
static char moved[128];
static struct trace_sink *sink;

static int
setup(void **state)
{
    struct error error = ERROR_NONE;
    (void)state;
    snprintf(folder, sizeof(folder), "/tmp/shoal-test.XXXXXX");
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/spans.jsonl", folder);
    snprintf(moved, sizeof(moved), "%s/moved", folder);
    assert_int_equal(trace_file_open(path, &sink, &error), STATUS_OK);
    return 0;
}

static int
teardown(void **state)
{
    (void)state;
    sink->close(sink);
    unlink(path);
    unlink(moved);
    assert_int_equal(rmdir(folder), 0);
    return 0;
}

static enum trace_sink_result
send_text(const char *text, struct trace_sink_answer *answer)
{
    *answer = (struct trace_sink_answer){.error = ERROR_NONE};
    return sink->send(sink, text, strlen(text), answer);
}

static void
send_well(const char *text)
{
    struct trace_sink_answer answer;
    if (send_text(text, &answer) != SINK_TAKEN)
        fail_msg("%s", answer.error.text);
}

static void
assert_file(const char *name, const char *wanted)
{
    char text[4096];
    FILE *file = fopen(name, "re");
    assert_non_null(file);
    size_t bytes = fread(text, 1, sizeof(text) - 1, file);
    fclose(file);
    text[bytes] = '\0';
    assert_string_equal(text, wanted);
}

TEST_CASE(test_lines)
{
    struct error error = ERROR_NONE;
    struct stat info;
    (void)state;
    send_well("{1}");
    send_well("{2}");
    assert_file(path, "{1}\n{2}\n");
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 07137, 0); /* nobody else reads what passes here */
    sink->close(sink);
    assert_int_equal(trace_file_open(path, &sink, &error), STATUS_OK);
    send_well("{3}"); /* what is there stays */
    assert_file(path, "{1}\n{2}\n{3}\n");
}

TEST_CASE(test_rotation)
{
    send_well("{1}");
    assert_int_equal(rename(path, moved), 0);
    send_well("{2}");
    assert_file(moved, "{1}\n");
    assert_file(path, "{2}\n");
    assert_int_equal(unlink(path), 0);
    send_well("{3}");
    assert_file(path, "{3}\n");
}

TEST_CASE(test_folder_goes_and_comes)
{
    struct trace_sink_answer answer;
    char other[sizeof(folder) + 8];
    (void)state;
    snprintf(other, sizeof(other), "%s.away", folder);
    assert_int_equal(rename(folder, other), 0);
    assert_int_equal(send_text("{1}", &answer), SINK_LATER);
    assert_non_null(strstr(answer.error.text, path));
    assert_int_equal(rename(other, folder), 0);
    send_well("{1}");
    assert_file(path, "{1}\n");
}

TEST_CASE(test_full)
{
    struct trace_sink_answer answer;
    struct rlimit before;
    (void)state;
    send_well("{1}");
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    struct rlimit tight = {.rlim_cur = 10, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &tight), 0);
    enum trace_sink_result result = send_text("{a line that is too long}", &answer);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(result, SINK_LATER);
    assert_non_null(strstr(answer.error.text, "File too large"));
    assert_file(path, "{1}\n");
    send_well("{2}");
    assert_file(path, "{1}\n{2}\n");
}

TEST_CASE(test_no_file)
{
    struct trace_sink *none = NULL;
    struct error error = ERROR_NONE;
    (void)state;
    assert_int_not_equal(trace_file_open("/nowhere/at/all", &none, &error), STATUS_OK);
    assert_non_null(strstr(error.text, "opening /nowhere/at/all for traces"));
    assert_int_equal(trace_file_open("/dev/null", &none, &error), STATUS_INVALID_ARGUMENT);
    assert_non_null(strstr(error.text, "not a regular file"));
    assert_int_equal(mkfifo(moved, 0600), 0);
    assert_int_not_equal(trace_file_open(moved, &none, &error), STATUS_OK); /* and does not wait */
    assert_null(none);
}

TEST_CASE_WITH(test_no_url, NULL, NULL)
{
    struct trace_sink *none = NULL;
    struct error error = ERROR_NONE;
    (void)state;
    assert_int_equal(trace_http_open("http://", &none, &error), STATUS_INVALID_ARGUMENT);
    assert_int_equal(trace_http_open("http://host:port/", &none, &error), STATUS_INVALID_ARGUMENT);
    assert_non_null(strstr(error.text, "traces cannot go to http://host:port/"));
    assert_null(none);
}

static void
count_looks(void *context)
{
    (*(uint32_t *)context)++;
}

/* A port that somebody listens on and nobody accepts from. */
static int
listen_deaf(uint16_t *port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t bytes = sizeof(address);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, bytes), 0);
    assert_int_equal(listen(fd, 8), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &bytes), 0);
    *port = ntohs(address.sin_port);
    return fd;
}

TEST_CASE_WITH(test_collector_that_does_not_answer, NULL, NULL)
{
    struct trace_sink *http = NULL;
    struct trace_sink_answer answer = {.error = ERROR_NONE};
    struct error error = ERROR_NONE;
    uint32_t looks = 0;
    uint16_t port;
    char url[64];
    (void)state;
    int fd = listen_deaf(&port);
    snprintf(url, sizeof(url), "http://127.0.0.1:%u/v1/traces", port);
    assert_int_equal(trace_http_open(url, &http, &error), STATUS_OK);
    http->meanwhile = count_looks;
    http->context = &looks;
    int64_t began_ns = clock_now_ns();
    http->hurry(http, began_ns + 3 * TRACE_SINK_LOOK_NS);
    assert_int_equal(http->send(http, "{}", 2, &answer), SINK_LATER);
    assert_true(clock_now_ns() < began_ns + HURRIED_NS_MAX);
    assert_non_null(strstr(answer.error.text, url));
    assert_true(looks >= 1); /* as often as the machine lets us */
    close(fd);
    assert_int_equal(http->send(http, "{}", 2, &answer), SINK_LATER);
    http->close(http);
}

TEST_MAIN(.setup = setup, .teardown = teardown)
