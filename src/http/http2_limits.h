/* SPDX-License-Identifier: Apache-2.0 */
/* Limits of a connection that speaks HTTP/2 with us as the server, beside those of its owner. */
#pragma once

#include <stdbool.h>

struct nghttp2_option;
struct nghttp2_session;

enum {
    HTTP2_WRITE_BYTES = 256 << 10, /* that wait for the socket */
    HTTP2_HEADER_COST_BYTES = 32,  /* of each header, as HTTP/2 counts them */
    HTTP2_DATA_HEAD_BYTES = 9,     /* of a DATA frame */
};

/* Windows are granted by hand; a client that resets streams faster than clients that give up do is
 * sent away. Freed by nghttp2_option_del. */
struct nghttp2_option *http2_option_create(void);
/* Frames that the client does not read pile up. */
bool http2_is_flooded(struct nghttp2_session *session);
