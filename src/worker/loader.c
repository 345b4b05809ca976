/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/loader.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/join.h"
#include "base/log.h"
#include "worker/crash.h"
#include "worker/model_pages.h"

enum { STOP_PATIENCE_S = 1 };

/* More than a main thread that is not in a run needs to respond. */
static const int64_t FLUSH_NS_MAX = 20 * (int64_t)NS_PER_MS;

/* ---- answers ---- */

/* Waits for room: a lost answer would keep the coordinator waiting. */
static void
answer(struct loader *loader, enum handshake_model_event event)
{
    struct handshake_model_said *said = &loader->said;
    struct pollfd room = {.fd = HANDSHAKE_FD_MODELS, .events = POLLOUT};
    struct error error = ERROR_NONE;
    said->event = event;
    said->header.bytes = handshake_model_said_bytes(said);
    while (handshake_send(HANDSHAKE_FD_MODELS, said, said->header.bytes, &error) ==
           STATUS_DEADLINE_EXCEEDED)
        (void)poll(&room, 1, -1);
}

static void
said_begin(struct loader *loader)
{
    struct handshake_model_said *said = &loader->said;
    *said = (struct handshake_model_said){
        .header = {HANDSHAKE_VERSION, HANDSHAKE_MODEL_SAID, sizeof(*said), 0},
        .number = loader->order.number,
        .life = loader->order.life,
    };
}

static void
answer_failed(struct loader *loader, struct error *error)
{
    sandbox_explain(loader->sandbox, error);
    said_begin(loader); /* discards the description from before the failure */
    loader->said.status = error->status != STATUS_OK ? error->status : STATUS_UNKNOWN;
    snprintf(loader->said.text, sizeof(loader->said.text), "%s", error->text);
    answer(loader, MODEL_FAILED);
}

/* ---- loading ---- */

static uint64_t
grown(uint64_t after, uint64_t before)
{
    return after > before ? after - before : 0;
}

/* Sets the size of a load: the modelet's own if it states one, else the measured one. Mapped files
 * are shared by the workers, up to the stated size. */
static void
said_size(struct handshake_model_said *said, uint64_t measured_bytes, uint64_t mapped_bytes)
{
    said->mapped_bytes = mapped_bytes;
    if (said->bytes == 0) {
        said->bytes = measured_bytes;
        return;
    }
    if (said->mapped_bytes > said->bytes)
        said->mapped_bytes = said->bytes;
    said->bytes -= said->mapped_bytes;
}

/* Calls the modelet, in the model's arena. */
static enum status
call_load(struct loader *loader, struct loaded_model *loaded, struct error *error)
{
    const struct shoal_model spec = {
        .struct_size = sizeof(spec),
        .id = loader->order.id,
        .path = loader->order.path,
        .key = loader->order.key,
    };
    size_t bytes = strlen(loader->cache);
    bool was_fetched =
        bytes > 0 && strncmp(spec.path, loader->cache, bytes) == 0 && spec.path[bytes] == '/';
    model_files_begin(&loaded->files, &spec, was_fetched ? loader->cache : loader->root);
    enum status status = modelet_load(loader->modelet, &spec, &loaded->model, error);
    model_files_end(&loaded->files);
    if (status != STATUS_OK)
        return status;
    status = modelet_ask(loader->modelet, loaded->model, &loader->said, error);
    if (status != STATUS_OK)
        modelet_unload(loader->modelet, loaded->model);
    return status;
}

static enum status
load(struct loader *loader, struct loaded_model *loaded, struct error *error)
{
    struct heaps *heaps = &loader->heaps;
    uint64_t before = heap_bytes(heaps, loaded->heap);
    heap_enter(heaps, loaded->heap);
    enum status status = call_load(loader, loaded, error);
    heap_leave(heaps, loaded->heap);
    if (status != STATUS_OK)
        return status;
    said_size(&loader->said, grown(heap_bytes(heaps, loaded->heap), before) + heaps->own_bytes,
              loaded->files.bytes);
    loader->said.event = MODEL_LOADED;
    status = handshake_model_said_validate(&loader->said, error);
    if (status == STATUS_OK)
        return STATUS_OK;
    error_prefix(error, "modelet %s, describing the model", loader->modelet->table.name);
    heap_enter(heaps, loaded->heap);
    modelet_unload(loader->modelet, loaded->model);
    heap_leave(heaps, loaded->heap);
    return status;
}

static void
loaded_destroy(struct loader *loader, struct loaded_model *loaded)
{
    model_files_unmap(&loaded->files);
    heap_release(&loader->heaps, loaded->heap);
    free(loaded);
}

/* NULL: see `error`. */
static struct loaded_model *
load_new(struct loader *loader, uint64_t word, struct error *error)
{
    if (!model_table_free(&loader->table, word)) {
        error_set(error, STATUS_ALREADY_EXISTS, "number %u belongs to another model",
                  loader->order.number);
        return NULL;
    }
    struct loaded_model *loaded = calloc(1, sizeof(*loaded));
    if (loaded == NULL) {
        error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for a model");
        return NULL;
    }
    *loaded = (struct loaded_model){.word = word, .heap = heap_acquire(&loader->heaps)};
    memcpy(loaded->id, loader->order.id, sizeof(loaded->id));
    if (load(loader, loaded, error) == STATUS_OK)
        return loaded;
    loaded_destroy(loader, loaded);
    return NULL;
}

static void
on_load(struct loader *loader)
{
    uint64_t word = model_word(loader->order.number, loader->order.life);
    struct error error = ERROR_NONE;
    struct loaded_model *loaded = load_new(loader, word, &error);
    if (loaded == NULL) {
        answer_failed(loader, &error);
        return;
    }
    (void)model_table_add(&loader->table, word, loaded);
    worker_entry_count(loader->entry, WORKER_MODELS_LOADED, 1);
    answer(loader, MODEL_LOADED);
}

/* ---- unloading ---- */

static void
unload(struct loader *loader, struct loaded_model *loaded)
{
    struct heaps *heaps = &loader->heaps;
    heap_enter(heaps, loaded->heap);
    modelet_unload(loader->modelet, loaded->model);
    heap_leave(heaps, loaded->heap);
    /* memory that `run` freed is in its thread's cache and would look like a leak */
    if (loaded->heap != HEAP_NONE && loader->has_thread)
        model_table_flush(&loader->table, &loader->entry->worker->bell, FLUSH_NS_MAX);
    loaded_destroy(loader, loaded);
}

static void
on_unload(struct loader *loader)
{
    uint64_t word = model_word(loader->order.number, loader->order.life);
    struct loaded_model *loaded = model_table_remove(&loader->table, word);
    if (loaded != NULL) {
        unload(loader, loaded);
        worker_entry_count(loader->entry, WORKER_MODELS_UNLOADED, 1);
    }
    uint64_t leaked_bytes = heaps_leaked(&loader->heaps);
    worker_entry_gauge(loader->entry, WORKER_MODELS_LEAKED, leaked_bytes);
    loader->said.leaked_bytes = leaked_bytes < MODEL_BYTES_MAX ? leaked_bytes : MODEL_BYTES_MAX;
    answer(loader, MODEL_UNLOADED);
}

static void
on_predict(struct loader *loader)
{
    const struct shoal_model spec = {
        .struct_size = sizeof(spec),
        .id = loader->order.id,
        .path = loader->order.path,
        .key = loader->order.key,
    };
    uint64_t bytes = modelet_predict(loader->modelet, &spec);
    loader->said.bytes = bytes < MODEL_BYTES_MAX ? bytes : MODEL_BYTES_MAX;
    answer(loader, MODEL_PREDICTED);
}

/* ---- orders ---- */

static void
obey(struct loader *loader)
{
    said_begin(loader);
    const char *model = loader->order.id;
    switch (loader->order.event) {
    case MODEL_LOAD:
        crash_begin(CRASH_LOAD, model);
        on_load(loader);
        break;
    case MODEL_UNLOAD:
        crash_begin(CRASH_UNLOAD, model);
        on_unload(loader);
        break;
    default:
        crash_begin(CRASH_PREDICT, model);
        on_predict(loader);
        break;
    }
    crash_end();
    worker_entry_gauge(loader->entry, WORKER_MODELS_KEPT, model_pages_kept());
}

static void
obey_paced(struct loader *loader)
{
    pacer_begin(&loader->pacer);
    obey(loader);
    pacer_end(&loader->pacer);
}

/* Carries out one order. False: none, or the coordinator has closed. */
static bool
receive_one(struct loader *loader, bool *closed)
{
    struct error error = ERROR_NONE;
    struct handshake_model *order = &loader->order;
    enum status status = handshake_receive(HANDSHAKE_FD_MODELS, order, sizeof(*order), &error);
    if (status == STATUS_OK)
        status = handshake_model_validate(order, &error);
    switch (status) {
    case STATUS_OK: obey_paced(loader); return true;
    case STATUS_DEADLINE_EXCEEDED: return false;
    case STATUS_UNAVAILABLE: *closed = true; return false;
    default: log_error("model_order_unheard error=\"%s\"", error.text); return true;
    }
}

void
loader_receive(struct loader *loader)
{
    bool closed = false;
    /* read before the socket: later messages raise it again */
    loader->reported = worker_entry_models_reported(loader->entry);
    while (receive_one(loader, &closed))
        continue;
}

/* ---- the thread ---- */

/* Prefers memory of this CPU's NUMA node: the loader's allocations are for `run`, which stays
 * here. */
static void
stay_near(void)
{
    enum { MPOL_PREFERRED = 1, NODES_MAX = 1024, BITS = 8 * sizeof(unsigned long) };
    unsigned long nodes[NODES_MAX / BITS] = {0};
    unsigned node;
    if (getcpu(NULL, &node) != 0 || node >= NODES_MAX)
        return;
    nodes[node / BITS] = 1ul << node % BITS;
    (void)syscall(SYS_set_mempolicy, MPOL_PREFERRED, nodes, NODES_MAX + 1);
}

/* Moves from the worker's CPU to all of the node's CPUs, of which the loader takes the idle
 * time. */
static void
spread(const cpu_set_t *cpus)
{
    if (CPU_COUNT(cpus) == 0)
        return;
    stay_near();
    (void)sched_setaffinity(0, sizeof(*cpus), cpus);
}

static void *
loader_run(void *context)
{
    struct loader *loader = context;
    struct pollfd fds[] = {{.fd = HANDSHAKE_FD_MODELS, .events = POLLIN},
                           {.fd = loader->stop_fd, .events = POLLIN}};
    bool closed = false;
    pthread_setname_np(pthread_self(), "shoal:loader");
    crash_stack_for_loader();
    spread(&loader->cpus);
    pacer_follow(&loader->pacer);
    while (!closed) {
        fds[1].revents = 0;
        if (poll(fds, 2, -1) < 0 && errno != EINTR)
            break;
        if (fds[1].revents != 0)
            break;
        (void)receive_one(loader, &closed);
    }
    return NULL;
}

/* Blocks all signals except those of the modelet's own faults, which must still end the process. */
static void
block_signals(sigset_t *before)
{
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS};
    sigset_t all;
    sigfillset(&all);
    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
        sigdelset(&all, faults[i]);
    pthread_sigmask(SIG_BLOCK, &all, before);
}

static enum status
thread_start(struct loader *loader, enum pacer_class class, struct error *error)
{
    loader->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (loader->stop_fd < 0)
        return error_set_errno(error, "creating the loader's stop event");
    sigset_t before;
    block_signals(&before);
    enum status status = pacer_start(&loader->pacer, class, error);
    int code = pthread_create(&loader->thread, NULL, loader_run, loader);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    loader->started = code == 0;
    if (code != 0) {
        errno = code;
        return error_set_errno(error, "starting the loader");
    }
    return status;
}

/* ---- its life ---- */

enum status
loader_start(struct loader *loader, const struct modelet *modelet, const struct worker_entry *entry,
             const struct handshake_start *start, const cpu_set_t *cpus, struct error *error)
{
    loader->cpus = *cpus;
    loader->modelet = modelet;
    loader->entry = entry;
    loader->stop_fd = -1;
    loader->cache = start->models_cache;
    loader->reported = 0; /* so that the first look finds earlier messages */
    loader->has_thread = (modelet->table.abilities & SHOAL_RUN_DURING_LOAD) != 0;
    char *root = realpath(start->models_root, NULL);
    if (root == NULL)
        return error_set_errno(error, "the models' root %s", start->models_root);
    snprintf(loader->root, sizeof(loader->root), "%s", root);
    free(root);
    if (fcntl(HANDSHAKE_FD_MODELS, F_SETFL, O_NONBLOCK) != 0)
        return error_set_errno(error, "the socket for models");
    model_files_prepare();
    if (!model_table_init(&loader->table) || !heaps_init(&loader->heaps))
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for the table of models");
    if (!loader->has_thread)
        return STATUS_OK;
    return thread_start(loader, start->loads_idle != 0 ? PACER_MAY_IDLE : PACER_STAYS, error);
}

/* Joins the thread. False: it is still in the modelet. */
static bool
thread_stop(struct loader *loader)
{
    const uint64_t one = 1;
    if (write(loader->stop_fd, &one, sizeof(one)) != sizeof(one))
        return false;
    return join_until(loader->thread, clock_now_ns() + STOP_PATIENCE_S * NS_PER_S);
}

bool
loader_stop(struct loader *loader)
{
    if (loader->started && !thread_stop(loader))
        return false;
    pacer_stop(&loader->pacer);
    loader->has_thread = false; /* from here on this thread is the loader and waits for no other */
    uint32_t from = 0;
    struct loaded_model *loaded;
    while (loader->table.entries != NULL &&
           (loaded = model_table_next(&loader->table, &from)) != NULL)
        unload(loader, model_table_remove(&loader->table, loaded->word));
    heaps_fini(&loader->heaps);
    model_table_fini(&loader->table);
    if (loader->stop_fd >= 0)
        close(loader->stop_fd);
    return true;
}
