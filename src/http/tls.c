/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TLS of a listener or of a client. Certificates are fetched at each connection, and when they have
 * changed a new SSL_CTX replaces the old one; connections keep theirs.
 */
#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/log.h"
#include "http/internal.h"
#include "http/tls_io.h"

enum tls_side { TLS_SERVER, TLS_CLIENT };

struct http_tls {
    enum tls_side side;
    struct http_tls_source source;
    SSL_CTX *current;
    uint64_t version;
    struct error error; /* of the last attempt */
};

static enum status
openssl_error(struct error *error, const char *what)
{
    const char *reason = ERR_reason_error_string(ERR_peek_error());
    ERR_clear_error();
    return error_set(error, STATUS_INVALID_ARGUMENT, "TLS: %s (OpenSSL: %s)", what,
                     reason != NULL ? reason : "no reason given");
}

static BIO *
bio_of(const char *text)
{
    BIO *bio = BIO_new_mem_buf(text, -1);
    CHECK(bio != NULL);
    return bio;
}

/* The first is the node's own, the others are between it and its authority. */
static bool
use_certificates(SSL_CTX *context, const char *text)
{
    BIO *bio = bio_of(text);
    X509 *certificate = PEM_read_bio_X509(bio, NULL, NULL, NULL);
    bool used = certificate != NULL && SSL_CTX_use_certificate(context, certificate) == 1;
    X509_free(certificate);
    while (used && (certificate = PEM_read_bio_X509(bio, NULL, NULL, NULL)) != NULL)
        if (SSL_CTX_add0_chain_cert(context, certificate) != 1) {
            X509_free(certificate);
            used = false;
        }
    BIO_free(bio);
    if (used)
        ERR_clear_error(); /* the error of reaching the end */
    return used;
}

/* Gives no password: otherwise OpenSSL would ask at the terminal, and the loop would wait. */
static int
no_password(char *password, // NOLINT(readability-non-const-parameter): OpenSSL's type
            int bytes, int is_writing, void *context)
{
    (void)password;
    (void)bytes;
    (void)is_writing;
    (void)context;
    return -1;
}

static bool
use_key(SSL_CTX *context, const char *text)
{
    BIO *bio = bio_of(text);
    EVP_PKEY *key = PEM_read_bio_PrivateKey(bio, NULL, no_password, NULL);
    bool used = key != NULL && SSL_CTX_use_PrivateKey(context, key) == 1 &&
                SSL_CTX_check_private_key(context) == 1;
    EVP_PKEY_free(key);
    BIO_free(bio);
    return used;
}

static bool
use_authorities(SSL_CTX *context, const char *text)
{
    BIO *bio = bio_of(text);
    X509_STORE *store = SSL_CTX_get_cert_store(context);
    X509 *certificate;
    bool used = false;
    while ((certificate = PEM_read_bio_X509(bio, NULL, NULL, NULL)) != NULL) {
        used = X509_STORE_add_cert(store, certificate) == 1 &&
               SSL_CTX_add_client_CA(context, certificate) == 1;
        X509_free(certificate);
        if (!used)
            break;
    }
    BIO_free(bio);
    if (used)
        ERR_clear_error();
    return used;
}

static const unsigned char protocol[] = "\x08http/1.1";
static const unsigned char protocols[] = "\x02h2\x08http/1.1";
static const unsigned char protocol_2[] = "\x02h2";

static int
choose_protocol(SSL *ssl, const unsigned char **out, unsigned char *out_bytes,
                const unsigned char *in, unsigned in_bytes, void *argument)
{
    (void)argument;
    bool may_be_2 = SSL_get_app_data(ssl) != NULL;
    unsigned char *chosen;
    if (SSL_select_next_proto(&chosen, out_bytes, may_be_2 ? protocols : protocol,
                              (may_be_2 ? sizeof(protocols) : sizeof(protocol)) - 1, in,
                              in_bytes) != OPENSSL_NPN_NEGOTIATED)
        return SSL_TLSEXT_ERR_NOACK;
    *out = chosen;
    return SSL_TLSEXT_ERR_OK;
}

static void
set_options(SSL_CTX *context)
{
    CHECK(SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION) == 1);
    SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
    SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS);
    /* a resumed session would use earlier certificates */
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
}

static void
set_server_options(SSL_CTX *context, enum http_tls_clients clients)
{
    static const int modes[] = {
        [HTTP_TLS_ANY] = SSL_VERIFY_NONE,
        [HTTP_TLS_OPTIONAL] = SSL_VERIFY_PEER,
        [HTTP_TLS_REQUIRED] = SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT,
    };
    static const unsigned char session_name[] = "shoal";
    SSL_CTX_set_options(context, SSL_OP_IGNORE_UNEXPECTED_EOF | SSL_OP_NO_TICKET);
    SSL_CTX_set_verify(context, modes[clients], NULL);
    CHECK(SSL_CTX_set_session_id_context(context, session_name, sizeof(session_name) - 1) == 1);
    SSL_CTX_set_alpn_select_cb(context, choose_protocol, NULL);
}

/* An end without close_notify stays an error: it could be an attacker's. */
static void
set_client_options(SSL_CTX *context)
{
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL);
    CHECK(SSL_CTX_set_alpn_protos(context, protocol, sizeof(protocol) - 1) == 0);
}

/* The callback of http_tls_source. Invalid certificates leave the old ones in use. */
static void
take(void *taker, const struct http_pems *pems)
{
    struct http_tls *tls = taker;
    bool is_client = tls->side == TLS_CLIENT;
    SSL_CTX *context = SSL_CTX_new(is_client ? TLS_client_method() : TLS_server_method());
    CHECK(context != NULL);
    ERR_clear_error();
    set_options(context);
    if (is_client)
        set_client_options(context);
    else
        set_server_options(context, tls->source.clients);
    struct error none = ERROR_NONE;
    tls->error = none;
    if (pems->certificate != NULL && !use_certificates(context, pems->certificate))
        (void)openssl_error(&tls->error, "the certificate cannot be used");
    else if (pems->certificate != NULL && !use_key(context, pems->key))
        (void)openssl_error(&tls->error,
                            "the key cannot be used with the certificate, or has a password");
    else if (pems->ca != NULL && !use_authorities(context, pems->ca))
        (void)openssl_error(&tls->error, is_client ? "the authorities of servers cannot be used"
                                                   : "the authorities of clients cannot be used");
    else if (is_client && pems->ca == NULL && SSL_CTX_set_default_verify_dir(context) != 1)
        (void)openssl_error(&tls->error, "the system's authorities cannot be used");
    if (tls->error.status != STATUS_OK) {
        log_warn("tls_kept what=http error=\"%s\" action=\"the former certificates stay in use\"",
                 tls->error.text);
        SSL_CTX_free(context);
        return;
    }
    SSL_CTX_free(tls->current);
    tls->current = context;
}

static enum status
create(const struct http_tls_source *source, enum tls_side side, struct http_tls **created,
       struct error *error)
{
    struct http_tls *tls = calloc(1, sizeof(*tls));
    CHECK(tls != NULL);
    tls->side = side;
    tls->source = *source;
    tls->version = source->fetch(source->context, 0, take, tls);
    *created = tls;
    if (tls->current != NULL)
        return STATUS_OK;
    error_set(error, STATUS_INVALID_ARGUMENT, "%s", tls->error.text);
    http_tls_destroy(tls);
    *created = NULL;
    return STATUS_INVALID_ARGUMENT;
}

enum status
http_tls_create(const struct http_tls_source *source, struct http_tls **tls, struct error *error)
{
    return create(source, TLS_SERVER, tls, error);
}

enum status
http_tls_create_client(const struct http_tls_source *source, struct http_tls **tls,
                       struct error *error)
{
    return create(source, TLS_CLIENT, tls, error);
}

void
http_tls_destroy(struct http_tls *tls)
{
    if (tls == NULL)
        return;
    SSL_CTX_free(tls->current);
    free(tls);
}

SSL *
http_tls_accept(struct http_tls *tls, enum http_versions offered)
{
    tls->version = tls->source.fetch(tls->source.context, tls->version, take, tls);
    SSL *ssl = SSL_new(tls->current);
    if (ssl == NULL)
        return NULL;
    SSL_set_accept_state(ssl);
    CHECK(SSL_set_app_data(ssl, offered == HTTP_1_OR_2 ? tls : NULL) == 1);
    return ssl;
}

bool
http_tls_is_http2(const SSL *ssl)
{
    const unsigned char *chosen;
    unsigned bytes;
    SSL_get0_alpn_selected(ssl, &chosen, &bytes);
    return bytes == 2 && memcmp(chosen, "h2", 2) == 0;
}

SSL *
http_tls_connect(struct http_tls *tls, const char *name, enum http_versions offered)
{
    tls->version = tls->source.fetch(tls->source.context, tls->version, take, tls);
    SSL *ssl = SSL_new(tls->current);
    if (ssl == NULL)
        return NULL;
    SSL_set_connect_state(ssl);
    if (offered == HTTP_2_ALONE) /* else the context's */
        CHECK(SSL_set_alpn_protos(ssl, protocol_2, sizeof(protocol_2) - 1) == 0);
    SSL_set_hostflags(ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    bool is_address = X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), name) == 1;
    ERR_clear_error();
    if (is_address || (SSL_set1_host(ssl, name) == 1 && SSL_set_tlsext_host_name(ssl, name) == 1))
        return ssl;
    SSL_free(ssl);
    return NULL;
}

/* ---- the client's certificate ---- */

static struct http_names *
names_add(struct http_names *names, const void *name, size_t bytes)
{
    uint32_t length = (uint32_t)bytes;
    size_t used = names->bytes + sizeof(length) + bytes;
    if (bytes == 0)
        return names;
    if (used > names->room) {
        names = realloc(names, sizeof(*names) + 2 * used);
        CHECK(names != NULL);
        names->room = 2 * used;
    }
    memcpy(names->text + names->bytes, &length, sizeof(length));
    memcpy(names->text + names->bytes + sizeof(length), name, bytes);
    names->bytes = used;
    return names;
}

static struct http_names *
add_text(struct http_names *names, const ASN1_STRING *string)
{
    unsigned char *text = NULL;
    int bytes = ASN1_STRING_to_UTF8(&text, string);
    if (bytes > 0)
        names = names_add(names, text, (size_t)bytes);
    OPENSSL_free(text);
    return names;
}

static struct http_names *
add_subject(struct http_names *names, const X509_NAME *subject)
{
    BIO *bio = BIO_new(BIO_s_mem());
    CHECK(bio != NULL);
    char *text;
    (void)X509_NAME_print_ex(bio, subject, 0, XN_FLAG_RFC2253);
    long bytes = BIO_get_mem_data(bio, &text);
    if (bytes > 0)
        names = names_add(names, text, (size_t)bytes);
    BIO_free(bio);
    int at = X509_NAME_get_index_by_NID(subject, NID_commonName, -1);
    return at < 0 ? names
                  : add_text(names, X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, at)));
}

static struct http_names *
add_alternative(struct http_names *names, const GENERAL_NAME *name)
{
    char text[INET6_ADDRSTRLEN];
    const ASN1_OCTET_STRING *address;
    switch (name->type) {
    case GEN_DNS: return add_text(names, name->d.dNSName);
    case GEN_EMAIL: return add_text(names, name->d.rfc822Name);
    case GEN_URI: return add_text(names, name->d.uniformResourceIdentifier);
    case GEN_IPADD:
        address = name->d.iPAddress;
        if (address->length != 4 && address->length != 16)
            return names;
        CHECK(inet_ntop(address->length == 4 ? AF_INET : AF_INET6, address->data, text,
                        sizeof(text)) != NULL);
        return names_add(names, text, strlen(text));
    default: return names;
    }
}

/* Returns names in the form that gRPC's core uses: a client is one caller over either protocol. */
struct http_names *
http_tls_names(SSL *ssl)
{
    X509 *certificate = SSL_get1_peer_certificate(ssl);
    if (certificate == NULL)
        return NULL;
    struct http_names *names = calloc(1, sizeof(*names));
    CHECK(names != NULL);
    names = add_subject(names, X509_get_subject_name(certificate));
    GENERAL_NAMES *others = X509_get_ext_d2i(certificate, NID_subject_alt_name, NULL, NULL);
    for (int i = 0; i < sk_GENERAL_NAME_num(others); i++)
        names = add_alternative(names, sk_GENERAL_NAME_value(others, i));
    GENERAL_NAMES_free(others);
    X509_free(certificate);
    ERR_clear_error();
    return names;
}

void
http_tls_shutdown(SSL *ssl)
{
    if (SSL_in_init(ssl))
        return;
    (void)SSL_shutdown(ssl); /* does not wait for the client's close_notify */
    ERR_clear_error();
}

void
http_tls_abandon(SSL *ssl)
{
    if (ssl != NULL)
        SSL_set_quiet_shutdown(ssl, 1);
}
