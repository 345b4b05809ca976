/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shoalctl infer: reads tensors, sends them as one request or in groups of rows, prints the answers
 * on stdout and measurements on stderr.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "ctl/client.h"
#include "ctl/ctl.h"
#include "ctl/figure.h"
#include "ctl/input.h"
#include "ctl/message.h"

/* The time to wait for proof that the node is there: the request's timeout within these limits, so
 * that a tight timeout does not make a node unreachable that must be connected to first. */
#define REACH_NS_MIN (1 * NS_PER_S)
#define REACH_NS_MAX (5 * NS_PER_S)

enum { METADATA_MAX = 32 };

struct infer {
    const char *target;
    struct client_tls tls;
    struct ctl_request request;
    const char *inputs[INPUTS_MAX];
    struct rpc_metadata metadata[METADATA_MAX + 1]; /* the last place is for a vmodel's name */
    size_t metadata_count;
    struct input_options csv;
    int64_t rows_per_request; /* 0: all */
    int64_t repeat_count;
    int64_t timeout_ms;
    enum tensor_detail detail;
    enum ctl_output output;
};

/* ---- options ---- */

static enum status
parameter_add(struct ctl_request *request, const char *text, enum parameter_form form,
              struct error *error)
{
    if (request->parameter_count == PARAMETERS_MAX)
        return error_set(error, STATUS_INVALID_ARGUMENT, "more than %d", PARAMETERS_MAX);
    enum status status =
        parameter_read(text, form, &request->parameters[request->parameter_count], error);
    request->parameter_count += status == STATUS_OK;
    return status;
}

static enum status
take_param(void *infer, const char *value, struct error *error)
{
    return parameter_add(&((struct infer *)infer)->request, value, PARAMETER_ANY, error);
}

static enum status
take_param_string(void *infer, const char *value, struct error *error)
{
    return parameter_add(&((struct infer *)infer)->request, value, PARAMETER_TEXT, error);
}

static enum status
take_metadata(void *settings, const char *text, struct error *error)
{
    struct infer *infer = settings;
    const char *equals = strchr(text, '=');
    if (infer->metadata_count == METADATA_MAX)
        return error_set(error, STATUS_INVALID_ARGUMENT, "more than %d", METADATA_MAX);
    if (equals == NULL)
        return error_set(error, STATUS_INVALID_ARGUMENT, "\"%.64s\" is not KEY=VALUE", text);
    struct rpc_metadata *entry = &infer->metadata[infer->metadata_count];
    *entry =
        (struct rpc_metadata){{text, (size_t)(equals - text)}, {equals + 1, strlen(equals + 1)}};
    if (!rpc_metadata_is_legal(entry))
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "\"%.64s\": a key has small letters, digits and _-. and does not begin "
                         "with grpc-, a value has printable ASCII",
                         text);
    infer->metadata_count++;
    return STATUS_OK;
}

static enum status
take_columns(void *infer, const char *text, struct error *error)
{
    struct input_options *csv = &((struct infer *)infer)->csv;
    char *end;
    errno = 0;
    unsigned long first = strtoul(text, &end, 10);
    unsigned long last = first;
    if (*end == '-')
        last = strtoul(end + 1, &end, 10);
    if (errno != 0 || *end != '\0' || first == 0 || last < first)
        return error_set(error, STATUS_INVALID_ARGUMENT, "\"%.32s\" is not A-B with 1 <= A <= B",
                         text);
    csv->csv_column_first = first;
    csv->csv_column_last = last;
    return STATUS_OK;
}

static enum status
take_input(void *settings, const char *value, struct error *error)
{
    struct infer *infer = settings;
    if (infer->request.input_count == INPUTS_MAX)
        return error_set(error, STATUS_INVALID_ARGUMENT, "more than %d", INPUTS_MAX);
    infer->inputs[infer->request.input_count++] = value;
    return STATUS_OK;
}

static enum status
take_output(void *infer, const char *value, struct error *error)
{
    struct ctl_request *request = &((struct infer *)infer)->request;
    if (request->output_count == INPUTS_MAX)
        return error_set(error, STATUS_INVALID_ARGUMENT, "more than %d", INPUTS_MAX);
    request->outputs[request->output_count++] = (char *)(uintptr_t)value;
    return STATUS_OK;
}

static enum status
take_each_row(void *infer, const char *value, struct error *error)
{
    (void)value;
    (void)error;
    ((struct infer *)infer)->rows_per_request = 1;
    return STATUS_OK;
}

static enum status
take_full(void *infer, const char *value, struct error *error)
{
    (void)value;
    (void)error;
    ((struct infer *)infer)->detail = TENSOR_FULL;
    return STATUS_OK;
}

#define AT(field) offsetof(struct infer, field)

static const struct ctl_option options[] = {
    {"target", "ADDRESS", "unix:/path or host:port; default $SHOAL_TARGET, else 127.0.0.1:8033",
     .form = CTL_WORD, .at = AT(target)},
    CLIENT_TLS_OPTIONS(AT(tls)),
    {"input", "TENSOR", "repeated: one for each tensor of the model; see above",
     .take = take_input},
    {"output", "NAME", "repeated: return only these tensors, in this order", .take = take_output},
    {"param", "KEY=VALUE", "repeated: true or false, an integer, a number, or else text",
     .take = take_param},
    {"param-string", "KEY=TEXT", "the same, always text", .take = take_param_string},
    {"metadata", "KEY=VALUE", "repeated: metadata of the call, such as shoal-caller=me",
     .take = take_metadata},
    {"id", "TEXT", "an id that the answer repeats", .form = CTL_WORD, .at = AT(request.id)},
    {"model-version", "TEXT", "default: the node's choice", .form = CTL_WORD,
     .at = AT(request.version)},
    {"rows-per-request", "N", "send N CSV rows per request; default: all in one", .form = CTL_WHOLE,
     .at = AT(rows_per_request), .most = INT32_MAX},
    {"each-row", NULL, "--rows-per-request 1", .take = take_each_row},
    {"csv-header", NULL, "the first CSV row holds names, not values", .form = CTL_FLAG,
     .at = AT(csv.csv_header)},
    {"csv-columns", "A-B", "use columns A to B of CSV rows, counted from 1", .take = take_columns},
    {"typed", NULL, "send typed contents instead of raw bytes", .form = CTL_FLAG,
     .at = AT(request.typed)},
    {"repeat", "N", "send everything N times, print the last answers", .form = CTL_WHOLE,
     .at = AT(repeat_count), .most = 100000000},
    {"timeout-ms", "N", "deadline of a request; default 10000", .form = CTL_WHOLE,
     .at = AT(timeout_ms), .most = 86400000},
    {"full", NULL, "print all values of large tensors", .take = take_full},
    {"json", NULL, "print each answer as a line of JSON, in the protocol's REST form",
     .form = CTL_AS_JSON, .at = AT(output)},
};

static enum status
on_argument(void *settings, const char *value, struct error *error)
{
    struct infer *infer = settings;
    if (infer->request.model[0] != '\0')
        return error_set(error, STATUS_INVALID_ARGUMENT, "more than one model: \"%.64s\"", value);
    infer->request.model = (char *)(uintptr_t)value;
    return STATUS_OK;
}

/* ---- dividing rows among requests ---- */

/* The rows, and the number per request. */
struct split {
    size_t row_count; /* 0: no CSV, one request */
    size_t rows_per_request;
};

static enum status
split_tensor(const struct ctl_tensor *tensor, int64_t rows_per_request, struct split *split,
             struct error *error)
{
    if (tensor->row_count == 0)
        return STATUS_OK;
    if (split->row_count != 0 && split->row_count != tensor->row_count)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "input %.64s has %zu rows, an earlier one %zu", tensor->name,
                         tensor->row_count, split->row_count);
    split->row_count = tensor->row_count;
    split->rows_per_request = rows_per_request > 0 ? (size_t)rows_per_request : split->row_count;
    int64_t wanted = tensor->shape[0];
    if (wanted != DIMENSION_ANY && ((uint64_t)wanted != split->rows_per_request ||
                                    split->row_count % split->rows_per_request != 0))
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "input %.64s: the shape needs %" PRId64 " rows per request, but there are "
                         "%zu in requests of %zu; -1 takes any number",
                         tensor->name, wanted, split->row_count, split->rows_per_request);
    return STATUS_OK;
}

static enum status
inputs_read(struct infer *infer, struct split *split, struct error *error)
{
    struct ctl_request *request = &infer->request;
    for (size_t i = 0; i < request->input_count; i++) {
        enum status status = input_read(infer->inputs[i], &infer->csv, &request->inputs[i], error);
        if (status == STATUS_OK)
            status = split_tensor(&request->inputs[i], infer->rows_per_request, split, error);
        if (status != STATUS_OK)
            return status;
    }
    if (split->row_count == 0 && infer->rows_per_request > 0)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "rows per request were given, but no input is a CSV file");
    return STATUS_OK;
}

static void
infer_free(struct infer *infer)
{
    struct ctl_request *request = &infer->request;
    for (size_t i = 0; i < request->input_count; i++)
        tensor_free(&request->inputs[i]);
    for (size_t i = 0; i < request->parameter_count; i++)
        parameter_free(&request->parameters[i]);
}

/* ---- sending ---- */

struct timing {
    int64_t *durations_ns;
    size_t count;
};

static int
compare_ns(const void *a, const void *b)
{
    int64_t left = *(const int64_t *)a;
    int64_t right = *(const int64_t *)b;
    return (left > right) - (left < right);
}

static void
timing_print(struct timing *timing, int64_t duration_ns)
{
    char least[FIGURE_ROOM], p50[FIGURE_ROOM], p99[FIGURE_ROOM], most[FIGURE_ROOM];
    size_t count = timing->count;
    qsort(timing->durations_ns, count, sizeof *timing->durations_ns, compare_ns);
    figure_duration(least, timing->durations_ns[0]);
    figure_duration(p50, timing->durations_ns[count / 2]);
    figure_duration(p99, timing->durations_ns[count * 99 / 100]);
    figure_duration(most, timing->durations_ns[count - 1]);
    fprintf(stderr, "%zu requests, one at a time: min %s, p50 %s, p99 %s, max %s, %.0f/s\n", count,
            least, p50, p99, most,
            (double)count * (double)NS_PER_S / (double)(duration_ns > 0 ? duration_ns : 1));
}

/* The rows of one request, and whether its answer is printed. */
struct infer_part {
    size_t row_first;
    size_t row_count;
    bool shown;
};

static enum status
send_one(const struct infer *infer, struct client *client, const struct infer_part *part,
         struct timing *timing, struct error *error)
{
    uint8_t *packed = NULL;
    size_t packed_bytes = 0;
    void *response = NULL;
    size_t response_bytes = 0;
    struct ctl_answer answer;
    enum status status = request_pack(&infer->request, part->row_first, part->row_count, &packed,
                                      &packed_bytes, error);
    CHECK(status == STATUS_OK); /* checked before anything was sent */
    int64_t start_ns = clock_now_ns();
    struct rpc_channel_ask ask = {.method = CLIENT_SERVICE "ModelInfer",
                                  .request = packed,
                                  .request_bytes = packed_bytes,
                                  .deadline_ns = start_ns + infer->timeout_ms * NS_PER_MS};
    status = rpc_channel_call(client->channel, &ask, &response, &response_bytes, error);
    if (status == STATUS_OK)
        timing->durations_ns[timing->count++] = clock_now_ns() - start_ns;
    if (status == STATUS_OK)
        status = answer_unpack(&answer, response, response_bytes, error);
    if (status == STATUS_OK) {
        if (part->shown && infer->output == CTL_JSON)
            answer_json(&answer, stdout);
        else if (part->shown)
            answer_print(&answer, infer->detail, stdout);
        answer_free(&answer);
    }
    free(packed);
    free(response);
    return status;
}

static enum status
send_all(const struct infer *infer, struct client *client, const struct split *split,
         struct error *error)
{
    size_t rows = split->row_count > 0 ? split->row_count : 1;
    size_t step = split->row_count > 0 ? split->rows_per_request : 1;
    size_t per_round = (rows + step - 1) / step;
    CHECK(per_round > 0);
    size_t total = per_round * (size_t)infer->repeat_count;
    struct timing timing = {.durations_ns = ctl_allocate(total, sizeof *timing.durations_ns)};
    int64_t start_ns = clock_now_ns();
    enum status status = STATUS_OK;
    for (size_t i = 0; i < total && status == STATUS_OK; i++) {
        struct infer_part part = {.row_first = i % per_round * step,
                                  .shown = i >= total - per_round};
        size_t left = rows - part.row_first;
        part.row_count = left < step ? left : step;
        if (part.shown && infer->output == CTL_TEXT && per_round > 1)
            printf("%srequest %zu\n", i % per_round > 0 ? "\n" : "", i % per_round + 1);
        status = send_one(infer, client, &part, &timing, error);
        if (status != STATUS_OK && total > 1)
            error_prefix(error, "request %zu of %zu", i + 1, total);
    }
    if (total > 1 && timing.count > 0)
        timing_print(&timing, clock_now_ns() - start_ns);
    free(timing.durations_ns);
    return status;
}

/* Checks, before the node is called, that these tensors fit into a message. */
static enum status
request_try(const struct infer *infer, const struct split *split, struct error *error)
{
    uint8_t *packed = NULL;
    size_t packed_bytes;
    enum status status =
        request_pack(&infer->request, 0, split->row_count > 0, &packed, &packed_bytes, error);
    free(packed);
    return status;
}

static bool
names_a_model(const struct infer *infer)
{
    static const char *const prefixes[] = {"mm-model-id", "mm-vmodel-id", "tas-model-id"};
    for (size_t i = 0; i < infer->metadata_count; i++)
        for (size_t k = 0; k < ARRAY_COUNT(prefixes); k++)
            if (strncmp(infer->metadata[i].key.data, prefixes[k], strlen(prefixes[k])) == 0)
                return true;
    return false;
}

/* In a mesh the name in a request is a model's unless `mesh: names` says otherwise. If there is no
 * such model it is tried as a vmodel's. */
static enum status
send_all_to_either(struct infer *infer, struct client *client, const struct split *split,
                   struct error *error)
{
    static const char key[] = "mm-vmodel-id";
    rpc_channel_set_metadata(client->channel, infer->metadata, infer->metadata_count);
    enum status status = send_all(infer, client, split, error);
    if (status != STATUS_NOT_FOUND || strstr(error->text, "model not found") == NULL ||
        names_a_model(infer))
        return status;
    struct error ignored = ERROR_NONE;
    infer->metadata[infer->metadata_count] = (struct rpc_metadata){
        {key, sizeof key - 1}, {infer->request.model, strlen(infer->request.model)}};
    rpc_channel_set_metadata(client->channel, infer->metadata, infer->metadata_count + 1);
    enum status second = send_all(infer, client, split, &ignored);
    if (second == STATUS_NOT_FOUND)
        return status;
    *error = ignored;
    return second;
}

static int
infer_node(struct infer *infer, const struct split *split)
{
    struct client client;
    struct error error = ERROR_NONE;
    enum ctl_exit code = CTL_OK;
    int64_t reach_ns = infer->timeout_ms * NS_PER_MS;
    reach_ns = reach_ns > REACH_NS_MIN ? reach_ns : REACH_NS_MIN;
    reach_ns = reach_ns < REACH_NS_MAX ? reach_ns : REACH_NS_MAX;
    rpc_init();
    enum status status = client_open(&client, infer->target, &infer->tls, &error);
    if (status == STATUS_OK)
        status = client_reach(&client, clock_now_ns() + reach_ns, &error);
    if (status != STATUS_OK) {
        code = CTL_UNREACHABLE;
    } else {
        status = send_all_to_either(infer, &client, split, &error);
        if (status != STATUS_OK) {
            code = status == STATUS_DEADLINE_EXCEEDED ? CTL_LATE : CTL_NEGATIVE;
            error_prefix(&error, "%.64s: %s", infer->request.model, status_name(status));
        }
    }
    if (code != CTL_OK)
        ctl_fail(code, infer->output, &error);
    client_close(&client);
    rpc_shutdown();
    return code;
}

static int
infer_run(int argc, char **argv)
{
    static char nothing[] = "";
    struct infer *infer = ctl_allocate(1, sizeof *infer);
    struct error error = ERROR_NONE;
    struct split split = {0};
    infer->target = ctl_target_default();
    infer->request.model = infer->request.version = infer->request.id = nothing;
    infer->repeat_count = 1;
    infer->timeout_ms = 10000;
    int code = ctl_options_read(&infer_command, argc, argv, on_argument, infer);
    if (code >= 0)
        goto out;
    if (infer->request.model[0] == '\0') {
        error_set(&error, STATUS_INVALID_ARGUMENT,
                  "infer: the model is missing; see shoalctl infer --help");
        code = ctl_fail(CTL_USAGE, infer->output, &error);
        goto out;
    }
    enum status status = inputs_read(infer, &split, &error);
    if (status == STATUS_OK)
        status = request_try(infer, &split, &error);
    if (status == STATUS_OK)
        code = infer_node(infer, &split);
    else
        code = ctl_fail(status == STATUS_INVALID_ARGUMENT ? CTL_USAGE : CTL_UNREACHABLE,
                        infer->output, &error);
out:
    infer_free(infer);
    free(infer);
    return code;
}

const struct ctl_command infer_command = {
    .name = "infer",
    .arguments = "MODEL --input TENSOR ... [options]",
    .summary = "Send tensors to a model and print the answer",
    .about = "A tensor is written as\n"
             "  NAME=DATATYPE[2,3]:1,2,3,4,5,6  values; in text of BYTES, \\, is a comma and\n"
             "                                  \\\\ \\n \\t \\xHH have their usual meaning\n"
             "  NAME=DATATYPE[2,3]@FILE         raw bytes of a file, \"-\" for stdin;\n"
             "                                  for BYTES[1] the whole file is one element\n"
             "  NAME=DATATYPE[-1,64]@csv:FILE   rows of a CSV file, \"-\" for stdin\n"
             "Datatypes: BOOL, UINT8 to UINT64, INT8 to INT64, FP16, BF16, FP32, FP64, BYTES.\n"
             "One dimension may be -1: it follows from the number of values.\n",
    .exits = "  0  every request was answered\n"
             "  1  the node answered with an error; the first one ends the run\n",
    .example = "  shoalctl infer scale-shift --input 'x=FP32[3]:1,2,3'\n"
               "  shoalctl infer digits --input 'image=FP32[-1,64]@csv:digits.csv' \\\n"
               "      --csv-columns 1-64 --each-row --json\n",
    CTL_OPTIONS(options),
    .run = infer_run,
};
