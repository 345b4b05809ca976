/* SPDX-License-Identifier: Apache-2.0 */
#include "serving/storage/sigv4.h"

#include <stdio.h>
#include <string.h>

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "base/check.h"

enum { DIGEST_BYTES = 32, HEX_BYTES = 2 * DIGEST_BYTES + 1, DAY_BYTES = 8 };

static void
hex(const unsigned char digest[DIGEST_BYTES], char text[HEX_BYTES])
{
    for (size_t i = 0; i < DIGEST_BYTES; i++)
        snprintf(text + 2 * i, 3, "%02x", digest[i]);
}

struct mac {
    unsigned char bytes[DIGEST_BYTES];
};

static struct mac
sign(const void *key, size_t key_bytes, const char *text, size_t bytes)
{
    struct mac mac;
    unsigned length = 0;
    CHECK(HMAC(EVP_sha256(), key, (int)key_bytes, (const unsigned char *)text, bytes, mac.bytes,
               &length) != NULL &&
          length == DIGEST_BYTES);
    return mac;
}

/* The key of one day, region and service. */
static struct mac
signing_key(const struct sigv4_request *request)
{
    struct bytes first = {0};
    bytes_put_text(&first, "AWS4");
    bytes_put_text(&first, request->secret);
    CHECK(!first.failed);
    struct mac mac = sign(first.data, first.used, request->date, DAY_BYTES);
    OPENSSL_cleanse(first.data, first.used);
    bytes_fini(&first);
    mac = sign(mac.bytes, DIGEST_BYTES, request->region, strlen(request->region));
    mac = sign(mac.bytes, DIGEST_BYTES, "s3", 2);
    return sign(mac.bytes, DIGEST_BYTES, "aws4_request", strlen("aws4_request"));
}

static const char *
signed_headers(const struct sigv4_request *request)
{
    return request->token != NULL ? "host;x-amz-content-sha256;x-amz-date;x-amz-security-token"
                                  : "host;x-amz-content-sha256;x-amz-date";
}

static void
canonical_digest(const struct sigv4_request *request, char text[HEX_BYTES])
{
    struct bytes canonical = {0};
    const char *const parts[] = {
        request->method,
        "\n",
        request->path,
        "\n",
        request->query,
        "\nhost:",
        request->host,
        // NOLINTNEXTLINE(bugprone-suspicious-missing-comma): one text
        "\nx-amz-content-sha256:" SIGV4_EMPTY_SHA256 "\nx-amz-date:",
        request->date,
        request->token != NULL ? "\nx-amz-security-token:" : "",
        request->token != NULL ? request->token : "",
        "\n\n",
        signed_headers(request),
        "\n" SIGV4_EMPTY_SHA256,
    };
    for (size_t i = 0; i < ARRAY_COUNT(parts); i++)
        bytes_put_text(&canonical, parts[i]);
    unsigned char digest[EVP_MAX_MD_SIZE];
    CHECK(!canonical.failed &&
          EVP_Digest(canonical.data, canonical.used, digest, NULL, EVP_sha256(), NULL) == 1);
    bytes_fini(&canonical);
    hex(digest, text);
}

void
sigv4_sign(const struct sigv4_request *request, char authorization[SIGV4_TEXT_BYTES])
{
    char digest[HEX_BYTES];
    char scope[128];
    char text[512];
    CHECK(strlen(request->date) == SIGV4_DATE_BYTES - 1);
    canonical_digest(request, digest);
    snprintf(scope, sizeof(scope), "%.*s/%.64s/s3/aws4_request", DAY_BYTES, request->date,
             request->region);
    int bytes =
        snprintf(text, sizeof(text), "AWS4-HMAC-SHA256\n%s\n%s\n%s", request->date, scope, digest);
    struct mac key = signing_key(request);
    struct mac mac = sign(key.bytes, DIGEST_BYTES, text, (size_t)bytes);
    char signature[HEX_BYTES];
    hex(mac.bytes, signature);
    OPENSSL_cleanse(&key, sizeof(key));
    snprintf(authorization, SIGV4_TEXT_BYTES,
             "AWS4-HMAC-SHA256 Credential=%.256s/%s, SignedHeaders=%s, Signature=%s",
             request->key_id, scope, signed_headers(request), signature);
}

void
sigv4_encode(struct bytes *out, const char *text, enum sigv4_slash slash)
{
    static const char kept[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~";
    for (const char *at = text; *at != '\0'; at++) {
        char code[4];
        if (strchr(kept, *at) != NULL || (*at == '/' && slash == SIGV4_KEEP_SLASH)) {
            bytes_put_char(out, *at);
            continue;
        }
        snprintf(code, sizeof(code), "%%%02X", (unsigned char)*at);
        bytes_put_text(out, code);
    }
}
