/* SPDX-License-Identifier: Apache-2.0 */
#include "mesh/edge/skew.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"

enum {
    MS_PER_S = 1000,
    WARN_AGAIN_MS = 600 * MS_PER_S,
    /* A starting node may meet a wrong clock before the right ones and keep to it until then. */
    LASTS_MS = 3 * MS_PER_S,
};

struct skew {
    pthread_mutex_t lock; /* of the fields below */
    struct mesh_clock clock;
    int64_t off_ms; /* since when the clock is off, on skew_now_ms; 0: it is not */
    bool is_off;    /* for LASTS_MS, and logged at: */
    int64_t said_ms;
};

int64_t
skew_now_ms(void)
{
    return clock_now_ns() / NS_PER_MS;
}

static int64_t
wall_now_ms(void)
{
    struct timespec now;
    CHECK(clock_gettime(CLOCK_REALTIME, &now) == 0);
    return (int64_t)now.tv_sec * MS_PER_S + now.tv_nsec / NS_PER_MS;
}

struct skew *
skew_create(const char *instance)
{
    struct skew *skew = calloc(1, sizeof(*skew));
    CHECK(skew != NULL && pthread_mutex_init(&skew->lock, NULL) == 0);
    mesh_clock_init(&skew->clock, instance);
    return skew;
}

void
skew_destroy(struct skew *skew)
{
    if (skew == NULL)
        return;
    pthread_mutex_destroy(&skew->lock);
    free(skew);
}

void
skew_look(struct skew *skew, struct skew_view *view)
{
    pthread_mutex_lock(&skew->lock);
    view->wall_ms = wall_now_ms();
    view->mesh_ms = mesh_clock_now(&skew->clock, skew_now_ms(), view->wall_ms);
    view->ahead_ms = mesh_clock_skew_ms(&skew->clock);
    view->clocks = skew->clock.clocks;
    view->voted = skew->clock.voted;
    pthread_mutex_unlock(&skew->lock);
}

int64_t
skew_mesh_ms(struct skew *skew)
{
    struct skew_view view;
    skew_look(skew, &view);
    return view.mesh_ms;
}

int64_t
skew_of(struct skew *skew, const char *instance)
{
    pthread_mutex_lock(&skew->lock);
    int64_t ahead_ms = mesh_clock_ahead_ms(&skew->clock, mesh_clock_key(instance), skew_now_ms());
    pthread_mutex_unlock(&skew->lock);
    return ahead_ms;
}

bool
skew_ask(struct skew *skew, const char *instance)
{
    pthread_mutex_lock(&skew->lock);
    bool asks = mesh_clock_ask(&skew->clock, mesh_clock_key(instance), skew_now_ms());
    pthread_mutex_unlock(&skew->lock);
    return asks;
}

void
skew_notify(struct skew *skew, const char *instance, struct mesh_clock_answer answer)
{
    pthread_mutex_lock(&skew->lock);
    answer.received_ms = skew_now_ms();
    mesh_clock_notify(&skew->clock, mesh_clock_key(instance), &answer);
    pthread_mutex_unlock(&skew->lock);
}

void
skew_forget(struct skew *skew, const char *instance)
{
    pthread_mutex_lock(&skew->lock);
    mesh_clock_forget(&skew->clock, mesh_clock_key(instance));
    pthread_mutex_unlock(&skew->lock);
}

/* ---- the log ---- */

void
skew_watch(struct skew *skew)
{
    struct skew_view view;
    skew_look(skew, &view);
    int64_t off_ms = view.ahead_ms < 0 ? -view.ahead_ms : view.ahead_ms;
    pthread_mutex_lock(&skew->lock);
    int64_t now_ms = skew_now_ms();
    bool was_off = skew->is_off;
    bool is_beyond = off_ms >= (was_off ? MESH_CLOCK_SKEWED_MS / 2 : MESH_CLOCK_SKEWED_MS);
    if (!is_beyond)
        skew->off_ms = 0;
    else if (skew->off_ms == 0)
        skew->off_ms = now_ms;
    skew->is_off = is_beyond && now_ms - skew->off_ms >= LASTS_MS;
    bool says = skew->is_off && (!was_off || now_ms - skew->said_ms >= WARN_AGAIN_MS);
    if (says)
        skew->said_ms = now_ms;
    bool is_right_again = was_off && !skew->is_off;
    pthread_mutex_unlock(&skew->lock);
    if (says)
        log_warn("mesh_clock_skewed skew_ms=%" PRId64 " clocks=%u "
                 "reason=\"this node's clock is %s that of the mesh; stamps are corrected\" "
                 "remedy=\"run chrony or ntpd on every node\"",
                 view.ahead_ms, view.clocks, view.ahead_ms > 0 ? "ahead of" : "behind");
    if (is_right_again)
        log_info("mesh_clock_right skew_ms=%" PRId64, view.ahead_ms);
}
