/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/reload.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/log.h"
#include "coordinator/config/config_keys.h"
#include "coordinator/limits.h"

/* A reload that was asked for: of one pipeline or of several, which end at different times. */
struct reload {
    struct reloads *all;
    struct control_call *call; /* NULL: nobody waits */
    uint32_t open;             /* pipelines that have not ended */
    bool all_asked;            /* no further pipelines will be added */
    uint32_t taken_over;
    struct error error; /* of the first that failed */
};

static void
reload_ended(struct reload *reload)
{
    char text[128];
    snprintf(text, sizeof(text), "%u pipeline%s reloaded", reload->taken_over,
             reload->taken_over == 1 ? "" : "s");
    if (reload->call != NULL)
        control_answer(reload->call, reload->error.status == STATUS_OK ? NULL : &reload->error,
                       text);
    else if (reload->error.status != STATUS_OK)
        log_error("reload_failed error=\"%s\"", reload->error.text);
    struct reloads *all = reload->all;
    free(reload);
    all->count--;
    all->on_count(all->context);
    reload_held(all);
}

static void
reload_failed(struct reload *reload, const struct error *error)
{
    if (reload->error.status == STATUS_OK)
        reload->error = *error;
}

static void
on_pipeline_done(void *context, struct pipeline *pipeline, const struct error *error)
{
    struct reload *reload = context;
    (void)pipeline;
    if (error == NULL)
        reload->taken_over++;
    else
        reload_failed(reload, error);
    reload->open--;
    if (reload->open == 0 && reload->all_asked)
        reload_ended(reload);
}

/* ---- what a reload cannot change ---- */

static bool
same_text(const char *a, const char *b)
{
    return a == b || (a != NULL && b != NULL && strcmp(a, b) == 0);
}

static bool
same_addresses(const struct config_addresses *a, const struct config_addresses *b)
{
    if (a->count != b->count)
        return false;
    for (uint32_t i = 0; i < a->count; i++)
        if (strcmp(a->items[i], b->items[i]) != 0)
            return false;
    return true;
}

static bool
same_cpus(const struct config *a, const struct config *b)
{
    return a->cpu_count == b->cpu_count &&
           (a->cpu_count == 0 || memcmp(a->cpus, b->cpus, a->cpu_count * sizeof(a->cpus[0])) == 0);
}

static bool
same_id_path(const struct config_pipeline *a, const struct config_pipeline *b)
{
    size_t bytes = a->id_path_count * sizeof(a->id_path[0]);
    return a->id_path_count == b->id_path_count &&
           (bytes == 0 || memcmp(a->id_path, b->id_path, bytes) == 0);
}

/* A server's methods are fixed when it starts. */
static void
warn_method(const struct config_pipeline *was, const struct config_pipeline *now)
{
    if (!same_text(was->method, now->method))
        log_warn("reload_ignored pipeline=%s key=method needs=restart", now->name);
    if (!same_id_path(was, now))
        log_warn("reload_ignored pipeline=%s key=id_path needs=restart", now->name);
}

/* The value of a key at the top; true for maps and lists that a pipeline or the mesh reads. */
static bool
same_value(const struct config_key *key, const struct config *a, const struct config *b)
{
    const void *one = (const char *)a + key->offset;
    const void *other = (const char *)b + key->offset;
    switch (key->type) {
    case CONFIG_INTEGER:
    case CONFIG_DECIMAL: return memcmp(one, other, key->field == FIELD_U32 ? 4 : 8) == 0;
    case CONFIG_NAME:
    case CONFIG_TEXT:
    case CONFIG_CHOICE:
    case CONFIG_LABELS: return same_text(*(char *const *)one, *(char *const *)other);
    case CONFIG_ADDRESSES:
    case CONFIG_HTTP_ADDRESSES: return same_addresses(one, other);
    case CONFIG_CPUS: return same_cpus(a, b);
    default: return true;
    }
}

static void
warn_needs_restart(const struct config *was, const struct config *now)
{
    for (size_t i = 0; i < KEY_COUNT; i++)
        if (config_keys[i].where == WHERE_TOP && !same_value(&config_keys[i], was, now))
            log_warn("reload_ignored key=%s needs=restart", config_keys[i].name);
}

/* ---- reading ---- */

static enum status
read_again(const struct node_options *options, struct config_source **source, struct error *error)
{
    struct config config = {0};
    struct config_errors errors = {0};
    struct config_options how = {.pinning = options->pin ? CONFIG_PIN : CONFIG_NO_PIN};
    enum status status = config_load(options->config_path, &how, &config, &errors, error);
    for (uint32_t i = 0; i < errors.count; i++)
        log_error("reload_config error=\"%s\"", errors.lines[i]);
    if (status != STATUS_OK && errors.count > 0)
        error_set(error, STATUS_INVALID_ARGUMENT, "%s%s", errors.lines[0],
                  errors.count > 1 ? " (and more: see the log)" : "");
    config_errors_free(&errors);
    if (status == STATUS_OK)
        status = limits_fit_memory(&config, limits_memory_bytes(""), error);
    if (status == STATUS_OK)
        *source = config_source_create(&config);
    else
        config_free(&config);
    return status;
}

static const struct config_pipeline *
find_config(const struct config *config, const char *name)
{
    for (uint32_t i = 0; i < config->pipeline_count; i++)
        if (strcmp(config->pipelines[i].name, name) == 0)
            return &config->pipelines[i];
    return NULL;
}

static struct pipeline *
find_pipeline(const struct assembly *assembly, const char *name)
{
    for (uint32_t i = 0; i < assembly->pipeline_count; i++)
        if (strcmp(assembly->pipelines[i]->name, name) == 0)
            return assembly->pipelines[i];
    return NULL;
}

/* ---- starting ---- */

static void
reload_pipeline(struct reload *reload, struct pipeline *pipeline, struct config_source *source)
{
    struct error error = ERROR_NONE;
    const struct config_pipeline *config = find_config(&source->config, pipeline->name);
    struct pipeline_reload done = {on_pipeline_done, reload};
    enum status status;
    reload->open++;
    if (config == NULL)
        status =
            error_set(&error, STATUS_FAILED_PRECONDITION,
                      "pipeline \"%s\" is no longer in the configuration: it goes on unchanged; "
                      "a restart ends it",
                      pipeline->name);
    else
        status = pipeline_reload(pipeline, source, config, &done, &error);
    if (status != STATUS_OK) { /* it will not be called */
        reload->open--;
        reload_failed(reload, &error);
    }
}

static void
reload_from(struct reload *reload, struct assembly *assembly, struct config_source *source,
            const char *name)
{
    struct error error = ERROR_NONE;
    const struct config *config = &source->config;
    warn_needs_restart(&assembly->options.source->config, config);
    for (uint32_t i = 0; i < config->pipeline_count; i++) {
        const struct pipeline *served = find_pipeline(assembly, config->pipelines[i].name);
        if (served == NULL)
            log_warn("reload_ignored pipeline=%s needs=restart", config->pipelines[i].name);
        else
            warn_method(served->options.config, &config->pipelines[i]);
    }
    struct pipeline *pipeline = find_pipeline(assembly, name);
    if (name[0] == '\0') {
        for (uint32_t i = 0; i < assembly->pipeline_count; i++)
            reload_pipeline(reload, assembly->pipelines[i], source);
    } else if (pipeline != NULL) {
        reload_pipeline(reload, pipeline, source);
    } else {
        error_set(&error, STATUS_NOT_FOUND, "this node serves no pipeline \"%s\"", name);
        reload_failed(reload, &error);
    }
}

void
reload_asked(struct reloads *reloads, const char *name, struct control_call *call)
{
    struct reload *reload = calloc(1, sizeof(*reload));
    CHECK(reload != NULL);
    reload->all = reloads;
    reload->call = call;
    reloads->count++;
    reloads->on_count(reloads->context);
    struct config_source *source;
    struct error error = ERROR_NONE;
    if (read_again(reloads->options, &source, &error) == STATUS_OK) {
        reload_from(reload, reloads->assembly, source, name);
        config_source_unref(source); /* the generations have their own */
    } else {
        reload_failed(reload, &error);
    }
    reload->all_asked = true;
    if (reload->open == 0)
        reload_ended(reload);
    /* else each pipeline that was asked has it: NOLINTNEXTLINE(clang-analyzer-unix.Malloc) */
}

void
reload_hold(struct reloads *reloads, const char *until)
{
    if (!reloads->held)
        log_info("reload_held until=\"%s\"", until);
    reloads->held = true;
}

void
reload_all(struct reloads *reloads)
{
    if (reloads->count == 0)
        reload_asked(reloads, "", NULL);
    else
        reload_hold(reloads, "the end of the one under way");
}

/* Runs on the loop, not within the event that ends the previous one, which its pipeline is still
 * handling. */
static void
run_held(void *context)
{
    struct reloads *reloads = context;
    if (reloads->count > 0 || !reloads->held)
        return;
    reloads->held = false;
    reload_asked(reloads, "", NULL);
}

void
reload_held(struct reloads *reloads)
{
    if (reloads->held && reloads->count == 0)
        loop_post(reloads->assembly->options.loop, run_held, reloads);
}
