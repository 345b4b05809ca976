/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/entry/inbound.h"

#include <string.h>

#include "coordinator/pipeline/trace_request.h"
#include "coordinator/protocol/priority.h"

#define METADATA "mm-model-id"
#define METADATA_BYTES METADATA "-bin" /* of any UTF-8; the library has decoded it */

bool
inbound_metadata(const struct inbound *inbound, const char *key, struct wire_span *value)
{
    size_t position = 0;
    return inbound->type->metadata(inbound->call, key, &position, value);
}

/* ---- the id ---- */

/* One more value of metadata; all must be the same. */
static enum status
add_id(struct target_id *id, const char *key, const struct wire_span *value, struct error *error)
{
    if (value->bytes == 0)
        return error_set(error, STATUS_INVALID_ARGUMENT, "metadata %s is empty", key);
    if (id->bytes == 0)
        return target_id_set(id, "metadata " METADATA, value, SHOAL_NAME_BYTES_MAX, error);
    if (id->bytes != value->bytes || memcmp(id->text, value->data, value->bytes) != 0)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "metadata " METADATA " and " METADATA_BYTES " name different models: give "
                         "one of them, once");
    return STATUS_OK;
}

enum status
inbound_id(const struct inbound *inbound, struct target_id *id, struct error *error)
{
    static const char *const keys[] = {METADATA, METADATA_BYTES};
    id->bytes = 0;
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        struct wire_span value;
        size_t position = 0;
        while (inbound->type->metadata(inbound->call, keys[i], &position, &value))
            if (add_id(id, keys[i], &value, error) != STATUS_OK)
                return error->status;
    }
    return STATUS_OK;
}

/* ---- the request ---- */

const struct wire_message *
inbound_message(const struct inbound *inbound)
{
    return inbound->decoded == NULL ? inbound->message
                                    : oip_pack(inbound->decoded, inbound->message);
}

enum status
inbound_head(const struct inbound *inbound, struct oip_head *head, struct error *error)
{
    if (head->is_read)
        return STATUS_OK;
    if (inbound->decoded == NULL)
        return oip_head_read(head, inbound->message, error);
    *head = *oip_request_head(inbound->decoded);
    return STATUS_OK;
}

/* ---- into a pipeline ---- */

static enum status
metadata_priority(const struct inbound *inbound, enum priority *priority, struct error *error)
{
    struct wire_span value;
    bool any = inbound_metadata(inbound, PRIORITY_METADATA, &value);
    return priority_read(any ? &value : NULL, priority, error);
}

enum status
inbound_submit(const struct inbound *inbound, struct oip_head *head, struct pipeline *pipeline,
               struct submission *submission, struct error *error)
{
    int64_t timeout_ns = TIME_NEVER_NS;
    enum status status;
    trace_name_pipeline(submission->trace, pipeline->name);
    if (pipeline_method(pipeline).path != NULL) {
        status = metadata_priority(inbound, &submission->priority, error);
    } else {
        if (inbound_head(inbound, head, error) != STATUS_OK)
            error_clear(error); /* the decoder reports it, if the call gets that far */
        status = oip_head_judge(head, &submission->priority, &timeout_ns, error);
    }
    submission_shorten(submission, timeout_ns);
    return status == STATUS_OK ? pipeline_submit(pipeline, submission, error) : status;
}
