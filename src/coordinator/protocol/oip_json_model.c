/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "coordinator/protocol/oip_contents.h"
#include "coordinator/protocol/oip_json.h"
#include "coordinator/protocol/oip_json_data.h"
#include "coordinator/protocol/oip_request.h"

static void
put_text(struct bytes *out, const char *key, const char *text)
{
    bytes_put_text(out, key);
    oip_json_put_string(out, text, strlen(text));
}

void
oip_json_put_server(struct bytes *out)
{
    put_text(out, "{\"name\":", "shoal");
    put_text(out, ",\"version\":", SHOAL_VERSION);
    bytes_put_text(out, ",\"extensions\":[\"binary_tensor_data\"]}");
}

void
oip_json_put_model_ready(struct bytes *out, const char *model, bool ready)
{
    put_text(out, "{\"name\":", model);
    bytes_put_text(out, ready ? ",\"ready\":true}" : ",\"ready\":false}");
}

/* The protocol has no word for "any": no name for the type, one open dimension. */
static void
put_tensor(struct bytes *out, const struct handshake_tensor *spec)
{
    bool any_type = spec->datatype == SHOAL_DATATYPE_ANY;
    bool any_rank = spec->rank == SHOAL_RANK_ANY;
    put_text(out, "{\"name\":", spec->name);
    put_text(out, ",\"datatype\":", any_type ? "" : oip_datatype_name(spec->datatype));
    bytes_put_text(out, ",\"shape\":[");
    for (uint32_t i = 0; i < (any_rank ? 1 : spec->rank); i++) {
        char number[24];
        snprintf(number, sizeof(number), i == 0 ? "%" PRId64 : ",%" PRId64,
                 any_rank ? -1 : spec->shape[i]);
        bytes_put_text(out, number);
    }
    bytes_put_text(out, "]}");
}

static void
put_tensors(struct bytes *out, const char *key, const struct handshake_tensor *specs,
            uint32_t count)
{
    bytes_put_text(out, key);
    for (uint32_t i = 0; i < count; i++) {
        if (i > 0)
            bytes_put_char(out, ',');
        put_tensor(out, &specs[i]);
    }
    bytes_put_char(out, ']');
}

void
oip_json_put_model(struct bytes *out, const struct oip_model_info *model)
{
    put_text(out, "{\"name\":", model->name);
    put_text(out, ",\"versions\":[", model->version);
    put_text(out, "],\"platform\":", model->platform == NULL ? "" : model->platform);
    put_tensors(out, ",\"inputs\":[", model->inputs, model->input_count);
    put_tensors(out, ",\"outputs\":[", model->outputs, model->output_count);
    bytes_put_char(out, '}');
}
