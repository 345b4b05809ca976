/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A connection that speaks HTTP/2: nghttp2 frames. http2.c moves the bytes, http2_stream.c knows
 * requests and their time limits, http2_head.c their heads.
 *
 * Callbacks. Input is handed to handlers from within nghttp2, which sends nothing until it has
 * returned. Output never calls a handler: streams that it closes, or that take more, wait in `news`
 * until the loop comes back to the connection. So no handler is called while another, or the same,
 * is writing.
 */
#pragma once

#include "base/bytes.h"
#include "http/internal.h"

#define HTTP2_PREFACE "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

enum { HTTP2_TRAILERS_MAX = HTTP_FIELDS_MAX };

struct nghttp2_rcbuf;
struct nghttp2_session;

/* The parts of a head that must wait for its end. */
struct http2_head {
    struct nghttp2_rcbuf *method;
    struct nghttp2_rcbuf *path;
    struct nghttp2_rcbuf *authority;
    struct bytes cookies; /* clients may send each by itself */
    enum http_verdict verdict;
    bool is_grpc; /* as its content-type says, also beside mistakes */
};

struct http2_stream {
    struct http_request request;
    struct http_parser parser;
    struct http2_head head;
    struct http2 *http2;
    int32_t id;
    enum http_state state; /* HTTP_HEAD_IN to HTTP_ANSWERED */
    bool is_closed;        /* nghttp2 has forgotten it */
    bool is_cut;           /* told to close: late if it does not */
    bool input_ended;      /* the client sends no more of it */
    bool is_deferred;      /* nghttp2 asks for output only when told */
    bool is_ending;        /* `out` is the rest of the answer */
    bool has_trailers;
    bool has_news;
    int64_t since_ns; /* this and the next three: as those of a connection */
    int64_t progress_ns;
    uint64_t moved;
    uint64_t moved_before;
    uint64_t body_bytes;  /* received */
    size_t trailer_bytes; /* likewise */
    struct evbuffer *in;  /* of a paused body, within its window */
    size_t paused_bytes;  /* of these, counted in the pool; the rest fill the connection's window */
    struct evbuffer *out; /* of the answer's body, not yet framed */
    struct bytes trailers; /* of the answer: "name\0value\0name\0..." */
    LIST_ENTRY(http2_stream) link;
    TAILQ_ENTRY(http2_stream) news_link;
};

struct http2 {
    struct http_connection *connection;
    struct nghttp2_session *session;
    bool is_running;       /* nghttp2, or a handler with news, is on the stack: output follows */
    bool is_over;          /* nothing is read or sent any more */
    bool has_parted;       /* the client was asked to connect elsewhere */
    bool takes_no_more;    /* a request has ended since: a client need not heed what it is asked */
    bool has_said_last;    /* that is said */
    uint32_t stream_count; /* that are not freed */
    uint32_t turn_count;   /* heads in this turn of the loop */
    uint32_t fault_count;  /* streams reset for the client's faults, in the second `fault_s` */
    int64_t fault_s;
    int64_t due_ns;        /* when a stream's time is over, or before; INT64_MAX: never */
    int64_t output_due_ns; /* when the client must have read the answers of closed streams */
    LIST_HEAD(, http2_stream) streams;
    TAILQ_HEAD(, http2_stream) news;
};

/* ---- http2.c ---- */

/* The connection speaks HTTP/2 from now on; the preface is still in its input. */
void http2_begin(struct http_connection *connection);
/* Processes input, output and news. Only from the loop: it may close the connection. */
void http2_run(struct http_connection *connection);
/* Frames what streams have to send, and writes it, or writes it after this turn of the loop. Calls
 * no handler, closes nothing. */
enum http2_moment { HTTP2_NOW, HTTP2_LATER };
void http2_flush(struct http2 *http2, enum http2_moment moment);
/* The state of the connection follows its streams, output, and session; a turn of its own follows
 * if there is more to do. Calls no handler, closes nothing. */
void http2_finish_turn(struct http2 *http2);
/* The client was asked to go; the connection closes when everything is answered. */
void http2_part(struct http2 *http2);
/* Says, before the connection closes, which requests were not begun. */
void http2_say_end(struct http2 *http2);
/* The streams were lost or forgotten. NULL is ignored. */
void http2_free(struct http2 *http2);
/* The client made a mistake that costs it a stream; too many a second end the connection. */
void http2_note_fault(struct http2 *http2);
/* These bytes of bodies were handed over or dropped: the client may send as many again. */
void http2_consume(struct http2 *http2, size_t bytes);

/* ---- http2_stream.c ---- */

extern const struct http_wire http2_wire;

struct http2_stream *http2_stream_open(struct http2 *http2, int32_t id);
/* The whole head came. */
void http2_stream_on_head(struct http2_stream *stream);
/* Returns how many of the bytes fill the connection's window until the body is resumed or dropped.
 */
size_t http2_stream_on_data(struct http2_stream *stream, const char *data, size_t bytes);
/* The body, if any, came whole. */
void http2_stream_on_end(struct http2_stream *stream);
/* nghttp2 forgets it. */
void http2_stream_on_close(struct http2_stream *stream);
/* Bytes of the answer were framed. */
void http2_stream_on_sent(struct http2_stream *stream, size_t bytes);
/* Notifies handlers of the events of as many streams as there are now. */
void http2_notify_news(struct http2 *http2);
void http2_on_time(struct http2 *http2, int64_t now_ns);
/* An answer is complete, and not yet taken by the kernel. */
bool http2_is_answering(const struct http2 *http2);
/* Notifies the handlers of open requests that the connection ends. */
void http2_lose_streams(struct http2 *http2);
/* Frees all, answered or not. */
void http2_forget_streams(struct http2 *http2);

/* ---- http2_head.c ---- */

/* A field of the head. Mistakes show at its end. */
void http2_head_take(struct http2_stream *stream, struct nghttp2_rcbuf *name,
                     struct nghttp2_rcbuf *value);
/* The head is whole. HTTP_DONE, or HTTP_BAD with the parser's code and mistake. */
enum http_verdict http2_head_end(struct http2_stream *stream, enum http_rest rest);
void http2_head_fini(struct http2_stream *stream);
