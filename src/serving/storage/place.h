/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Resolves what a registrar gives to one place with its credentials. Schemes are a table: a new one
 * is a row here and a fetcher in fetch.c.
 */
#pragma once

#include <stdbool.h>

#include "base/error.h"
#include "serving/storage/storage_entries.h"
#include "serving/storage/storage.h"

enum place_kind { PLACE_HTTP, PLACE_S3, PLACE_PVC, PLACE_FILE };

enum { PLACE_HEADERS_MAX = 32, PLACE_REGION_BYTES = 64, DIGEST_TEXT_BYTES = 65 };

/* A storage place. All texts are owned; NULL: not given. */
struct storage_place {
    enum place_kind kind;
    char *shown;  /* for messages: without query and secrets */
    char *url;    /* HTTP: the whole; S3: of the endpoint, without a slash at its end */
    char *bucket; /* S3; PVC: the claim */
    char *path;   /* S3: a key or a prefix; PVC: below the claim; FILE: absolute */
    char *region; /* S3 */
    char *key_id; /* S3; NULL: requests are not signed */
    char *secret;
    char *token;
    char *role; /* whose credentials those become, by role_renew: an ARN, or the URL of the
                   machine's service; NULL: of none */
    uint64_t role_serial;
    bool is_web_role;                 /* `role` is an ARN */
    char *headers[PLACE_HEADERS_MAX]; /* HTTP: "Name: value", sent to the entry's origin alone */
    unsigned header_count;
    char *authority;          /* PEM: the CA of the server */
    char *client_certificate; /* PEM */
    char *client_key;
    char digest[DIGEST_TEXT_BYTES]; /* the key's `sha256` of the one file; "": none */
    void *digests;                  /* the key's `sha256` as an object of files; NULL: none */
};

struct place_options {
    const char *metadata;                /* URL of an instance's service; NULL: none */
    const char *entries;                 /* a folder; NULL: none */
    const struct storage_entries *given; /* beside those of the folder; NULL: none */
};

/* INVALID_ARGUMENT, NOT_FOUND, FAILED_PRECONDITION: names the member and the remedy. */
enum status place_resolve(const struct place_options *options, const struct storage_source *source,
                          struct storage_place *place, struct error *error) WARN_UNUSED;
void place_fini(struct storage_place *place);

/* The digest that the key states for a file; NULL: none. `single`: the model's only file. */
enum place_files { PLACE_ONE_FILE, PLACE_FOLDER };
const char *place_digest(const struct storage_place *place, const char *name,
                         enum place_files files);

/* INVALID_ARGUMENT: the key states the digest of one file, and there are several; DATA_LOSS: it
 * states that of a file which is not there, by `has`, unless that is NULL. */
typedef bool storage_has_file(const void *context, const char *name);
enum status place_check_digests(const struct storage_place *place, storage_has_file *has,
                                const void *context, enum place_files files,
                                struct error *error) WARN_UNUSED;

/* The digests that the key states, for comparison; to be freed. */
char *place_digests_text(const struct storage_place *place);

/* The length of "scheme://host:port" in an URL; 0: it has no such form. */
size_t place_origin_bytes(const char *url);
