/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where each path leads, with which model and version; which methods it takes; and the HTTP code of
 * every status. Pure; paths of exactly their size, so that a read past the end is seen.
 */

#include <stdlib.h>
#include <string.h>

#include "../test.h"
#include "base/check.h"
#include "coordinator/front/rest_route.h"

static const struct {
    const char *path;
    enum rest_what what;
    const char *model;
    const char *version;
} cases[] = {
    {"/v2", REST_SERVER, "", ""},
    {"/v2/", REST_SERVER, "", ""},
    {"/v2/health/live", REST_LIVE, "", ""},
    {"/v2/health/ready", REST_READY, "", ""},
    {"/v2/health/ready/", REST_READY, "", ""},
    {"/v2/models/m", REST_MODEL, "m", ""},
    {"/v2/models/m/", REST_MODEL, "m", ""},
    {"/v2/models/m/ready", REST_MODEL_READY, "m", ""},
    {"/v2/models/m/infer", REST_INFER, "m", ""},
    {"/v2/models/m/versions/1", REST_MODEL, "m", "1"},
    {"/v2/models/m/versions/1/ready", REST_MODEL_READY, "m", "1"},
    {"/v2/models/m/versions/1/infer", REST_INFER, "m", "1"},
    {"/v2/models/versions/versions/versions/infer", REST_INFER, "versions", "versions"},
    {"/v2/models/infer/infer", REST_INFER, "infer", ""},
    {"/v2/models//infer", REST_INFER, "", ""},
    {"/v2/models/a b\xc3\xa4/infer", REST_INFER, "a b\xc3\xa4", ""},
    {"/v2/models/a%20b%C3%a4/infer", REST_INFER, "a b\xc3\xa4", ""},
    {"/v2/models/a%2Fb/versions/%31", REST_MODEL, "a/b", "1"},
    {"/v2/models/a%2F", REST_MODEL, "a/", ""},
    {"/v2/models/..%2f..%2fetc/ready", REST_MODEL_READY, "../../etc", ""},
    {"/v2/models/%25%2G%/infer", REST_INFER, "%%2G%", ""},
    {"/v2/models/m%4", REST_MODEL, "m%4", ""},
    {"/%76%32/%6dodels/m/i%6Efer", REST_INFER, "m", ""},
    {"/v1/models/m", REST_MODEL_READY, "m", ""},
    {"/v1/models/m:predict", REST_PREDICT, "m", ""},
    {"/v1/models/a%2Fb%3Apredict", REST_PREDICT, "a/b", ""},
    {"/v1/models/:predict", REST_PREDICT, "", ""},
    {"/v1/models/m:predict:predict", REST_PREDICT, "m:predict", ""},
    {"/v1/models/m:explain", REST_MODEL_READY, "m:explain", ""},
    {"/v2/models/m:predict", REST_MODEL, "m:predict", ""},
    {"/v2/models/predict", REST_MODEL, "predict", ""},
    {"/v1/models/m:predict/x", REST_NOWHERE, NULL, NULL},
    {"/v1/models/m/infer", REST_NOWHERE, NULL, NULL},
    {"%2Fv2", REST_NOWHERE, NULL, NULL},
    {"/v2%2Fmodels/m", REST_NOWHERE, NULL, NULL},
    {"/", REST_NOWHERE, NULL, NULL},
    {"//v2", REST_NOWHERE, NULL, NULL},
    {"/v1", REST_NOWHERE, NULL, NULL},
    {"/v2x", REST_NOWHERE, NULL, NULL},
    {"/v2//", REST_NOWHERE, NULL, NULL},
    {"/v2/health", REST_NOWHERE, NULL, NULL},
    {"/v2/health/liver", REST_NOWHERE, NULL, NULL},
    {"/v2/health/live/x", REST_NOWHERE, NULL, NULL},
    {"/v2/models", REST_MODELS, "", ""},
    {"/v1/models/", REST_MODELS, "", ""},
    {"/v2/models/stats", REST_TRITON, "", ""},
    {"/v2/models/stats/stats", REST_TRITON, "stats", ""},
    {"/v2/models/m/versions/1/config", REST_TRITON, "m", "1"},
    {"/v2/repository/index", REST_TRITON, "", ""},
    {"/v2/repository/models/m/load", REST_TRITON, "m", ""},
    {"/v2/repository/models/m", REST_NOWHERE, NULL, NULL},
    {"/v2/openapi.json", REST_OPENAPI, "", ""},
    {"/v2/openapi", REST_NOWHERE, NULL, NULL},
    {"/v2/systemsharedmemory/status", REST_TRITON, "", ""},
    {"/v2/systemsharedmemory/region/r/register", REST_TRITON, "", ""},
    {"/v2/systemsharedmemory/register", REST_NOWHERE, NULL, NULL},
    {"/v2/systemsharedmemory/region/r", REST_NOWHERE, NULL, NULL},
    {"/v2/cudasharedmemory/region/r/unregister", REST_TRITON, "", ""},
    {"/v2/repository/m/load", REST_NOWHERE, NULL, NULL},
    {"/v2/models/m/x", REST_NOWHERE, NULL, NULL},
    {"/v2/models/m/versions", REST_NOWHERE, NULL, NULL},
    {"/v2/models/m/infer/x", REST_NOWHERE, NULL, NULL},
    {"/v2/models/m/infer/x/infer", REST_NOWHERE, NULL, NULL},
    {"/v2/models/m/versions/1/x", REST_NOWHERE, NULL, NULL},
    {"/v2/models/m/versions/1/infer/x", REST_NOWHERE, NULL, NULL},
    {"/v2/models/m/versions/1/infer/x/y/z", REST_NOWHERE, NULL, NULL},
};

TEST_CASE(test_paths)
{
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct rest_route *route = malloc(sizeof(*route));
        char *path = strdup(cases[i].path);
        CHECK(route != NULL && path != NULL);
        rest_route(route, path);
        if (route->what != cases[i].what)
            fail_msg("%s leads to %d", path, route->what);
        free(path);
        if (cases[i].model != NULL) {
            assert_string_equal(route->model, cases[i].model);
            assert_string_equal(route->version, cases[i].version);
        }
        free(route);
    }
}

TEST_CASE(test_long)
{
    struct rest_route route;
    char path[REST_PATH_BYTES_MAX + 2] = "/v2/models/";
    memset(path + strlen(path), 'm', sizeof(path) - 1 - strlen(path));
    path[sizeof(path) - 2] = '\0';
    rest_route(&route, path);
    assert_int_equal(route.what, REST_MODEL);
    path[sizeof(path) - 2] = 'm';
    path[sizeof(path) - 1] = '\0';
    rest_route(&route, path);
    assert_int_equal(route.what, REST_NOWHERE);
}

/* Each row leads to itself and takes the methods of its kind. */
TEST_CASE(test_methods)
{
    struct rest_route route;
    for (size_t i = 0; i < rest_row_count; i++) {
        const struct rest_row *row = &rest_rows[i];
        rest_route(&route, row->path);
        assert_ptr_equal(route.row, row);
        bool is_order = row->what == REST_TRITON && (strstr(row->path, "/repository/") != NULL ||
                                                     strstr(row->path, "register") != NULL);
        bool infers = row->what >= REST_INFER && row->what <= REST_GENERATE_STREAM;
        bool posts = infers || is_order;
        const char *allowed = posts ? "POST" : "GET, HEAD";
        assert_int_equal(rest_route_allows(row, HTTP_POST) == NULL, posts);
        assert_int_equal(rest_route_allows(row, HTTP_GET) == NULL, !posts);
        assert_int_equal(rest_route_allows(row, HTTP_HEAD) == NULL, !posts);
        assert_string_equal(rest_route_allows(row, HTTP_OTHER), allowed);
    }
}

TEST_CASE(test_regions)
{
    struct rest_route route;
    rest_route(&route, "/v2/systemsharedmemory/region/a%2Fb/register");
    assert_string_equal(route.region, "a/b");
    assert_int_equal(route.row->method, TRITON_SHARED_REGISTER);
    rest_route(&route, "/v2/systemsharedmemory/unregister");
    assert_string_equal(route.region, "");
    rest_route(&route, "/v2/systemsharedmemory/region/a/none");
    assert_string_equal(route.region, "");
}

TEST_CASE(test_codes)
{
    static const int codes[STATUS_COUNT] = {200, 499, 500, 400, 504, 404, 409, 403, 429,
                                            503, 409, 400, 501, 500, 503, 500, 401};
    for (int i = 0; i < STATUS_COUNT; i++)
        assert_int_equal(rest_code((enum status)i), codes[i]);
    assert_int_equal(rest_code((enum status)STATUS_COUNT), 500);
}

TEST_MAIN()
