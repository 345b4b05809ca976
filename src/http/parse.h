/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The head of an HTTP/1 request or answer: input in any pieces, a validated head out. Pure: no I/O,
 * no time. The verdict on a sequence of bytes does not depend on where it was cut.
 *
 * The parser is strict wherever a lenient one would let two readers see different requests: every
 * line ends in CR LF, names are tokens that touch their colon, no line is folded, no byte is a
 * control character, and the body's length is given exactly once.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum http_verdict { HTTP_MORE, HTTP_DONE, HTTP_BAD };

/* An answer to HEAD has no body, in spite of its length. */
enum http_parsed { HTTP_PARSE_REQUEST, HTTP_PARSE_ANSWER, HTTP_PARSE_ANSWER_TO_HEAD };

enum { HTTP_FIELDS_MAX = 128, HTTP_METHOD_BYTES_MAX = 32 };

/* Offsets into the text, each of a NUL-terminated string. */
struct http_field {
    uint32_t name;
    uint32_t value;
};

struct http_parser {
    enum http_parsed parsed;
    size_t bytes_max; /* of the head, with its final empty line */
    char *text;       /* received so far */
    size_t used;
    size_t room;
    size_t line; /* start of the incomplete line */
    bool has_first_line;
    uint32_t field_count;
    uint32_t field_room;
    struct http_field *fields;

    /* after HTTP_DONE */
    uint32_t method; /* offsets, like those of fields; of a request */
    uint32_t target;
    int status;       /* of an answer: 100 to 599 */
    bool until_close; /* an answer's body lasts until the server closes */
    unsigned minor;   /* version HTTP/1.minor */
    bool keep_alive;
    bool expects_continue;
    bool is_chunked;
    uint64_t length; /* of the body, if it is not chunked; saturates */

    /* after HTTP_BAD */
    int code; /* to answer a request with */
    const char *mistake;
};

void http_parser_init(struct http_parser *parser, enum http_parsed parsed, size_t bytes_max);
void http_parser_fini(struct http_parser *parser);
/* Prepares for the next head; keeps a small buffer. */
void http_parser_reset(struct http_parser *parser);

/* Consumes `*used` bytes, which belong to this head. HTTP_MORE: all were used. */
enum http_verdict http_parser_feed(struct http_parser *parser, const char *data, size_t bytes,
                                   size_t *used);

/* HTTP/2: a head that comes as fields, in any order. Each is judged as if it were a line of HTTP/1,
 * so nothing can be read as another line, here or behind a proxy. HTTP_MORE or HTTP_BAD. */
struct http_span {
    const char *data;
    size_t bytes;
};
enum http_verdict http_parser_put_request(struct http_parser *parser, struct http_span method,
                                          struct http_span target);
enum http_verdict http_parser_put_field(struct http_parser *parser, struct http_span name,
                                        struct http_span value);
/* All fields were put, the request too. HTTP_DONE or HTTP_BAD. A body of unknown length counts as
 * chunked. */
enum http_rest { HTTP_NO_BODY, HTTP_BODY_FOLLOWS };
enum http_verdict http_parser_put_end(struct http_parser *parser, enum http_rest rest);

/* The value of the first field with that name, in any case, or NULL. */
const char *http_parser_find(const struct http_parser *parser, const char *name);

/* Finds the path of a target of the form "/path?query" or "http://host/path". 0 bytes: the path is
 * "/". False: it has neither form. */
bool http_target_path(const char *target, const char **path, size_t *bytes);

/* Validates a field's line without its CR LF: returns the mistake, or NULL and the positions of its
 * parts. */
const char *http_field_judge(const char *line, size_t bytes, size_t *name_bytes, size_t *value,
                             size_t *value_bytes);
