/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TLS of server and client, with real certificates (certificates.sh): who shows what the other side
 * asks for is served, and who does not gets UNAVAILABLE, not an answer in clear text, over TCP and
 * over a unix socket. Certificates that are replaced are seen by who connects from then on, while
 * what is there goes on; what does not fit together changes nothing. What is wrong with files is
 * told in words that name them.
 *
 * ctest: timeout=120
 */
#include "../certificates.h"
#include "test_rpc_client_rig.h"

static char folder[] = "/tmp/rpc-tls-XX"
                       "XXXX";

static int
setup(void **state)
{
    (void)state;
    rpc_init();
    assert_non_null(mkdtemp(folder));
    certificates_make(folder, "authority ca stranger");
    certificates_make(folder, "certificate server ca / IP:127.0.0.1,DNS:node.example");
    certificates_make(folder, "certificate client ca /CN=x DNS:x.example,DNS:client.example");
    certificates_make(folder, "certificate alien stranger / DNS:client.example");
    certificates_make(folder, "certificate late ca / IP:127.0.0.1 0");
    return 0;
}

static int
teardown(void **state)
{
    (void)state;
    certificates_remove(folder);
    rpc_shutdown();
    return 0;
}

static const char *
pem(const char *name)
{
    return certificates_path(folder, name, "pem");
}

static struct rpc_tls *
tls_of(const struct rpc_tls_options *options)
{
    struct rpc_tls *tls;
    struct error error = ERROR_NONE;
    if (rpc_tls_create(options, &tls, &error) != STATUS_OK)
        fail_msg("%s", error.text);
    return tls;
}

/* NULL: none. */
static struct rpc_tls_options
pair_of(const char *name)
{
    struct rpc_tls_options options = {.name = "test"};
    if (name != NULL) {
        options.certificate = pem(name);
        options.key = certificates_path(folder, name, "key");
    }
    return options;
}

static struct rpc_tls *server_tls;

static void
with_tls(struct rpc_server_options *options)
{
    options->tls = server_tls;
}

/* One call of a client with this; its status. */
static enum status
call_with(struct side *side, const char *target, struct rpc_tls *tls)
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

/* The same, of one that trusts `ca`, shows the pair `name` and expects `peer_name`. */
static enum status
call_as(struct side *side, const char *target, const char *ca, const char *name,
        const char *peer_name)
{
    struct rpc_tls_options options = pair_of(name);
    options.ca = ca;
    options.peer_name = peer_name;
    struct rpc_tls *tls = tls_of(&options);
    enum status status = call_with(side, target, tls);
    rpc_tls_destroy(tls);
    return status;
}

static void
test_server_is_known(void **state)
{
    (void)state;
    struct rpc_tls_options options = pair_of("server");
    server_tls = tls_of(&options);
    struct rig *rig = rig_start(1, with_tls);
    struct side *side = side_start();
    const char *tcp = rig->tcp_target;
    assert_int_equal(call_as(side, tcp, pem("ca"), NULL, NULL), STATUS_OK);
    assert_int_equal(call_with(side, tcp, NULL), STATUS_UNAVAILABLE);
    assert_int_equal(call_as(side, tcp, pem("ca"), NULL, "node.example"), STATUS_OK);
    assert_int_equal(call_as(side, rig->unix_target, pem("ca"), NULL, "node.example"), STATUS_OK);
    assert_int_equal(call_as(side, tcp, pem("ca"), NULL, "other.example"), STATUS_UNAVAILABLE);
    assert_int_equal(call_as(side, tcp, pem("stranger"), NULL, NULL), STATUS_UNAVAILABLE);
    assert_int_equal(call_as(side, tcp, NULL, NULL, NULL), STATUS_UNAVAILABLE);
    side_stop(side);
    rig_stop(rig);
    rpc_tls_destroy(server_tls);
}

static void
check_clients(enum rpc_tls_clients clients, enum status of_nobody)
{
    struct rpc_tls_options options = pair_of("server");
    options.ca = pem("ca");
    options.clients = clients;
    server_tls = tls_of(&options);
    struct rig *rig = rig_start(1, with_tls);
    struct side *side = side_start();
    const char *tcp = rig->tcp_target;
    assert_int_equal(call_as(side, tcp, pem("ca"), "client", NULL), STATUS_OK);
    assert_int_equal(call_as(side, tcp, pem("ca"), NULL, NULL), of_nobody);
    assert_int_equal(call_as(side, tcp, pem("ca"), "alien", NULL), STATUS_UNAVAILABLE);
    assert_int_equal(call_as(side, tcp, pem("ca"), "late", NULL), STATUS_UNAVAILABLE);
    assert_int_equal(call_with(side, tcp, NULL), STATUS_UNAVAILABLE);
    side_stop(side);
    rig_stop(rig);
    rpc_tls_destroy(server_tls);
}

static void
test_client_is_known(void **state)
{
    (void)state;
    check_clients(RPC_TLS_CLIENTS_REQUIRED, STATUS_UNAVAILABLE);
    check_clients(RPC_TLS_CLIENTS_OPTIONAL, STATUS_OK);
}

/* Until who trusts `ca` alone is answered, or is not. */
static void
wait_trust(struct side *side, const char *target, const char *ca, enum status wanted)
{
    int64_t deadline_ns = clock_now_ns() + PATIENCE_S * NS_PER_S;
    while (call_as(side, target, pem(ca), "client", NULL) != wanted)
        if (clock_now_ns() > deadline_ns)
            fail_msg("who trusts %s does not get %s", ca, status_name(wanted));
}

static void
replace(const char *from, const char *to)
{
    char command[256];
    snprintf(command, sizeof(command), "cd %s && cp %s next && mv next %s", folder, from, to);
    assert_int_equal(system(command), 0); // NOLINT(cert-env33-c): a test's own command
}

/* The server's own pair, then whom it trusts, then a key that does not fit. */
static void
test_renewed(void **state)
{
    (void)state;
    certificates_make(folder, "certificate changing ca / IP:127.0.0.1");
    struct rpc_tls_options options = pair_of("changing");
    options.ca = pem("trusted");
    options.clients = RPC_TLS_CLIENTS_REQUIRED;
    replace("ca.pem", "trusted.pem");
    server_tls = tls_of(&options);
    struct rig *rig = rig_start(1, with_tls);
    struct side *side = side_start();
    struct rpc_tls_options lasting = pair_of("client");
    lasting.ca = pem("ca");
    struct rpc_tls *tls = tls_of(&lasting);
    struct rpc_client_options through = {
        .queue = side->queue, .target = rig->tcp_target, .tls = tls};
    struct rpc_client *client;
    struct error error = ERROR_NONE;
    assert_int_equal(rpc_client_create(&through, &client, &error), STATUS_OK);
    struct probe before = {.side = side};
    struct probe after = {.side = side};
    struct rpc_client_request request = probe_request(&before, "/t.T/Echo", RPC_UNARY);
    rpc_client_start(client, &request, &before.call);
    assert_int_equal(probe_end(&before), STATUS_OK);
    uint64_t version = rpc_tls_version(server_tls);

    certificates_make(folder, "certificate changing stranger / IP:127.0.0.1");
    wait_trust(side, rig->tcp_target, "stranger", STATUS_OK);
    assert_int_equal(call_as(side, rig->tcp_target, pem("ca"), "client", NULL), STATUS_UNAVAILABLE);
    assert_true(rpc_tls_version(server_tls) > version);
    request = probe_request(&after, "/t.T/Echo", RPC_UNARY);
    rpc_client_start(client, &request, &after.call); /* over the connection that it has */
    assert_int_equal(probe_end(&after), STATUS_OK);

    replace("stranger.pem", "trusted.pem");
    wait_trust(side, rig->tcp_target, "stranger", STATUS_UNAVAILABLE); /* "client" is not theirs */
    assert_int_equal(call_as(side, rig->tcp_target, pem("stranger"), "alien", NULL), STATUS_OK);

    version = rpc_tls_version(server_tls);
    replace("ca.key", "changing.key");
    int64_t until_ns = clock_now_ns() + 2 * NS_PER_S; /* longer than it takes to look again */
    while (clock_now_ns() < until_ns)
        assert_int_equal(call_as(side, rig->tcp_target, pem("stranger"), "alien", NULL), STATUS_OK);
    assert_int_equal(rpc_tls_version(server_tls), version);
    rpc_client_destroy(client);
    side_stop(side);
    rig_stop(rig);
    rpc_tls_destroy(tls);
    rpc_tls_destroy(server_tls);
}

static void
check_refused(struct rpc_tls_options options, const char *text)
{
    struct rpc_tls *tls;
    struct error error = ERROR_NONE;
    options.name = "the test's";
    assert_int_not_equal(rpc_tls_create(&options, &tls, &error), STATUS_OK);
    if (strstr(error.text, text) == NULL || strstr(error.text, "the test's: ") != error.text)
        fail_msg("wanted \"%s\": %s", text, error.text);
    assert_null(tls);
}

static void
test_bad_files(void **state)
{
    (void)state;
    const char *key = certificates_path(folder, "server", "key");
    char command[512];
    snprintf(command, sizeof(command),
             "cd %s && openssl pkey -in server.key -aes128 -passout pass:secret -out locked.key &&"
             " { cat server.pem; echo; head -c 200 ca.pem; echo; echo -----END CERTIFICATE-----; }"
             " >broken.pem && : >empty.pem && head -c 2000000 /dev/zero >huge.pem",
             folder);
    assert_int_equal(system(command), 0); // NOLINT(cert-env33-c): a test's own command
    struct rpc_tls_options options = {.certificate = pem("server")};
    check_refused(options, "a certificate without its key");
    options = (struct rpc_tls_options){.key = key};
    check_refused(options, "a key without its certificate");
    options = pair_of("server");
    options.clients = RPC_TLS_CLIENTS_REQUIRED;
    check_refused(options, "no authority that signs them");
    options = pair_of("server");
    options.key = certificates_path(folder, "client", "key");
    check_refused(options, "client.key is not the key of the certificate ");
    options.key = certificates_path(folder, "locked", "key");
    check_refused(options, "locked.key: the key has a password");
    options.key = pem("server");
    check_refused(options, "server.pem: no private key in it");
    options = (struct rpc_tls_options){.certificate = key, .key = key};
    check_refused(options, "server.key: no certificate in it");
    options = (struct rpc_tls_options){.ca = pem("empty")};
    check_refused(options, "empty.pem: no certificate in it");
    options = (struct rpc_tls_options){.ca = pem("broken")};
    check_refused(options, "broken.pem: a certificate in it is broken");
    options = (struct rpc_tls_options){.ca = pem("huge")};
    check_refused(options, "huge.pem has more than ");
    options = (struct rpc_tls_options){.ca = pem("nothing")};
    check_refused(options, "nothing.pem: No such file or directory");
    options = (struct rpc_tls_options){.ca = folder};
    check_refused(options, "is no file");
}

/* It is no business of ours whether a clock is right: it is told, and used. */
static void
test_expired(void **state)
{
    (void)state;
    struct rpc_tls_options options = pair_of("late");
    server_tls = tls_of(&options);
    struct rig *rig = rig_start(1, with_tls);
    struct side *side = side_start();
    assert_int_equal(call_as(side, rig->tcp_target, pem("ca"), NULL, NULL), STATUS_UNAVAILABLE);
    side_stop(side);
    rig_stop(rig);
    rpc_tls_destroy(server_tls);
}

static void
test_server_without(void **state)
{
    (void)state;
    struct rpc_tls_options options = {.name = "test", .ca = pem("ca")};
    struct rpc_tls *tls = tls_of(&options);
    const char *listen = "127.0.0.1:0";
    struct rpc_server_options server_options = rig_options(&listen, 1);
    server_options.tls = tls;
    struct rpc_server *server;
    struct error error = ERROR_NONE;
    assert_int_equal(rpc_server_create(&server_options, &server, &error), STATUS_INVALID_ARGUMENT);
    assert_non_null(strstr(error.text, "a server needs a certificate"));
    rpc_tls_destroy(tls);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_server_is_known), cmocka_unit_test(test_client_is_known),
        cmocka_unit_test(test_renewed),         cmocka_unit_test(test_bad_files),
        cmocka_unit_test(test_expired),         cmocka_unit_test(test_server_without),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
