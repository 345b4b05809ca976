/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/input.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/hex.h"
#include "ctl/ctl.h"

static enum status
wrong(struct error *error, const char *what)
{
    return error_set(error, STATUS_INVALID_ARGUMENT, "%s", what);
}

/* ---- NAME=DATATYPE[shape] ---- */

/* `text` points after the "[" and is advanced past the "]". */
static enum status
shape_read(const char **text, struct ctl_tensor *tensor, struct error *error)
{
    const char *at = *text;
    bool any = false;
    while (*at != ']') {
        if (tensor->rank == TENSOR_RANK_MAX)
            return error_set(error, STATUS_INVALID_ARGUMENT, "more than %d dimensions",
                             TENSOR_RANK_MAX);
        char *end;
        errno = 0;
        long long dimension = strtoll(at, &end, 10);
        if (end == at || errno != 0 || dimension < DIMENSION_ANY || (*end != ',' && *end != ']') ||
            (*end == ',' && end[1] == ']'))
            return wrong(error,
                         "the shape is not [d0,d1,...] of numbers from 0 and at most one -1");
        if (dimension == DIMENSION_ANY && any)
            return wrong(error, "more than one dimension is -1");
        any = any || dimension == DIMENSION_ANY;
        tensor->shape[tensor->rank++] = dimension;
        at = *end == ',' ? end + 1 : end;
    }
    *text = at + 1;
    return STATUS_OK;
}

static enum status
head_read(const char **text, struct ctl_tensor *tensor, struct error *error)
{
    const char *equals = strchr(*text, '=');
    if (equals == NULL || equals == *text)
        return wrong(error, "write NAME=DATATYPE[shape] followed by :values, @FILE or @csv:FILE");
    const char *bracket = strchr(equals, '[');
    if (bracket == NULL)
        return wrong(error, "no [shape] after the datatype");
    tensor->type = datatype_find(equals + 1, (size_t)(bracket - equals - 1));
    if (tensor->type == NULL)
        return error_set(error, STATUS_INVALID_ARGUMENT, "no datatype \"%.*s\"",
                         (int)(bracket - equals - 1 < 32 ? bracket - equals - 1 : 32), equals + 1);
    tensor->name = strndup(*text, (size_t)(equals - *text));
    CHECK(tensor->name != NULL);
    *text = bracket + 1;
    return shape_read(text, tensor, error);
}

/* Sets a dimension of -1 from the number of elements. */
static enum status
shape_infer(struct ctl_tensor *tensor, uint64_t count, struct error *error)
{
    char shape[256];
    uint64_t known;
    shape_text(shape, sizeof shape, tensor->shape, tensor->rank);
    if (!shape_elements(tensor->shape, tensor->rank, &known))
        return error_set(error, STATUS_INVALID_ARGUMENT, "%s is too large", shape);
    bool fits = known == count;
    for (uint32_t i = 0; i < tensor->rank; i++) {
        if (tensor->shape[i] != DIMENSION_ANY)
            continue;
        fits = known > 0 && count % known == 0;
        if (fits)
            tensor->shape[i] = (int64_t)(count / known);
    }
    if (!fits)
        return error_set(error, STATUS_INVALID_ARGUMENT, "%" PRIu64 " values do not make %s", count,
                         shape);
    return STATUS_OK;
}

/* ---- values ---- */

static enum status
number_add(const char *text, size_t bytes, struct ctl_tensor *tensor, struct error *error)
{
    enum { NUMBER_MAX = 64 };
    char word[NUMBER_MAX + 1];
    while (bytes > 0 && (*text == ' ' || *text == '\t'))
        text++, bytes--;
    while (bytes > 0 && (text[bytes - 1] == ' ' || text[bytes - 1] == '\t'))
        bytes--;
    if (bytes > NUMBER_MAX)
        return error_set(error, STATUS_INVALID_ARGUMENT, "\"%.40s...\" is not %s", text,
                         tensor->type->name);
    memcpy(word, text, bytes);
    word[bytes] = '\0';
    unsigned char element[ELEMENT_BYTES_MAX];
    enum status status = element_read(tensor->type, word, element, error);
    if (status == STATUS_OK)
        tensor_append(tensor, element, tensor->type->bytes);
    return status;
}

/* The character of an escape; `*at` is at the backslash and is advanced to the escape's last
 * letter. */
static bool
escape_read(const char **at, char *letter)
{
    const char *word = ++*at;
    switch (*word) {
    case ',':
    case '\\': *letter = *word; return true;
    case 'n': *letter = '\n'; return true;
    case 't': *letter = '\t'; return true;
    case 'x': break;
    default: return false;
    }
    int high = hex_digit(word[1]);
    if (high < 0 || hex_digit(word[2]) < 0)
        return false;
    *letter = (char)(high << 4 | hex_digit(word[2]));
    *at += 2;
    return true;
}

/* One element of BYTES up to a comma, where `*text` is left. */
static enum status
string_add(const char **text, struct ctl_tensor *tensor, struct error *error)
{
    char *word = ctl_allocate(strlen(*text) + 1, 1);
    size_t length = 0;
    enum status status = STATUS_OK;
    for (; **text != '\0' && **text != ','; (*text)++, length++) {
        word[length] = **text;
        if (**text == '\\' && !escape_read(text, &word[length])) {
            status = wrong(error, "a backslash must be followed by one of , \\ n t xHH");
            break;
        }
    }
    if (status == STATUS_OK)
        tensor_append(tensor, word, length);
    free(word);
    return status;
}

static enum status
values_read(const char *text, struct ctl_tensor *tensor, struct error *error)
{
    uint64_t count = 0;
    uint64_t wanted;
    /* Empty text is no value, unless one element of no bytes is wanted. */
    bool none =
        *text == '\0' && !(tensor->type->kind == KIND_BYTES &&
                           shape_elements(tensor->shape, tensor->rank, &wanted) && wanted == 1);
    while (!none) {
        const char *end = text;
        enum status status;
        if (tensor->type->kind == KIND_BYTES) {
            status = string_add(&end, tensor, error);
        } else {
            end = text + strcspn(text, ",");
            status = number_add(text, (size_t)(end - text), tensor, error);
        }
        if (status != STATUS_OK)
            return error_prefix(error, "value %" PRIu64, count + 1);
        count++;
        if (*end == '\0')
            break;
        text = end + 1;
    }
    return shape_infer(tensor, count, error);
}

/* ---- files ---- */

static enum status
file_read(const char *path, char **text, size_t *bytes, struct error *error)
{
    FILE *file = strcmp(path, "-") == 0 ? stdin : fopen(path, "re");
    if (file == NULL) {
        error_set_errno(error, "%s", path);
        /* INVALID_ARGUMENT is reserved for the user's syntax errors */
        if (error->status == STATUS_INVALID_ARGUMENT)
            error->status = STATUS_NOT_FOUND;
        return error->status;
    }
    enum { CHUNK = 65536 };
    char *memory = NULL;
    size_t length = 0;
    size_t got;
    do {
        memory = realloc(memory, length + CHUNK);
        CHECK(memory != NULL);
        got = fread(memory + length, 1, CHUNK, file);
        length += got;
    } while (got == CHUNK);
    bool failed = ferror(file) != 0;
    if (failed)
        error_set_errno(error, "%s", path);
    if (file != stdin)
        fclose(file);
    if (failed) {
        free(memory);
        return error->status = STATUS_NOT_FOUND;
    }
    *text = memory;
    *bytes = length;
    return STATUS_OK;
}

static enum status
raw_take(const char *data, size_t bytes, struct ctl_tensor *tensor, struct error *error)
{
    uint32_t size = tensor->type->bytes;
    if (tensor->type->kind == KIND_BYTES) {
        if (bytes > UINT32_MAX)
            return wrong(error, "the file is too large for one element");
        tensor_append(tensor, data, bytes);
        return shape_infer(tensor, 1, error);
    }
    if (bytes % size != 0)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "%zu bytes are not a multiple of the size of %s", bytes,
                         tensor->type->name);
    tensor_append(tensor, data, bytes);
    return shape_infer(tensor, bytes / size, error);
}

enum status
input_read(const char *text, const struct input_options *options, struct ctl_tensor *tensor,
           struct error *error)
{
    static const char csv[] = "@csv:";
    const char *given = text;
    char *data = NULL;
    size_t bytes = 0;
    *tensor = (struct ctl_tensor){0};
    enum status status = head_read(&text, tensor, error);
    if (status != STATUS_OK)
        goto out;
    bool is_csv = strncmp(text, csv, strlen(csv)) == 0;
    if (*text == ':') {
        status = values_read(text + 1, tensor, error);
    } else if (*text == '@') {
        status = file_read(text + (is_csv ? strlen(csv) : 1), &data, &bytes, error);
        if (status == STATUS_OK)
            status = is_csv ? csv_read(data, bytes, options, tensor, error)
                            : raw_take(data, bytes, tensor, error);
    } else {
        status = wrong(error, "the shape must be followed by :values, @FILE or @csv:FILE");
    }
out:
    free(data);
    if (status != STATUS_OK) {
        tensor_free(tensor);
        error_prefix(error, "input %.*s", (int)strcspn(given, "="), given);
    }
    return status;
}

/* ---- CSV ---- */

struct csv {
    const char *at;
    const char *end;
    size_t line;
    char *field; /* room for the longest possible field */
    size_t field_bytes;
};

static bool
csv_at_line_end(const struct csv *csv)
{
    return csv->at == csv->end || *csv->at == '\n' ||
           (*csv->at == '\r' && csv->at + 1 < csv->end && csv->at[1] == '\n');
}

static void
csv_line_end_skip(struct csv *csv)
{
    csv->at += csv->at < csv->end && *csv->at == '\r';
    csv->at += csv->at < csv->end && *csv->at == '\n';
    csv->line++;
}

/* Takes a field; false: an unpaired quote. */
static bool
csv_field(struct csv *csv)
{
    csv->field_bytes = 0;
    if (csv->at == csv->end || *csv->at != '"') {
        while (!csv_at_line_end(csv) && *csv->at != ',')
            csv->field[csv->field_bytes++] = *csv->at++;
        return true;
    }
    for (csv->at++; csv->at < csv->end; csv->at++) {
        if (*csv->at == '"') {
            csv->at++;
            if (csv->at == csv->end || *csv->at != '"')
                return csv_at_line_end(csv) || *csv->at == ',';
        }
        csv->line += *csv->at == '\n';
        csv->field[csv->field_bytes++] = *csv->at;
    }
    return false;
}

/* Takes one row; `column_count` becomes the number of its fields used. `tensor` NULL: only
 * counts. */
static enum status
csv_row(struct csv *csv, const struct input_options *options, struct ctl_tensor *tensor,
        uint64_t *taken, struct error *error)
{
    *taken = 0;
    for (size_t column = 1;; column++) {
        if (!csv_field(csv))
            return wrong(error, "an unterminated quote, or text after it");
        bool wanted = options->csv_column_first == 0 ||
                      (column >= options->csv_column_first && column <= options->csv_column_last);
        if (tensor != NULL && wanted) {
            enum status status = STATUS_OK;
            if (tensor->type->kind == KIND_BYTES)
                tensor_append(tensor, csv->field, csv->field_bytes);
            else
                status = number_add(csv->field, csv->field_bytes, tensor, error);
            if (status != STATUS_OK)
                return error_prefix(error, "column %zu", column);
            (*taken)++;
        }
        if (csv_at_line_end(csv)) {
            csv_line_end_skip(csv);
            return STATUS_OK;
        }
        csv->at++; /* the comma */
    }
}

static void
row_end_add(struct ctl_tensor *tensor)
{
    enum { ROWS_FIRST = 64 };
    size_t count = tensor->row_count;
    if (count == 0 || (count >= ROWS_FIRST && (count & (count - 1)) == 0)) {
        size_t room = count == 0 ? ROWS_FIRST : count * 2;
        tensor->row_ends = realloc(tensor->row_ends, room * sizeof *tensor->row_ends);
        CHECK(tensor->row_ends != NULL);
    }
    tensor->row_ends[tensor->row_count++] = tensor->bytes;
}

static enum status
csv_rows(struct csv *csv, const struct input_options *options, struct ctl_tensor *tensor,
         struct error *error)
{
    bool header = options->csv_header;
    uint64_t wanted;
    if (tensor->rank == 0)
        return wrong(error, "rows of a CSV file need a shape of one dimension or more");
    for (uint32_t i = 1; i < tensor->rank; i++)
        if (tensor->shape[i] == DIMENSION_ANY)
            return wrong(error, "for rows of a CSV file only the first dimension may be -1");
    if (!shape_elements(tensor->shape + 1, tensor->rank - 1, &wanted))
        return wrong(error, "the shape is too large");
    while (csv->at < csv->end) {
        size_t line = csv->line;
        uint64_t taken;
        if (csv_at_line_end(csv)) {
            csv_line_end_skip(csv);
            continue;
        }
        enum status status = csv_row(csv, options, header ? NULL : tensor, &taken, error);
        if (status == STATUS_OK && !header && taken != wanted)
            status = error_set(error, STATUS_INVALID_ARGUMENT,
                               "%" PRIu64 " values, the shape needs %" PRIu64, taken, wanted);
        if (status != STATUS_OK)
            return error_prefix(error, "line %zu", line);
        if (!header)
            row_end_add(tensor);
        header = false;
    }
    return tensor->row_count > 0 ? STATUS_OK : wrong(error, "there are no rows");
}

enum status
csv_read(const char *text, size_t bytes, const struct input_options *options,
         struct ctl_tensor *tensor, struct error *error)
{
    struct csv csv = {.at = text, .end = text + bytes, .line = 1};
    csv.field = ctl_allocate(bytes + 1, 1);
    enum status status = csv_rows(&csv, options, tensor, error);
    free(csv.field);
    return status;
}
