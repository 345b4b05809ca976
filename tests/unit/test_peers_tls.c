/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Nodes of a mesh call each other over TLS, each with a certificate of the same authority, made by
 * certificates.sh. Proves that one with another certificate, or without TLS, is not served but
 * unreachable, and that with a name only certificates with that name are a node's; that a node
 * without TLS does not even try one that has it, nor the other way round; and that a node whose
 * certificate was renewed shows the new one when it connects again.
 *
 * ctest: timeout=120
 */
#include "../certificates.h"
#include "test_peer_rig.h"

static char folder[] = "/tmp/peers-tls-XX"
                       "XXXX";

static int
setup(void **state)
{
    rig_group_setup(state);
    assert_non_null(mkdtemp(folder));
    certificates_make(folder, "authority ca stranger");
    certificates_make(folder, "certificate node ca / IP:127.0.0.1,DNS:mesh.example");
    certificates_make(folder, "certificate caller ca / IP:127.0.0.1,DNS:caller.example");
    certificates_make(folder, "certificate alien stranger / IP:127.0.0.1,DNS:mesh.example");
    return 0;
}

static int
teardown(void **state)
{
    certificates_remove(folder);
    return rig_group_teardown(state);
}

/* `name`: that nodes must have, or NULL. */
static struct rpc_tls *
tls_of(const char *pair, const char *name)
{
    struct rpc_tls *tls;
    struct error error = ERROR_NONE;
    struct rpc_tls_options options = {.name = "test",
                                      .ca = certificates_path(folder, "ca", "pem"),
                                      .certificate = certificates_path(folder, pair, "pem"),
                                      .key = certificates_path(folder, pair, "key"),
                                      .peer_name = name,
                                      .clients = RPC_TLS_CLIENTS_REQUIRED};
    if (rpc_tls_create(&options, &tls, &error) != STATUS_OK)
        fail_msg("%s", error.text);
    return tls;
}

/* One call of a node with these certificates; how it ended. */
static enum mesh_end
ask_as(const char *address, struct rpc_tls *tls)
{
    rig_client_tls = tls;
    struct caller *caller = caller_open(address);
    struct ask *ask = ask_create("/t.T/Echo", 600000);
    if (ask_send(caller, ask) == RUNNER_UNDER_WAY)
        RIG_WAIT(ask->ended == 1);
    enum mesh_end end = ask->end.end;
    ask_free(ask);
    caller_close(caller);
    return end;
}

TEST_CASE(test_certificates)
{
    rig_server_tls = tls_of("node", NULL);
    struct rpc_tls *caller = tls_of("caller", NULL);
    struct rpc_tls *alien = tls_of("alien", NULL);
    struct house *house = house_open();
    assert_memory_equal(house->address, PEERS_TLS, strlen(PEERS_TLS));
    assert_int_equal(ask_as(house->address, rig_server_tls), MESH_END_OK);
    assert_int_equal(ask_as(house->address, caller), MESH_END_OK);
    assert_int_equal(ask_as(house->address, alien), MESH_END_UNREACHABLE);
    house_close(house);
    rpc_tls_destroy(rig_server_tls);
    rpc_tls_destroy(caller);
    rpc_tls_destroy(alien);
}

TEST_CASE(test_name)
{
    rig_server_tls = tls_of("node", "mesh.example");
    struct rpc_tls *caller = tls_of("caller", "mesh.example");
    struct rpc_tls *expects_other = tls_of("node", "caller.example");
    struct house *house = house_open();
    assert_int_equal(ask_as(house->address, rig_server_tls), MESH_END_OK);
    assert_int_equal(ask_as(house->address, caller), MESH_END_UNREACHABLE);
    assert_int_equal(ask_as(house->address, expects_other), MESH_END_UNREACHABLE);
    house_close(house);
    rpc_tls_destroy(rig_server_tls);
    rpc_tls_destroy(caller);
    rpc_tls_destroy(expects_other);
}

TEST_CASE(test_with_and_without)
{
    struct rpc_tls *tls = tls_of("node", NULL);
    char address[128];
    rig_server_tls = tls;
    struct house *house = house_open();
    assert_int_equal(ask_as(house->address, NULL), MESH_END_UNREACHABLE);
    /* nor by one that takes the address for another's */
    assert_int_equal(ask_as(house->address + strlen(PEERS_TLS), NULL), MESH_END_UNREACHABLE);
    house_close(house);
    rig_server_tls = NULL;
    house = house_open();
    assert_int_equal(ask_as(house->address, tls), MESH_END_UNREACHABLE);
    snprintf(address, sizeof(address), PEERS_TLS "%.100s", house->address);
    assert_int_equal(ask_as(address, tls), MESH_END_UNREACHABLE);
    assert_int_equal(ask_as(PEERS_TLS, tls), MESH_END_UNREACHABLE);
    house_close(house);
    rpc_tls_destroy(tls);
}

/* It was refused with the certificate that it had; the same node is served with another one. */
TEST_CASE(test_renewed)
{
    rig_server_tls = tls_of("node", NULL);
    struct house *house = house_open();
    certificates_make(folder, "certificate changing stranger / IP:127.0.0.1");
    rig_client_tls = tls_of("changing", NULL);
    struct caller *caller = caller_open(house->address);
    bool renewed = false;
    int64_t deadline_ns = clock_now_ns() + PATIENCE_S * NS_PER_S;
    enum mesh_end end = MESH_END_UNREACHABLE;
    while (end != MESH_END_OK) {
        assert_true(clock_now_ns() < deadline_ns);
        struct ask *ask = ask_create("/t.T/Echo", 10);
        if (ask_send(caller, ask) == RUNNER_UNDER_WAY)
            RIG_WAIT(ask->ended == 1);
        end = ask->end.end;
        ask_free(ask);
        assert_true(renewed || end == MESH_END_UNREACHABLE);
        if (!renewed)
            certificates_make(folder, "certificate changing ca / IP:127.0.0.1");
        renewed = true;
    }
    caller_close(caller);
    house_close(house);
    rpc_tls_destroy(rig_client_tls);
    rpc_tls_destroy(rig_server_tls);
}

TEST_MAIN(.group_setup = setup, .group_teardown = teardown)
