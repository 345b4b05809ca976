/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a row of HTTP requests or answers, taken whole and again cut into pieces of up to as
 * many bytes as the first byte says, which also chooses between the two. All readings must come to
 * the same heads, the same verdict and the same bodies, use the same bytes, and never take more
 * than the limits allow.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/percent.h"
#include "http/body.h"
#include "http/parse.h"

enum { HEAD_MAX = 512, BODY_MAX = 300, REQUESTS_MAX = 16 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The result of a reading. */
struct reading {
    uint64_t hash; /* of all that is told of heads and bodies */
    size_t used;
    int requests;
    enum http_verdict verdict;
    int code;
    const char *mistake;
};

static void
note(struct reading *reading, const char *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        reading->hash = (reading->hash ^ (uint8_t)data[i]) * UINT64_C(1099511628211);
}

static void
note_head(struct reading *reading, const struct http_parser *parser)
{
    const char *texts[] = {parser->text + parser->method, parser->text + parser->target};
    size_t count = parser->parsed == HTTP_PARSE_REQUEST ? ARRAY_COUNT(texts) : 0;
    const char *path;
    size_t bytes;
    CHECK(parser->used <= HEAD_MAX && parser->field_count <= HTTP_FIELDS_MAX);
    for (size_t i = 0; i < count; i++)
        note(reading, texts[i], strlen(texts[i]) + 1);
    for (uint32_t i = 0; i < parser->field_count; i++) {
        const char *name = parser->text + parser->fields[i].name;
        const char *value = parser->text + parser->fields[i].value;
        CHECK(name[0] != '\0' && strpbrk(name, " \t:") == NULL && strpbrk(value, "\r\n") == NULL);
        note(reading, name, strlen(name) + 1);
        note(reading, value, strlen(value) + 1);
    }
    CHECK(count > 0 || (parser->status >= 100 && parser->status < 600));
    if (count > 0 && http_target_path(texts[1], &path, &bytes)) {
        CHECK(path >= texts[1] && path + bytes <= texts[1] + strlen(texts[1]));
        char *decoded = strndup(path, bytes);
        CHECK(decoded != NULL);
        percent_decode(decoded);
        CHECK(strlen(decoded) <= bytes && (bytes - strlen(decoded)) % 2 == 0);
        free(decoded);
    }
    char flags[] = {
        (char)parser->minor,      (char)parser->keep_alive,  (char)parser->expects_continue,
        (char)parser->is_chunked, (char)parser->until_close, (char)parser->status};
    note(reading, flags, sizeof(flags));
}

/* Gives out pieces of the input: of 1 to `step` bytes, or all. */
struct http_source {
    const char *data;
    size_t left;
    size_t step;
    size_t turn;
};

static size_t
piece_of(struct http_source *source)
{
    size_t bytes = source->step == 0 ? source->left : 1 + source->turn++ * 7 % source->step;
    return bytes < source->left ? bytes : source->left;
}

static void
take(struct http_source *source, struct reading *reading, size_t used)
{
    source->data += used;
    source->left -= used;
    reading->used += used;
}

static enum http_verdict
read_head(struct http_parser *parser, struct http_source *source, struct reading *reading)
{
    enum http_verdict verdict = HTTP_MORE;
    while (verdict == HTTP_MORE && source->left > 0) {
        size_t bytes = piece_of(source);
        size_t used;
        verdict = http_parser_feed(parser, source->data, bytes, &used);
        CHECK(used <= bytes && (verdict != HTTP_MORE || used == bytes));
        CHECK(parser->used <= HEAD_MAX);
        if (verdict != HTTP_BAD) /* where a bad one was given up is not reported */
            take(source, reading, used);
    }
    reading->code = verdict == HTTP_BAD ? parser->code : 0;
    reading->mistake = verdict == HTTP_BAD ? parser->mistake : NULL;
    return verdict;
}

static enum http_verdict
read_body(struct http_body *body, struct http_source *source, struct reading *reading)
{
    enum http_verdict verdict = HTTP_MORE;
    uint64_t total = 0;
    while (verdict == HTTP_MORE && source->left > 0) {
        size_t bytes = piece_of(source);
        size_t used;
        size_t piece;
        verdict = http_body_feed(body, source->data, bytes, &used, &piece);
        CHECK(used <= bytes && piece <= used && (used > 0 || verdict != HTTP_MORE));
        total += piece;
        CHECK(total <= BODY_MAX);
        note(reading, source->data + used - piece, piece);
        if (verdict != HTTP_BAD)
            take(source, reading, used);
    }
    reading->code = verdict == HTTP_BAD ? body->code : 0;
    reading->mistake = verdict == HTTP_BAD ? body->mistake : NULL;
    return verdict;
}

static struct reading
read_all(enum http_parsed parsed, const char *data, size_t bytes, size_t step)
{
    struct reading reading = {.hash = UINT64_C(14695981039346656037)};
    struct http_source source = {.data = data, .left = bytes, .step = step};
    struct http_parser parser;
    http_parser_init(&parser, parsed, HEAD_MAX);
    reading.verdict = HTTP_DONE;
    while (reading.verdict == HTTP_DONE && source.left > 0 && reading.requests < REQUESTS_MAX) {
        struct http_body body;
        http_parser_reset(&parser);
        reading.verdict = read_head(&parser, &source, &reading);
        if (reading.verdict != HTTP_DONE)
            break;
        reading.requests++;
        note_head(&reading, &parser);
        if (parser.until_close)
            break;
        reading.verdict = http_body_init(&body, &parser, BODY_MAX);
        if (reading.verdict == HTTP_BAD)
            reading.code = body.code;
        else if (reading.verdict == HTTP_MORE)
            reading.verdict = read_body(&body, &source, &reading);
        http_body_fini(&body);
    }
    http_parser_fini(&parser);
    return reading;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    static const enum http_parsed choices[] = {HTTP_PARSE_REQUEST, HTTP_PARSE_REQUEST,
                                               HTTP_PARSE_ANSWER, HTTP_PARSE_ANSWER_TO_HEAD};
    enum http_parsed parsed = choices[data[0] / 64];
    const char *text = (const char *)data + 1;
    struct reading whole = read_all(parsed, text, size - 1, 0);
    struct reading cut = read_all(parsed, text, size - 1, 1 + data[0] % 64);
    struct reading bytes = read_all(parsed, text, size - 1, 1);
    const struct reading *others[] = {&cut, &bytes};
    for (size_t i = 0; i < ARRAY_COUNT(others); i++) {
        CHECK(others[i]->verdict == whole.verdict && others[i]->requests == whole.requests);
        CHECK(others[i]->code == whole.code && others[i]->mistake == whole.mistake);
        if (whole.verdict != HTTP_BAD)
            CHECK(others[i]->hash == whole.hash && others[i]->used == whole.used);
    }
    CHECK(whole.verdict != HTTP_BAD || whole.code >= 400);
    return 0;
}
