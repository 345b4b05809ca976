/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/front/dispatch.h"

#include <string.h>

#include "coordinator/entry/small.h"
#include "coordinator/protocol/shared_memory.h"
#include "coordinator/telemetry/tracer.h"
#include "ipc/counters.h"

struct dispatch
dispatch_of(const struct front_node *node)
{
    return (struct dispatch){
        .mesh = node->mesh,
        .counters = node->counters,
        .server_name = config_server_name(node->config),
        .names_vmodels = node->mesh != NULL && node->config->mesh.names[0] == 'v',
        .scope = {node->pipelines, node->pipeline_count, node->registry, node->mesh != NULL},
        .callers = callers_of(node->config, node->share_key),
    };
}

struct submission
dispatch_submission(const struct inbound *inbound, struct payload_builder *builder)
{
    return (struct submission){
        .message = inbound->message,
        .decoded = inbound->decoded,
        .deadline_ns = inbound->deadline_ns,
        .sink = inbound->type->sink,
        .call = inbound->call,
        .builder = builder,
        .trace = inbound->trace,
    };
}

/* ---- which model is meant ---- */

/* A pipeline of this node, and the model in it; or `elsewhere`: a model or vmodel of the mesh
 * that is not to be had here. */
struct meant {
    struct mesh_named named; /* without a mesh its id alone */
    struct target target;
    struct oip_head head; /* of a ModelInferRequest, once it is needed */
    bool elsewhere;
};

/* The text stays as it is: it is long, and this is done for each call. */
static void
meant_init(struct meant *meant)
{
    meant->named.id.bytes = 0;
    meant->named.count = 0;
    meant->target = (struct target){NULL, NULL, false};
    meant->head.is_read = false;
    meant->elsewhere = false;
}

/* `bound` NULL: the message is a ModelInferRequest, or one that has its name in the same place. */
static enum status
find_id_in_message(const struct inbound *inbound, const struct pipeline *bound, size_t bytes_max,
                   struct oip_head *head, struct target_id *id, struct error *error)
{
    if (bound == NULL) {
        enum status status = inbound_head(inbound, head, error);
        if (status == STATUS_OK)
            status = target_id_read(id, head->name, bytes_max, error);
        return status == STATUS_OK
                   ? status
                   : error_prefix(error, "request is not a valid ModelInferRequest");
    }
    struct pipeline_method method = pipeline_method(bound);
    if (method.id_path_count == 0)
        return STATUS_OK;
    enum status status = target_id_of_message(inbound->message, method.id_path,
                                              method.id_path_count, bytes_max, id, error);
    return status == STATUS_OK ? status
                               : error_prefix(error, "looking for the model's id in the request");
}

/* The version that a ModelInferRequest names. */
static void
find_version(const struct inbound *inbound, struct oip_head *head,
             char version[MODEL_RELEASE_BYTES])
{
    struct error error = ERROR_NONE; /* the decoder reports it */
    if (inbound_head(inbound, head, &error) == STATUS_OK)
        target_version_read(version, head->version);
}

/* The id that a call gives: by its metadata, or else in the message. */
static enum status
find_meant(const struct dispatch *dispatch, const struct inbound *inbound, struct pipeline *bound,
           struct meant *meant, struct error *error)
{
    struct target_id *id = &meant->named.id;
    enum status status = inbound_id(inbound, id, error);
    if (status == STATUS_OK && id->bytes == 0)
        status = find_id_in_message(inbound, bound, SHOAL_NAME_BYTES_MAX, &meant->head, id, error);
    char version[MODEL_RELEASE_BYTES] = "";
    if (status == STATUS_OK && bound == NULL)
        find_version(inbound, &meant->head, version);
    return status == STATUS_OK
               ? target_find(&dispatch->scope, bound, id, version, &meant->target, error)
               : status;
}

/* Finds the model that a call of a mesh names: at the path that the data-plane configuration has
 * for the method, else in metadata, else, unless `head` is NULL, by the name in the request, which
 * may be a pipeline's. */
static enum status
name_in_mesh(const struct dispatch *dispatch, const struct inbound *inbound,
             const struct pipeline *bound, struct oip_head *head, struct mesh_named *named,
             struct error *error)
{
    struct dataplane_rule rule;
    bool vmodels = dispatch->names_vmodels;
    enum status status = mesh_node_permits(dispatch->mesh, inbound->method, &rule, error);
    if (status == STATUS_OK)
        status = mesh_id_find(inbound, &rule, named, error);
    if (status != STATUS_OK || named->count > 0)
        return status;
    if (rule.depth > 0)
        vmodels = rule.name == RUNNER_NAME_VMODEL;
    else if (head != NULL)
        status = find_id_in_message(inbound, bound, TARGET_ID_BYTES_MAX, head, &named->id, error);
    bool is_vmodel =
        vmodels && named->id.bytes > 0 && target_is_model(&dispatch->scope, &named->id);
    named->name = is_vmodel ? RUNNER_NAME_VMODEL : RUNNER_NAME_MODEL;
    return status;
}

enum status
dispatch_name(const struct dispatch *dispatch, const struct inbound *inbound,
              struct mesh_named *named, struct error *error)
{
    return name_in_mesh(dispatch, inbound, NULL, NULL, named, error);
}

/* A vmodel, a model that is not loaded here, and several of either are elsewhere. */
static enum status
find_in_mesh(const struct dispatch *dispatch, const struct inbound *inbound, struct pipeline *bound,
             struct meant *meant, struct error *error)
{
    struct mesh_named *named = &meant->named;
    enum status status = name_in_mesh(dispatch, inbound, bound, &meant->head, named, error);
    if (status != STATUS_OK)
        return status;
    if (named->id.bytes == 0 && (bound == NULL || bound->catalog != NULL))
        return error_set(error, STATUS_INVALID_ARGUMENT, "must include mm-model-id header");
    meant->elsewhere = named->name == RUNNER_NAME_VMODEL || named->count > 1;
    if (meant->elsewhere)
        return STATUS_OK;
    status = target_find(&dispatch->scope, bound, &named->id, "", &meant->target, error);
    meant->elsewhere = status == STATUS_NOT_FOUND;
    return meant->elsewhere ? STATUS_OK : status;
}

/* Writes the name into the record of a traced call, which may not be the caller's any more once it
 * is taken. */
static void
name_in_trace(const struct inbound *inbound, const struct pipeline *bound, struct meant *meant)
{
    struct trace *trace = inbound->trace;
    struct error ignored = ERROR_NONE;
    bool has_head = bound == NULL || pipeline_method(bound).path == NULL;
    if (trace == NULL)
        return;
    if (meant->named.id.bytes > 0)
        trace_copy_text(trace->model, sizeof(trace->model), meant->named.id.text);
    if (!has_head || inbound_head(inbound, &meant->head, &ignored) != STATUS_OK)
        return;
    struct wire_cursor id = meant->head.id;
    char text[TRACE_NAME_BYTES + 1];
    size_t bytes = id.left < TRACE_NAME_BYTES ? id.left : TRACE_NAME_BYTES;
    wire_read(&id, text, bytes);
    text[bytes] = '\0';
    trace_copy_text(trace->request, sizeof(trace->request), text);
}

/* ---- where it goes ---- */

void
dispatch_elsewhere(const struct dispatch *dispatch, struct mesh_call_start *start,
                   const struct mesh_named *named)
{
    start->id = named->id.text;
    start->name = named->name;
    start->origin = (struct native_origin){caller_of(&dispatch->callers, start->inbound),
                                           start->inbound->trace};
    mesh_node_infer(dispatch->mesh, start, named);
}

static void
go_elsewhere(const struct dispatch *dispatch, const struct inbound *inbound,
             const struct meant *meant)
{
    struct mesh_call_start start = {.inbound = inbound};
    dispatch_elsewhere(dispatch, &start, &meant->named);
}

/* Another node may take a call that this one cannot take now. */
static bool
may_be_elsewhere(const struct dispatch *dispatch, const struct meant *meant, enum status status)
{
    const struct mesh_node *mesh = dispatch->mesh;
    bool is_full = status == STATUS_RESOURCE_EXHAUSTED && mesh_node_takes_any(mesh);
    return mesh != NULL && meant->target.model != NULL && (status == STATUS_UNAVAILABLE || is_full);
}

/* Another node refuses a message whose tensors lie in shared memory; JSON would lose that on its
 * way. */
static enum status
check_shared(const struct dispatch *dispatch, const struct inbound *inbound, struct error *error)
{
    bool is_shared =
        dispatch->mesh != NULL && inbound->decoded != NULL && oip_is_shared(inbound->decoded);
    return is_shared ? shared_memory_judge(SHARED_MEMORY_OF_MESH, error) : STATUS_OK;
}

enum status
dispatch_infer(const struct dispatch *dispatch, const struct inbound *inbound,
               struct pipeline *bound, struct submission *submission, struct error *error)
{
    struct meant meant;
    meant_init(&meant);
    enum status status = check_shared(dispatch, inbound, error);
    if (status == STATUS_OK)
        status = dispatch->mesh == NULL ? find_meant(dispatch, inbound, bound, &meant, error)
                                        : find_in_mesh(dispatch, inbound, bound, &meant, error);
    name_in_trace(inbound, bound, &meant);
    if (status != STATUS_OK)
        return status;
    if (!meant.elsewhere) {
        const struct pipeline_options *options = &meant.target.pipeline->options;
        submission->caller = caller_of(&dispatch->callers, inbound);
        submission->is_far =
            shared_memory_is_on(options->shared_memory) && !caller_is_near(inbound);
        submission->model = meant.target.model;
        submission->model_held = meant.target.held;
        status = inbound_submit(inbound, &meant.head, meant.target.pipeline, submission, error);
        if (status == STATUS_OK)
            return STATUS_OK;
        meant.elsewhere = may_be_elsewhere(dispatch, &meant, status);
        target_leave(&meant.target);
    }
    if (meant.elsewhere)
        go_elsewhere(dispatch, inbound, &meant);
    return meant.elsewhere ? STATUS_OK : status;
}

void
dispatch_refused(const struct dispatch *dispatch, const char *method, uint64_t request_bytes,
                 struct trace *trace, const struct error *error)
{
    counter_add_shared(dispatch->counters, NODE_CALLS_REFUSED, 1);
    mesh_node_refused(dispatch->mesh, method, error->status, request_bytes);
    if (trace != NULL)
        tracer_end(trace, error->status, error->text);
}

void
dispatch_taken(const struct dispatch *dispatch, uint64_t tag, uint64_t bytes)
{
    mesh_node_taken(dispatch->mesh, tag, bytes);
}

void
dispatch_cancel(const struct dispatch *dispatch, uint64_t tag)
{
    uint32_t number = tag_pipeline(tag);
    if (tag_is_pending(tag))
        mesh_node_cancel(dispatch->mesh, tag);
    else if (tag != 0 && number < dispatch->scope.pipeline_count)
        pipeline_cancel(dispatch->scope.pipelines[number], tag);
}

/* ---- the small methods ---- */

/* Sends a question about a model that is not loaded here to the mesh. For a model that is loaded
 * here, `meant` gets its id. Other errors are left to the method itself, which has its own texts,
 * except that the method may not be called at all. */
static enum status
ask_in_mesh(const struct dispatch *dispatch, const struct inbound *inbound, struct meant *meant,
            struct error *error)
{
    enum status status = find_in_mesh(dispatch, inbound, NULL, meant, error);
    if (status == STATUS_UNIMPLEMENTED)
        return status;
    if (status != STATUS_OK) {
        error_clear(error);
        meant->named.id.bytes = 0;
        return STATUS_OK;
    }
    target_leave(&meant->target);
    if (meant->elsewhere)
        go_elsewhere(dispatch, inbound, meant);
    return STATUS_OK;
}

enum status
dispatch_ask(const struct dispatch *dispatch, const struct inbound *inbound,
             const struct dispatch_question *question, struct dispatch_answer *reported,
             struct error *error)
{
    enum oip_method method = question->method;
    bool of_model = method == OIP_MODEL_READY || method == OIP_MODEL_METADATA;
    struct meant meant;
    enum status status = STATUS_OK;
    meant_init(&meant);
    *reported = (struct dispatch_answer){.response = NULL};
    if (of_model && dispatch->mesh != NULL)
        status = ask_in_mesh(dispatch, inbound, &meant, error);
    reported->is_elsewhere = meant.elsewhere;
    if (status != STATUS_OK || meant.elsewhere)
        return status;
    struct target_id *id = &meant.named.id;
    if (id->bytes == 0)
        status = inbound_id(inbound, id, error);
    const struct small_ask ask = {.scope = &dispatch->scope,
                                  .server_name = dispatch->server_name,
                                  .id = id->bytes > 0 ? id->text : NULL,
                                  .node_is_ready = question->node_is_ready};
    return status == STATUS_OK ? small_answer(method, &ask, inbound->message, &reported->response,
                                              &reported->response_bytes, error)
                               : status;
}
