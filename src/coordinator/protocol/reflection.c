/* SPDX-License-Identifier: Apache-2.0 */
/*
 * v1 and v1alpha differ only in their package, so v1's messages serve both. Each question is
 * answered by itself; nothing is kept between two.
 */
#include <stdint.h>
#include <stdlib.h>

#include "base/check.h"
#include "coordinator/protocol/reflection_files.h"
#include "coordinator/protocol/services.h"
#include "descriptors.h"
#include "grpc/reflection/v1/reflection.pb-c.h"

enum { QUESTION_BYTES_MAX = 4096 };

/* A question, and the stream that it came on. */
struct reflection_question {
    struct rpc_call *call;
    Grpc__Reflection__V1__ServerReflectionRequest *request;
    struct reflection_files files;
};

/* protobuf-c's structures have non-const pointers to data that is only read. */
static void *
loose(const void *memory)
{
    return (void *)(uintptr_t)memory;
}

static void
send_answer(const struct reflection_question *question,
            Grpc__Reflection__V1__ServerReflectionResponse *response)
{
    response->valid_host = question->request->host;
    response->original_request = question->request;
    size_t bytes = grpc__reflection__v1__server_reflection_response__get_packed_size(response);
    unsigned char *packed = malloc(bytes);
    CHECK(packed != NULL);
    grpc__reflection__v1__server_reflection_response__pack(response, packed);
    struct rpc_piece piece = {.data = packed, .bytes = bytes};
    enum status status = rpc_call_send(question->call, &piece, 1);
    free(packed);
    if (status != STATUS_OK)
        rpc_call_finish(question->call, status, "too many unread answers");
}

static void
answer_error(const struct reflection_question *question, enum status status, const char *text)
{
    Grpc__Reflection__V1__ErrorResponse error = GRPC__REFLECTION__V1__ERROR_RESPONSE__INIT;
    error.error_code = (int32_t)status;
    error.error_message = loose(text);
    Grpc__Reflection__V1__ServerReflectionResponse response =
        GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__INIT;
    response.message_response_case =
        GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_ERROR_RESPONSE;
    response.error_response = &error;
    send_answer(question, &response);
}

static void
answer_file(const struct reflection_question *question, const struct reflection_file *file)
{
    if (file == NULL) {
        answer_error(question, STATUS_NOT_FOUND, "no such file or symbol");
        return;
    }
    const struct reflection_file *found[REFLECTION_FILES_MAX];
    ProtobufCBinaryData data[REFLECTION_FILES_MAX];
    Grpc__Reflection__V1__FileDescriptorResponse files =
        GRPC__REFLECTION__V1__FILE_DESCRIPTOR_RESPONSE__INIT;
    files.n_file_descriptor_proto = reflection_file_closure(&question->files, file, found);
    files.file_descriptor_proto = data;
    for (size_t i = 0; i < files.n_file_descriptor_proto; i++)
        data[i].data = loose(reflection_file_bytes(found[i], &data[i].len));
    Grpc__Reflection__V1__ServerReflectionResponse response =
        GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__INIT;
    response.message_response_case =
        GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_FILE_DESCRIPTOR_RESPONSE;
    response.file_descriptor_response = &files;
    send_answer(question, &response);
}

static void
answer_services(const struct reflection_question *question)
{
    char names[REFLECTION_SERVICES_MAX][REFLECTION_NAME_BYTES];
    Grpc__Reflection__V1__ServiceResponse services[REFLECTION_SERVICES_MAX];
    Grpc__Reflection__V1__ServiceResponse *list[REFLECTION_SERVICES_MAX];
    Grpc__Reflection__V1__ListServiceResponse all =
        GRPC__REFLECTION__V1__LIST_SERVICE_RESPONSE__INIT;
    size_t count = reflection_services(&question->files, names);
    all.service = list;
    for (size_t i = 0; i < count; i++) {
        if (!rpc_call_server_has(question->call, names[i]))
            continue;
        grpc__reflection__v1__service_response__init(&services[i]);
        services[i].name = names[i];
        list[all.n_service++] = &services[i];
    }
    Grpc__Reflection__V1__ServerReflectionResponse response =
        GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__INIT;
    response.message_response_case =
        GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_LIST_SERVICES_RESPONSE;
    response.list_services_response = &all;
    send_answer(question, &response);
}

static void
answer(const struct reflection_question *question)
{
    const Grpc__Reflection__V1__ServerReflectionRequest *request = question->request;
    const struct reflection_files *files = &question->files;
    switch (request->message_request_case) {
    case GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_LIST_SERVICES:
        answer_services(question);
        return;
    case GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_FILE_BY_FILENAME:
        answer_file(question, reflection_file_by_name(files, request->file_by_filename));
        return;
    case GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_FILE_CONTAINING_SYMBOL:
        answer_file(question, reflection_file_by_symbol(files, request->file_containing_symbol));
        return;
    case GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST__NOT_SET:
        answer_error(question, STATUS_INVALID_ARGUMENT, "no question in the request");
        return;
    default: /* the two about extensions */
        answer_error(question, STATUS_NOT_FOUND, "no message here has extensions");
        return;
    }
}

void
reflection_on_message(enum reflection_version version, struct rpc_call *call,
                      const struct wire_message *message)
{
    (void)version;
    unsigned char bytes[QUESTION_BYTES_MAX];
    if (message->bytes > sizeof(bytes)) {
        rpc_call_finish(call, STATUS_INVALID_ARGUMENT, "a question has at most 4096 bytes");
        return;
    }
    struct wire_cursor cursor = wire_begin(message);
    wire_read(&cursor, bytes, message->bytes);
    struct reflection_question question = {.call = call};
    question.request =
        grpc__reflection__v1__server_reflection_request__unpack(NULL, message->bytes, bytes);
    if (question.request == NULL) {
        rpc_call_finish(call, STATUS_INVALID_ARGUMENT,
                        "request is not a valid ServerReflectionRequest");
        return;
    }
    reflection_files_read(&question.files, shoal_descriptors, shoal_descriptors_size);
    answer(&question);
    grpc__reflection__v1__server_reflection_request__free_unpacked(question.request, NULL);
}
