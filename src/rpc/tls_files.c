/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Certificates in files, which are renewed while the node runs. The files are checked when a
 * connection is about to be made, at most once in LOOK_NS. Changed files are read and validated
 * together, and used only if they fit: a certificate that is replaced a moment before its key, or
 * never completely, locks nobody out.
 *
 * OpenSSL validates, because the library's errors would say less. The library cannot open a key
 * with a password, so it gets a decrypted one.
 */
#include <fcntl.h>
#include <openssl/bio.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "rpc/internal.h"

#define LOOK_NS NS_PER_S

enum { FILE_BYTES_MAX = 1 << 20, PASSWORD_BYTES_MAX = PEM_BUFSIZE - 1 };
/* The password's text is erased as soon as the key is decrypted. */
enum tls_part { PART_CA, PART_CERTIFICATE, PART_KEY, PART_PASSWORD, PART_COUNT };

/* Identifies a file and its last change: a replacement has another stamp. */
struct tls_stamp {
    dev_t device;
    ino_t inode;
    off_t bytes;
    struct timespec written;
};

struct rpc_tls {
    char *name;
    char *paths[PART_COUNT]; /* NULL: none */
    char *password;          /* this and the next may be NULL */
    char *password_from;
    char *peer_name;
    enum rpc_tls_clients clients;
    pthread_mutex_t lock; /* protects what follows */
    int64_t looked_ns;
    struct tls_stamp stamps[PART_COUNT];
    char *texts[PART_COUNT];
    struct rpc_pems pems; /* the same */
    uint64_t version;     /* from 1 on */
};

static char *
text_of(const char *bytes, size_t count)
{
    char *text = rpc_allocate(count + 1, 1);
    memcpy(text, bytes, count);
    return text;
}

/* Erases the text from memory. */
static void
text_free(char **text)
{
    memory_free_secret(*text);
    *text = NULL;
}

/* ---- reading ---- */

static struct tls_stamp
stamp_of(const struct stat *file)
{
    return (struct tls_stamp){file->st_dev, file->st_ino, file->st_size, file->st_mtim};
}

static bool
is_same(const struct tls_stamp *a, const struct tls_stamp *b)
{
    return a->device == b->device && a->inode == b->inode && a->bytes == b->bytes &&
           a->written.tv_sec == b->written.tv_sec && a->written.tv_nsec == b->written.tv_nsec;
}

static enum status
fd_read(int fd, const char *path, char **text, struct error *error)
{
    enum status status = STATUS_OK;
    size_t used = 0;
    ssize_t got = 1;
    char *room = rpc_allocate(FILE_BYTES_MAX + 1, 1);
    while (got > 0 && used <= FILE_BYTES_MAX) {
        got = read(fd, room + used, FILE_BYTES_MAX + 1 - used);
        used += got > 0 ? (size_t)got : 0;
    }
    if (got < 0)
        status = error_set_errno(error, "%s", path);
    else if (used > FILE_BYTES_MAX)
        status = error_set(error, STATUS_INVALID_ARGUMENT, "%s has more than %d bytes", path,
                           FILE_BYTES_MAX);
    else
        *text = text_of(room, used);
    explicit_bzero(room, used);
    free(room);
    return status;
}

/* The stamp is that of the contents read. */
static enum status
file_read(const char *path, struct tls_stamp *stamp, char **text, struct error *error)
{
    struct stat file;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return error_set_errno(error, "%s", path);
    enum status status = STATUS_OK;
    if (fstat(fd, &file) != 0)
        status = error_set_errno(error, "%s", path);
    else if (!S_ISREG(file.st_mode))
        status = error_set(error, STATUS_INVALID_ARGUMENT, "%s is not a file", path);
    else
        *stamp = stamp_of(&file);
    if (status == STATUS_OK)
        status = fd_read(fd, path, text, error);
    close(fd);
    return status;
}

/* ---- validating ---- */

/* The password of a PEM, and whether it was needed. */
struct opener {
    const char *password; /* NULL: none */
    size_t bytes;
    const char *from; /* its configured place, for errors; NULL: there is none */
    bool is_asked;
};

/* Gives the password, for which OpenSSL would otherwise prompt on the terminal. */
static int
password_give(char *place, int room, int writing, void *context)
{
    struct opener *opener = context;
    (void)writing;
    opener->is_asked = true;
    if (opener->password == NULL || room < 0 || opener->bytes > (size_t)room)
        return -1;
    memcpy(place, opener->password, opener->bytes);
    return (int)opener->bytes;
}

/* Takes the first line of the file, like openssl's commands. */
static enum status
opener_init(struct opener *opener, const struct rpc_tls *tls, char *const *texts,
            struct error *error)
{
    const char *of_file = texts[PART_PASSWORD];
    const char *password = of_file != NULL ? of_file : tls->password;
    size_t bytes = password != NULL ? strcspn(password, of_file != NULL ? "\r\n" : "") : 0;
    const char *from = of_file != NULL ? tls->paths[PART_PASSWORD] : tls->password_from;
    *opener = (struct opener){.password = password, .bytes = bytes, .from = from};
    if (password != NULL && bytes == 0)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "%s: contains no password: write it on the first line", from);
    if (bytes > PASSWORD_BYTES_MAX)
        return error_set(error, STATUS_INVALID_ARGUMENT, "%s: the password has more than %d bytes",
                         from, PASSWORD_BYTES_MAX);
    return STATUS_OK;
}

static BIO *
bio_of(const char *text)
{
    BIO *bio = BIO_new_mem_buf(text, -1);
    CHECK(bio != NULL);
    return bio;
}

/* All certificates of the file must be readable. The caller frees `*first`. */
static enum status
certificates_judge(const char *path, const char *text, X509 **first, struct error *error)
{
    struct opener nothing = {.password = NULL};
    BIO *bio = bio_of(text);
    X509 *next;
    *first = NULL;
    while ((next = PEM_read_bio_X509(bio, NULL, password_give, &nothing)) != NULL)
        if (*first == NULL)
            *first = next;
        else
            X509_free(next);
    bool at_end = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
    ERR_clear_error();
    BIO_free(bio);
    if (*first == NULL)
        return error_set(error, STATUS_INVALID_ARGUMENT, "%s: contains no certificate (PEM)", path);
    if (!at_end)
        return error_set(error, STATUS_INVALID_ARGUMENT, "%s: contains a broken certificate", path);
    return STATUS_OK;
}

/* OpenSSL reports some wrong passwords and unsupported ciphers alike. */
static enum status
locked_error(const char *path, const struct opener *opener, const char *reason, struct error *error)
{
    if (opener->from == NULL)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "%s: the key is encrypted: decrypt it with `openssl pkey -in %s -out "
                         "FILE`, into a file that others cannot read",
                         path, path);
    if (opener->password == NULL)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "%s: the key has a password: set %s, or use a key without one", path,
                         opener->from);
    return error_set(error, STATUS_INVALID_ARGUMENT,
                     "%s: the key does not open: %s must hold the password that encrypts it, "
                     "with a cipher that this OpenSSL supports (OpenSSL: %s)",
                     path, opener->from, reason != NULL ? reason : "no reason given");
}

static enum status
key_judge(const struct rpc_tls *tls, char *const *texts, EVP_PKEY **key, bool *was_locked,
          struct error *error)
{
    struct opener opener;
    enum status status = opener_init(&opener, tls, texts, error);
    if (status != STATUS_OK)
        return status;
    BIO *bio = bio_of(texts[PART_KEY]);
    *key = PEM_read_bio_PrivateKey(bio, NULL, password_give, &opener);
    const char *reason = ERR_reason_error_string(ERR_peek_error());
    ERR_clear_error();
    BIO_free(bio);
    *was_locked = opener.is_asked;
    if (*key != NULL)
        return STATUS_OK;
    if (opener.is_asked)
        return locked_error(tls->paths[PART_KEY], &opener, reason, error);
    return error_set(error, STATUS_INVALID_ARGUMENT, "%s: contains no private key (PEM)",
                     tls->paths[PART_KEY]);
}

enum rpc_key_state
rpc_key_look(const char *pem, const char *password)
{
    struct opener opener = {.password = password, .bytes = password != NULL ? strlen(password) : 0};
    BIO *bio = bio_of(pem);
    EVP_PKEY *key = PEM_read_bio_PrivateKey(bio, NULL, password_give, &opener);
    ERR_clear_error();
    BIO_free(bio);
    EVP_PKEY_free(key);
    if (key != NULL)
        return RPC_KEY_OPEN;
    if (!opener.is_asked)
        return RPC_KEY_NONE;
    return password == NULL ? RPC_KEY_LOCKED : RPC_KEY_REFUSED;
}

/* OpenSSL clears its own buffers when they are freed. */
static enum status
key_unlock(const char *path, EVP_PKEY *key, char **text, struct error *error)
{
    BIO *bio = BIO_new(BIO_s_mem());
    char *bytes;
    CHECK(bio != NULL);
    bool written = PEM_write_bio_PKCS8PrivateKey(bio, key, NULL, NULL, 0, NULL, NULL) == 1;
    if (written) {
        long count = BIO_get_mem_data(bio, &bytes);
        text_free(text);
        *text = text_of(bytes, (size_t)count);
    }
    BIO_free(bio);
    return written ? STATUS_OK
                   : error_set(error, STATUS_INVALID_ARGUMENT,
                               "%s: OpenSSL does not write a key of this kind without a password",
                               path);
}

/* Replaces an encrypted key by the decrypted one. */
static enum status
pair_judge(const struct rpc_tls *tls, char **texts, X509 *certificate, struct error *error)
{
    char *const *paths = tls->paths;
    EVP_PKEY *key = NULL;
    bool was_locked;
    enum status status = key_judge(tls, texts, &key, &was_locked, error);
    if (status == STATUS_OK && X509_check_private_key(certificate, key) != 1)
        status = error_set(error, STATUS_INVALID_ARGUMENT,
                           "%s is not the key of the certificate %s (the first in that file)",
                           paths[PART_KEY], paths[PART_CERTIFICATE]);
    if (status == STATUS_OK && was_locked)
        status = key_unlock(paths[PART_KEY], key, &texts[PART_KEY], error);
    ERR_clear_error();
    EVP_PKEY_free(key);
    return status;
}

static void
warn_of_time(const struct rpc_tls *tls, const X509 *certificate)
{
    bool early = X509_cmp_current_time(X509_get0_notBefore(certificate)) > 0;
    bool late = X509_cmp_current_time(X509_get0_notAfter(certificate)) < 0;
    const ASN1_TIME *time =
        early ? X509_get0_notBefore(certificate) : X509_get0_notAfter(certificate);
    struct tm parts;
    char text[32] = "";
    if ((!early && !late) || ASN1_TIME_to_tm(time, &parts) != 1)
        return;
    strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &parts);
    log_warn("tls_expired what=\"%s\" file=\"%s\" %s=%s", tls->name, tls->paths[PART_CERTIFICATE],
             early ? "valid_from" : "valid_until", text);
}

/* Validates the texts and warns of oddities. The key is decrypted afterwards. */
static enum status
judge(const struct rpc_tls *tls, char **texts, struct error *error)
{
    const char *const *paths = (const char *const *)tls->paths;
    X509 *first = NULL;
    enum status status = STATUS_OK;
    if (texts[PART_CA] != NULL)
        status = certificates_judge(paths[PART_CA], texts[PART_CA], &first, error);
    X509_free(first);
    first = NULL;
    if (status == STATUS_OK && texts[PART_CERTIFICATE] != NULL)
        status =
            certificates_judge(paths[PART_CERTIFICATE], texts[PART_CERTIFICATE], &first, error);
    if (status == STATUS_OK && first != NULL && texts[PART_KEY] != NULL) /* options_check ensures
                                                                          * it */
        status = pair_judge(tls, texts, first, error);
    if (status == STATUS_OK && first != NULL)
        warn_of_time(tls, first);
    X509_free(first);
    return status;
}

/* ---- the current files ---- */

static void
texts_free(char **texts)
{
    for (size_t i = 0; i < PART_COUNT; i++)
        text_free(&texts[i]);
}

/* Locked, or not shared yet. */
static enum status
load(struct rpc_tls *tls, struct error *error)
{
    char *texts[PART_COUNT] = {NULL};
    enum status status = STATUS_OK;
    for (size_t i = 0; i < PART_COUNT && status == STATUS_OK; i++)
        if (tls->paths[i] != NULL)
            status = file_read(tls->paths[i], &tls->stamps[i], &texts[i], error);
    if (status == STATUS_OK)
        status = judge(tls, texts, error);
    text_free(&texts[PART_PASSWORD]);
    if (status != STATUS_OK) {
        texts_free(texts);
        return status;
    }
    texts_free(tls->texts);
    memcpy(tls->texts, texts, sizeof(texts));
    tls->pems = (struct rpc_pems){texts[PART_CA], texts[PART_CERTIFICATE], texts[PART_KEY]};
    tls->version++;
    return STATUS_OK;
}

/* Locked. A file that is missing for a moment during its replacement is no change. Every change is
 * recorded, good or bad, so that a bad one is reported once. */
static bool
has_changed(struct rpc_tls *tls)
{
    struct tls_stamp stamps[PART_COUNT] = {{0}};
    bool changed = false;
    for (size_t i = 0; i < PART_COUNT; i++) {
        struct stat file;
        if (tls->paths[i] == NULL)
            continue;
        if (stat(tls->paths[i], &file) != 0)
            return false;
        stamps[i] = stamp_of(&file);
        changed = changed || !is_same(&stamps[i], &tls->stamps[i]);
    }
    memcpy(tls->stamps, stamps, sizeof(stamps));
    return changed;
}

/* Locked. */
static void
look(struct rpc_tls *tls)
{
    int64_t now_ns = clock_now_ns();
    if (now_ns < tls->looked_ns + LOOK_NS)
        return;
    tls->looked_ns = now_ns;
    if (!has_changed(tls))
        return;
    struct error error = ERROR_NONE;
    if (load(tls, &error) == STATUS_OK)
        log_info("tls_renewed what=\"%s\"", tls->name);
    else
        log_warn("tls_kept what=\"%s\" error=\"%s\" action=\"the former certificates stay in use\"",
                 tls->name, error.text);
}

const struct rpc_pems *
rpc_tls_acquire(struct rpc_tls *tls, uint64_t *version)
{
    pthread_mutex_lock(&tls->lock);
    look(tls);
    *version = tls->version;
    return &tls->pems;
}

void
rpc_tls_release(struct rpc_tls *tls)
{
    pthread_mutex_unlock(&tls->lock);
}

uint64_t
rpc_tls_version(struct rpc_tls *tls)
{
    uint64_t version;
    rpc_tls_acquire(tls, &version);
    rpc_tls_release(tls);
    return version;
}

uint64_t
rpc_tls_fetch(struct rpc_tls *tls, uint64_t have,
              void (*take)(void *taker, const struct rpc_pems *pems), void *taker)
{
    uint64_t version;
    const struct rpc_pems *pems = rpc_tls_acquire(tls, &version);
    if (version != have)
        take(taker, pems);
    rpc_tls_release(tls);
    return version;
}

bool
rpc_tls_has_certificate(const struct rpc_tls *tls)
{
    return tls->paths[PART_CERTIFICATE] != NULL;
}

const char *
rpc_tls_peer_name(const struct rpc_tls *tls)
{
    return tls->peer_name;
}

enum rpc_tls_clients
rpc_tls_clients(const struct rpc_tls *tls)
{
    return tls->clients;
}

/* ---- life ---- */

static enum status
options_check(const struct rpc_tls_options *options, struct error *error)
{
    if ((options->certificate == NULL) != (options->key == NULL))
        return error_set(error, STATUS_INVALID_ARGUMENT, "%s without %s",
                         options->key == NULL ? "a certificate" : "a key",
                         options->key == NULL ? "its key" : "its certificate");
    if (options->clients != RPC_TLS_CLIENTS_ANY && options->ca == NULL)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "certificates of callers need an authority that signs them");
    return STATUS_OK;
}

enum status
rpc_tls_create(const struct rpc_tls_options *options, struct rpc_tls **created, struct error *error)
{
    *created = NULL;
    if (options_check(options, error) != STATUS_OK)
        return error_prefix(error, "%s", options->name);
    bool has_password = options->key_password_file != NULL || options->key_password != NULL;
    CHECK(!has_password || options->key_password_from != NULL);
    struct rpc_tls *tls = rpc_allocate(1, sizeof(*tls));
    tls->name = memory_copy_text(options->name);
    tls->paths[PART_CA] = memory_copy_text(options->ca);
    tls->paths[PART_CERTIFICATE] = memory_copy_text(options->certificate);
    tls->paths[PART_KEY] = memory_copy_text(options->key);
    tls->paths[PART_PASSWORD] = memory_copy_text(options->key_password_file);
    tls->password = memory_copy_text(options->key_password);
    tls->password_from = memory_copy_text(options->key_password_from);
    tls->peer_name = memory_copy_text(options->peer_name);
    tls->clients = options->clients;
    tls->looked_ns = clock_now_ns();
    CHECK(pthread_mutex_init(&tls->lock, NULL) == 0);
    if (load(tls, error) != STATUS_OK) {
        rpc_tls_destroy(tls);
        return error_prefix(error, "%s", options->name);
    }
    *created = tls;
    return STATUS_OK;
}

/* The library's threads may still run when the process exits. OpenSSL's exit handler would free
 * what they use, and leak what belongs to each of them. */
void
rpc_tls_init(void)
{
    CHECK(OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, NULL) == 1);
}

void
rpc_tls_destroy(struct rpc_tls *tls)
{
    if (tls == NULL)
        return;
    texts_free(tls->texts);
    for (size_t i = 0; i < PART_COUNT; i++)
        free(tls->paths[i]);
    pthread_mutex_destroy(&tls->lock);
    text_free(&tls->password);
    free(tls->password_from);
    free(tls->peer_name);
    free(tls->name);
    free(tls);
}
