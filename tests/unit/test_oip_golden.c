/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Another library's requests: oip_golden.py makes random ones with Google's protobuf for Python and
 * says what a stage must see of each, having put the elements into raw form by itself. Each is
 * decoded from spans of random lengths. The seed is printed.
 */
#include <inttypes.h>

#include "test_oip_rig.h"

enum { REQUESTS = 300 };

/* Reads a length and that many bytes; false at the end. */
static bool
read_run(FILE *file, struct blob *run)
{
    uint32_t bytes;
    *run = (struct blob){0};
    if (fread(&bytes, sizeof(bytes), 1, file) != 1)
        return false;
    run->bytes = malloc((size_t)bytes + 1);
    CHECK(run->bytes != NULL);
    run->used = fread(run->bytes, 1, bytes, file);
    assert_int_equal(run->used, bytes);
    return true;
}

TEST_CASE(test_golden)
{
    const char *source = getenv("SHOAL_SOURCE_DIR");
    const char *build = getenv("SHOAL_BUILD_DIR");
    const char *python = getenv("SHOAL_PYTHON");
    if (source == NULL || build == NULL || python == NULL)
        fail_msg("SHOAL_SOURCE_DIR, SHOAL_BUILD_DIR and SHOAL_PYTHON are ctest's to set");
    random_init();
    char command[4096];
    int length = snprintf(command, sizeof(command),
                          "'%s' '%s/tests/unit/oip_golden.py' '%s/proto/shoal.desc' %" PRIu64 " %d",
                          python, source, build, random_state, REQUESTS);
    assert_true(length > 0 && (size_t)length < sizeof(command));
    FILE *file = popen(command, "r");
    assert_non_null(file);
    struct payload_rig *rig = payload_rig_create();
    struct oip_request *request = oip_request_create();
    struct blob message;
    unsigned count = 0;
    for (; read_run(file, &message); count++) {
        struct blob expected;
        assert_true(read_run(file, &expected));
        struct spans spans = spans_random(message.bytes, message.used);
        struct error error = ERROR_NONE;
        if (payload_rig_decode(rig, request, &spans.message, &error) != STATUS_OK)
            fail_msg("request %u: %s", count, error.text);
        struct blob seen = payload_rig_bytes(rig);
        if (seen.used != expected.used || memcmp(seen.bytes, expected.bytes, seen.used) != 0)
            fail_msg("request %u: not what was sent", count);
        payload_rig_end(rig);
        blob_free(&seen);
        blob_free(&expected);
        blob_free(&message);
        spans_free(&spans);
    }
    assert_int_equal(pclose(file), 0);
    assert_int_equal(count, REQUESTS);
    oip_request_destroy(request);
    payload_rig_destroy(rig);
}

TEST_MAIN()
