/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TLS of server and client, with real certificates (certificates.sh): a side with the required
 * certificate is served, one without gets UNAVAILABLE, not an answer in clear text, over TCP and
 * over a unix socket. Certificates that are replaced apply to new connections, while existing ones
 * go on; files that do not fit together change nothing. A key that has a password is opened with
 * it, on both sides and whenever it is renewed. Errors name the files, and never with a password.
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

TEST_CASE(test_server_is_known)
{
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

TEST_CASE(test_client_is_known)
{
    check_clients(RPC_TLS_CLIENTS_REQUIRED, STATUS_UNAVAILABLE);
    check_clients(RPC_TLS_CLIENTS_OPTIONAL, STATUS_OK);
}

/* Until a client that trusts `ca` alone is answered, or is not. */
static void
wait_trust(struct side *side, const char *target, const char *ca, enum status wanted)
{
    int64_t deadline_ns = clock_now_ns() + PATIENCE_S * NS_PER_S;
    while (call_as(side, target, pem(ca), "client", NULL) != wanted)
        if (clock_now_ns() > deadline_ns)
            fail_msg("who trusts %s does not get %s", ca, status_name(wanted));
}

/* In the folder of the certificates. */
static void __attribute__((format(printf, 1, 2))) shell(const char *format, ...)
{
    char command[1024];
    int used = snprintf(command, sizeof(command), "cd %s && ", folder);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(command + used, sizeof(command) - (size_t)used, format, arguments);
    va_end(arguments);
    assert_int_equal(system(command), 0); // NOLINT(cert-env33-c): a test's own command
}

static void
replace(const char *from, const char *to)
{
    shell("cp %s next && mv next %s", from, to);
}

/* The server's own pair, then its authorities, then a key that does not fit. */
TEST_CASE(test_renewed)
{
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
    if (options.key_password != NULL)
        assert_null(strstr(error.text, options.key_password));
}

TEST_CASE(test_bad_files)
{
    const char *key = certificates_path(folder, "server", "key");
    shell("{ cat server.pem; echo; head -c 200 ca.pem; echo; echo -----END CERTIFICATE-----; }"
          " >broken.pem && : >empty.pem && head -c 2000000 /dev/zero >huge.pem");
    struct rpc_tls_options options = {.certificate = pem("server")};
    check_refused(options, "a certificate without its key");
    options = (struct rpc_tls_options){.key = key};
    check_refused(options, "a key without its certificate");
    options = pair_of("server");
    options.clients = RPC_TLS_CLIENTS_REQUIRED;
    check_refused(options, "need an authority that signs them");
    options = pair_of("server");
    options.key = certificates_path(folder, "client", "key");
    check_refused(options, "client.key is not the key of the certificate ");
    options.key = pem("server");
    check_refused(options, "server.pem: contains no private key");
    options = (struct rpc_tls_options){.certificate = key, .key = key};
    check_refused(options, "server.key: contains no certificate");
    options = (struct rpc_tls_options){.ca = pem("empty")};
    check_refused(options, "empty.pem: contains no certificate");
    options = (struct rpc_tls_options){.ca = pem("broken")};
    check_refused(options, "broken.pem: contains a broken certificate");
    options = (struct rpc_tls_options){.ca = pem("huge")};
    check_refused(options, "huge.pem has more than ");
    options = (struct rpc_tls_options){.ca = pem("nothing")};
    check_refused(options, "nothing.pem: No such file or directory");
    options = (struct rpc_tls_options){.ca = folder};
    check_refused(options, "is not a file");
}

/* ---- keys that have a password ---- */

#define PASSWORD "pass word, \xc3\xa4"
#define LONGEST "openssl rand -hex 512 | head -c 1023 >longest.word"

/* NAME.key becomes `as`.key, which this opens. */
static void
lock_key(const char *name, const char *as, const char *options, const char *word)
{
    shell("openssl pkey -in %s.key %s -passout file:%s.word -out %s.key 2>openssl.log", name,
          options, word, as);
}

static struct rpc_tls_options
locked_pair(const char *name, const char *key, const char *word)
{
    struct rpc_tls_options options = pair_of(name);
    options.key = certificates_path(folder, key, "key");
    options.key_password_file = word == NULL ? NULL : certificates_path(folder, word, "word");
    options.key_password_from = "the test's word";
    return options;
}

/* A client that trusts its authority accepts a server with this pair. */
static void
check_serves(const struct rpc_tls_options *options)
{
    server_tls = tls_of(options);
    struct rig *rig = rig_start(1, with_tls);
    struct side *side = side_start();
    assert_int_equal(call_as(side, rig->tcp_target, pem("ca"), NULL, NULL), STATUS_OK);
    side_stop(side);
    rig_stop(rig);
    rpc_tls_destroy(server_tls);
}

static void
make_locked(void)
{
    shell("printf '%%s' '%s' >bare.word && printf '%%s\\n' '%s' >line.word", PASSWORD, PASSWORD);
    shell("printf '%%s\\r\\nother\\n' '%s' >lines.word && echo wrong >wrong.word", PASSWORD);
    shell("echo >empty.word && %s && { cat longest.word; echo x; } >long.word", LONGEST);
    lock_key("server", "pkcs8", "-aes256", "bare");
    lock_key("server", "old", "-traditional -aes128", "bare");
    lock_key("server", "longest", "-aes128", "longest");
    shell("openssl pkcs8 -topk8 -in server.key -scrypt -passout file:bare.word -out scrypt.key");
    shell("openssl genrsa -traditional -aes256 -passout file:bare.word -out rsa.key 2048"
          " 2>openssl.log && openssl req -new -key rsa.key -passin file:bare.word -subj / -out"
          " rsa.csr && cp server.ext rsa.ext && openssl x509 -req -in rsa.csr -CA ca.pem -CAkey"
          " ca.key -CAcreateserial -extfile rsa.ext -out rsa.pem 2>openssl.log");
}

TEST_CASE(test_locked_key)
{
    make_locked();
    static const char *const good[][3] = {
        {"server", "pkcs8", "bare"},      {"server", "pkcs8", "line"},
        {"server", "pkcs8", "lines"},     {"server", "old", "line"},
        {"server", "scrypt", "line"},     {"rsa", "rsa", "line"},
        {"server", "longest", "longest"}, {"server", "server", "line"}, /* which needs none */
    };
    for (size_t i = 0; i < ARRAY_COUNT(good); i++) {
        struct rpc_tls_options options = locked_pair(good[i][0], good[i][1], good[i][2]);
        check_serves(&options);
    }
    struct rpc_tls_options options = locked_pair("server", "pkcs8", NULL);
    options.key_password = PASSWORD;
    check_serves(&options);
}

/* The caller shows a certificate whose key had to be opened. */
TEST_CASE(test_locked_key_of_client)
{
    lock_key("client", "client-locked", "-aes256", "bare");
    struct rpc_tls_options options = pair_of("server");
    options.ca = pem("ca");
    options.clients = RPC_TLS_CLIENTS_REQUIRED;
    server_tls = tls_of(&options);
    struct rig *rig = rig_start(1, with_tls);
    struct side *side = side_start();
    options = locked_pair("client", "client-locked", "bare");
    options.ca = pem("ca");
    struct rpc_tls *tls = tls_of(&options);
    assert_int_equal(call_with(side, rig->tcp_target, tls), STATUS_OK);
    side_stop(side);
    rig_stop(rig);
    rpc_tls_destroy(tls);
    rpc_tls_destroy(server_tls);
}

/* Key and password first, which do not fit yet, then the certificate; and the key alone, with
 * another password. */
TEST_CASE(test_locked_key_renewed)
{
    certificates_make(folder, "certificate first ca / IP:127.0.0.1");
    certificates_make(folder, "certificate second stranger / IP:127.0.0.1");
    shell("cp first.pem moving.pem && cp bare.word moving.word && echo other >other.word");
    lock_key("first", "moving", "-aes256", "bare");
    lock_key("second", "second-locked", "-aes256", "other");
    lock_key("second", "second-again", "-traditional -aes256", "bare");
    struct rpc_tls_options options = locked_pair("moving", "moving", "moving");
    server_tls = tls_of(&options);
    struct rig *rig = rig_start(1, with_tls);
    struct side *side = side_start();
    assert_int_equal(call_as(side, rig->tcp_target, pem("ca"), NULL, NULL), STATUS_OK);
    replace("second-locked.key", "moving.key");
    assert_int_equal(call_as(side, rig->tcp_target, pem("ca"), NULL, NULL), STATUS_OK);
    replace("other.word", "moving.word");
    replace("second.pem", "moving.pem");
    wait_trust(side, rig->tcp_target, "stranger", STATUS_OK);

    uint64_t version = rpc_tls_version(server_tls);
    replace("second-again.key", "moving.key");
    replace("bare.word", "moving.word");
    int64_t deadline_ns = clock_now_ns() + PATIENCE_S * NS_PER_S;
    while (rpc_tls_version(server_tls) == version)
        if (clock_now_ns() > deadline_ns)
            fail_msg("another password and the key that it opens are not seen");
    assert_int_equal(call_as(side, rig->tcp_target, pem("stranger"), NULL, NULL), STATUS_OK);
    side_stop(side);
    rig_stop(rig);
    rpc_tls_destroy(server_tls);
}

TEST_CASE(test_locked_key_refused)
{
    struct rpc_tls_options options = locked_pair("server", "pkcs8", NULL);
    check_refused(options, "pkcs8.key: the key has a password: set the test's word, or use a key "
                           "without one");
    options.key_password = "mistaken";
    check_refused(options, "pkcs8.key: the key does not open: the test's word must hold the "
                           "password that encrypts it");
    options.key_password_from = NULL;
    options.key_password = NULL;
    check_refused(options, "pkcs8.key: the key is encrypted: decrypt it with `openssl pkey -in ");
    static const char *const wrong[] = {"pkcs8", "old", "scrypt"};
    for (size_t i = 0; i < ARRAY_COUNT(wrong); i++) {
        options = locked_pair("server", wrong[i], "wrong");
        check_refused(options, "wrong.word must hold the password that encrypts it");
    }
    options = locked_pair("server", "rsa", "bare");
    check_refused(options, "rsa.key is not the key of the certificate ");
    options = locked_pair("server", "pkcs8", "empty");
    check_refused(options, "empty.word: contains no password: write it on the first line");
    options = locked_pair("server", "pkcs8", "long");
    check_refused(options, "long.word: the password has more than 1023 bytes");
    options = locked_pair("server", "pkcs8", "missing");
    check_refused(options, "missing.word: No such file or directory");
}

/* It is no business of ours whether a clock is right: it is told, and used. */
TEST_CASE(test_expired)
{
    struct rpc_tls_options options = pair_of("late");
    server_tls = tls_of(&options);
    struct rig *rig = rig_start(1, with_tls);
    struct side *side = side_start();
    assert_int_equal(call_as(side, rig->tcp_target, pem("ca"), NULL, NULL), STATUS_UNAVAILABLE);
    side_stop(side);
    rig_stop(rig);
    rpc_tls_destroy(server_tls);
}

TEST_CASE(test_server_without)
{
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

TEST_MAIN(.group_setup = setup, .group_teardown = teardown)
