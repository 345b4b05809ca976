/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proves that nodes of a mesh call each other over TLS, each with a certificate of the same
 * authority, made here by openssl, and that one without such a certificate, or without TLS, is not
 * served but unreachable.
 *
 * ctest: timeout=120
 */
#include "test_peer_rig.h"

#include <unistd.h>

static char folder[] = "/tmp/peers-tls-XX"
                       "XXXX";
static char *ca, *certificate, *key, *strange_certificate, *strange_key;

static char *
file_read(const char *name)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    char *text = calloc(1, 16384);
    assert_non_null(text);
    assert_true(fread(text, 1, 16383, file) > 0);
    fclose(file);
    return text;
}

static int
setup(void **state)
{
    char command[1024];
    rig_group_setup(state);
    assert_non_null(mkdtemp(folder));
    snprintf(command, sizeof(command),
             "cd %s && {"
             " printf 'subjectAltName=IP:127.0.0.1' >node.ext;"
             " for ca in ca stranger; do openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=$ca"
             "  -keyout $ca.key -out $ca.pem -days 2 || exit 1; done;"
             " openssl req -newkey rsa:2048 -nodes -subj /CN=node -keyout node.key -out node.csr &&"
             " openssl x509 -req -in node.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2"
             "  -extfile node.ext -out node.pem; } >openssl.log 2>&1",
             folder);
    assert_int_equal(system(command), 0); // NOLINT(cert-env33-c): a test's own command
    ca = file_read("ca.pem");
    certificate = file_read("node.pem");
    key = file_read("node.key");
    strange_certificate = file_read("stranger.pem");
    strange_key = file_read("stranger.key");
    return 0;
}

static int
teardown(void **state)
{
    char command[128];
    snprintf(command, sizeof(command), "rm -r %s", folder);
    assert_int_equal(system(command), 0); // NOLINT(cert-env33-c): as above
    free(ca);
    free(certificate);
    free(key);
    free(strange_certificate);
    free(strange_key);
    return rig_group_teardown(state);
}

static void
test_certificates(void **state)
{
    (void)state;
    const struct rpc_tls ours = {.ca = ca, .certificate = certificate, .key = key};
    const struct rpc_tls strange = {
        .ca = ca, .certificate = strange_certificate, .key = strange_key};
    const struct rpc_tls *tls[] = {&ours, &strange, NULL};
    rig_server_tls = &ours;
    struct house *house = house_open();
    for (size_t i = 0; i < ARRAY_COUNT(tls); i++) {
        rig_client_tls = tls[i];
        struct caller *caller = caller_open(house->address);
        struct ask *ask = ask_create("/t.T/Echo", 600000);
        if (ask_send(caller, ask) == DRIVER_UNDER_WAY)
            RIG_WAIT(ask->ended == 1);
        assert_int_equal(ask->end.end, i == 0 ? MESH_END_OK : MESH_END_UNREACHABLE);
        ask_free(ask);
        caller_close(caller);
    }
    house_close(house);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_certificates)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
