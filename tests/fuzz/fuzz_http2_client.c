/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A hostile server of HTTP/2 before the client, over real sockets. The input is a script: bytes
 * that the server says, closes, and what the client's user does meanwhile. Users also cancel, pause
 * and start further calls from within callbacks. Each call ends once, or never after it was
 * cancelled; callbacks come in their order; what is held of a paused answer stays within its
 * window; nothing is left at the end.
 */
#include <event2/event.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "http/client_internal.h"
#include "http/http2_client.h"

enum { CALLS_MAX = 128, LINKS_MAX = 16, HEAD_BYTES_MAX = 512 };
enum { WINDOW_BYTES = 256 << 10, FRAME_BYTES = 16 << 10 };
/* Of a script: each is one byte, and SAY's number of bytes in two more. */
enum step { SAY, START, SEND, END, CANCEL, RESUME, CLOSE, READ, STEP_COUNT };
/* How a call's user behaves: the rest of START's byte. */
enum habit { CALM, CANCELS_AT_HEAD, CANCELS_AT_PIECE, PAUSES, CANCELS_OTHERS, RESTARTS };

struct call_user {
    struct http2_call *call; /* NULL: it has ended, or is cancelled */
    enum habit habit;
    bool has_head;
    bool has_ended; /* its request */
    bool is_paused;
    size_t paused_bytes;
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct event_base *base;
static struct http_client *client;
static struct http_target *target;
static int listener;
static int links[LINKS_MAX];
static uint32_t link_count;
static struct call_user users[CALLS_MAX];
static uint32_t user_count;

/* ---- users ---- */

static void start(enum habit habit);

static void
cancel(struct call_user *user)
{
    if (user->call == NULL)
        return;
    struct http2_call *call = user->call;
    user->call = NULL;
    http2_call_cancel(call);
}

static void
check_fields(const struct http2_call *call, enum http2_block block)
{
    size_t position = 0;
    size_t bytes = 0;
    const char *name;
    const char *value;
    while (http2_call_walk(call, block, &position, &name, &value)) {
        CHECK(*name != ':');
        bytes += strlen(name) + strlen(value);
    }
    CHECK(bytes <= HEAD_BYTES_MAX);
}

static void
on_head(void *context, struct http2_call *call)
{
    struct call_user *user = context;
    CHECK(user->call == call && !user->has_head && http2_call_code(call) >= 200);
    user->has_head = true;
    check_fields(call, HTTP2_HEAD);
    if (user->habit == CANCELS_AT_HEAD)
        cancel(user);
}

static void
on_piece(void *context, struct http2_call *call, const void *data, size_t bytes)
{
    struct call_user *user = context;
    CHECK(user->call == call && user->has_head && data != NULL && bytes > 0);
    if (user->is_paused)
        user->paused_bytes += bytes;
    CHECK(user->paused_bytes <= WINDOW_BYTES + FRAME_BYTES);
    if (user->habit == PAUSES && !user->is_paused) {
        user->is_paused = true;
        user->paused_bytes = bytes;
        http2_call_pause(call);
    } else if (user->habit == CANCELS_AT_PIECE) {
        cancel(user);
    }
}

static void
on_writable(void *context, struct http2_call *call)
{
    const struct call_user *user = context;
    CHECK(user->call == call);
}

static void
on_end(void *context, struct http2_call *call, enum http_call_end end)
{
    struct call_user *user = context;
    CHECK(user->call == call && (end != HTTP_CALL_DONE || user->has_head));
    CHECK(end != HTTP_CALL_LATE);
    check_fields(call, HTTP2_TRAILERS);
    user->call = NULL;
    if (user->habit == CANCELS_OTHERS)
        for (uint32_t i = 0; i < user_count; i++)
            cancel(&users[i]);
    else if (user->habit == RESTARTS)
        start(CALM);
}

static void
start(enum habit habit)
{
    static const struct http2_call_handler handler = {on_head, on_piece, on_writable, on_end};
    static const struct http_header header = {"te", "trailers"};
    const struct http2_call_request request = {.path = "/x", .headers = &header, .header_count = 1};
    if (user_count == CALLS_MAX)
        return;
    struct call_user *user = &users[user_count++];
    *user = (struct call_user){.habit = habit};
    user->call = http2_call_start(target, &request, &handler, user);
}

/* ---- the server ---- */

static void
create(void)
{
    const struct http_client_options options = {
        .idle_max = 4, .keep_ns = 3600 * NS_PER_S, .header_bytes_max = HEAD_BYTES_MAX};
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    socklen_t bytes = sizeof(address);
    struct error error = ERROR_NONE;
    CHECK(signal(SIGPIPE, SIG_IGN) != SIG_ERR);
    base = event_base_new();
    CHECK(base != NULL);
    client = http_client_create(base, &options);
    CHECK(http_target_create(client, "127.0.0.1:1", NULL, &target, &error) == STATUS_OK);
    listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    CHECK(bind(listener, (struct sockaddr *)&address, sizeof(sa_family_t)) == 0); /* a new name */
    CHECK(listen(listener, LINKS_MAX) == 0);
    CHECK(getsockname(listener, (struct sockaddr *)&address, &bytes) == 0);
    memcpy(&target->address, &address, bytes); /* ports would run out */
    target->address_bytes = bytes;
}

static void
turn(void)
{
    for (int i = 0; i < 3; i++) {
        CHECK(event_base_loop(base, EVLOOP_NONBLOCK) >= 0);
        int fd = accept(listener, NULL, NULL);
        if (fd >= 0 && link_count == LINKS_MAX)
            close(fd);
        else if (fd >= 0)
            links[link_count++] = fd;
    }
}

static void
receive(void)
{
    static char received[64 << 10];
    for (uint32_t i = 0; i < link_count; i++)
        while (recv(links[i], received, sizeof(received), MSG_DONTWAIT) > 0)
            continue;
    turn();
}

static void
close_link(uint32_t at)
{
    close(links[at]);
    links[at] = links[--link_count];
}

/* The last connection is the one that new calls use. */
static void
say(const uint8_t *data, size_t bytes)
{
    receive();
    if (link_count > 0 && bytes > 0)
        (void)send(links[link_count - 1], data, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    turn();
}

/* ---- the script ---- */

static void
act(enum step step, uint32_t rest)
{
    static const char text[20 << 10];
    struct call_user *user = user_count > 0 ? &users[rest % user_count] : NULL;
    bool has_call = user != NULL && user->call != NULL;
    if (step == START) {
        start((enum habit)(rest % (RESTARTS + 1)));
    } else if (step == SEND && has_call && !user->has_ended) {
        (void)http2_call_send(user->call, text, rest % 2 == 0 ? sizeof(text) : rest);
    } else if (step == END && has_call && !user->has_ended) {
        user->has_ended = true;
        http2_call_send_end(user->call);
    } else if (step == CANCEL && has_call) {
        cancel(user);
    } else if (step == RESUME && has_call) {
        user->is_paused = false;
        user->paused_bytes = 0;
        http2_call_resume(user->call);
    } else if (step == CLOSE && link_count > 0) {
        close_link(rest % link_count);
    } else if (step == READ) {
        receive();
    }
    if (rest % 2 == 0) /* else together with the next */
        turn();
}

static void
finish(void)
{
    user_count = CALLS_MAX; /* no call starts any more */
    receive();
    while (link_count > 0)
        close_link(0);
    turn();
    while (link_count > 0)
        close_link(0);
    turn();
    for (uint32_t i = 0; i < CALLS_MAX; i++)
        CHECK(users[i].call == NULL);
    CHECK(target->call_count == 0);
    http2_links_close(target);
    CHECK(TAILQ_EMPTY(&target->links));
    turn();
    while (link_count > 0)
        close_link(0);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (base == NULL)
        create();
    memset(users, 0, sizeof(users));
    user_count = 0;
    for (size_t at = 0; at < size;) {
        enum step step = (enum step)(data[at] % STEP_COUNT);
        uint32_t rest = data[at] / STEP_COUNT;
        at++;
        if (step != SAY) {
            act(step, rest);
            continue;
        }
        size_t bytes = size - at >= 2 ? (size_t)(data[at] | data[at + 1] << 8) : 0;
        at = size - at >= 2 ? at + 2 : size;
        bytes = bytes < size - at ? bytes : size - at;
        say(data + at, bytes);
        at += bytes;
    }
    finish();
    return 0;
}
