/* SPDX-License-Identifier: Apache-2.0 */
#include "exam.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../examples/digits/digits.h"
#include "inference/open_inference.pb-c.h"

/* Stands in a message where an id is to come: found in the packed bytes, once. */
static char id_mark[EXAM_ID_BYTES + 1] = "=shoal--chaos-id";
/* The message code wants strings that could be changed, and changes none. */
static char model_name[] = "digits";
static char input_name[] = "image";
static char input_datatype[] = "FP32";

static void
write_id(uint8_t *at, uint64_t id)
{
    char text[EXAM_ID_BYTES + 1];
    snprintf(text, sizeof(text), "%016" PRIx64, id);
    memcpy(at, text, EXAM_ID_BYTES);
}

static void *
copy_bytes(const void *bytes, size_t count)
{
    void *copy = malloc(count > 0 ? count : 1);
    if (copy == NULL)
        abort();
    memcpy(copy, bytes, count);
    return copy;
}

static void
question_make(struct question *question, float *pixels, float label)
{
    int64_t shape[] = {1, DIGITS_PIXELS};
    Inference__ModelInferRequest__InferInputTensor input =
        INFERENCE__MODEL_INFER_REQUEST__INFER_INPUT_TENSOR__INIT;
    input.name = input_name;
    input.datatype = input_datatype;
    input.shape = shape;
    input.n_shape = 2;
    Inference__ModelInferRequest__InferInputTensor *inputs[] = {&input};
    ProtobufCBinaryData raw = {DIGITS_PIXELS * sizeof(*pixels), (uint8_t *)pixels};
    Inference__ModelInferRequest request = INFERENCE__MODEL_INFER_REQUEST__INIT;
    request.model_name = model_name;
    request.id = id_mark;
    request.inputs = inputs;
    request.n_inputs = 1;
    request.raw_input_contents = &raw;
    request.n_raw_input_contents = 1;
    question->request_bytes = inference__model_infer_request__get_packed_size(&request);
    question->request = malloc(question->request_bytes);
    if (question->request == NULL)
        abort();
    inference__model_infer_request__pack(&request, question->request);
    const uint8_t *mark =
        memmem(question->request, question->request_bytes, id_mark, EXAM_ID_BYTES);
    question->request_id_at = (size_t)(mark - question->request);
    question->digit = (int64_t)label;
}

bool
exam_open(struct exam *exam, const char *data_path)
{
    struct digits all = {0};
    struct digits unseen = {0};
    *exam = (struct exam){0};
    if (digits_read(data_path, &all) && digits_select(&all, true, &unseen))
        exam->questions = calloc(unseen.count, sizeof(*exam->questions));
    if (exam->questions != NULL)
        exam->count = unseen.count;
    for (size_t i = 0; i < exam->count; i++)
        question_make(&exam->questions[i], unseen.pixels + i * DIGITS_PIXELS, unseen.labels[i]);
    digits_free(&unseen);
    digits_free(&all);
    return exam->count > 0;
}

void
exam_close(struct exam *exam)
{
    for (size_t i = 0; i < exam->count; i++) {
        free(exam->questions[i].request);
        free(exam->questions[i].answer);
    }
    free(exam->questions);
    *exam = (struct exam){0};
}

void
exam_ask(const struct question *question, uint64_t id, uint8_t *request)
{
    memcpy(request, question->request, question->request_bytes);
    write_id(request + question->request_id_at, id);
}

/* The tensor "label", one INT64; -1: there is none. */
static int64_t
label_of(const Inference__ModelInferResponse *answer)
{
    int64_t label = -1;
    for (size_t i = 0; i < answer->n_outputs && i < answer->n_raw_output_contents; i++) {
        const ProtobufCBinaryData *raw = &answer->raw_output_contents[i];
        if (strcmp(answer->outputs[i]->name, "label") == 0 && raw->len == sizeof(label))
            memcpy(&label, raw->data, sizeof(label));
    }
    return label;
}

bool
exam_learn(struct exam *exam, struct question *question, uint64_t id, const uint8_t *answer,
           size_t bytes)
{
    uint8_t id_text[EXAM_ID_BYTES];
    write_id(id_text, id);
    const uint8_t *found = memmem(answer, bytes, id_text, EXAM_ID_BYTES);
    Inference__ModelInferResponse *message =
        inference__model_infer_response__unpack(NULL, bytes, answer);
    if (found == NULL || message == NULL || label_of(message) < 0) {
        fprintf(stderr, "an answer of %zu bytes without %s\n", bytes,
                found == NULL ? "its request's id" : "a label");
        inference__model_infer_response__free_unpacked(message, NULL);
        return false;
    }
    exam->right += label_of(message) == question->digit;
    inference__model_infer_response__free_unpacked(message, NULL);
    free(question->answer);
    question->answer = copy_bytes(answer, bytes);
    question->answer_bytes = bytes;
    question->answer_id_at = (size_t)(found - answer);
    return true;
}

bool
exam_check(const struct question *question, uint64_t id, const uint8_t *answer, size_t bytes)
{
    uint8_t id_text[EXAM_ID_BYTES];
    write_id(id_text, id);
    size_t after = question->answer_id_at + EXAM_ID_BYTES;
    return question->answer != NULL && bytes == question->answer_bytes &&
           memcmp(answer, question->answer, question->answer_id_at) == 0 &&
           memcmp(answer + question->answer_id_at, id_text, EXAM_ID_BYTES) == 0 &&
           memcmp(answer + after, question->answer + after, bytes - after) == 0;
}
