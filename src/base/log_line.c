/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log_line.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/json.h"
#include "base/utf8.h"

enum { CONVERSION_BYTES = 32, KEY_BYTES = 64, ESCAPE_BYTES_MAX = 6 };

/* A list that several functions consume in turn. */
struct log_arguments {
    va_list list;
};

struct log_text {
    char data[LOG_LINE_BYTES_MAX];
    size_t used;
    bool is_integer; /* it is one integer and nothing else */
};

/* ---- conversions ---- */

static void
text_add(struct log_text *text, const char *data, size_t bytes)
{
    size_t room = sizeof(text->data) - text->used;
    size_t taken = bytes < room ? bytes : room;
    memcpy(text->data + text->used, data, taken);
    text->used += taken;
}

static int64_t
take_signed(struct log_arguments *args, const char *size)
{
    if (strcmp(size, "ll") == 0)
        return va_arg(args->list, long long);
    if (strcmp(size, "l") == 0)
        return va_arg(args->list, long);
    if (strcmp(size, "z") == 0)
        return va_arg(args->list, ssize_t);
    CHECK(size[0] == '\0');
    return va_arg(args->list, int);
}

static uint64_t
take_unsigned(struct log_arguments *args, const char *size)
{
    if (strcmp(size, "ll") == 0)
        return va_arg(args->list, unsigned long long);
    if (strcmp(size, "l") == 0)
        return va_arg(args->list, unsigned long);
    if (strcmp(size, "z") == 0)
        return va_arg(args->list, size_t);
    CHECK(size[0] == '\0');
    return va_arg(args->list, unsigned);
}

static void
add_string(struct log_text *text, const char *string, int precision)
{
    if (string == NULL)
        string = "(null)";
    text_add(text, string, precision < 0 ? strlen(string) : strnlen(string, (size_t)precision));
}

/* Reads ".N" or ".*"; -1: there is none. */
static int
read_precision(const char **at, struct log_arguments *args)
{
    int precision = 0;
    if (**at != '.')
        return -1;
    ++*at;
    if (**at == '*') {
        ++*at;
        return va_arg(args->list, int);
    }
    for (; isdigit((unsigned char)**at); ++*at)
        precision = 10 * precision + (**at - '0');
    return precision;
}

/* Adds one argument. Of printf's conversions the log has these; tests/tidy finds others in the
 * sources. Returns the format behind it. */
static const char *
convert(struct log_text *text, const char *at, struct log_arguments *args)
{
    char number[CONVERSION_BYTES];
    char size[3] = "";
    size_t letters = 0;
    int precision = read_precision(&at, args);
    while ((*at == 'l' || *at == 'z') && letters < 2)
        size[letters++] = *at++;
    switch (*at) {
    case '%': text_add(text, "%", 1); return at + 1;
    case 's': add_string(text, va_arg(args->list, const char *), precision); return at + 1;
    case 'd':
    case 'i': snprintf(number, sizeof(number), "%" PRId64, take_signed(args, size)); break;
    case 'u': snprintf(number, sizeof(number), "%" PRIu64, take_unsigned(args, size)); break;
    case 'x': snprintf(number, sizeof(number), "%" PRIx64, take_unsigned(args, size)); break;
    default: CHECK(false);
    }
    text->is_integer = text->used == 0 && *at != 'x';
    text_add(text, number, strlen(number));
    return at + 1;
}

/* Fills in the format's arguments up to `end`. */
static void
fill(struct log_text *text, const char *format, const char *end, struct log_arguments *args)
{
    text->used = 0;
    text->is_integer = false;
    while (format < end) {
        if (*format == '%') {
            format = convert(text, format + 1, args);
        } else {
            text->is_integer = false;
            text_add(text, format++, 1);
        }
    }
}

/* ---- fields ---- */

static bool
is_bare(unsigned char character)
{
    return character > ' ' && character != '"' && character != '=' && character != '\\' &&
           character != 0x7f;
}

static bool
needs_quotes(const char *value, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (!is_bare((unsigned char)value[i]))
            return true;
    return bytes == 0 || !utf8_is_text(value, bytes);
}

struct log_field {
    const char *key;
    const struct log_text *value;
    bool is_quoted; /* in the format */
};

struct log_words {
    struct bytes *out;
    enum log_format form;
    struct json json;
};

static void
put_value(struct log_words *line, const struct log_field *field, size_t bytes)
{
    const char *value = field->value->data;
    bool is_number = field->value->is_integer && !field->is_quoted;
    if (line->form == LOG_FORMAT_JSON) {
        json_name(&line->json, field->key);
        if (is_number)
            json_put_raw(&line->json, value, bytes);
        else
            json_put_text(&line->json, value, bytes);
        return;
    }
    bytes_put_char(line->out, ' ');
    bytes_put_text(line->out, field->key);
    bytes_put_char(line->out, '=');
    if (field->is_quoted || needs_quotes(value, bytes))
        json_quote(line->out, value, bytes, JSON_STYLE_ANY);
    else
        bytes_put(line->out, value, bytes);
}

/* Cuts the value between characters until the line has room for its end; leaves the field out if
 * there is no room at all. */
static void
put_field(struct log_words *line, const struct log_field *field)
{
    const size_t room = LOG_LINE_BYTES_MAX - 2; /* but for a brace and the newline */
    size_t before = line->out->used;
    size_t bytes = field->value->used;
    put_value(line, field, bytes);
    while (line->out->used > room && bytes > 0) {
        size_t beyond = (line->out->used - room + ESCAPE_BYTES_MAX - 1) / ESCAPE_BYTES_MAX;
        bytes = field->value->is_integer || beyond > bytes ? 0 : bytes - beyond;
        while (bytes > 0 && (field->value->data[bytes] & 0xc0) == 0x80)
            bytes--;
        line->out->used = before;
        if (bytes > 0)
            put_value(line, field, bytes);
    }
    if (line->out->used > room)
        line->out->used = before;
}

/* The end of a word of the format: a space outside quotes, or the end. */
static const char *
word_end(const char *at)
{
    bool quoted = false;
    for (; *at != '\0' && (quoted || *at != ' '); at++)
        quoted ^= *at == '"';
    return at;
}

/* A key is a name, even if an argument gives it. */
static void
make_key(char key[KEY_BYTES], const struct log_text *text)
{
    size_t bytes = text->used < KEY_BYTES ? text->used : KEY_BYTES - 1;
    for (size_t i = 0; i < bytes; i++) {
        unsigned char character = (unsigned char)text->data[i];
        key[i] = isalnum(character) && character < 0x80 ? text->data[i] : '_';
    }
    key[bytes] = '\0';
}

/* `key=value`. A word without a key has the key `text`. */
static const char *
put_word(struct log_words *line, const char *word, struct log_arguments *args)
{
    const char *end = word_end(word);
    const char *equals = memchr(word, '=', (size_t)(end - word));
    struct log_text text;
    char key[KEY_BYTES] = "text";
    if (equals != NULL) {
        fill(&text, word, equals, args);
        make_key(key, &text);
        word = equals + 1;
    }
    bool is_quoted = end - word >= 2 && word[0] == '"' && end[-1] == '"';
    fill(&text, word + is_quoted, end - is_quoted, args);
    put_field(line, &(struct log_field){key, &text, is_quoted});
    return end;
}

static void
put_head(struct log_words *line, const struct log_head *head, const char *event, size_t bytes)
{
    if (line->form == LOG_FORMAT_JSON) {
        line->json = json_begin(line->out, JSON_STYLE_ANY);
        json_open(&line->json, '{');
        json_field_string(&line->json, "time", head->time);
        json_field_string(&line->json, "level", head->level);
        json_field_string(&line->json, "program", head->program);
        json_name(&line->json, "event");
        json_put_text(&line->json, event, bytes);
        return;
    }
    bytes_put_text(line->out, head->time);
    bytes_put_char(line->out, ' ');
    bytes_put_text(line->out, head->level);
    bytes_put_char(line->out, ' ');
    bytes_put_text(line->out, head->program);
    bytes_put_char(line->out, ' ');
    bytes_put(line->out, event, bytes);
}

void
log_line_put(struct bytes *out, enum log_format form, const struct log_head *head,
             const char *format, va_list args)
{
    struct log_words line = {.out = out, .form = form};
    struct log_arguments arguments;
    va_copy(arguments.list, args);
    const char *at = word_end(format);
    put_head(&line, head, format, (size_t)(at - format));
    for (;;) {
        while (*at == ' ')
            at++;
        if (*at == '\0')
            break;
        at = put_word(&line, at, &arguments);
    }
    va_end(arguments.list);
    bytes_put_text(out, form == LOG_FORMAT_JSON ? "}\n" : "\n");
}

/* ---- lines of other processes ---- */

struct log_reader {
    const char *at;
    const char *end;
};

static bool
skip(struct log_reader *reader, const char *text)
{
    size_t bytes = strlen(text);
    if ((size_t)(reader->end - reader->at) < bytes || memcmp(reader->at, text, bytes) != 0)
        return false;
    reader->at += bytes;
    return true;
}

static bool
skip_escape(struct log_reader *reader)
{
    if (skip(reader, "u")) {
        for (int i = 0; i < 4; i++, reader->at++)
            if (reader->at == reader->end || !isxdigit((unsigned char)*reader->at))
                return false;
        return true;
    }
    return skip(reader, "\"") || skip(reader, "\\") || skip(reader, "n") || skip(reader, "r") ||
           skip(reader, "t");
}

static bool
skip_string(struct log_reader *reader)
{
    if (!skip(reader, "\""))
        return false;
    while (reader->at < reader->end && *reader->at != '"') {
        size_t length = utf8_length(reader->at, (size_t)(reader->end - reader->at));
        if (length == 0 || (unsigned char)*reader->at < ' ' || *reader->at == 0x7f)
            return false;
        reader->at += length;
        if (reader->at[-1] == '\\' && !skip_escape(reader))
            return false;
    }
    return skip(reader, "\"");
}

/* Skips at least one character that needs no quotes. */
static bool
skip_bare(struct log_reader *reader)
{
    const char *start = reader->at;
    while (reader->at < reader->end && is_bare((unsigned char)*reader->at))
        reader->at++;
    return reader->at > start && utf8_is_text(start, (size_t)(reader->at - start));
}

static bool
skip_integer(struct log_reader *reader)
{
    (void)skip(reader, "-");
    const char *start = reader->at;
    while (reader->at < reader->end && isdigit((unsigned char)*reader->at))
        reader->at++;
    return reader->at > start && (*start != '0' || reader->at == start + 1);
}

static bool
is_logfmt(struct log_reader *reader, const char *program)
{
    bool good = skip_bare(reader) && skip(reader, " ") && skip_bare(reader) && skip(reader, " ") &&
                skip(reader, program) && skip_bare(reader) && skip(reader, " ") &&
                skip_bare(reader);
    while (good && reader->at < reader->end)
        good = skip(reader, " ") && skip_bare(reader) && skip(reader, "=") &&
               (skip_string(reader) || skip_bare(reader));
    return good;
}

static bool
is_json(struct log_reader *reader, const char *program)
{
    bool good = skip(reader, "{\"time\":") && skip_string(reader) && skip(reader, ",\"level\":") &&
                skip_string(reader) && skip(reader, ",\"program\":\"") && skip(reader, program) &&
                skip_bare(reader) && skip(reader, "\",\"event\":") && skip_string(reader);
    while (good && skip(reader, ","))
        good = skip_string(reader) && skip(reader, ":") &&
               (skip_string(reader) || skip_integer(reader));
    return good && skip(reader, "}") && reader->at == reader->end;
}

bool
log_line_is_valid(enum log_format form, const char *program, const char *line, size_t bytes)
{
    struct log_reader reader = {line, line + bytes};
    return form == LOG_FORMAT_JSON ? is_json(&reader, program) : is_logfmt(&reader, program);
}

/* The next word, up to a space or an equals sign, which is passed. */
static struct log_text
read_word(struct log_reader *reader)
{
    struct log_text word = {.used = 0};
    const char *start = reader->at;
    (void)skip_bare(reader);
    text_add(&word, start, (size_t)(reader->at - start));
    reader->at += reader->at < reader->end;
    return word;
}

static void
translate_value(struct json *json, struct log_reader *reader)
{
    const char *start = reader->at;
    bool is_string = skip_string(reader);
    bool is_raw = is_string || skip_integer(reader);
    is_raw = is_raw && (reader->at == reader->end || *reader->at == ' ');
    if (!is_raw) {
        reader->at = start;
        (void)skip_bare(reader);
        json_put_text(json, start, (size_t)(reader->at - start));
    } else {
        json_put_raw(json, start, (size_t)(reader->at - start));
    }
    reader->at += reader->at < reader->end;
}

bool
log_line_translate(struct bytes *out, const char *program, const char *line, size_t bytes)
{
    static const char *const head[] = {"time", "level", "program", "event"};
    struct log_reader reader = {line, line + bytes};
    if (!is_logfmt(&reader, program))
        return false;
    reader.at = line;
    struct json json = json_begin(out, JSON_STYLE_ANY);
    json_open(&json, '{');
    for (size_t i = 0; i < ARRAY_COUNT(head); i++) {
        const struct log_text word = read_word(&reader);
        json_name(&json, head[i]);
        json_put_text(&json, word.data, word.used);
    }
    while (reader.at < reader.end) {
        const struct log_text word = read_word(&reader);
        char key[KEY_BYTES];
        make_key(key, &word);
        json_name(&json, key);
        translate_value(&json, &reader);
    }
    json_close(&json, '}');
    return true;
}
