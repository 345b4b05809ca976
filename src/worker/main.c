/* SPDX-License-Identifier: Apache-2.0 */
/* One worker process, started by the coordinator: handshake.h says how, worker.h what it does. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "worker/worker.h"

/* jemalloc reads this if it is there. Under `retain`, its default, the heaps of models could not
 * hand pages on to each other: model_heap.c. */
extern const char *malloc_conf;
const char *malloc_conf = "retain:false";

/* To the coordinator, whose log is the one place for it; to stderr if that fails. */
static void
refuse(const struct error *error)
{
    struct handshake_failed failed = {
        .header = {HANDSHAKE_VERSION, HANDSHAKE_FAILED, sizeof(failed), 0},
        .status = error->status,
    };
    snprintf(failed.text, sizeof(failed.text), "%s", error->text);
    struct error ignored;
    if (handshake_send(HANDSHAKE_FD_CONTROL, &failed, sizeof(failed), &ignored) != STATUS_OK)
        log_error("worker_refused status=%s error=\"%s\"", status_name(error->status), error->text);
}

/* To the operator: once in the log if something is missing, and for `shoalctl status`. */
static void
show_sandbox(const struct worker *worker)
{
    const struct sandbox *sandbox = &worker->sandbox;
    seat_gauge(&worker->seat, WORKER_SANDBOX_ALLOW, worker->start.sandbox_allow);
    seat_gauge(&worker->seat, WORKER_SANDBOX, sandbox->in_force);
    if (sandbox->missing[0] != '\0')
        log_warn("worker_sandbox pipeline=%s stage=%s worker=%u missing=\"%s\"",
                 worker->start.pipeline, worker->start.stage, worker->start.worker_index,
                 sandbox->missing);
}

/* A modelet, or the C library for it, that was refused something says no more than that. */
static void
hint_sandbox(const struct sandbox *sandbox, struct error *error)
{
    bool refused = strstr(error->text, strerror(EACCES)) != NULL ||
                   strstr(error->text, strerror(EPERM)) != NULL;
    if (sandbox->asked != 0 && refused)
        (void)error_prefix(error, "in its sandbox, which `sandbox_allow` loosens");
}

/* The modelet's own code runs between the two steps of the sandbox, and after them. */
static enum status
make_ready(struct worker *worker, struct handshake_ready *ready, struct error *error)
{
    enum status status = worker_attach(worker, error);
    if (status == STATUS_OK)
        status = sandbox_enter(&worker->sandbox, &worker->start, error);
    if (status == STATUS_OK)
        status = worker_prepare(worker, ready, error);
    if (status != STATUS_OK) {
        hint_sandbox(&worker->sandbox, error);
        return status;
    }
    status = sandbox_narrow(&worker->sandbox, error);
    if (status == STATUS_OK && worker->start.serves_models != 0)
        status = loader_start(&worker->loader, &worker->modelet, &worker->seat, &worker->start,
                              &worker->cpus, error);
    if (status == STATUS_OK)
        show_sandbox(worker);
    else
        modelet_stop(&worker->modelet);
    return status;
}

/* In order, unless the modelet is stuck in a load: then nothing of it may be called any more. */
static void
stop(struct worker *worker)
{
    if (worker->start.serves_models != 0 && !loader_stop(&worker->loader)) {
        log_warn("worker_abandons_load pipeline=%s stage=%s worker=%u", worker->start.pipeline,
                 worker->start.stage, worker->start.worker_index);
        _exit(EXIT_STOPPED);
    }
    modelet_stop(&worker->modelet);
}

/* Threads of an OpenMP engine wait for each other by sleeping, not by spinning, unless the node's
 * environment says otherwise: where there are more of them than CPUs, who spins keeps the others
 * from what is waited for. Read by the engine's library when it is opened. */
static void
calm_engines(void)
{
    (void)setenv("OMP_WAIT_POLICY", "passive", 0);
}

int
main(void)
{
    worker_bind_to_parent();
    calm_engines();
    static struct worker worker;
    static struct handshake_ready ready;
    struct error error = ERROR_NONE;
    if (make_ready(&worker, &ready, &error) != STATUS_OK) {
        refuse(&error);
        return EXIT_REFUSED;
    }
    worker_catch_stop(&worker);
    if (handshake_send(HANDSHAKE_FD_CONTROL, &ready, sizeof(ready), &error) != STATUS_OK) {
        log_error("worker_unwanted error=\"%s\"", error.text);
        stop(&worker);
        return EXIT_REFUSED;
    }
    enum worker_exit ended = worker_serve(&worker);
    if (ended == EXIT_CORRUPT)
        _exit(ended); /* nothing more is called: what the modelet would look at is not in order */
    stop(&worker);
    return ended;
}
