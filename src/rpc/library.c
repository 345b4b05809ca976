/* SPDX-License-Identifier: Apache-2.0 */
/* Start and end of the library, its log, and its value types. */
#include <grpc/support/log.h>
#include <grpc/support/time.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "rpc/internal.h"

static void
on_library_log(gpr_log_func_args *line)
{
    if (!gpr_should_log(line->severity))
        return;
    const char *slash = strrchr(line->file, '/');
    const char *file = slash != NULL ? slash + 1 : line->file;
    if (line->severity == GPR_LOG_SEVERITY_ERROR)
        log_warn_limited("rpc_library place=%s:%d text=\"%s\"", file, line->line, line->message);
    else
        log_debug("rpc_library place=%s:%d text=\"%s\"", file, line->line, line->message);
}

#ifdef RPC_DEADLOCK_MODE_SYMBOL
/* Abseil's reaction to a possible deadlock of its mutexes; 0: no detection. */
extern void mutex_deadlock_mode(int mode) __asm__(RPC_DEADLOCK_MODE_SYMBOL);
#endif

/*
 * Debian builds Abseil with deadlock detection: each lock of a mutex enters it into a graph of all
 * mutexes, under one lock of the whole process. That costs a twentieth of a call.
 */
static void
stop_deadlock_search(void)
{
#ifdef RPC_DEADLOCK_MODE_SYMBOL
    mutex_deadlock_mode(0);
#endif
}

void
rpc_init(void)
{
    stop_deadlock_search();
    rpc_tls_init();
    gpr_set_log_function(on_library_log);
    grpc_init();
}

void
rpc_shutdown(void)
{
    grpc_shutdown();
}

gpr_timespec
rpc_time_to_core(int64_t time_ns)
{
    if (time_ns == TIME_NEVER_NS)
        return gpr_inf_future(GPR_CLOCK_MONOTONIC);
    if (time_ns <= 0)
        return gpr_inf_past(GPR_CLOCK_MONOTONIC);
    return gpr_time_from_nanos(time_ns, GPR_CLOCK_MONOTONIC);
}

/* The library's monotonic clock is CLOCK_MONOTONIC, like ours. */
int64_t
rpc_time_from_core(gpr_timespec time)
{
    gpr_timespec monotonic = gpr_convert_clock_type(time, GPR_CLOCK_MONOTONIC);
    if (monotonic.tv_sec >= INT64_MAX / NS_PER_S)
        return TIME_NEVER_NS;
    if (monotonic.tv_sec < 0)
        return 0;
    return monotonic.tv_sec * NS_PER_S + monotonic.tv_nsec;
}

int
rpc_limit_to_core(size_t limit)
{
    return limit > INT_MAX ? INT_MAX : (int)limit;
}

/* The library ends the process when it gets no memory, so more care here is pointless. */
void *
rpc_allocate(size_t count, size_t bytes)
{
    void *memory = calloc(count, bytes);
    CHECK(memory != NULL || count == 0);
    return memory;
}

void *
rpc_grow(void *items, size_t *capacity, size_t needed, size_t item_bytes)
{
    size_t room = *capacity == 0 ? 64 : 2 * *capacity;
    *capacity = room > needed ? room : needed;
    void *grown = realloc(items, *capacity * item_bytes);
    CHECK(grown != NULL);
    return grown;
}

/* ---- arguments ---- */

static grpc_arg *
args_next(struct rpc_args *args, const char *key, grpc_arg_type type)
{
    CHECK(args->count < ARRAY_COUNT(args->items));
    grpc_arg *arg = &args->items[args->count++];
    arg->type = type;
    arg->key = (char *)(uintptr_t)key; /* not modified */
    return arg;
}

void
rpc_args_add(struct rpc_args *args, const char *key, int value)
{
    args_next(args, key, GRPC_ARG_INTEGER)->value.integer = value;
}

static void
rpc_args_add_string(struct rpc_args *args, const char *key, const char *value)
{
    args_next(args, key, GRPC_ARG_STRING)->value.string = (char *)(uintptr_t)value; /* not
                                                                                     * modified */
}

void
rpc_args_add_limit(struct rpc_args *args, const char *key, size_t limit)
{
    if (limit > 0)
        rpc_args_add(args, key, rpc_limit_to_core(limit));
}

static void *
pointer_copy(void *pointer)
{
    return pointer;
}

static void
pointer_destroy(void *pointer)
{
    (void)pointer;
}

static int
pointer_compare(void *a, void *b)
{
    return ((uintptr_t)a > (uintptr_t)b) - ((uintptr_t)a < (uintptr_t)b);
}

void
rpc_args_add_pointer(struct rpc_args *args, const char *key, void *value)
{
    static const grpc_arg_pointer_vtable table = {pointer_copy, pointer_destroy, pointer_compare};
    grpc_arg *arg = args_next(args, key, GRPC_ARG_POINTER);
    arg->value.pointer.p = value;
    arg->value.pointer.vtable = &table;
}

size_t
rpc_args_add_message(struct rpc_args *args, size_t bytes_max)
{
    size_t limit = bytes_max > 0 ? bytes_max : RPC_MESSAGE_BYTES_DEFAULT;
    rpc_args_add_limit(args, GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, limit);
    rpc_args_add(args, GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0);
    return limit;
}

void
rpc_args_add_window(struct rpc_args *args, size_t bytes)
{
    if (bytes == 0)
        return;
    rpc_args_add(args, GRPC_ARG_HTTP2_BDP_PROBE, 0);
    /* The library grants its lookahead a second time after a message, before the next request. */
    rpc_args_add(args, GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, rpc_limit_to_core((bytes + 1) / 2));
    rpc_args_add(args, GRPC_ARG_HTTP2_MAX_FRAME_SIZE, RPC_FRAME_BYTES_MAX);
}

static int
whole_ms(int64_t time_ns)
{
    return time_ns > NS_PER_MS ? rpc_limit_to_core((size_t)(time_ns / NS_PER_MS)) : 1;
}

void
rpc_args_add_keepalive(struct rpc_args *args, int64_t time_ns, int64_t timeout_ns)
{
    if (time_ns <= 0)
        return;
    rpc_args_add(args, GRPC_ARG_KEEPALIVE_TIME_MS, whole_ms(time_ns));
    rpc_args_add(args, GRPC_ARG_KEEPALIVE_TIMEOUT_MS, whole_ms(timeout_ns));
    /* By default the library stops after two pings without data. */
    rpc_args_add(args, GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
}

void
rpc_args_add_peer_name(struct rpc_args *args, const struct rpc_tls *tls)
{
    if (tls != NULL && rpc_tls_peer_name(tls) != NULL)
        rpc_args_add_string(args, GRPC_SSL_TARGET_NAME_OVERRIDE_ARG, rpc_tls_peer_name(tls));
}

void
rpc_args_add_connection(struct rpc_args *args, int connect_ms)
{
    rpc_args_add(args, GRPC_ARG_ENABLE_HTTP_PROXY, 0);
    rpc_args_add(args, GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, RPC_RECONNECT_MS_INITIAL);
    rpc_args_add(args, GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, connect_ms); /* also limits one attempt */
    rpc_args_add(args, GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, RPC_RECONNECT_MS_MAX);
    /* Otherwise channels with the same target would share one connection. */
    rpc_args_add(args, GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    rpc_args_add(args, GRPC_ARG_ENABLE_CHANNELZ, 0);
}
