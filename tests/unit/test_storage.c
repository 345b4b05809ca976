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
#include "serving/storage/role_answer.h"
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

static void
expect_role(const struct place_options *options, const char *key, const char *role)
{
    const struct storage_source source = {"s3://b/a", key};
    struct storage_place place = {0};
    struct error error = ERROR_NONE;
    assert_int_equal(place_resolve(options, &source, &place, &error), STATUS_OK);
    if (role != NULL)
        assert_string_equal(place.role, role);
    else
        assert_null(place.role);
    assert_null(place.key_id);
    place_fini(&place);
}

TEST_CASE(test_role_of_the_node)
{
    static const char elsewhere[] = "{\"storage_params\": {\"endpoint_url\": \"http://other\"}}";
    const struct storage_entry anonymous = {"default_s3", "{\"type\": \"s3\"}"};
    const struct place_options none = {.entries = NULL};
    struct place_options options = {.metadata = "http://metadata"};
    unsetenv("AWS_ACCESS_KEY_ID");
    unsetenv("AWS_SECRET_ACCESS_KEY");
    unsetenv("AWS_WEB_IDENTITY_TOKEN_FILE");
    setenv("AWS_ROLE_ARN", "arn", 1);
    expect_role(&none, "", NULL);
    expect_role(&options, "", "http://metadata");
    setenv("AWS_WEB_IDENTITY_TOKEN_FILE", "/token", 1);
    expect_role(&none, "", "arn");
    expect_role(&options, "", "arn");
    expect_role(&options, elsewhere, NULL);
    struct storage_entries *entries = entries_make(&anonymous, 1);
    options.given = entries;
    expect_role(&options, "", NULL);
    entries_free(entries);
    unsetenv("AWS_ROLE_ARN");
    unsetenv("AWS_WEB_IDENTITY_TOKEN_FILE");
}

/* The entry resolves to that role; or, without one, is refused with that text. */
static void
expect_entry_role(const char *entry, const char *metadata, const char *role, const char *text)
{
    const struct storage_entry given = {"mine", entry};
    const struct storage_source source = {"a/m", "{\"storage_key\": \"mine\"}"};
    struct storage_entries *entries = entries_make(&given, 1);
    const struct place_options options = {.given = entries, .metadata = metadata};
    struct storage_place place = {0};
    struct error error = ERROR_NONE;
    enum status status = place_resolve(&options, &source, &place, &error);
    assert_int_equal(status, role != NULL ? STATUS_OK : STATUS_FAILED_PRECONDITION);
    if (role != NULL)
        assert_string_equal(place.role, role);
    else
        assert_non_null(strstr(error.text, text));
    place_fini(&place);
    entries_free(entries);
}

TEST_CASE(test_role_of_an_entry)
{
#define ENTRY(more) "{\"type\": \"s3\", \"bucket\": \"b\", " more "}"
    unsetenv("AWS_WEB_IDENTITY_TOKEN_FILE");
    expect_entry_role(ENTRY("\"role_arn\": \"arn:x\""), NULL, NULL,
                      "entry \"mine\" of storage-config has `role_arn`, and the node has no web "
                      "identity: set its variable AWS_WEB_IDENTITY_TOKEN_FILE");
    setenv("AWS_WEB_IDENTITY_TOKEN_FILE", "/token", 1);
    expect_entry_role(ENTRY("\"role_arn\": \"arn:x\""), NULL, "arn:x", NULL);
    expect_entry_role(ENTRY("\"role_arn\": \"arn:x\", \"access_key_id\": \"i\", "
                            "\"secret_access_key\": \"s\""),
                      NULL, NULL, "has keys and a role");
    expect_entry_role(ENTRY("\"role_arn\": \"a\", \"credential_source\": \"b\""), NULL, NULL,
                      "has `role_arn` and `credential_source`");
    expect_entry_role(ENTRY("\"credential_source\": \"Environment\""), "http://m", NULL,
                      "other than Ec2InstanceMetadata");
    expect_entry_role(ENTRY("\"credential_source\": \"Ec2InstanceMetadata\""), NULL, NULL,
                      "set its `storage_metadata`");
    expect_entry_role(ENTRY("\"credential_source\": \"Ec2InstanceMetadata\""), "http://m",
                      "http://m", NULL);
    unsetenv("AWS_WEB_IDENTITY_TOKEN_FILE");
}

#define KEYS(expiration)                                                                           \
    "<R><Credentials><AccessKeyId>id</AccessKeyId><SecretAccessKey>s</SecretAccessKey>"            \
    "<SessionToken>t</SessionToken><Expiration>" expiration "</Expiration></Credentials></R>"

TEST_CASE(test_answers_with_keys)
{
    static const char broken[] = "{\"AccessKeyId\": \"a\\nb\", \"SecretAccessKey\": \"s\", "
                                 "\"Token\": \"t\", \"Expiration\": \"2026-11-27T21:00:00Z\"}";
    const char *const wrong[] = {"",     "{",         "{}", "[1]", "<R>", "{\"AccessKeyId\": 1}",
                                 broken, KEYS("soon")};
    static const char json[] =
        "{\"AccessKeyId\": \"id\", \"SecretAccessKey\": \"s\", \"Token\": \"t\", "
        "\"Expiration\": \"2026-11-27T21:00:00Z\"}";
    static const char xml[] = KEYS("2026-11-27T21:00:00.123Z");
    struct role_keys keys;
    char code[ROLE_CODE_BYTES];
    struct error error = ERROR_NONE;
    assert_int_equal(role_answer_read_xml(xml, strlen(xml), &keys, &error), STATUS_OK);
    assert_int_equal(keys.expires_s, 1795813200);
    assert_string_equal(keys.token, "t");
    role_keys_fini(&keys);
    assert_int_equal(role_answer_read_json(json, strlen(json), &keys, &error), STATUS_OK);
    assert_int_equal(keys.expires_s, 1795813200);
    assert_string_equal(keys.id, "id");
    role_keys_fini(&keys);
    for (size_t i = 0; i < ARRAY_COUNT(wrong); i++) {
        size_t bytes = strlen(wrong[i]);
        assert_int_equal(role_answer_read_xml(wrong[i], bytes, &keys, &error), STATUS_DATA_LOSS);
        assert_int_equal(role_answer_read_json(wrong[i], bytes, &keys, &error), STATUS_DATA_LOSS);
        assert_null(keys.secret);
    }
    role_answer_read_code("<E><Code>a b</Code></E>", 23, code);
    assert_string_equal(code, "");
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
        cmocka_unit_test(test_role_of_the_node),
        cmocka_unit_test(test_role_of_an_entry),
        cmocka_unit_test(test_answers_with_keys),
        cmocka_unit_test(test_shown_without_secrets),
        cmocka_unit_test(test_progress_is_shown_at_once_and_logged_now_and_then),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
