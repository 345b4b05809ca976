/* SPDX-License-Identifier: Apache-2.0 */
/* One worker process, started by the coordinator: handshake.h says how, worker.h what it does. */
#include <stdio.h>
#include <unistd.h>

#include "base/log.h"
#include "worker/worker.h"

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

int
main(void)
{
    worker_bind_to_parent();
    static struct worker worker;
    static struct handshake_ready ready;
    struct error error = ERROR_NONE;
    if (worker_attach(&worker, &error) != STATUS_OK ||
        worker_prepare(&worker, &ready, &error) != STATUS_OK) {
        refuse(&error);
        return EXIT_REFUSED;
    }
    worker_catch_stop(&worker);
    if (handshake_send(HANDSHAKE_FD_CONTROL, &ready, sizeof(ready), &error) != STATUS_OK) {
        log_error("worker_unwanted error=\"%s\"", error.text);
        modelet_stop(&worker.modelet);
        return EXIT_REFUSED;
    }
    enum worker_exit ended = worker_serve(&worker);
    if (ended == EXIT_CORRUPT)
        _exit(ended); /* nothing more is called: what the modelet would look at is not in order */
    modelet_stop(&worker.modelet);
    return ended;
}
