/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proves, for the pure parts of storage: signatures are those of the examples in AWS' documentation
 * of S3 ("Signature Calculations for the Authorization Header"); text is encoded as AWS does; pages
 * of listings are read, and what is no listing is refused; a key says where a model is.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../test.h"
#include "base/check.h"
#include "base/clock.h"
#include "serving/storage/job.h"
#include "serving/storage/listing.h"
#include "serving/storage/place.h"
#include "serving/storage/sigv4.h"
#include "serving/storage/storage.h"

/* ---- signatures ---- */

static void
expect_signature(const char *query, const char *signature)
{
    const struct sigv4_request request = {
        .method = "GET",
        .host = "examplebucket.s3.amazonaws.com",
        .path = "/",
        .query = query,
        .date = "20130524T000000Z",
        .region = "us-east-1",
        .key_id = "AKIAIOSFODNN7EXAMPLE",
        .secret = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    };
    char text[SIGV4_TEXT_BYTES];
    char expected[SIGV4_TEXT_BYTES];
    sigv4_sign(&request, text);
    snprintf(expected, sizeof(expected),
             "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request, "
             "SignedHeaders=host;x-amz-content-sha256;x-amz-date, Signature=%s",
             signature);
    assert_string_equal(text, expected);
}

TEST_CASE(test_signatures_of_the_documentation)
{
    expect_signature("lifecycle=",
                     "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543");
    expect_signature("max-keys=2&prefix=J",
                     "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7");
}

TEST_CASE(test_encoding)
{
    struct bytes out = {0};
    sigv4_encode(&out, "a/b c+=~-._%&\xc3\xa4", SIGV4_KEEP_SLASH);
    sigv4_encode(&out, "/", SIGV4_ENCODE_SLASH);
    bytes_put_char(&out, '\0');
    assert_string_equal(out.data, "a/b%20c%2B%3D~-._%25%26%C3%A4%2F");
    bytes_fini(&out);
}

/* ---- listings ---- */

#define PAGE(body) "<?xml version='1.0'?><ListBucketResult>" body "</ListBucketResult>"

TEST_CASE(test_pages)
{
    static const char first[] = PAGE(
        "<IsTruncated>true</IsTruncated><NextContinuationToken>a=/+</NextContinuationToken>"
        "<Contents><Key>a+b%2Bc%C3%A4</Key><Size>12</Size><ETag>&quot;x&quot;</ETag></Contents>");
    static const char last[] =
        PAGE("<IsTruncated>false</IsTruncated><Contents><Key>z</Key><Size>0</Size></Contents>");
    struct listing listing = {.count_max = 2};
    struct error error = ERROR_NONE;
    assert_int_equal(listing_read(&listing, first, strlen(first), &error), STATUS_OK);
    assert_true(listing.is_truncated);
    assert_string_equal(listing.token, "a=/+");
    assert_int_equal(listing_read(&listing, last, strlen(last), &error), STATUS_OK);
    assert_false(listing.is_truncated);
    assert_int_equal(listing.count, 2);
    assert_string_equal(listing.objects[0].key, "a b+c\xc3\xa4");
    assert_string_equal(listing.objects[0].etag, "\"x\"");
    assert_int_equal(listing.objects[0].bytes, 12);
    assert_string_equal(listing.objects[1].key, "z");
    assert_int_equal(listing_read(&listing, last, strlen(last), &error), STATUS_RESOURCE_EXHAUSTED);
    listing_fini(&listing);
}

TEST_CASE(test_no_pages)
{
    static const char *const bad[] = {
        "",
        "<html><body>error</body></html>",
        "<ListBucketResult><Contents>",
        "<Error><Code>X</Code></Error>",
        PAGE("<IsTruncated>true</IsTruncated>"),
        PAGE("<Contents><Size>1</Size></Contents>"),
        PAGE("<Contents><Key>k</Key><Size>-1</Size></Contents>"),
        PAGE("<Contents><Key>k</Key><Size>1x</Size></Contents>"),
        PAGE("<Contents><Key>k</Key><Size>99999999999999999999</Size></Contents>"),
    };
    for (size_t i = 0; i < ARRAY_COUNT(bad); i++) {
        struct listing listing = {.count_max = 10};
        struct error error = ERROR_NONE;
        assert_int_equal(listing_read(&listing, bad[i], strlen(bad[i]), &error), STATUS_DATA_LOSS);
        listing_fini(&listing);
    }
}

TEST_CASE(test_errors)
{
    static const char xml[] = "<Error><Code>NoSuchKey</Code><Message>none</Message></Error>";
    char text[64];
    listing_read_error(xml, strlen(xml), text, sizeof(text));
    assert_string_equal(text, "NoSuchKey: none");
    listing_read_error("<html>", 6, text, sizeof(text));
    assert_string_equal(text, "");
}

/* ---- places ---- */

TEST_CASE(test_what_names_a_storage)
{
    static const struct {
        const char *path, *key;
        bool named;
    } cases[] = {
        {"iris.ubj", "", false},
        {"iris.ubj", "no JSON", false},
        {"iris.ubj", "{\"model_type\": \"x\"}", false},
        {"/models/iris.ubj", "", false},
        {"iris.ubj", "{\"storage_key\": \"x\"}", true},
        {"/iris.ubj", "{\"storage_key\": \"x\"}", true},
        {"iris.ubj", "{\"storage_key\": \"x\", \"disk_size_bytes\": 1}", true},
        {"/iris.ubj", "{\"storage_key\": \"x\", \"disk_size_bytes\": 1}", false},
        {"iris.ubj", "{\"storage_params\": {}}", true},
        {"iris.ubj", "{\"bucket\": \"b\"}", true},
        {"s3://b/k", "", true},
        {"gs://b/k", "", true},
        {"://b/k", "", false},
        {"a:/b", "", false},
    };
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        const struct storage_source source = {cases[i].path, cases[i].key};
        assert_int_equal(storage_is_named(&source), cases[i].named);
    }
}

TEST_CASE(test_s3_by_the_environment)
{
    const struct place_options options = {.entries = NULL};
    const struct storage_source source = {"s3://b/a/k/", "{}"};
    struct storage_place place = {0};
    struct error error = ERROR_NONE;
    setenv("AWS_ACCESS_KEY_ID", "id", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "secret", 1);
    setenv("AWS_REGION", "eu-west-9", 1);
    unsetenv("AWS_ENDPOINT_URL");
    unsetenv("AWS_ENDPOINT_URL_S3");
    assert_int_equal(place_resolve(&options, &source, &place, &error), STATUS_OK);
    assert_string_equal(place.url, "https://s3.eu-west-9.amazonaws.com");
    assert_string_equal(place.bucket, "b");
    assert_string_equal(place.path, "a/k");
    assert_string_equal(place.key_id, "id");
    assert_string_equal(place.shown, "s3://b/a/k/");
    place_fini(&place);
    unsetenv("AWS_ACCESS_KEY_ID");
    assert_int_equal(place_resolve(&options, &source, &place, &error), STATUS_FAILED_PRECONDITION);
    place_fini(&place);
}

TEST_CASE(test_shown_without_secrets)
{
    const struct place_options options = {.entries = NULL};
    const struct storage_source source = {"https://me:word@host/a?sig=s#f", ""};
    struct storage_place place = {0};
    struct error error = ERROR_NONE;
    assert_int_equal(place_resolve(&options, &source, &place, &error), STATUS_INVALID_ARGUMENT);
    assert_string_equal(place.shown, "https://host/a");
    place_fini(&place);
}

/* ---- progress ---- */

static void
keep(void *context, const struct storage_progress *progress)
{
    *(struct storage_progress *)context = *progress;
}

TEST_CASE(test_progress_is_shown_at_once_and_logged_now_and_then)
{
    char shown[] = "s3://models/m";
    struct storage_progress seen = {0};
    const int64_t began_ns = clock_now_ns();
    struct storage_job job = {.show = keep,
                              .context = &seen,
                              .place = {.shown = shown},
                              .progress = {.total = 10},
                              .logged_ns = began_ns};
    job_progress(&job, 4);
    job_progress(&job, -1);
    assert_int_equal(seen.bytes, 3);
    assert_int_equal(seen.total, 10);
    assert_int_equal(job.logged_ns, began_ns);
    job.logged_ns = began_ns - 10 * (int64_t)NS_PER_S;
    job_progress(&job, 2);
    assert_int_equal(seen.bytes, 5);
    assert_true(job.logged_ns >= began_ns);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_signatures_of_the_documentation),
        cmocka_unit_test(test_encoding),
        cmocka_unit_test(test_pages),
        cmocka_unit_test(test_no_pages),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_what_names_a_storage),
        cmocka_unit_test(test_s3_by_the_environment),
        cmocka_unit_test(test_shown_without_secrets),
        cmocka_unit_test(test_progress_is_shown_at_once_and_logged_now_and_then),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
