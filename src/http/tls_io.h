/* SPDX-License-Identifier: Apache-2.0 */
/* OpenSSL's calls that move bytes, without blocking. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct http_tls;
struct ssl_st;

enum http_moved {
    HTTP_MOVED,
    HTTP_MOVE_WANTS_INPUT,  /* nothing: the socket must be readable first */
    HTTP_MOVE_WANTS_OUTPUT, /* it must be writable first */
    HTTP_MOVE_ENDED,        /* the peer has said that no more comes */
    HTTP_MOVE_FAILED
};

void http_tls_set_fd(struct ssl_st *ssl, int fd);
enum http_moved http_tls_shake_hands(struct ssl_st *ssl);
enum http_moved http_tls_read(struct ssl_st *ssl, void *data, size_t room, size_t *used);
enum http_moved http_tls_write(struct ssl_st *ssl, const void *data, size_t bytes, size_t *used);
/* Bytes have been received that the kernel does not know of. */
bool http_tls_has_pending(struct ssl_st *ssl);
/* The versions that one side offers the other. */
enum http_versions { HTTP_1_ALONE, HTTP_1_OR_2, HTTP_2_ALONE };
/* Returns the state of a client's connection to a server that must have this name, or numeric
 * address, in its certificate. NULL: no memory. It is in tls.c. */
struct ssl_st *http_tls_connect(struct http_tls *tls, const char *name, enum http_versions offered);
/* Returns true if the handshake chose HTTP/2. It is in tls.c. */
bool http_tls_is_http2(const struct ssl_st *ssl);
/* Returns why the peer's certificate was refused; NULL: it was not. */
const char *http_tls_mistake(const struct ssl_st *ssl);
/* NULL is ignored. */
void http_tls_free(struct ssl_st *ssl);
