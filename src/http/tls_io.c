/* SPDX-License-Identifier: Apache-2.0 */
#include "http/tls_io.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include "base/check.h"

void
http_tls_set_fd(SSL *ssl, int fd)
{
    CHECK(SSL_set_fd(ssl, fd) == 1);
    SSL_set_mode(ssl, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
}

/* The meaning of a call's result. An end without close_notify is an error, unless
 * SSL_OP_IGNORE_UNEXPECTED_EOF is set. */
static enum http_moved
judge(SSL *ssl, int result)
{
    int error = SSL_get_error(ssl, result);
    ERR_clear_error();
    return error == SSL_ERROR_NONE          ? HTTP_MOVED
           : error == SSL_ERROR_WANT_READ   ? HTTP_MOVE_WANTS_INPUT
           : error == SSL_ERROR_WANT_WRITE  ? HTTP_MOVE_WANTS_OUTPUT
           : error == SSL_ERROR_ZERO_RETURN ? HTTP_MOVE_ENDED
                                            : HTTP_MOVE_FAILED;
}

enum http_moved
http_tls_shake_hands(SSL *ssl)
{
    ERR_clear_error();
    enum http_moved moved = judge(ssl, SSL_do_handshake(ssl));
    return moved == HTTP_MOVE_ENDED ? HTTP_MOVE_FAILED : moved;
}

enum http_moved
http_tls_read(SSL *ssl, void *data, size_t room, size_t *used)
{
    ERR_clear_error();
    return judge(ssl, SSL_read_ex(ssl, data, room, used));
}

enum http_moved
http_tls_write(SSL *ssl, const void *data, size_t bytes, size_t *used)
{
    ERR_clear_error();
    return judge(ssl, SSL_write_ex(ssl, data, bytes, used));
}

bool
http_tls_has_pending(SSL *ssl)
{
    return SSL_pending(ssl) > 0;
}

const char *
http_tls_mistake(const SSL *ssl)
{
    long result = SSL_get_verify_result(ssl);
    return result == X509_V_OK ? NULL : X509_verify_cert_error_string(result);
}

void
http_tls_free(SSL *ssl)
{
    SSL_free(ssl);
}
