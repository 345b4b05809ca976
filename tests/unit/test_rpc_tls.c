/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TLS of server and client, with certificates made here by openssl: who shows what the other side
 * asks for is served, and who does not gets UNAVAILABLE, not an answer in clear text. Over TCP and
 * over a unix socket.
 *
 * ctest: timeout=120
 */
#include "test_rpc_client_rig.h"

static char folder[] = "/tmp/rpc-tls-XX"
                       "XXXX";
static char *ca, *stranger, *server_pem, *server_key, *client_pem, *client_key, *alien_pem,
    *alien_key;

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
    (void)state;
    rpc_init();
    assert_non_null(mkdtemp(folder));
    char command[2048];
    snprintf(
        command, sizeof(command),
        "cd %s && {"
        " for ca in ca stranger; do openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=$ca"
        "  -keyout $ca.key -out $ca.pem -days 2 || exit 1; done;"
        " printf 'subjectAltName=IP:127.0.0.1,DNS:node.example' >server.ext;"
        " printf 'subjectAltName=DNS:client.example' >client.ext;"
        " make() { openssl req -newkey rsa:2048 -nodes -subj /CN=$1 -keyout $1.key -out $1.csr &&"
        "  openssl x509 -req -in $1.csr -CA $2.pem -CAkey $2.key -CAcreateserial -days 2"
        "  -extfile $3.ext -out $1.pem; };"
        " make server ca server && make client ca client && make alien stranger client; }"
        " >openssl.log 2>&1",
        folder);
    assert_int_equal(system(command), 0); // NOLINT(cert-env33-c): a test's own command
    ca = file_read("ca.pem");
    stranger = file_read("stranger.pem");
    server_pem = file_read("server.pem");
    server_key = file_read("server.key");
    client_pem = file_read("client.pem");
    client_key = file_read("client.key");
    alien_pem = file_read("alien.pem");
    alien_key = file_read("alien.key");
    return 0;
}

static int
teardown(void **state)
{
    (void)state;
    char command[64];
    snprintf(command, sizeof(command), "rm -rf %s", folder);
    assert_int_equal(system(command), 0); // NOLINT(cert-env33-c): a test's own command
    char *all[] = {ca,         stranger,   server_pem, server_key,
                   client_pem, client_key, alien_pem,  alien_key};
    for (size_t i = 0; i < ARRAY_COUNT(all); i++)
        free(all[i]);
    rpc_shutdown();
    return 0;
}

static struct rpc_tls server_tls;

static void
with_tls(struct rpc_server_options *options)
{
    options->tls = &server_tls;
}

/* One call of a client with this; its status. */
static enum status
call_with(struct side *side, const char *target, const struct rpc_tls *tls)
{
    struct rpc_client_options options = {.queue = side->queue, .target = target, .tls = tls};
    struct rpc_client *client;
    struct error error = ERROR_NONE;
    assert_int_equal(rpc_client_create(&options, &client, &error), STATUS_OK);
    struct probe probe = {.side = side};
    struct rpc_client_request request = probe_request(&probe, "/t.T/Echo", RPC_UNARY);
    request.deadline_ns = clock_now_ns() + PATIENCE_S * NS_PER_S;
    rpc_client_start(client, &request, &probe.call);
    enum status status = probe_end(&probe);
    rpc_client_destroy(client);
    return status;
}

static void
test_server_is_known(void **state)
{
    (void)state;
    server_tls = (struct rpc_tls){.certificate = server_pem, .key = server_key};
    struct rig *rig = rig_start(1, with_tls);
    struct side *side = side_start();
    struct rpc_tls tls = {.ca = ca};
    assert_int_equal(call_with(side, rig->tcp_target, &tls), STATUS_OK);
    assert_int_equal(call_with(side, rig->tcp_target, NULL), STATUS_UNAVAILABLE);
    tls.peer_name = "node.example";
    assert_int_equal(call_with(side, rig->tcp_target, &tls), STATUS_OK);
    assert_int_equal(call_with(side, rig->unix_target, &tls), STATUS_OK);
    tls.peer_name = "other.example";
    assert_int_equal(call_with(side, rig->tcp_target, &tls), STATUS_UNAVAILABLE);
    tls = (struct rpc_tls){.ca = stranger};
    assert_int_equal(call_with(side, rig->tcp_target, &tls), STATUS_UNAVAILABLE);
    tls = (struct rpc_tls){.ca = "no certificate"};
    assert_int_equal(call_with(side, rig->tcp_target, &tls), STATUS_UNAVAILABLE);
    side_stop(side);
    rig_stop(rig);
}

static void
test_client_is_known(void **state)
{
    (void)state;
    server_tls = (struct rpc_tls){.ca = ca, .certificate = server_pem, .key = server_key};
    struct rig *rig = rig_start(1, with_tls);
    struct side *side = side_start();
    struct rpc_tls tls = {.ca = ca, .certificate = client_pem, .key = client_key};
    assert_int_equal(call_with(side, rig->tcp_target, &tls), STATUS_OK);
    tls = (struct rpc_tls){.ca = ca};
    assert_int_equal(call_with(side, rig->tcp_target, &tls), STATUS_UNAVAILABLE);
    tls = (struct rpc_tls){.ca = ca, .certificate = alien_pem, .key = alien_key};
    assert_int_equal(call_with(side, rig->tcp_target, &tls), STATUS_UNAVAILABLE);
    side_stop(side);
    rig_stop(rig);
}

static void
check_refused(const struct rpc_tls *tls, const char *listen, const char *text)
{
    struct rpc_server_options options = rig_options(&listen, 1);
    options.tls = tls;
    struct rpc_server *server;
    struct error error = ERROR_NONE;
    assert_int_not_equal(rpc_server_create(&options, &server, &error), STATUS_OK);
    if (strstr(error.text, text) == NULL)
        fail_msg("%s", error.text);
}

static void
test_bad_data(void **state)
{
    (void)state;
    struct rpc_tls tls = {.certificate = server_pem, .key = client_key};
    check_refused(&tls, "127.0.0.1:0", "the certificate and the key may not belong together");
    char address[128];
    snprintf(address, sizeof(address), "unix:%s/socket", folder);
    check_refused(&tls, address, "the certificate and the key may not belong together");
    check_refused(&(struct rpc_tls){.certificate = server_pem}, address, "without its key");
    check_refused(&(struct rpc_tls){.key = server_key}, address, "without its certificate");
    check_refused(&(struct rpc_tls){.ca = ca}, address, "a server needs a certificate");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_server_is_known),
        cmocka_unit_test(test_client_is_known),
        cmocka_unit_test(test_bad_data),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
