/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Server reflection over a real server, v1 and v1alpha alike: several questions on one stream are
 * answered in order, what is not there is an answer and not the end, and what is no question at all
 * is the end. Which symbols lead to which file is test_reflection_files.
 *
 * ctest: presets=dev,tsan because streams end on other threads
 */
#include "test_rpc_rig.h"

#include "coordinator/protocol/reflection_files.h"
#include "coordinator/protocol/services.h"
#include "descriptors.h"
#include "grpc/reflection/v1/reflection.pb-c.h"

enum { ANSWER_BYTES_MAX = 65536 };

static void
on_question(void *context, struct rpc_call *call, const struct wire_message *message)
{
    (void)context;
    rpc_call_set_tag(call, (uint64_t)(uintptr_t)call);
    bool alpha = strstr(rpc_call_method(call), "v1alpha") != NULL;
    reflection_on_message(alpha ? REFLECTION_V1ALPHA : REFLECTION_V1, call, message);
}

static void
on_end(void *context, struct rpc_call *call)
{
    (void)context;
    rpc_call_finish(call, STATUS_OK, NULL);
}

static void
on_gone(void *context, uint64_t tag)
{
    (void)context;
    rpc_call_finish((struct rpc_call *)(uintptr_t)tag, STATUS_CANCELLED, NULL);
}

#define V1 "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
#define V1ALPHA "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"

static const struct rpc_method methods[] = {
    {V1, RPC_BIDI_STREAM, false, on_question, on_end, on_gone},
    {V1ALPHA, RPC_BIDI_STREAM, false, on_question, on_end, on_gone},
};

static void
adjust(struct rpc_server_options *options)
{
    options->methods = methods;
    options->method_count = ARRAY_COUNT(methods);
}

/* Asks and takes the answer, to be freed by answer_free. */
static Grpc__Reflection__V1__ServerReflectionResponse *
ask(struct caller *caller, int kind, const char *text)
{
    Grpc__Reflection__V1__ServerReflectionRequest question =
        GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__INIT;
    Grpc__Reflection__V1__ExtensionRequest extension =
        GRPC__REFLECTION__V1__EXTENSION_REQUEST__INIT;
    char host[] = "somewhere";
    char *copy = strdup(text);
    question.host = host;
    question.message_request_case =
        (Grpc__Reflection__V1__ServerReflectionRequest__MessageRequestCase)kind;
    if (kind == 5) {
        extension.containing_type = copy;
        question.file_containing_extension = &extension;
    } else {
        question.list_services = copy; /* all strings are one union */
    }
    unsigned char packed[1024];
    assert_true(grpc__reflection__v1__server_reflection_request__get_packed_size(&question) <=
                sizeof(packed));
    size_t bytes = grpc__reflection__v1__server_reflection_request__pack(&question, packed);
    caller_send(caller, packed, bytes);
    static unsigned char received[ANSWER_BYTES_MAX];
    long length = caller_receive(caller, received, sizeof(received));
    assert_true(length > 0 && length <= ANSWER_BYTES_MAX);
    Grpc__Reflection__V1__ServerReflectionResponse *answer =
        grpc__reflection__v1__server_reflection_response__unpack(NULL, (size_t)length, received);
    assert_non_null(answer);
    assert_string_equal(answer->valid_host, host);
    assert_non_null(answer->original_request);
    assert_int_equal(answer->original_request->message_request_case, kind);
    if (kind != 5)
        assert_string_equal(answer->original_request->list_services, text);
    free(copy);
    return answer;
}

static void
answer_free(Grpc__Reflection__V1__ServerReflectionResponse *answer)
{
    grpc__reflection__v1__server_reflection_response__free_unpacked(answer, NULL);
}

/* Those of this server, and none of the others that there are proto files of. */
static void
assert_services(struct caller *caller)
{
    static const char *const wanted[] = {"grpc.reflection.v1.ServerReflection",
                                         "grpc.reflection.v1alpha.ServerReflection"};
    Grpc__Reflection__V1__ServerReflectionResponse *answer = ask(caller, 7, "*");
    assert_int_equal(answer->message_response_case, 6);
    assert_int_equal(answer->list_services_response->n_service, ARRAY_COUNT(wanted));
    for (size_t i = 0; i < ARRAY_COUNT(wanted); i++) {
        unsigned seen = 0;
        for (size_t k = 0; k < answer->list_services_response->n_service; k++)
            seen += strcmp(answer->list_services_response->service[k]->name, wanted[i]) == 0;
        assert_int_equal(seen, 1);
    }
    answer_free(answer);
}

static void
assert_file(struct caller *caller, int kind, const char *text, const char *file_name)
{
    struct reflection_files set;
    reflection_files_read(&set, shoal_descriptors, shoal_descriptors_size);
    const struct reflection_file *file = reflection_file_by_name(&set, file_name);
    assert_non_null(file);
    size_t bytes;
    const void *data = reflection_file_bytes(file, &bytes);
    Grpc__Reflection__V1__ServerReflectionResponse *answer = ask(caller, kind, text);
    assert_int_equal(answer->message_response_case, 4);
    const ProtobufCBinaryData *first = &answer->file_descriptor_response->file_descriptor_proto[0];
    assert_int_equal(first->len, bytes);
    assert_memory_equal(first->data, data, bytes);
    answer_free(answer);
}

static void
assert_error(struct caller *caller, int kind, const char *text, int code)
{
    Grpc__Reflection__V1__ServerReflectionResponse *answer = ask(caller, kind, text);
    assert_int_equal(answer->message_response_case, 7);
    assert_int_equal(answer->error_response->error_code, code);
    assert_true(strlen(answer->error_response->error_message) > 0);
    answer_free(answer);
}

TEST_CASE(test_questions)
{
    static const char *const paths[] = {V1, V1ALPHA};
    struct rig *rig = rig_start(1, adjust);
    for (size_t i = 0; i < ARRAY_COUNT(paths); i++) {
        struct caller caller;
        caller_open(&caller, rig->unix_target, paths[i]);
        assert_services(&caller);
        assert_error(&caller, 4, "inference.Nothing", STATUS_NOT_FOUND);
        assert_file(&caller, 4, "inference.GRPCInferenceService", "inference/open_inference.proto");
        assert_file(&caller, 3, "grpc/health/v1/health.proto", "grpc/health/v1/health.proto");
        assert_error(&caller, 3, "health.proto", STATUS_NOT_FOUND);
        assert_error(&caller, 5, "inference.ModelInferRequest", STATUS_NOT_FOUND);
        assert_error(&caller, 6, "inference.ModelInferRequest", STATUS_NOT_FOUND);
        assert_services(&caller);
        caller_half_close(&caller);
        assert_int_equal(caller_receive(&caller, NULL, 0), -1);
        assert_int_equal(caller_status(&caller), STATUS_OK);
        caller_close(&caller);
    }
    rig_stop(rig);
}

/* A request without a question is answered with an error. */
TEST_CASE(test_no_question)
{
    struct rig *rig = rig_start(1, adjust);
    struct caller caller;
    caller_open(&caller, rig->unix_target, V1);
    caller_send(&caller, "", 0);
    unsigned char received[1024];
    long length = caller_receive(&caller, received, sizeof(received));
    assert_true(length > 0);
    Grpc__Reflection__V1__ServerReflectionResponse *answer =
        grpc__reflection__v1__server_reflection_response__unpack(NULL, (size_t)length, received);
    assert_non_null(answer);
    assert_int_equal(answer->message_response_case, 7);
    assert_int_equal(answer->error_response->error_code, STATUS_INVALID_ARGUMENT);
    answer_free(answer);
    caller_close(&caller); /* vanishes, without a half-close */
    rig_stop(rig);
}

TEST_CASE(test_malformed)
{
    static const unsigned char zeros[4097];
    struct rig *rig = rig_start(1, adjust);
    for (int large = 0; large < 2; large++) {
        struct caller caller;
        caller_open(&caller, rig->unix_target, V1);
        if (large)
            caller_send(&caller, zeros, sizeof(zeros));
        else
            caller_send(&caller, "\x1a\x05x", 3);
        assert_int_equal(caller_receive(&caller, NULL, 0), -1);
        assert_int_equal(caller_status(&caller), STATUS_INVALID_ARGUMENT);
        assert_int_equal(grpc_slice_str_cmp(
                             caller.text, large ? "a question has at most 4096 bytes"
                                                : "request is not a valid ServerReflectionRequest"),
                         0);
        caller_close(&caller);
    }
    rig_stop(rig);
}

TEST_MAIN(.group_setup = rig_group_setup, .group_teardown = rig_group_teardown)
