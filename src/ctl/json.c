/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/json.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/json_text.h"
#include "base/number_text.h"

void
json_init(struct json *json, FILE *out)
{
    *json = (struct json){.out = out};
}

/* Before any value or key. */
static void
separate(struct json *json)
{
    if (json->after_key) {
        json->after_key = false;
        return;
    }
    if (json->started[json->depth])
        fputs(", ", json->out);
    json->started[json->depth] = true;
}

static void
begin(struct json *json, char bracket)
{
    separate(json);
    CHECK(json->depth + 1 < JSON_DEPTH_MAX);
    putc(bracket, json->out);
    json->started[++json->depth] = false;
}

static void
end(struct json *json, char bracket)
{
    CHECK(json->depth > 0 && !json->after_key);
    json->depth--;
    putc(bracket, json->out);
}

void
json_object_begin(struct json *json)
{
    begin(json, '{');
}

void
json_object_end(struct json *json)
{
    end(json, '}');
}

void
json_array_begin(struct json *json)
{
    begin(json, '[');
}

void
json_array_end(struct json *json)
{
    end(json, ']');
}

/* ---- strings ---- */

static void
quoted(FILE *out, const char *text, size_t bytes)
{
    struct bytes quoted = {0};
    json_put_text(&quoted, text, bytes, JSON_ESCAPES_ANY);
    CHECK(!quoted.failed);
    fwrite(quoted.data, 1, quoted.used, out);
    bytes_fini(&quoted);
}

void
json_key(struct json *json, const char *key)
{
    separate(json);
    quoted(json->out, key, strlen(key));
    fputs(": ", json->out);
    json->after_key = true;
}

void
json_text(struct json *json, const char *text, size_t bytes)
{
    separate(json);
    quoted(json->out, text, bytes);
}

/* ---- numbers ---- */

static bool
special(struct json *json, double number)
{
    if (isfinite(number))
        return false;
    const char *text = isnan(number) ? "\"NaN\"" : number > 0 ? "\"Infinity\"" : "\"-Infinity\"";
    fputs(text, json->out);
    return true;
}

void
json_double(struct json *json, double number)
{
    char room[NUMBER_ROOM];
    separate(json);
    if (special(json, number))
        return;
    number_text_double(room, number);
    fputs(room, json->out);
}

void
json_float(struct json *json, float number)
{
    char room[NUMBER_ROOM];
    separate(json);
    if (special(json, (double)number))
        return;
    number_text_float(room, number);
    fputs(room, json->out);
}

void
json_int(struct json *json, int64_t number)
{
    separate(json);
    fprintf(json->out, "%" PRId64, number);
}

void
json_uint(struct json *json, uint64_t number)
{
    separate(json);
    fprintf(json->out, "%" PRIu64, number);
}

void
json_bool(struct json *json, bool truth)
{
    separate(json);
    fputs(truth ? "true" : "false", json->out);
}

void
json_null(struct json *json)
{
    separate(json);
    fputs("null", json->out);
}

/* ---- fields ---- */

void
json_field_string(struct json *json, const char *key, const char *text)
{
    json_key(json, key);
    json_text(json, text, strlen(text));
}

void
json_field_int(struct json *json, const char *key, int64_t number)
{
    json_key(json, key);
    json_int(json, number);
}

void
json_field_uint(struct json *json, const char *key, uint64_t number)
{
    json_key(json, key);
    json_uint(json, number);
}

void
json_field_double(struct json *json, const char *key, double number)
{
    json_key(json, key);
    json_double(json, number);
}

void
json_field_bool(struct json *json, const char *key, bool truth)
{
    json_key(json, key);
    json_bool(json, truth);
}
