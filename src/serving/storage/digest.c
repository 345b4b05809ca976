/* SPDX-License-Identifier: Apache-2.0 */
#include "serving/storage/digest.h"

#include <stdio.h>
#include <string.h>

#include <openssl/evp.h>

#include "base/check.h"

static EVP_MD_CTX *
context_of(struct digest *digest)
{
    return (EVP_MD_CTX *)digest;
}

struct digest *
digest_begin(void)
{
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    CHECK(context != NULL && EVP_DigestInit_ex(context, EVP_sha256(), NULL) == 1);
    return (struct digest *)context;
}

void
digest_add(struct digest *digest, const void *data, size_t bytes)
{
    CHECK(EVP_DigestUpdate(context_of(digest), data, bytes) == 1);
}

void
digest_add_text(struct digest *digest, const char *text)
{
    const char *given = text != NULL ? text : "";
    digest_add(digest, given, strlen(given) + 1);
}

void
digest_end(struct digest *digest, char text[DIGEST_BYTES])
{
    unsigned char bytes[EVP_MAX_MD_SIZE];
    unsigned count = 0;
    if (digest == NULL)
        return;
    CHECK(EVP_DigestFinal_ex(context_of(digest), bytes, &count) == 1);
    for (size_t i = 0; i < count && text != NULL; i++)
        snprintf(text + 2 * i, 3, "%02x", bytes[i]);
    EVP_MD_CTX_free(context_of(digest));
}
