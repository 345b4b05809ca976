/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/limits.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "base/check.h"
#include "base/log.h"
#include "coordinator/pipeline/lane.h"

enum { PATH_BYTES = 4096 };
#define MIB (UINT64_C(1) << 20)

/* ---- the cgroup's memory ---- */

/* The number in a file; 0: none, or "max". */
static uint64_t
read_limit(const char *path)
{
    uint64_t limit = 0;
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return 0;
    if (fscanf(file, "%" SCNu64, &limit) != 1)
        limit = 0;
    fclose(file);
    return limit > INT64_MAX / 2 ? 0 : limit; /* version 1 says "max" with such a number */
}

static uint64_t
smaller_limit(uint64_t a, uint64_t b)
{
    return a == 0 || (b != 0 && b < a) ? b : a;
}

/* The limit of the group at `group` below `mount`, and of the groups around it. */
static uint64_t
limit_around(const char *root, const char *mount, const char *group, const char *name)
{
    char path[PATH_BYTES];
    char cut[PATH_BYTES];
    uint64_t limit = 0;
    snprintf(cut, sizeof(cut), "%s", group);
    for (;;) {
        int written =
            snprintf(path, sizeof(path), "%s/sys/fs/cgroup%s%s/%s", root, mount, cut, name);
        if (written > 0 && (size_t)written < sizeof(path))
            limit = smaller_limit(limit, read_limit(path));
        char *slash = strrchr(cut, '/');
        if (slash == NULL)
            return limit;
        *slash = '\0';
    }
}

/* A line of /proc/self/cgroup: "number:controllers:group". */
static uint64_t
limit_by_line(const char *root, char *line)
{
    char *controllers = strchr(line, ':');
    char *group = controllers == NULL ? NULL : strchr(controllers + 1, ':');
    if (group == NULL)
        return 0;
    *group++ = '\0';
    group[strcspn(group, "\n")] = '\0';
    controllers++;
    if (controllers[0] == '\0')
        return limit_around(root, "", group, "memory.max");
    if (strcmp(controllers, "memory") == 0)
        return limit_around(root, "/memory", group, "memory.limit_in_bytes");
    return 0;
}

uint64_t
limits_memory_bytes(const char *root)
{
    char line[PATH_BYTES];
    uint64_t limit = 0;
    snprintf(line, sizeof(line), "%s/proc/self/cgroup", root);
    FILE *file = fopen(line, "re");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL)
        limit = smaller_limit(limit, limit_by_line(root, line));
    if (file != NULL)
        fclose(file);
    return limit;
}

/* ---- regions ---- */

static enum status
sum_regions(const struct config *config, uint64_t *sum_bytes, struct error *error)
{
    *sum_bytes = 0;
    for (uint32_t i = 0; i < config->pipeline_count; i++) {
        uint64_t bytes;
        if (lane_region_bytes(config, &config->pipelines[i], &bytes, error) != STATUS_OK)
            return error_prefix(error, "pipeline \"%s\"", config->pipelines[i].name);
        *sum_bytes += bytes;
    }
    return STATUS_OK;
}

/* The largest arena, in steps of a MiB, with which the region takes at most `room_bytes`, or the
 * least that works. */
static uint64_t
arena_for(const struct config *config, const struct config_pipeline *pipeline, uint64_t room_bytes)
{
    struct config_pipeline tried = *pipeline;
    uint64_t most_mib = lane_arena_bytes(config, pipeline) / MIB;
    uint64_t least = most_mib;
    for (uint64_t mib = most_mib; mib > 0; mib--) {
        struct error ignored = ERROR_NONE;
        uint64_t bytes;
        tried.arena_bytes = mib * MIB;
        if (lane_region_bytes(config, &tried, &bytes, &ignored) != STATUS_OK)
            break; /* too small for the largest message */
        least = mib;
        if (bytes <= room_bytes)
            break;
    }
    return least * MIB;
}

static void
shrink(struct config *config, struct config_pipeline *pipeline, uint64_t room_bytes)
{
    uint64_t was_bytes = lane_arena_bytes(config, pipeline);
    pipeline->arena_bytes = arena_for(config, pipeline, room_bytes);
    log_warn("arena_shrunk pipeline=%s from_mib=%" PRIu64 " to_mib=%" PRIu64
             " why=\"the cgroup's memory limit\"",
             pipeline->name, was_bytes / MIB, pipeline->arena_bytes / MIB);
}

/* Divides the room for regions of default size in proportion to their wishes. */
static enum status
shrink_defaults(struct config *config, uint64_t room_bytes, uint64_t defaults_bytes,
                struct error *error)
{
    for (uint32_t i = 0; i < config->pipeline_count; i++) {
        struct config_pipeline *pipeline = &config->pipelines[i];
        uint64_t bytes;
        if (pipeline->arena_bytes != 0)
            continue;
        if (lane_region_bytes(config, pipeline, &bytes, error) != STATUS_OK)
            return error_prefix(error, "pipeline \"%s\"", pipeline->name);
        double part = (double)bytes / (double)defaults_bytes;
        shrink(config, pipeline, (uint64_t)(part * (double)room_bytes));
    }
    return STATUS_OK;
}

enum status
limits_fit_memory(struct config *config, uint64_t memory_bytes, struct error *error)
{
    uint64_t sum_bytes;
    uint64_t defaults_bytes = 0;
    if (memory_bytes == 0)
        return STATUS_OK;
    if (sum_regions(config, &sum_bytes, error) != STATUS_OK)
        return error->status;
    for (uint32_t i = 0; i < config->pipeline_count; i++) {
        uint64_t bytes = 0;
        if (config->pipelines[i].arena_bytes == 0 &&
            lane_region_bytes(config, &config->pipelines[i], &bytes, error) != STATUS_OK)
            return error->status;
        defaults_bytes += bytes;
    }
    uint64_t given_bytes = sum_bytes - defaults_bytes;
    uint64_t room_bytes = memory_bytes / 2 > given_bytes ? memory_bytes / 2 - given_bytes : 0;
    if (defaults_bytes > room_bytes &&
        shrink_defaults(config, room_bytes, defaults_bytes, error) != STATUS_OK)
        return error->status;
    if (sum_regions(config, &sum_bytes, error) != STATUS_OK)
        return error->status;
    if (sum_bytes < memory_bytes)
        return STATUS_OK;
    return error_set(error, STATUS_RESOURCE_EXHAUSTED,
                     "the shared memory of %u pipeline%s takes %" PRIu64
                     " MiB, and the cgroup allows this node %" PRIu64
                     " MiB in all: lower `arena_mib`, `slots` or `message_mib`, or raise the limit",
                     config->pipeline_count, config->pipeline_count == 1 ? "" : "s",
                     (sum_bytes + MIB - 1) / MIB, memory_bytes / MIB);
}

/* ---- threads and address space ---- */

/* Our threads beside fronts and pipelines (log, signals, HTTP, spans, regions), and gRPC's. */
enum { THREADS_OTHER = 12, THREADS_MAX = 128, HEAP_MIB = 32 };

/* Descriptors of libraries, sockets and files, some in passing; of each worker and of its start. */
enum { FDS_OTHER = 40, FDS_OF_WORKER = 4 };

static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;

static void *
wait_at_gate(void *context)
{
    (void)context;
    CHECK(pthread_mutex_lock(&gate) == 0);
    CHECK(pthread_mutex_unlock(&gate) == 0);
    return NULL;
}

/* errno's number, or 0. */
static int
try_threads(uint32_t count)
{
    pthread_t threads[THREADS_MAX];
    uint32_t started = 0;
    int failure = 0;
    CHECK(pthread_mutex_lock(&gate) == 0);
    while (started < count && failure == 0) {
        failure = pthread_create(&threads[started], NULL, wait_at_gate, NULL);
        started += failure == 0;
    }
    void *heap = failure == 0 ? mmap(NULL, HEAP_MIB * MIB, PROT_READ | PROT_WRITE,
                                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                              : NULL;
    if (heap == MAP_FAILED)
        failure = errno;
    else if (heap != NULL)
        munmap(heap, HEAP_MIB * MIB);
    CHECK(pthread_mutex_unlock(&gate) == 0);
    while (started > 0)
        CHECK(pthread_join(threads[--started], NULL) == 0);
    return failure;
}

static const char *
show_limit(int resource, uint64_t unit, char text[32])
{
    struct rlimit limit;
    CHECK(getrlimit((__rlimit_resource_t)resource, &limit) == 0);
    if (limit.rlim_cur == RLIM_INFINITY)
        snprintf(text, 32, "unlimited");
    else
        snprintf(text, 32, "%" PRIu64, (uint64_t)limit.rlim_cur / unit);
    return text;
}

static enum status
check_threads(const struct config *config, struct error *error)
{
    uint64_t regions_bytes;
    enum status status = sum_regions(config, &regions_bytes, error);
    if (status != STATUS_OK)
        return status;
    void *regions = regions_bytes == 0 ? NULL
                                       : mmap(NULL, regions_bytes, PROT_NONE,
                                              MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    int failure = regions == MAP_FAILED ? errno : 0;
    uint32_t count = THREADS_OTHER + config->front_threads + config->pipeline_count;
    if (failure == 0)
        failure = try_threads(count < THREADS_MAX ? count : THREADS_MAX);
    if (regions != NULL && regions != MAP_FAILED)
        munmap(regions, regions_bytes);
    if (failure == 0)
        return STATUS_OK;
    char space[32];
    char data[32];
    char processes[32];
    return error_set(
        error, STATUS_RESOURCE_EXHAUSTED,
        "this process may not have %u threads and %" PRIu64
        " MiB of regions (%s); its limits: address space %s MiB, data %s MiB, processes %s and "
        "those of its cgroup: raise them (ulimit -v, -d, -u; LimitAS=, LimitDATA=, LimitNPROC=, "
        "TasksMax=)",
        count, (regions_bytes + MIB - 1) / MIB, strerror(failure),
        show_limit(RLIMIT_AS, MIB, space), show_limit(RLIMIT_DATA, MIB, data),
        show_limit(RLIMIT_NPROC, 1, processes));
}

static enum status
check_descriptors(const struct config *config, struct error *error)
{
    struct rlimit limit;
    uint64_t needed = FDS_OTHER;
    for (uint32_t p = 0; p < config->pipeline_count; p++)
        for (uint32_t s = 0; s < config->pipelines[p].stage_count; s++)
            needed += (uint64_t)FDS_OF_WORKER * config->pipelines[p].stages[s].worker_count;
    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    if (limit.rlim_cur >= needed)
        return STATUS_OK;
    return error_set(error, STATUS_RESOURCE_EXHAUSTED,
                     "this process may open %" PRIu64
                     " files, and this configuration needs %" PRIu64
                     " before the first connection: raise the limit (ulimit -n, LimitNOFILE=)",
                     (uint64_t)limit.rlim_cur, needed);
}

/* Tries to get the threads that the node and its libraries start, the address space of the
 * regions, and enough descriptors. RESOURCE_EXHAUSTED: the shortage and its remedy. */
static enum status
limits_check(const struct config *config, struct error *error)
{
    enum status status = check_descriptors(config, error);
    return status == STATUS_OK ? check_threads(config, error) : status;
}

enum status
limits_allow(struct config *config, struct error *error)
{
    enum status status = limits_fit_memory(config, limits_memory_bytes(""), error);
    return status == STATUS_OK ? limits_check(config, error) : status;
}
