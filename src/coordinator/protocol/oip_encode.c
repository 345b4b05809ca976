/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The response in pieces. All small fields are written into the request's scratch; a raw output is
 * a tag and a length there, and its data, lent from where the last stage wrote it. Adjacent bytes
 * of the scratch are sent as one piece, so a response with one output has two pieces.
 *
 * The names of outputs lie in shared memory, where a worker may change them at any time: each is
 * copied once, and only the copy is read.
 */
#include <string.h>

#include "base/check.h"
#include "coordinator/protocol/oip_contents.h"
#include "coordinator/protocol/oip_request.h"

/* Field numbers of ModelInferResponse and of its InferOutputTensor. */
enum { FIELD_MODEL_NAME = 1, FIELD_MODEL_VERSION, FIELD_ID, FIELD_OUTPUTS = 5, FIELD_RAW_CONTENTS };
enum { FIELD_NAME = 1, FIELD_DATATYPE, FIELD_SHAPE };

/* An InferOutputTensor without its name: three fields, of the longest datatype and shape. */
enum {
    DATATYPE_BYTES_MAX = 16,
    SHAPE_BYTES_MAX = SHOAL_RANK_MAX * WIRE_VARINT_BYTES_MAX,
    OUTPUT_BYTES_MAX = 3 * WIRE_HEAD_BYTES_MAX + DATATYPE_BYTES_MAX + SHAPE_BYTES_MAX,
};

enum completeness { ANSWER_WHOLE, ANSWER_PIECE };

/* The response under construction; small enough for the stack. */
struct response {
    struct oip_request *request;
    struct bump *memory;
    const struct payload_view *view;
    uint32_t count;
    uint32_t chosen[SHOAL_TENSORS_MAX]; /* indexes into the view's tensors, in the order to send */
    uint32_t asked[SHOAL_TENSORS_MAX];  /* of each of these, its index among the requested ones */
    char *names[SHOAL_TENSORS_MAX];     /* private copies, by index in the view */
    unsigned char *bytes;               /* bytes that are not lent */
    size_t used;
};

static void *
take(const struct response *response, size_t bytes, struct error *error)
{
    void *memory = bump_try(response->memory, bytes);
    if (memory == NULL)
        (void)error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory to encode the response");
    return memory;
}

static enum status
copy_names(struct response *response, struct error *error)
{
    const struct payload_view *view = response->view;
    for (uint32_t i = 0; i < view->tensor_count; i++) {
        size_t bytes = view->name_bytes[i];
        char *name = take(response, bytes + 1, error);
        if (name == NULL)
            return error->status;
        memcpy(name, view->tensors[i].name, bytes);
        name[bytes] = '\0';
        if (!wire_text_ok((const unsigned char *)name, bytes))
            return error_set(error, STATUS_DATA_LOSS,
                             "output %u: the last stage gave it a name that is not UTF-8", i);
        response->names[i] = name;
    }
    return STATUS_OK;
}

static enum status
choose(struct response *response, uint32_t asked, struct error *error)
{
    const char *name = response->request->message->outputs[asked]->name;
    for (uint32_t i = 0; i < response->view->tensor_count; i++) {
        /* copy_names has set as many; zeroing the arrays for the analyzer would cost each reply.
         * NOLINTNEXTLINE(clang-analyzer-core.CallAndMessage) */
        if (strcmp(response->names[i], name) == 0) {
            response->asked[response->count] = asked;
            response->chosen[response->count++] = i;
            return STATUS_OK;
        }
    }
    return error_set(error, STATUS_INVALID_ARGUMENT,
                     "requested output \"%s\": the model gave no such output", name);
}

/* The requested outputs, in that order; all if none was requested. A piece need not have each, nor
 * need the last one of several. */
static enum status
choose_outputs(struct response *response, enum completeness is, struct error *error)
{
    const Inference__ModelInferRequest *message = response->request->message;
    response->count = 0;
    for (uint32_t i = 0; i < message->n_outputs; i++) {
        enum status status = choose(response, i, error);
        if (status != STATUS_OK && is == ANSWER_WHOLE)
            return status;
        error_clear(error);
    }
    if (message->n_outputs == 0)
        for (uint32_t i = 0; i < response->view->tensor_count; i++) {
            response->asked[response->count] = i; /* not read; for the analyzer */
            response->chosen[response->count++] = i;
        }
    return STATUS_OK;
}

/* ---- writing: there is room for all of it ---- */

static void
put_head(struct response *response, uint32_t number, uint64_t bytes)
{
    response->used += wire_put_head(response->bytes + response->used, number, bytes);
}

static void
put_bytes(struct response *response, const void *data, size_t bytes)
{
    memcpy(response->bytes + response->used, data, bytes);
    response->used += bytes;
}

/* An empty string counts as absent. */
static void
put_string(struct response *response, uint32_t number, const char *text, size_t bytes)
{
    if (bytes == 0)
        return;
    put_head(response, number, bytes);
    put_bytes(response, text, bytes);
}

static size_t
pack_shape(unsigned char shape[SHAPE_BYTES_MAX], const struct shoal_tensor *tensor)
{
    size_t bytes = 0;
    for (uint32_t i = 0; i < tensor->rank; i++)
        bytes += wire_put_varint(shape + bytes, (uint64_t)tensor->shape[i]);
    return bytes;
}

static size_t
field_bytes(uint32_t number, size_t bytes)
{
    return bytes == 0 ? 0 : wire_head_bytes(number, bytes) + bytes;
}

/* Returns where the output is, if it is not in the message; NULL: it is. `order`: of the
 * outputs. */
static const struct oip_shared *
shared_of(const struct response *response, uint32_t order)
{
    bool is_requested = response->request->message->n_outputs > 0;
    return is_requested ? oip_shared_of(response->request, OIP_OUTPUT, response->asked[order])
                        : NULL;
}

/* Writes the outputs that are to lie in shared memory; if one does not fit, none. */
static enum status
write_shared(const struct response *response, struct error *error)
{
    for (int pass = 0; pass < 2; pass++)
        for (uint32_t i = 0; i < response->count; i++) {
            const struct oip_shared *shared = shared_of(response, i);
            const struct shoal_tensor *tensor = &response->view->tensors[response->chosen[i]];
            enum status status = STATUS_OK;
            if (shared == NULL)
                continue;
            if (tensor->bytes > shared->bytes)
                status = error_set(error, STATUS_INVALID_ARGUMENT,
                                   "has %zu bytes, its shared_memory_byte_size is %llu",
                                   tensor->bytes, (unsigned long long)shared->bytes);
            else if (pass > 0) /* answered, so it was held: */
                status = shared_region_write(shared->held, shared->offset, tensor->data,
                                             tensor->bytes, error);
            if (status != STATUS_OK) /* copy_names has set all: */
                // NOLINTNEXTLINE(clang-analyzer-core.CallAndMessage)
                return error_prefix(error, "output \"%s\"", response->names[response->chosen[i]]);
        }
    return STATUS_OK;
}

static enum status
put_output(struct response *response, uint32_t order, struct error *error)
{
    uint32_t index = response->chosen[order];
    const struct shoal_tensor *tensor = &response->view->tensors[index];
    const struct oip_shared *shared = shared_of(response, order);
    size_t name_bytes = response->view->name_bytes[index];
    const char *datatype = oip_datatype_name(tensor->datatype);
    size_t datatype_bytes = strlen(datatype);
    unsigned char shape[SHAPE_BYTES_MAX];
    size_t shape_bytes = pack_shape(shape, tensor);
    struct bytes parameters = {0};
    CHECK(datatype_bytes <= DATATYPE_BYTES_MAX);
    if (shared != NULL)
        oip_put_shared(shared, tensor->bytes, &parameters);
    if (parameters.failed)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory to encode the response");
    put_head(response, FIELD_OUTPUTS,
             field_bytes(FIELD_NAME, name_bytes) + field_bytes(FIELD_DATATYPE, datatype_bytes) +
                 field_bytes(FIELD_SHAPE, shape_bytes) + parameters.used);
    /* copy_names has set all, or failed: NOLINTNEXTLINE(clang-analyzer-core.CallAndMessage) */
    put_string(response, FIELD_NAME, response->names[index], name_bytes);
    put_string(response, FIELD_DATATYPE, datatype, datatype_bytes);
    put_string(response, FIELD_SHAPE, (const char *)shape, shape_bytes);
    if (parameters.used > 0)
        put_bytes(response, parameters.data, parameters.used);
    bytes_fini(&parameters);
    return STATUS_OK;
}

/* Writes everything but the contents, with room for the tags and lengths of all contents after it.
 */
static enum status
put_fields(struct response *response, const struct oip_model_info *model, struct error *error)
{
    const char *id = response->request->message->id;
    size_t model_bytes = strlen(model->name);
    const char *version = model->version != NULL ? model->version : "";
    size_t version_bytes = strlen(version);
    size_t id_bytes = strlen(id);
    size_t room = (size_t)3 * WIRE_HEAD_BYTES_MAX + model_bytes + version_bytes + id_bytes;
    for (uint32_t i = 0; i < response->count; i++) {
        size_t name_bytes = response->view->name_bytes[response->chosen[i]];
        const struct oip_shared *shared = shared_of(response, i);
        room += WIRE_HEAD_BYTES_MAX + OUTPUT_BYTES_MAX + name_bytes + WIRE_HEAD_BYTES_MAX;
        room += shared != NULL ? OIP_PUT_SHARED_BYTES_MAX : 0;
    }
    response->used = 0;
    response->bytes = take(response, room, error);
    if (response->bytes == NULL)
        return error->status;
    put_string(response, FIELD_MODEL_NAME, model->name, model_bytes);
    put_string(response, FIELD_MODEL_VERSION, version, version_bytes);
    put_string(response, FIELD_ID, id, id_bytes);
    enum status status = STATUS_OK;
    for (uint32_t i = 0; status == STATUS_OK && i < response->count; i++)
        status = put_output(response, i, error);
    CHECK(response->used <= room);
    return status;
}

enum status
oip_encode_response(struct oip_request *request, const struct oip_model_info *model,
                    const struct payload_view *outputs, const struct oip_release *release,
                    struct oip_pieces *pieces, struct error *error)
{
    CHECK(request->message != NULL && outputs->tensor_count <= SHOAL_TENSORS_MAX);
    struct response response;
    bool is_piece = release == NULL || (outputs->tensor_count == 0 && request->in_pieces);
    if (is_piece)
        bump_reset(&request->of_piece);
    response.request = request;
    response.view = outputs;
    response.memory = is_piece ? &request->of_piece : &request->scratch;
    request->in_pieces = request->in_pieces || is_piece;
    enum status status = copy_names(&response, error);
    if (status == STATUS_OK)
        status = choose_outputs(&response, request->in_pieces ? ANSWER_PIECE : ANSWER_WHOLE, error);
    if (status == STATUS_OK)
        status = put_fields(&response, model, error);
    if (status == STATUS_OK && oip_is_shared(request))
        status = write_shared(&response, error);
    if (status != STATUS_OK)
        return status;
    pieces->count = 0;
    pieces->lent_count = 0;
    size_t sent = 0; /* of `bytes`, in pieces so far */
    for (uint32_t i = 0; i < response.count; i++) {
        const struct shoal_tensor *tensor = &outputs->tensors[response.chosen[i]];
        bool is_sent = shared_of(&response, i) == NULL; /* if not, its place here is empty */
        put_head(&response, FIELD_RAW_CONTENTS, is_sent ? tensor->bytes : 0);
        if (tensor->bytes == 0 || !is_sent)
            continue;
        pieces->pieces[pieces->count++] =
            (struct rpc_piece){.data = response.bytes + sent, .bytes = response.used - sent};
        struct rpc_piece *data = &pieces->pieces[pieces->count++];
        *data = (struct rpc_piece){.data = tensor->data, .bytes = tensor->bytes};
        if (release != NULL) {
            data->release = release->release;
            data->release_context = release->context;
            pieces->lent_count++;
        }
        sent = response.used;
    }
    if (response.used > sent)
        pieces->pieces[pieces->count++] =
            (struct rpc_piece){.data = response.bytes + sent, .bytes = response.used - sent};
    return STATUS_OK;
}
