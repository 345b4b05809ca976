/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log_line.h"

static const char *const level_names[] = {"error", "warn", "info", "debug"};

static const char *log_program = "shoal";
static _Atomic int log_level_max = LOG_INFO;
static void (*_Atomic log_tap)(enum log_level level, const char *event, size_t bytes);
static _Atomic int format_of_lines = LOG_FORMAT_LOGFMT;

void
log_init(const char *program, enum log_level level)
{
    log_program = program;
    log_set_level(level);
}

void
log_set_level(enum log_level level)
{
    atomic_store_explicit(&log_level_max, (int)level, memory_order_relaxed);
}

void
log_set_tap(void (*tap)(enum log_level level, const char *event, size_t bytes))
{
    atomic_store(&log_tap, tap);
}

void
log_set_format(enum log_format format)
{
    atomic_store_explicit(&format_of_lines, (int)format, memory_order_relaxed);
}

enum log_format
log_format(void)
{
    return (enum log_format)atomic_load_explicit(&format_of_lines, memory_order_relaxed);
}

int
log_level_from_name(const char *name)
{
    for (size_t i = 0; i < ARRAY_COUNT(level_names); i++)
        if (strcmp(name, level_names[i]) == 0)
            return (int)i;
    return -1;
}

/* ---- the writer: rules in log.h ---- */

enum {
    BUFFER_BYTES = 256 << 10,
    CHUNK_BYTES = 4096 /* PIPE_BUF: written whole, so that lines of several processes do not mix */
};

enum writer_state { WRITER_NONE, WRITER_RUNS, WRITER_ENDS, WRITER_ABANDONED };

static struct log_writer {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread;
    _Atomic int state; /* enum writer_state; changes under the lock */
    _Atomic uint64_t dropped;
    /* under the lock: */
    uint64_t unreported; /* of `dropped`, those not reported yet */
    size_t first;
    size_t used;
    bool writes;
    bool has_place; /* a place has started to leave lines out */
    char buffer[BUFFER_BYTES];
} writer = {.lock = PTHREAD_MUTEX_INITIALIZER, .state = WRITER_NONE};

static bool waits = true;

void
log_never_wait(void)
{
    waits = false;
}

/* Returns the number of lines that could not be written. */
static uint64_t
write_out(const char *bytes, size_t count)
{
    uint64_t lost = 0;
    while (count > 0) {
        ssize_t written = write(STDERR_FILENO, bytes, count);
        if (written < 0 && errno == EAGAIN && waits) { /* set on this pipe by another process */
            struct pollfd out = {.fd = STDERR_FILENO, .events = POLLOUT};
            (void)poll(&out, 1, -1);
        } else if (written < 0 && errno != EINTR) { /* a full disk or pipe: counted */
            while (count > 0)
                lost += bytes[--count] == '\n';
        } else if (written > 0) {
            bytes += written;
            count -= (size_t)written;
        }
    }
    return lost;
}

static void
append(const char *bytes, size_t count)
{
    size_t at = (writer.first + writer.used) % BUFFER_BYTES;
    size_t before_end = BUFFER_BYTES - at < count ? BUFFER_BYTES - at : count;
    memcpy(writer.buffer + at, bytes, before_end);
    memcpy(writer.buffer, bytes + before_end, count - before_end);
    writer.used += count;
}

PRINTF_LIKE(3, 0)
static void
make_line(struct bytes *line, enum log_level level, const char *format, va_list args)
{
    struct log_head head = {.level = level_names[level], .program = log_program};
    struct timespec now;
    struct tm utc;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    size_t used = strftime(head.time, sizeof(head.time), "%Y-%m-%dT%H:%M:%S", &utc);
    snprintf(head.time + used, sizeof(head.time) - used, ".%03ldZ", now.tv_nsec / 1000000);
    log_line_put(line, log_format(), &head, format, args);
}

PRINTF_LIKE(3, 4)
static void
make(struct bytes *line, enum log_level level, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    make_line(line, level, format, args);
    va_end(args);
}

static void
append_reported(void)
{
    struct bytes line = {0};
    make(&line, LOG_WARN, "log_resumed dropped=%" PRIu64, writer.unreported);
    if (!line.failed) {
        writer.unreported = 0;
        append(line.data, line.used);
    }
    bytes_fini(&line);
}

/* After a drop, further lines are dropped until half of the buffer is free: one gap in the log,
 * instead of every second line missing. */
static void
put_buffered(const char *line, size_t count)
{
    if (writer.unreported > 0 && writer.used <= BUFFER_BYTES / 2)
        append_reported();
    if (writer.unreported > 0 || BUFFER_BYTES - writer.used < count) {
        writer.unreported++;
        atomic_fetch_add_explicit(&writer.dropped, 1, memory_order_relaxed);
        return;
    }
    append(line, count);
    (void)pthread_cond_broadcast(&writer.changed);
}

/* Returns true if the line was written or will be. */
static bool
put_beside(const char *line, size_t count)
{
    if (atomic_load_explicit(&writer.state, memory_order_acquire) == WRITER_NONE) {
        write_out(line, count);
        return true;
    }
    (void)pthread_mutex_lock(&writer.lock);
    bool fits = writer.unreported == 0 && writer.used + count <= BUFFER_BYTES / 2;
    if (fits)
        put_buffered(line, count);
    (void)pthread_mutex_unlock(&writer.lock);
    return fits;
}

static void
put(const char *line, size_t count)
{
    if (atomic_load_explicit(&writer.state, memory_order_acquire) == WRITER_NONE) {
        (void)write_out(line, count);
        return;
    }
    (void)pthread_mutex_lock(&writer.lock);
    put_buffered(line, count);
    (void)pthread_mutex_unlock(&writer.lock);
}

/* Returns as many whole lines as are written at once. */
static size_t
take_lines(char chunk[CHUNK_BYTES])
{
    size_t count = writer.used < CHUNK_BYTES ? writer.used : CHUNK_BYTES;
    size_t before_end = BUFFER_BYTES - writer.first < count ? BUFFER_BYTES - writer.first : count;
    memcpy(chunk, writer.buffer + writer.first, before_end);
    memcpy(chunk + before_end, writer.buffer, count - before_end);
    const char *end = memrchr(chunk, '\n', count);
    CHECK(end != NULL);
    count = (size_t)(end - chunk) + 1;
    writer.first = (writer.first + count) % BUFFER_BYTES;
    writer.used -= count;
    return count;
}

/* ---- places with an allowance ---- */

static struct {
    pthread_mutex_t lock; /* acquired before the writer's */
    struct log_place *first;
    _Atomic uint64_t left_out;
    _Atomic uint32_t lines_max;
} places = {.lock = PTHREAD_MUTEX_INITIALIZER, .lines_max = LOG_SITE_LINES};

void
log_set_event_lines(uint32_t lines)
{
    atomic_store_explicit(&places.lines_max, lines, memory_order_relaxed);
}

static void
notify_left_out(const struct log_place *place, uint64_t lines)
{
    log_line(place->level, "log_left_out event=%.*s lines=%" PRIu64 " seconds=%d",
             (int)strcspn(place->format, " "), place->format, lines, LOG_SITE_S);
}

/* Reports the lines left out in periods that are over. Returns the end of the next period. */
static int64_t
notify_places(int64_t now_ns)
{
    int64_t next_ns = TIME_NEVER_NS;
    (void)pthread_mutex_lock(&places.lock);
    for (struct log_place *place = places.first; place != NULL; place = place->next) {
        uint64_t left_out = log_site_take(&place->site, now_ns);
        if (left_out > 0)
            notify_left_out(place, left_out);
        if (place->site.left_out > 0 && place->site.until_ns < next_ns)
            next_ns = place->site.until_ns;
    }
    (void)pthread_mutex_unlock(&places.lock);
    return next_ns;
}

/* Locked. */
static void
list_place(struct log_place *place, enum log_level level, const char *format)
{
    place->format = format;
    place->level = level;
    if (place->is_listed)
        return;
    place->is_listed = true;
    place->next = places.first;
    places.first = place;
}

static void
wake_writer(void)
{
    (void)pthread_mutex_lock(&writer.lock);
    writer.has_place = true;
    if (writer.state == WRITER_RUNS)
        (void)pthread_cond_broadcast(&writer.changed);
    (void)pthread_mutex_unlock(&writer.lock);
}

/* ---- the writer's thread ---- */

static bool
is_idle(void)
{
    return writer.used == 0 && writer.unreported == 0 && writer.state == WRITER_RUNS;
}

/* Locked. */
static void
wait_for_lines(void)
{
    while (is_idle()) {
        writer.has_place = false;
        (void)pthread_mutex_unlock(&writer.lock);
        int64_t next_ns = notify_places(clock_now_ns());
        struct timespec until = {.tv_sec = next_ns / NS_PER_S, .tv_nsec = next_ns % NS_PER_S};
        (void)pthread_mutex_lock(&writer.lock);
        if (is_idle() && !writer.has_place && next_ns == TIME_NEVER_NS)
            (void)pthread_cond_wait(&writer.changed, &writer.lock);
        else if (is_idle() && !writer.has_place)
            (void)pthread_cond_timedwait(&writer.changed, &writer.lock, &until);
    }
}

static void *
writer_main(void *context)
{
    char chunk[CHUNK_BYTES];
    (void)context;
    prctl(PR_SET_NAME, "shoald:log");
    (void)pthread_mutex_lock(&writer.lock);
    for (;;) {
        wait_for_lines();
        if (writer.used == 0 && writer.unreported > 0)
            append_reported();
        if (writer.used == 0 || writer.state == WRITER_ABANDONED)
            break;
        size_t count = take_lines(chunk);
        (void)pthread_mutex_unlock(&writer.lock);
        uint64_t lost = write_out(chunk, count);
        atomic_fetch_add_explicit(&writer.dropped, lost, memory_order_relaxed);
        (void)notify_places(clock_now_ns());
        (void)pthread_mutex_lock(&writer.lock);
    }
    writer.writes = false;
    (void)pthread_cond_broadcast(&writer.changed);
    (void)pthread_mutex_unlock(&writer.lock);
    return NULL;
}

enum status
log_start(struct error *error)
{
    CHECK(writer.state == WRITER_NONE);
    pthread_condattr_t monotonic;
    CHECK(pthread_condattr_init(&monotonic) == 0);
    CHECK(pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC) == 0);
    CHECK(pthread_cond_init(&writer.changed, &monotonic) == 0);
    CHECK(pthread_condattr_destroy(&monotonic) == 0);
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    CHECK(pthread_sigmask(SIG_SETMASK, &all, &before) == 0);
    writer.writes = true;
    atomic_store(&writer.state, WRITER_RUNS);
    int failure = pthread_create(&writer.thread, NULL, writer_main, NULL);
    CHECK(pthread_sigmask(SIG_SETMASK, &before, NULL) == 0);
    if (failure == 0)
        return STATUS_OK;
    atomic_store(&writer.state, WRITER_NONE);
    errno = failure;
    return error_set_errno(error, "starting the thread that writes the log");
}

void
log_stop(int64_t timeout_ns)
{
    int64_t until_ns = clock_now_ns() + timeout_ns;
    struct timespec until = {.tv_sec = until_ns / NS_PER_S, .tv_nsec = until_ns % NS_PER_S};
    (void)notify_places(TIME_NEVER_NS);
    (void)pthread_mutex_lock(&writer.lock);
    bool runs = writer.state == WRITER_RUNS;
    if (runs)
        writer.state = WRITER_ENDS;
    (void)pthread_cond_broadcast(&writer.changed);
    while (runs && writer.writes &&
           pthread_cond_timedwait(&writer.changed, &writer.lock, &until) != ETIMEDOUT)
        ;
    bool ended = runs && !writer.writes;
    if (runs)
        writer.state = ended ? WRITER_NONE : WRITER_ABANDONED;
    (void)pthread_mutex_unlock(&writer.lock);
    if (ended)
        CHECK(pthread_join(writer.thread, NULL) == 0);
    else if (runs)
        CHECK(pthread_detach(writer.thread) == 0); /* the thread ends with the process */
}

uint64_t
log_dropped(void)
{
    return atomic_load_explicit(&writer.dropped, memory_order_relaxed);
}

uint64_t
log_left_out(void)
{
    return atomic_load_explicit(&places.left_out, memory_order_relaxed);
}

/* ---- lines ---- */

static bool
is_written(enum log_level level)
{
    return (int)level <= atomic_load_explicit(&log_level_max, memory_order_relaxed);
}

static bool
is_tapped(enum log_level level)
{
    return level <= LOG_INFO && atomic_load(&log_tap) != NULL;
}

static bool
is_wanted(enum log_level level)
{
    return is_written(level) || is_tapped(level);
}

/* Passes on the event and its fields, as logfmt. */
PRINTF_LIKE(2, 0)
static void
tap_line(enum log_level level, const char *format, va_list args)
{
    static const struct log_head head = {.time = "-", .level = "-", .program = "-"};
    const size_t head_bytes = sizeof("- - - ") - 1;
    void (*tap)(enum log_level, const char *, size_t) = atomic_load(&log_tap);
    if (tap == NULL || level > LOG_INFO)
        return;
    struct bytes line = {0};
    log_line_put(&line, LOG_FORMAT_LOGFMT, &head, format, args);
    if (!line.failed)
        tap(level, line.data + head_bytes, line.used - head_bytes - 1);
    bytes_fini(&line);
}

PRINTF_LIKE(2, 0)
static void
put_line(enum log_level level, const char *format, va_list args)
{
    tap_line(level, format, args);
    if (!is_written(level))
        return;
    struct bytes line = {0};
    make_line(&line, level, format, args);
    if (line.failed)
        atomic_fetch_add_explicit(&writer.dropped, 1, memory_order_relaxed);
    else
        put(line.data, line.used);
    bytes_fini(&line);
}

void
log_line(enum log_level level, const char *format, ...)
{
    if (!is_wanted(level))
        return;
    va_list args;
    va_start(args, format);
    put_line(level, format, args);
    va_end(args);
}

/* Returns true if the place may write a line now. First reports the lines left out before. */
static bool
admit(struct log_place *place, enum log_level level, const char *format)
{
    int64_t now_ns = clock_now_ns();
    (void)pthread_mutex_lock(&places.lock);
    uint64_t left_out = log_site_take(&place->site, now_ns);
    if (left_out > 0)
        notify_left_out(place, left_out);
    uint32_t lines_max = atomic_load_explicit(&places.lines_max, memory_order_relaxed);
    bool admitted = log_site_admit(&place->site, lines_max, now_ns);
    bool begins = !admitted && place->site.left_out == 1;
    if (begins)
        list_place(place, level, format);
    (void)pthread_mutex_unlock(&places.lock);
    if (begins)
        wake_writer();
    return admitted;
}

void
log_limited(struct log_place *place, enum log_level level, const char *format, ...)
{
    if (!is_wanted(level))
        return;
    if (!admit(place, level, format)) {
        atomic_fetch_add_explicit(&places.left_out, 1, memory_order_relaxed);
        return;
    }
    va_list args;
    va_start(args, format);
    put_line(level, format, args);
    va_end(args);
}

void
log_plain(const char *format, ...)
{
    char text[LOG_LINE_BYTES_MAX];
    va_list args;
    va_start(args, format);
    int written = vsnprintf(text, sizeof(text) - 1, format, args);
    va_end(args);
    if (written < 0)
        return;
    if (log_format() == LOG_FORMAT_JSON) {
        log_line(LOG_INFO, "message text=\"%s\"", text);
        return;
    }
    size_t used = strlen(text);
    for (size_t i = 0; i < used; i++)
        if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f)
            text[i] = ' ';
    text[used++] = '\n';
    put(text, used);
}

bool
log_beside(enum log_level level, const char *format, ...)
{
    struct bytes line = {0};
    va_list args;
    if (!is_written(level))
        return true;
    va_start(args, format);
    make_line(&line, level, format, args);
    va_end(args);
    bool put = !line.failed && put_beside(line.data, line.used);
    bytes_fini(&line);
    return put;
}

bool
log_pass_on(const char *text, size_t bytes)
{
    char line[LOG_LINE_BYTES_MAX];
    CHECK(bytes < sizeof(line));
    memcpy(line, text, bytes);
    line[bytes] = '\n';
    return put_beside(line, bytes + 1);
}
