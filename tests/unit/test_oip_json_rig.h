/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the tests of the JSON form: a request goes the whole way, from JSON through the rules
 * and the arena, and comes back as if a modelet had made each input an output. So does the message
 * that it is encoded as, which must give the stage the same. Bodies are copied to memory of exactly
 * their size, so that AddressSanitizer sees a read past the end.
 */
#pragma once

#include "test_oip_rig.h"

#include "base/clock.h"
#include "coordinator/protocol/oip_json.h"
#include "coordinator/protocol/oip_json_skim.h"

struct json_rig {
    struct payload_rig *payload;
    struct oip_request *request; /* of `json` */
    struct oip_request *encoded; /* the same, by way of a message */
    struct oip_json *json;
    struct oip_json_answer answer;
    struct oip_pieces out;
    struct wire_span spans[OIP_PIECES_MAX];
    char *body;
    struct error error;
    const struct oip_model_info *rows_of;    /* v1: its rows are asked with; NULL: v2 */
    const struct oip_model_info *members_of; /* generate: its inputs are asked with */
    struct blob data;                        /* the binary part of the last answer */
    char *text;                              /* its JSON, or the error */
};

static inline struct json_rig *
json_rig_create(void)
{
    struct json_rig *rig = calloc(1, sizeof(*rig));
    CHECK(rig != NULL);
    rig->payload = payload_rig_create();
    rig->encoded = oip_request_create();
    return rig;
}

static inline void
json_rig_destroy(struct json_rig *rig)
{
    payload_rig_destroy(rig->payload);
    oip_request_destroy(rig->encoded);
    blob_free(&rig->data);
    free(rig->text);
    free(rig);
}

static inline enum status
json_rig_answer(struct json_rig *rig, struct error *error)
{
    static const struct oip_model_info model = {.name = "m", .version = "1"};
    static const struct oip_release release = {NULL, NULL};
    enum status status =
        oip_encode_response(rig->request, &model, &rig->payload->view, &release, &rig->out, error);
    if (status != STATUS_OK)
        return status;
    struct wire_message response = {rig->spans, rig->out.count, 0};
    for (size_t i = 0; i < rig->out.count; i++) {
        rig->spans[i] = (struct wire_span){rig->out.pieces[i].data, rig->out.pieces[i].bytes};
        response.bytes += rig->out.pieces[i].bytes;
    }
    oip_json_forget_elements(rig->json);
    status = oip_json_write(rig->json, &response, &rig->answer, error);
    for (size_t i = 0; status == STATUS_OK && i < rig->answer.data_count; i++)
        blob_put(&rig->data, rig->answer.data[i].data, rig->answer.data[i].bytes);
    return status;
}

/* The way over another node: the same for a stage, or the same refusal. */
static inline void
json_rig_check_encoded(struct json_rig *rig, enum status wanted, const char *text)
{
    const struct wire_message *elements = oip_json_elements(rig->json);
    struct error error = ERROR_NONE;
    struct blob direct = {0};
    if (wanted == STATUS_OK)
        direct = payload_rig_bytes(rig->payload);
    if (wanted == STATUS_OK)
        payload_rig_end(rig->payload);
    enum status status =
        payload_rig_decode(rig->payload, rig->encoded, oip_pack(rig->request, elements), &error);
    assert_int_equal(status, wanted);
    assert_string_equal(error.text, text);
    if (status != STATUS_OK)
        return;
    struct blob encoded = payload_rig_bytes(rig->payload);
    assert_int_equal(encoded.used, direct.used);
    assert_memory_equal(encoded.bytes, direct.bytes, direct.used);
    blob_free(&encoded);
    blob_free(&direct);
}

static inline enum status
json_rig_pass(struct json_rig *rig, struct error *error)
{
    const struct wire_message *elements = oip_json_elements(rig->json);
    rig->request = oip_json_take_request(rig->json);
    enum status status = oip_validate(rig->request, elements, error);
    if (status == STATUS_OK)
        status = payload_rig_copy(rig->payload, rig->request, elements, error);
    json_rig_check_encoded(rig, status, error->text);
    if (status == STATUS_OK) {
        status = json_rig_answer(rig, error);
        payload_rig_end(rig->payload);
    }
    oip_request_destroy(rig->request);
    return status;
}

/* The result of JSON and the binary data after it: the answer's JSON, or the text of the error. The
 * next call frees it. */
static inline const char *
json_rig_ask(struct json_rig *rig, const char *text, size_t text_bytes, const void *data,
             size_t data_bytes)
{
    blob_free(&rig->data);
    free(rig->text);
    rig->body = malloc(text_bytes + data_bytes + 1);
    CHECK(rig->body != NULL);
    memcpy(rig->body, text, text_bytes);
    if (data_bytes > 0)
        memcpy(rig->body + text_bytes, data, data_bytes);
    rig->body = realloc(rig->body, text_bytes + data_bytes > 0 ? text_bytes + data_bytes : 1);
    CHECK(rig->body != NULL);
    struct oip_json_ask ask = {
        .model = "m",
        .version = "",
        .body = rig->body,
        .body_bytes = text_bytes + data_bytes,
        .json_bytes = text_bytes,
        .message_bytes_max = RIG_MESSAGE_BYTES,
        .rows_of = rig->rows_of,
        .members_of = rig->members_of,
    };
    rig->json = NULL;
    rig->error = ERROR_NONE;
    rig->answer = (struct oip_json_answer){0};
    enum status status = oip_json_read(&ask, &rig->json, &rig->error);
    if (status == STATUS_OK)
        status = json_rig_pass(rig, &rig->error);
    assert_int_equal(status, rig->error.status);
    if (status == STATUS_OK)
        bytes_put_char(&rig->answer.text, '\0');
    rig->text = strdup(status == STATUS_OK ? rig->answer.text.data : rig->error.text);
    oip_json_answer_fini(&rig->answer);
    oip_json_destroy(rig->json);
    free(rig->body);
    return rig->text;
}
