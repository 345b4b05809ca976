/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/endpoints/names.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "loop/timer.h"
#include "loop/wake.h"

/* ---- the thread: one question, one answer ---- */

struct name_answer {
    int failure; /* getaddrinfo's */
    uint32_t count;
    uint32_t ignored;
    char addresses[NAME_ADDRESSES_MAX][INET6_ADDRSTRLEN]; /* sorted */
};

/*
 * The loop asks in IDLE and takes the answer in ANSWERED; the thread answers in ASKED. After QUIT
 * the thread frees this: it may be within the resolver for as long as that likes.
 */
enum name_thread_state { NAMES_IDLE, NAMES_ASKED, NAMES_ANSWERED, NAMES_QUIT };

struct name_thread {
    pthread_mutex_t mutex;
    pthread_cond_t asked;
    enum name_thread_state state;
    struct wake *wake; /* not used after QUIT */
    char host[ENDPOINT_HOST_BYTES];
    struct name_answer answer;
};

static int
compare(const void *one, const void *other)
{
    return strcmp(one, other);
}

static void
look_up(const char *host, struct name_answer *answer)
{
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    *answer = (struct name_answer){.failure = getaddrinfo(host, NULL, &hints, &found)};
    for (const struct addrinfo *at = found; at != NULL; at = at->ai_next) {
        if (answer->count == NAME_ADDRESSES_MAX) {
            answer->ignored++;
            continue;
        }
        char *text = answer->addresses[answer->count];
        const void *bytes = at->ai_family == AF_INET6
                                ? (const void *)&((struct sockaddr_in6 *)at->ai_addr)->sin6_addr
                                : (const void *)&((struct sockaddr_in *)at->ai_addr)->sin_addr;
        if (inet_ntop(at->ai_family, bytes, text, INET6_ADDRSTRLEN) != NULL)
            answer->count++;
    }
    qsort(answer->addresses, answer->count, sizeof(answer->addresses[0]), compare);
    if (found != NULL)
        freeaddrinfo(found);
}

static void *
thread_main(void *context)
{
    struct name_thread *thread = context;
    struct name_answer answer;
    char host[ENDPOINT_HOST_BYTES];
    CHECK(pthread_mutex_lock(&thread->mutex) == 0);
    for (;;) {
        while (thread->state == NAMES_IDLE || thread->state == NAMES_ANSWERED)
            CHECK(pthread_cond_wait(&thread->asked, &thread->mutex) == 0);
        if (thread->state == NAMES_QUIT)
            break;
        memcpy(host, thread->host, sizeof(host));
        CHECK(pthread_mutex_unlock(&thread->mutex) == 0);
        look_up(host, &answer);
        CHECK(pthread_mutex_lock(&thread->mutex) == 0);
        if (thread->state == NAMES_QUIT)
            break;
        thread->answer = answer;
        thread->state = NAMES_ANSWERED;
        wake_up(thread->wake);
    }
    CHECK(pthread_mutex_unlock(&thread->mutex) == 0);
    CHECK(pthread_mutex_destroy(&thread->mutex) == 0);
    CHECK(pthread_cond_destroy(&thread->asked) == 0);
    free(thread);
    return NULL;
}

/* Signals are the loop's. */
static struct name_thread *
thread_start(struct wake *wake)
{
    sigset_t all;
    sigset_t before;
    pthread_t id;
    struct name_thread *thread = calloc(1, sizeof(*thread));
    CHECK(thread != NULL);
    thread->wake = wake;
    CHECK(pthread_mutex_init(&thread->mutex, NULL) == 0);
    CHECK(pthread_cond_init(&thread->asked, NULL) == 0);
    sigfillset(&all);
    CHECK(pthread_sigmask(SIG_SETMASK, &all, &before) == 0);
    CHECK(pthread_create(&id, NULL, thread_main, thread) == 0);
    CHECK(pthread_sigmask(SIG_SETMASK, &before, NULL) == 0);
    CHECK(pthread_detach(id) == 0);
    return thread;
}

/* Sets a state; ASKED: for this host. */
static void
thread_set(struct name_thread *thread, enum name_thread_state state, const char *host)
{
    CHECK(pthread_mutex_lock(&thread->mutex) == 0);
    thread->state = state;
    if (host != NULL)
        memcpy(thread->host, host, strlen(host) + 1);
    CHECK(pthread_cond_signal(&thread->asked) == 0);
    CHECK(pthread_mutex_unlock(&thread->mutex) == 0);
}

/* False: there is no answer yet. */
static bool
thread_take(struct name_thread *thread, struct name_answer *answer)
{
    CHECK(pthread_mutex_lock(&thread->mutex) == 0);
    bool is_there = thread->state == NAMES_ANSWERED;
    if (is_there) {
        *answer = thread->answer;
        thread->state = NAMES_IDLE;
    }
    CHECK(pthread_mutex_unlock(&thread->mutex) == 0);
    return is_there;
}

/* ---- names ---- */

struct endpoint_name {
    struct endpoint_entry entry;
    int64_t next_ns;
    uint32_t count;
    char addresses[NAME_ADDRESSES_MAX][INET6_ADDRSTRLEN];
};

struct endpoint_names {
    int64_t interval_ns;
    void (*on_changed)(void *context);
    void *context;
    struct loop_timer *timer;
    struct wake *wake;
    struct name_thread *thread; /* NULL: there has been no name yet */
    bool is_asked;
    char asked[ENDPOINT_HOST_BYTES];
    struct endpoint_name *items;
    uint32_t count;
    struct endpoint_names_counts counts;
};

/* Asks for the name that is due, or waits for the next. */
static void
ask_next(struct endpoint_names *names)
{
    struct endpoint_name *next = NULL;
    for (uint32_t i = 0; i < names->count; i++)
        if (next == NULL || names->items[i].next_ns < next->next_ns)
            next = &names->items[i];
    if (next == NULL || names->is_asked)
        return;
    int64_t wait_ns = next->next_ns - clock_now_ns();
    if (wait_ns > 0) {
        loop_timer_set(names->timer, wait_ns);
        return;
    }
    if (names->thread == NULL)
        names->thread = thread_start(names->wake);
    memcpy(names->asked, next->entry.host, sizeof(names->asked));
    names->is_asked = true;
    names->counts.lookups++;
    thread_set(names->thread, NAMES_ASKED, names->asked);
}

/* True: it has other addresses than before. */
static bool
take_answer(struct endpoint_name *name, const struct name_answer *answer)
{
    size_t bytes = answer->count * sizeof(answer->addresses[0]);
    bool is_same = name->count == answer->count;
    for (uint32_t i = 0; is_same && i < answer->count; i++)
        is_same = strcmp(name->addresses[i], answer->addresses[i]) == 0;
    name->count = answer->count;
    memcpy(name->addresses, answer->addresses, bytes);
    return !is_same;
}

static void
on_wake(void *context)
{
    struct endpoint_names *names = context;
    struct name_answer answer;
    bool has_changed = false;
    if (!thread_take(names->thread, &answer))
        return;
    names->is_asked = false;
    names->counts.ignored += answer.ignored;
    bool is_found = answer.failure == 0 && answer.count > 0;
    if (!is_found) {
        names->counts.failed++;
        log_warn_limited("endpoint_name_failed name=\"%s\" error=\"%s\" action=\"its last "
                         "addresses stay in use\"",
                         names->asked, gai_strerror(answer.failure));
    }
    int64_t next_ns = clock_now_ns() + names->interval_ns;
    for (uint32_t i = 0; i < names->count; i++) {
        if (strcmp(names->items[i].entry.host, names->asked) != 0)
            continue;
        names->items[i].next_ns = next_ns;
        has_changed = (is_found && take_answer(&names->items[i], &answer)) || has_changed;
    }
    ask_next(names);
    if (has_changed)
        names->on_changed(names->context);
}

static void
on_time(void *context)
{
    ask_next(context);
}

static const struct endpoint_name *
find(const struct endpoint_name *items, uint32_t count, const char *host)
{
    for (uint32_t i = 0; i < count; i++)
        if (strcmp(items[i].entry.host, host) == 0)
            return &items[i];
    return NULL;
}

void
endpoint_names_set(struct endpoint_names *names, const struct endpoint_entry *entries,
                   uint32_t count)
{
    struct endpoint_name *before = names->items;
    uint32_t before_count = names->count;
    names->items = calloc(count > 0 ? count : 1, sizeof(*names->items));
    CHECK(names->items != NULL);
    names->count = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (entries[i].host[0] == '\0')
            continue;
        struct endpoint_name *name = &names->items[names->count++];
        const struct endpoint_name *known = find(before, before_count, entries[i].host);
        if (known != NULL)
            *name = *known;
        name->entry = entries[i];
    }
    free(before);
    ask_next(names);
}

static bool
make_entry(const struct endpoint_name *name, const char *address, struct endpoint_entry *entry)
{
    *entry = name->entry;
    endpoint_entry_resolve(entry, address);
    int used = snprintf(entry->name, sizeof(entry->name), "%s@%s", name->entry.name, address);
    return used < (int)sizeof(entry->name);
}

uint32_t
endpoint_names_expand(struct endpoint_names *names, struct endpoint_entry *entries, uint32_t count,
                      uint32_t max)
{
    for (uint32_t i = 0; i < names->count; i++)
        for (uint32_t j = 0; j < names->items[i].count; j++)
            if (count < max &&
                make_entry(&names->items[i], names->items[i].addresses[j], &entries[count]))
                count++;
            else
                names->counts.ignored++;
    return count;
}

const struct endpoint_names_counts *
endpoint_names_counts(const struct endpoint_names *names)
{
    return &names->counts;
}

/* ---- life ---- */

struct endpoint_names *
endpoint_names_create(struct event_base *base, int64_t interval_ms,
                      void (*on_changed)(void *context), void *context)
{
    struct endpoint_names *names = calloc(1, sizeof(*names));
    CHECK(names != NULL);
    names->interval_ns = interval_ms * NS_PER_MS;
    names->on_changed = on_changed;
    names->context = context;
    names->timer = loop_timer_create(base, on_time, names);
    names->wake = wake_create(base, on_wake, names);
    CHECK(names->wake != NULL);
    return names;
}

void
endpoint_names_destroy(struct endpoint_names *names)
{
    if (names == NULL)
        return;
    if (names->thread != NULL)
        thread_set(names->thread, NAMES_QUIT, NULL);
    loop_timer_destroy(names->timer);
    wake_destroy(names->wake);
    free(names->items);
    free(names);
}
