/* SPDX-License-Identifier: Apache-2.0 */
#include "http/parse.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/check.h"

enum { ROOM_FIRST = 512, ROOM_KEPT = 4096, FIELDS_FIRST = 16, DIGITS_MAX = 19 };

/* ---- bytes ---- */

enum { TOKEN = 1, VALUE = 2, TARGET = 4, HOST = 8, DIGIT = 16 };

/* The kinds of token that may contain a byte: RFC 9110 5.6.2 and 5.5, RFC 3986 3.2.2. A target may
 * contain bytes above 127, since some clients do not encode their paths. */
enum {
    V = VALUE,
    U = V | TARGET,
    H = U | HOST,
    K = U | TOKEN,
    L = U | TOKEN | HOST,
    D = L | DIGIT,
};

static const uint8_t kinds[256] = {
    /* clang-format off */
    0, 0, 0, 0, 0, 0, 0, 0, 0, V, 0, 0, 0, 0, 0, 0,
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    V, L, U, K, L, L, L, L, H, H, L, L, H, L, L, U,
    D, D, D, D, D, D, D, D, D, D, H, H, U, H, U, U,
    U, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L,
    L, L, L, L, L, L, L, L, L, L, L, H, U, H, K, L,
    K, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L,
    L, L, L, L, L, L, L, L, L, L, L, U, K, U, L, 0,
    U, U, U, U, U, U, U, U, U, U, U, U, U, U, U, U,
    U, U, U, U, U, U, U, U, U, U, U, U, U, U, U, U,
    U, U, U, U, U, U, U, U, U, U, U, U, U, U, U, U,
    U, U, U, U, U, U, U, U, U, U, U, U, U, U, U, U,
    U, U, U, U, U, U, U, U, U, U, U, U, U, U, U, U,
    U, U, U, U, U, U, U, U, U, U, U, U, U, U, U, U,
    U, U, U, U, U, U, U, U, U, U, U, U, U, U, U, U,
    U, U, U, U, U, U, U, U, U, U, U, U, U, U, U, U,
    /* clang-format on */
};

/* The number of leading bytes of a kind. */
static size_t
span(const char *text, size_t bytes, uint8_t kind)
{
    size_t count = 0;
    while (count < bytes && (kinds[(uint8_t)text[count]] & kind) != 0)
        count++;
    return count;
}

static enum http_verdict
bad(struct http_parser *parser, int code, const char *mistake)
{
    parser->code = code;
    parser->mistake = mistake;
    return HTTP_BAD;
}

/* ---- lines ---- */

static enum http_verdict
judge_version(struct http_parser *parser, const char *text, size_t bytes)
{
    if (bytes != 8 || memcmp(text, "HTTP/", 5) != 0 || text[6] != '.' ||
        span(text + 5, 1, DIGIT) == 0 || span(text + 7, 1, DIGIT) == 0)
        return bad(parser, 400, "the request line is malformed");
    if (text[5] != '1')
        return bad(parser, 505, "the version of HTTP must be 1.1 or 1.0");
    parser->minor = text[7] == '0' ? 0 : 1;
    return HTTP_MORE;
}

/* METHOD SP TARGET SP HTTP/1.1 */
static enum http_verdict
judge_request_line(struct http_parser *parser, size_t bytes)
{
    char *line = parser->text + parser->line;
    size_t method = span(line, bytes, TOKEN);
    if (method == 0 || method > HTTP_METHOD_BYTES_MAX || method == bytes || line[method] != ' ')
        return bad(parser, 400, "the request line is malformed");
    size_t at = method + 1;
    size_t target = span(line + at, bytes - at, TARGET);
    if (target == 0 || at + target == bytes || line[at + target] != ' ')
        return bad(parser, 400, "the request line is malformed");
    parser->method = (uint32_t)parser->line;
    parser->target = (uint32_t)(parser->line + at);
    line[method] = '\0';
    line[at + target] = '\0';
    at += target + 1;
    parser->has_first_line = true;
    return judge_version(parser, line + at, bytes - at);
}

/* HTTP/1.1 SP 3DIGIT [SP reason] */
static enum http_verdict
judge_status_line(struct http_parser *parser, size_t bytes)
{
    enum { VERSION = 8, CODE = VERSION + 1, END = CODE + 3 };
    const char *line = parser->text + parser->line;
    if (bytes < END || line[VERSION] != ' ' || span(line + CODE, 3, DIGIT) != 3 ||
        line[CODE] < '1' || line[CODE] > '5' || (bytes > END && line[END] != ' ') ||
        span(line + END, bytes - END, VALUE) != bytes - END)
        return bad(parser, 400, "the status line is malformed");
    parser->status = (line[CODE] - '0') * 100 + (line[CODE + 1] - '0') * 10 + line[CODE + 2] - '0';
    parser->has_first_line = true;
    return judge_version(parser, line, VERSION);
}

const char *
http_field_judge(const char *line, size_t bytes, size_t *name_bytes, size_t *value,
                 size_t *value_bytes)
{
    if (line[0] == ' ' || line[0] == '\t')
        return "a header line is folded";
    size_t name = span(line, bytes, TOKEN);
    if (name == bytes)
        return "a header line is malformed: it has no colon";
    if (name == 0 || line[name] != ':')
        return "a header's name is malformed";
    size_t from = name + 1;
    if (from + span(line + from, bytes - from, VALUE) != bytes)
        return "a header's value holds a control character";
    while (from < bytes && (line[from] == ' ' || line[from] == '\t'))
        from++;
    while (bytes > from && (line[bytes - 1] == ' ' || line[bytes - 1] == '\t'))
        bytes--;
    *name_bytes = name;
    *value = from;
    *value_bytes = bytes - from;
    return NULL;
}

static enum http_verdict
judge_field(struct http_parser *parser, size_t bytes)
{
    char *line = parser->text + parser->line;
    size_t name_bytes;
    size_t value;
    size_t value_bytes;
    const char *mistake = http_field_judge(line, bytes, &name_bytes, &value, &value_bytes);
    if (mistake != NULL)
        return bad(parser, 400, mistake);
    if (parser->field_count == HTTP_FIELDS_MAX)
        return bad(parser, 431, "there are too many headers");
    if (parser->field_count == parser->field_room) {
        parser->field_room = parser->field_room > 0 ? parser->field_room * 2 : FIELDS_FIRST;
        parser->fields = realloc(parser->fields, parser->field_room * sizeof(*parser->fields));
        CHECK(parser->fields != NULL);
    }
    line[name_bytes] = '\0';
    line[value + value_bytes] = '\0'; /* replaces the CR, or a space before it */
    parser->fields[parser->field_count++] = (struct http_field){
        .name = (uint32_t)parser->line, .value = (uint32_t)(parser->line + value)};
    return HTTP_MORE;
}

/* ---- constraints between fields ---- */

/* Returns whether a comma-separated list contains this word. */
static bool
has_word(const char *list, const char *word)
{
    size_t bytes = strlen(word);
    while (*list != '\0') {
        list += strspn(list, " \t,");
        size_t found = strcspn(list, " \t,");
        if (found == bytes && strncasecmp(list, word, bytes) == 0)
            return true;
        list += found;
    }
    return false;
}

/* The fields that define the request's framing. */
struct framing {
    const char *host;
    const char *length;
    const char *encoding;
    const char *mistake; /* a duplicate field */
};

static void
note_once(struct framing *framing, const char **field, const char *value, const char *mistake)
{
    if (*field != NULL)
        framing->mistake = mistake;
    *field = value;
}

static void
note_field(struct http_parser *parser, struct framing *framing, const char *name, const char *value)
{
    if (strcasecmp(name, "Host") == 0)
        note_once(framing, &framing->host, value, "duplicate Host");
    else if (strcasecmp(name, "Content-Length") == 0)
        note_once(framing, &framing->length, value, "duplicate Content-Length");
    else if (strcasecmp(name, "Transfer-Encoding") == 0)
        note_once(framing, &framing->encoding, value, "duplicate Transfer-Encoding");
    else if (strcasecmp(name, "Connection") == 0 && has_word(value, "close"))
        parser->keep_alive = false;
    else if (strcasecmp(name, "Connection") == 0 && parser->minor == 0)
        parser->keep_alive = has_word(value, "keep-alive");
}

/* Accepts digits only. A number that is too large saturates. */
static bool
read_length(const char *text, uint64_t *length)
{
    size_t digits = span(text, strlen(text), DIGIT);
    if (digits == 0 || text[digits] != '\0')
        return false;
    text += strspn(text, "0");
    *length = strlen(text) > DIGITS_MAX ? UINT64_MAX : strtoull(text, NULL, 10);
    return true;
}

/* The framing is not ambiguous. */
static enum http_verdict
judge_framing(struct http_parser *parser, const struct framing *framing)
{
    if (framing->length != NULL && framing->encoding != NULL)
        return bad(parser, 400, "Content-Length and Transfer-Encoding exclude each other");
    if (framing->length != NULL && !read_length(framing->length, &parser->length))
        return bad(parser, 400, "Content-Length is malformed: it is no number");
    if (framing->encoding != NULL &&
        (parser->minor == 0 || strcasecmp(framing->encoding, "chunked") != 0))
        return bad(parser, 400, "the only Transfer-Encoding known is chunked, of HTTP/1.1");
    parser->is_chunked = framing->encoding != NULL;
    return HTTP_DONE;
}

static enum http_verdict
judge_request_body(struct http_parser *parser)
{
    const char *method = parser->text + parser->method;
    bool may_have_body = strcmp(method, "HEAD") != 0 && strcmp(method, "TRACE") != 0;
    if (!may_have_body && (parser->is_chunked || parser->length > 0))
        return bad(parser, 400, "a body cannot come with this method");
    return HTTP_DONE;
}

/* RFC 9112 6.3. */
static enum http_verdict
judge_answer_body(struct http_parser *parser, const struct framing *framing)
{
    if (parser->parsed == HTTP_PARSE_ANSWER_TO_HEAD || parser->status < 200 ||
        parser->status == 204 || parser->status == 304) {
        parser->is_chunked = false;
        parser->length = 0;
    } else if (framing->length == NULL && framing->encoding == NULL) {
        parser->until_close = true;
        parser->keep_alive = false;
    }
    return HTTP_DONE;
}

/* Checks a request's rules besides framing. */
static enum http_verdict
judge_request(struct http_parser *parser, const struct framing *framing)
{
    if (framing->host == NULL && parser->minor > 0)
        return bad(parser, 400, "Host is missing: HTTP/1.1 requires it");
    if (framing->host != NULL &&
        framing->host[span(framing->host, strlen(framing->host), HOST)] != '\0')
        return bad(parser, 400, "Host is malformed");
    const char *expect = parser->minor > 0 ? http_parser_find(parser, "Expect") : NULL;
    if (expect != NULL && strcasecmp(expect, "100-continue") != 0)
        return bad(parser, 417, "only 100-continue can be expected");
    parser->expects_continue = expect != NULL;
    return HTTP_DONE;
}

static enum http_verdict
judge_head(struct http_parser *parser)
{
    struct framing framing = {NULL, NULL, NULL, NULL};
    parser->keep_alive = parser->minor > 0;
    for (uint32_t i = 0; i < parser->field_count; i++) {
        const char *name = parser->text + parser->fields[i].name;
        if (strchr("hHcCtT", name[0]) != NULL)
            note_field(parser, &framing, name, parser->text + parser->fields[i].value);
    }
    if (framing.mistake != NULL)
        return bad(parser, 400, framing.mistake);
    bool is_request = parser->parsed == HTTP_PARSE_REQUEST;
    if ((is_request && judge_request(parser, &framing) == HTTP_BAD) ||
        judge_framing(parser, &framing) == HTTP_BAD)
        return HTTP_BAD;
    return is_request ? judge_request_body(parser) : judge_answer_body(parser, &framing);
}

/* ---- feeding ---- */

void
http_parser_init(struct http_parser *parser, enum http_parsed parsed, size_t bytes_max)
{
    CHECK(bytes_max < UINT32_MAX);
    memset(parser, 0, sizeof(*parser));
    parser->parsed = parsed;
    parser->bytes_max = bytes_max;
}

void
http_parser_fini(struct http_parser *parser)
{
    free(parser->text);
    free(parser->fields);
    parser->text = NULL;
    parser->fields = NULL;
}

void
http_parser_reset(struct http_parser *parser)
{
    if (parser->room > ROOM_KEPT) {
        free(parser->text);
        parser->text = NULL;
        parser->room = 0;
    }
    parser->used = 0;
    parser->line = 0;
    parser->has_first_line = false;
    parser->field_count = 0;
    parser->is_chunked = false;
    parser->until_close = false;
    parser->length = 0;
}

static void
append(struct http_parser *parser, const char *data, size_t bytes)
{
    size_t needed = parser->used + bytes;
    if (needed > parser->room) {
        size_t room = parser->room == 0 ? ROOM_FIRST : parser->room;
        while (room < needed)
            room *= 2;
        parser->text = realloc(parser->text, room);
        CHECK(parser->text != NULL);
        parser->room = room;
    }
    memcpy(parser->text + parser->used, data, bytes);
    parser->used = needed;
    CHECK(parser->used <= parser->bytes_max);
}

/* The line that begins at `line` is complete. HTTP_MORE: the head is not. */
static enum http_verdict
judge_line(struct http_parser *parser)
{
    size_t bytes = parser->used - parser->line - 1;
    enum http_verdict verdict;
    if (bytes == 0 || parser->text[parser->used - 2] != '\r')
        return bad(parser, 400, "a line is malformed: it ends in LF without CR");
    bytes--;
    if (bytes == 0 && !parser->has_first_line && parser->parsed != HTTP_PARSE_REQUEST)
        verdict = bad(parser, 400, "the status line is malformed");
    else if (bytes == 0)
        verdict = parser->has_first_line ? judge_head(parser) : HTTP_MORE;
    else if (parser->has_first_line)
        verdict = judge_field(parser, bytes);
    else if (parser->parsed == HTTP_PARSE_REQUEST)
        verdict = judge_request_line(parser, bytes);
    else
        verdict = judge_status_line(parser, bytes);
    parser->line = parser->used;
    return verdict;
}

enum http_verdict
http_parser_feed(struct http_parser *parser, const char *data, size_t bytes, size_t *used)
{
    enum http_verdict verdict = HTTP_MORE;
    *used = 0;
    while (verdict == HTTP_MORE && *used < bytes) {
        const char *from = data + *used;
        const char *end = memchr(from, '\n', bytes - *used);
        size_t taken = end != NULL ? (size_t)(end - from) + 1 : bytes - *used;
        if (taken > parser->bytes_max - parser->used)
            return parser->has_first_line ? bad(parser, 431, "the headers are too long")
                                          : bad(parser, 414, "the request line is too long");
        append(parser, from, taken);
        *used += taken;
        if (end != NULL)
            verdict = judge_line(parser);
    }
    return verdict;
}

/* ---- heads that come as fields ---- */

/* False: the head is too long. */
static bool
put(struct http_parser *parser, const char *data, size_t bytes)
{
    if (bytes > parser->bytes_max - parser->used)
        return false;
    append(parser, data, bytes);
    return true;
}

enum http_verdict
http_parser_put_request(struct http_parser *parser, struct http_span method,
                        struct http_span target)
{
    static const char version[] = " HTTP/1.1\r\n";
    parser->line = parser->used;
    if (!put(parser, method.data, method.bytes) || !put(parser, " ", 1) ||
        !put(parser, target.data, target.bytes) || !put(parser, version, sizeof(version) - 1))
        return bad(parser, 414, "the request line is too long");
    return judge_request_line(parser, parser->used - parser->line - 2);
}

enum http_verdict
http_parser_put_field(struct http_parser *parser, struct http_span name, struct http_span value)
{
    parser->line = parser->used;
    if (!put(parser, name.data, name.bytes) || !put(parser, ": ", 2) ||
        !put(parser, value.data, value.bytes) || !put(parser, "\r\n", 2))
        return bad(parser, 431, "the headers are too long");
    if (name.bytes == 0 || span(name.data, name.bytes, TOKEN) != name.bytes)
        return bad(parser, 400, "a header's name is malformed");
    return judge_field(parser, parser->used - parser->line - 2);
}

enum http_verdict
http_parser_put_end(struct http_parser *parser, enum http_rest rest)
{
    if (judge_head(parser) == HTTP_BAD)
        return HTTP_BAD;
    if (parser->is_chunked)
        return bad(parser, 400, "Transfer-Encoding is not for HTTP/2");
    if (rest == HTTP_NO_BODY && parser->length > 0)
        return bad(parser, 400, "Content-Length announces a body, and none comes");
    parser->is_chunked =
        rest == HTTP_BODY_FOLLOWS && http_parser_find(parser, "Content-Length") == NULL;
    return judge_request_body(parser);
}

const char *
http_parser_find(const struct http_parser *parser, const char *name)
{
    for (uint32_t i = 0; i < parser->field_count; i++)
        if (strcasecmp(parser->text + parser->fields[i].name, name) == 0)
            return parser->text + parser->fields[i].value;
    return NULL;
}

/* ---- targets ---- */

bool
http_target_path(const char *target, const char **path, size_t *bytes)
{
    if (target[0] != '/') {
        size_t scheme = strncasecmp(target, "http://", 7) == 0    ? 7
                        : strncasecmp(target, "https://", 8) == 0 ? 8
                                                                  : 0;
        if (scheme == 0)
            return false;
        target += scheme + strcspn(target + scheme, "/?#");
    }
    *path = target;
    *bytes = strcspn(target, "?#");
    return true;
}
