/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/front/rest_route.h"

#include <string.h>

enum { WORDS_MAX = 6 };

static int
hex_digit(char c)
{
    static const char digits[] = "0123456789abcdef";
    const char *found = c == '\0' ? NULL : strchr(digits, c >= 'A' && c <= 'F' ? c - 'A' + 'a' : c);
    return found == NULL ? -1 : (int)(found - digits);
}

/* %2F and its like, in place. Other text stays as it is; a zero byte has been refused before. */
static void
decode(char *word)
{
    char *to = word;
    for (const char *from = word; *from != '\0'; to++) {
        int high = *from == '%' ? hex_digit(from[1]) : -1;
        int low = high >= 0 ? hex_digit(from[2]) : -1;
        *to = low >= 0 ? (char)(high << 4 | low) : *from;
        from += low >= 0 ? 3 : 1;
    }
    *to = '\0';
}

/* Cuts the path at its slashes; 0: too long, or too many words. */
static unsigned
split(char *path, char *words[WORDS_MAX])
{
    size_t bytes = strlen(path);
    if (bytes > 1 && path[bytes - 1] == '/')
        path[bytes - 1] = '\0';
    unsigned count = 0;
    for (char *slash = path; slash != NULL && *slash == '/'; slash = strchr(slash + 1, '/')) {
        if (count == WORDS_MAX)
            return 0;
        words[count++] = slash + 1;
    }
    for (unsigned i = 1; i < count; i++)
        words[i][-1] = '\0';
    for (unsigned i = 0; i < count; i++)
        decode(words[i]);
    return count;
}

static enum rest_what
model_what(const char *action)
{
    if (action == NULL)
        return REST_MODEL;
    if (strcmp(action, "ready") == 0)
        return REST_MODEL_READY;
    return strcmp(action, "infer") == 0 ? REST_INFER : REST_NOWHERE;
}

/* models/NAME[/versions/VERSION][/ACTION] */
static enum rest_what
route_model(struct rest_route *route, char *words[WORDS_MAX], unsigned count)
{
    route->model = words[2];
    unsigned next = 3;
    if (count > 4 && strcmp(words[3], "versions") == 0) {
        route->version = words[4];
        next = 5;
    }
    if (count > next + 1)
        return REST_NOWHERE;
    return model_what(count > next ? words[next] : NULL);
}

void
rest_route(struct rest_route *route, const char *path)
{
    char *words[WORDS_MAX];
    size_t bytes = strlen(path);
    route->what = REST_NOWHERE;
    route->model = "";
    route->version = "";
    if (bytes > REST_PATH_BYTES_MAX)
        return;
    memcpy(route->path, path, bytes + 1);
    unsigned count = split(route->path, words);
    if (count == 0 || strcmp(words[0], "v2") != 0)
        return;
    if (count == 1)
        route->what = REST_SERVER;
    else if (count == 3 && strcmp(words[1], "health") == 0 && strcmp(words[2], "live") == 0)
        route->what = REST_LIVE;
    else if (count == 3 && strcmp(words[1], "health") == 0 && strcmp(words[2], "ready") == 0)
        route->what = REST_READY;
    else if (count >= 3 && strcmp(words[1], "models") == 0)
        route->what = route_model(route, words, count);
}

const char *
rest_route_allows(enum rest_what what, enum http_method method)
{
    if (what == REST_INFER)
        return method == HTTP_POST ? NULL : "POST";
    return method == HTTP_GET || method == HTTP_HEAD ? NULL : "GET, HEAD";
}

int
rest_code(enum status status)
{
    static const short codes[STATUS_COUNT] = {
        [STATUS_OK] = 200,
        [STATUS_CANCELLED] = 499,
        [STATUS_UNKNOWN] = 500,
        [STATUS_INVALID_ARGUMENT] = 400,
        [STATUS_DEADLINE_EXCEEDED] = 504,
        [STATUS_NOT_FOUND] = 404,
        [STATUS_ALREADY_EXISTS] = 409,
        [STATUS_PERMISSION_DENIED] = 403,
        [STATUS_RESOURCE_EXHAUSTED] = 429,
        [STATUS_FAILED_PRECONDITION] = 503, /* the operator's to mend: a model's file is broken */
        [STATUS_ABORTED] = 409,
        [STATUS_OUT_OF_RANGE] = 400,
        [STATUS_UNIMPLEMENTED] = 501,
        [STATUS_INTERNAL] = 500,
        [STATUS_UNAVAILABLE] = 503,
        [STATUS_DATA_LOSS] = 500,
        [STATUS_UNAUTHENTICATED] = 401,
    };
    return (unsigned)status < STATUS_COUNT ? codes[status] : 500;
}
