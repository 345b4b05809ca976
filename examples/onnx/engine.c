/* SPDX-License-Identifier: Apache-2.0 */
#include "engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "library.h"
#include "quiet.h"

/* The smallest possible model: y = x. */
static const unsigned char identity[] =
    "\x08\x08"                                               /* version 8 of the format */
    ":7"                                                     /* the graph, 55 bytes */
    "\n\x10\n\x01x\x12\x01y\"\x08Identity"                   /* a node */
    "\x12\x01i"                                              /* its name */
    "Z\x0f\n\x01x\x12\n\n\x08\x08\x01\x12\x04\n\x02\x08\x01" /* x is FP32 [1] */
    "b\x0f\n\x01y\x12\n\n\x08\x08\x01\x12\x04\n\x02\x08\x01" /* and so is y */
    "B\x02\x10\x11";                                         /* version 17 of the operators */

/* A process can create its environment only once: Debian's library registers its operators with
 * another library, which stays loaded and refuses a second registration. So the environment stays
 * as well, with the threads of its first user; the log's destination is updated. */
static OrtEnv *environment;
static const struct shoal_host *log_host;
/* While it starts, the library warns of devices and of a telemetry id, which the sandbox hides. */
static bool is_starting;

static int
status_of(OrtErrorCode code)
{
    switch (code) {
    case ORT_INVALID_ARGUMENT:
    case ORT_INVALID_PROTOBUF:
    case ORT_INVALID_GRAPH:
    case ORT_NO_MODEL: return SHOAL_INVALID_ARGUMENT;
    case ORT_NO_SUCHFILE: return SHOAL_NOT_FOUND;
    case ORT_NOT_IMPLEMENTED: return SHOAL_UNIMPLEMENTED;
    default: return SHOAL_INTERNAL;
    }
}

int
engine_status(const struct engine *engine, OrtStatus *status, struct shoal_error *error)
{
    if (status == NULL)
        return SHOAL_OK;
    const char *text = engine->api->GetErrorMessage(status);
    snprintf(error->text, sizeof error->text, "ONNX Runtime: %.*s", (int)strcspn(text, "\n"), text);
    int number = status_of(engine->api->GetErrorCode(status));
    engine->api->ReleaseStatus(status);
    return number;
}

static void
log_line(void *parameter, OrtLoggingLevel severity, const char *category, const char *id,
         const char *place, const char *message)
{
    (void)parameter;
    (void)category;
    (void)id;
    (void)place;
    bool warns = severity == ORT_LOGGING_LEVEL_WARNING && !is_starting;
    enum shoal_log_level level = severity >= ORT_LOGGING_LEVEL_ERROR ? SHOAL_LOG_ERROR
                                 : warns                             ? SHOAL_LOG_WARN
                                                                     : SHOAL_LOG_DEBUG;
    log_host->log(level, "onnxruntime: %.*s", (int)strcspn(message, "\n"), message);
}

OrtSessionOptions *
engine_session_options(const struct engine *engine, struct shoal_error *error)
{
    const OrtApi *api = engine->api;
    const struct engine_options *options = &engine->options;
    OrtSessionOptions *made;
    if (engine_status(engine, api->CreateSessionOptions(&made), error) != SHOAL_OK)
        return NULL;
    ExecutionMode mode = options->inter_threads > 1 ? ORT_PARALLEL : ORT_SEQUENTIAL;
    /* Disables the arenas: memory for a run is then freed after it, and a model holds only what it
     * allocated during its load. */
    OrtStatus *status = api->DisablePerSessionThreads(made);
    /* A session's warnings would repeat with every run. */
    if (status == NULL)
        status = api->SetSessionLogSeverityLevel(made, ORT_LOGGING_LEVEL_ERROR);
    if (status == NULL)
        status = api->SetSessionExecutionMode(made, mode);
    if (status == NULL)
        status = api->SetSessionGraphOptimizationLevel(made, options->optimization);
    if (status == NULL)
        status = api->DisableCpuMemArena(made);
    if (status == NULL)
        status = api->DisableMemPattern(made);
    if (status == NULL && !options->prepacking)
        status = api->AddSessionConfigEntry(made, "session.disable_prepacking", "1");
    if (engine_status(engine, status, error) == SHOAL_OK)
        return made;
    api->ReleaseSessionOptions(made);
    return NULL;
}

/* Creates and destroys a session once, so that the first model's load neither waits for nor is
 * charged with what the first session adds to the process (a megabyte of operators). */
static int
warm_up(struct engine *engine, struct shoal_error *error)
{
    OrtSession *session = NULL;
    OrtSessionOptions *options = engine_session_options(engine, error);
    if (options == NULL)
        return SHOAL_INTERNAL;
    struct quiet quiet = quiet_begin();
    OrtStatus *status = engine->api->CreateSessionFromArray(engine->env, identity,
                                                            sizeof identity - 1, options, &session);
    quiet_end(&quiet, "Schema error: ");
    engine->api->ReleaseSessionOptions(options);
    if (session != NULL)
        engine->api->ReleaseSession(session);
    return engine_status(engine, status, error);
}

/* All models' runs share the environment's threads: threads that a session starts during a load
 * would inherit the loader's CPUs and idle class. Spinning threads would take the worker's core. */
static OrtStatus *
make_environment(const OrtApi *api, const struct engine_options *options)
{
    OrtThreadingOptions *threads = NULL;
    OrtStatus *status = api->CreateThreadingOptions(&threads);
    if (status == NULL)
        status = api->SetGlobalIntraOpNumThreads(threads, options->intra_threads);
    if (status == NULL)
        status = api->SetGlobalInterOpNumThreads(threads, options->inter_threads);
    if (status == NULL)
        status = api->SetGlobalSpinControl(threads, 0);
    if (status == NULL)
        status = api->CreateEnvWithCustomLoggerAndGlobalThreadPools(
            log_line, NULL, ORT_LOGGING_LEVEL_WARNING, "shoal", threads, &environment);
    if (threads != NULL)
        api->ReleaseThreadingOptions(threads);
    return status;
}

int
engine_check(const struct engine *engine, struct shoal_error *error)
{
    if (engine->api != NULL)
        return SHOAL_OK;
    snprintf(
        error->text, sizeof error->text,
        "there is no ONNX Runtime: `pip install --no-deps --target DIR onnxruntime`, and start "
        "shoald with SHOAL_ONNXRUNTIME_DIR=DIR");
    return SHOAL_FAILED_PRECONDITION;
}

static int
engine_begin(struct engine *engine, struct shoal_error *error)
{
    const OrtApi *api = engine->api;
    OrtStatus *status = NULL;
    if (environment == NULL)
        status = make_environment(api, &engine->options);
    engine->env = environment;
    if (status == NULL)
        status = api->DisableTelemetryEvents(engine->env);
    if (status == NULL)
        status = api->CreateCpuMemoryInfo(OrtDeviceAllocator, OrtMemTypeDefault, &engine->memory);
    if (status == NULL)
        status = api->GetAllocatorWithDefaultOptions(&engine->allocator);
    if (status == NULL)
        status = api->CreateRunOptions(&engine->run_options);
    /* A request's error goes to its caller and not to the log. */
    if (status == NULL)
        status =
            api->RunOptionsSetRunLogSeverityLevel(engine->run_options, ORT_LOGGING_LEVEL_FATAL);
    if (status != NULL)
        return engine_status(engine, status, error);
    return warm_up(engine, error);
}

int
engine_open(struct engine *engine, const struct engine_options *options,
            const struct shoal_host *host, struct shoal_error *error)
{
    engine->host = log_host = host;
    engine->options = *options;
    const char *asked = getenv("SHOAL_ONNXRUNTIME_DIR");
    const char *where = asked != NULL ? asked : "";
    int status = library_load(where, &engine->api, error);
    if (status == SHOAL_NOT_FOUND)
        return where[0] != '\0' ? SHOAL_FAILED_PRECONDITION : SHOAL_OK;
    if (status != SHOAL_OK)
        return status;
    is_starting = true;
    status = engine_begin(engine, error);
    is_starting = false;
    return status;
}

void
engine_close(struct engine *engine)
{
    if (engine->api == NULL)
        return;
    if (engine->run_options != NULL)
        engine->api->ReleaseRunOptions(engine->run_options);
    if (engine->memory != NULL)
        engine->api->ReleaseMemoryInfo(engine->memory);
}
