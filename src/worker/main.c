/* SPDX-License-Identifier: Apache-2.0 */
/* A worker process, started by the coordinator: see handshake.h and worker.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/log.h"
#include "base/usage.h"
#include "worker/crash.h"
#include "worker/crash_symbols.h"
#include "worker/keep.h"
#include "worker/worker.h"

/* Read by jemalloc if present. With its default, `retain`, models' heaps could not pass pages on:
 * model_heap.c. */
extern const char *malloc_conf;
const char *malloc_conf = "retain:false";

/* Reports a failed start to the coordinator, which logs it; to stderr if that fails. */
static void
refuse(const struct worker *worker, const struct error *error)
{
    struct handshake_failed failed = {
        .header = {HANDSHAKE_VERSION, HANDSHAKE_FAILED, sizeof(failed), 0},
        .status = error->status,
        .refused_calls = worker->sandbox.unnamed,
    };
    snprintf(failed.text, sizeof(failed.text), "%s", error->text);
    struct error ignored;
    if (handshake_send(HANDSHAKE_FD_CONTROL, &failed, sizeof(failed), &ignored) != STATUS_OK)
        log_error("worker_refused status=%s error=\"%s\"", status_name(error->status), error->text);
}

/* Shows the sandbox to the operator: once in the log if a part is missing, and in `shoalctl
 * status`. */
static void
show_sandbox(const struct worker *worker)
{
    const struct sandbox *sandbox = &worker->sandbox;
    worker_entry_gauge(&worker->entry, WORKER_SANDBOX_ALLOW, worker->start.sandbox_allow);
    worker_entry_gauge(&worker->entry, WORKER_SANDBOX, sandbox->in_force);
    if (sandbox->missing[0] != '\0')
        log_warn("worker_sandbox pipeline=%s stage=%s worker=%u missing=\"%s\"",
                 worker->start.pipeline, worker->start.stage, worker->start.worker_index,
                 sandbox->missing);
}

/* The modelet's code first runs between the two steps of the sandbox. */
static enum status
make_ready(struct worker *worker, struct handshake_ready *ready, struct error *error)
{
    enum status status = worker_attach(worker, error);
    if (status == STATUS_OK) {
        crash_catch(&worker->start);
        status = sandbox_enter(&worker->sandbox, &worker->start, error);
    }
    if (status == STATUS_OK) {
        crash_begin(CRASH_START, worker->start.model_id);
        status = worker_prepare(worker, ready, error);
        crash_end();
    }
    if (status != STATUS_OK) {
        sandbox_explain(&worker->sandbox, error);
        return status;
    }
    crash_symbols_keep();
    status = sandbox_narrow(&worker->sandbox, error);
    worker->loader.sandbox = &worker->sandbox;
    if (status == STATUS_OK && worker->start.serves_models != 0)
        status = loader_start(&worker->loader, &worker->modelet, &worker->entry, &worker->start,
                              &worker->cpus, error);
    if (status == STATUS_OK)
        show_sandbox(worker);
    else
        modelet_stop(&worker->modelet);
    return status;
}

/* Stops in order, unless the modelet is stuck in a load: its functions must then not be called. */
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

/* Makes threads of an OpenMP engine sleep while they wait for each other, unless the environment
 * says otherwise: with more threads than CPUs, spinning threads keep the CPU from those they wait
 * for. The engine's library reads this when it is opened. */
static void
calm_engines(void)
{
    (void)setenv("OMP_WAIT_POLICY", "passive", 0);
}

static const struct usage_option options[] = {
    {"version", NULL, "print the version"},
    {"help", "[=FORM]", "this text; FORM man: as a manual page"},
};

static const struct usage_command command = {
    .words = "",
    .arguments = "[--version | --help]",
    .summary = "Runs one modelet for one stage of a pipeline; shoald starts it",
    .about =
        "Without an option it expects shared memory and sockets from shoald, as descriptors 3\n"
        "and above, and ends at once without them. `shoald --worker` takes a program that\n"
        "starts it in another way, under valgrind for one.\n"
        "\n"
        "With `--keep` and arguments of shoald it runs a container of a ServingRuntime, and\n"
        "ends as that program did.\n",
    .exits = "  0    stopped on request\n"
             "  2    could not start\n"
             "  3    the shared memory is corrupt\n"
             "Others, and signals, are the modelet's doing.\n",
    .options = options,
    .option_count = ARRAY_COUNT(options),
};

static const struct usage_program program = {
    .name = "shoal-worker",
    .section = "8",
    .summary = "run a modelet of the Shoal model server",
    .see_also = ".BR shoald (8)",
    .commands = &command,
    .command_count = 1,
};

static int
take_argument(const char *argument)
{
    enum usage_form form = USAGE_TEXT;
    if (strcmp(argument, "--version") == 0) {
        puts("shoal-worker " SHOAL_VERSION);
        return EXIT_STOPPED;
    }
    if (strcmp(argument, "--help") != 0 &&
        (strncmp(argument, "--help=", strlen("--help=")) != 0 ||
         !usage_form_read(argument + strlen("--help="), &form))) {
        fprintf(stderr, "shoal-worker: unknown argument %.64s\nTry `shoal-worker --help`.\n",
                argument);
        return EXIT_REFUSED;
    }
    usage_print(stdout, &program, form);
    return EXIT_STOPPED;
}

int
main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--keep") == 0)
        return keep(argc, argv);
    if (argc > 1)
        return take_argument(argv[1]);
    worker_bind_to_parent();
    calm_engines();
    static struct worker worker;
    static struct handshake_ready ready;
    struct error error = ERROR_NONE;
    if (make_ready(&worker, &ready, &error) != STATUS_OK) {
        refuse(&worker, &error);
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
        _exit(ended); /* call nothing more: the modelet would see a corrupt region */
    stop(&worker);
    return ended;
}
