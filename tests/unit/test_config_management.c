/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `mesh: management`: its three forms come to the same, what `allow` says is kept, and a
 * configuration that would let strangers manage a mesh is refused, with the line and the way out.
 */
#include "test_config_rig.h"

#define MESH "pipelines:\n- name: p\n  models: {root: /, memory_mib: 64}\n" STAGES "mesh:\n"
#define TLS(more) "tls: {certificate: c, key: k" more "}\n"
#define ASKED TLS(", client_ca: ca")

/* The line of what stands behind `management:`. */
enum { LINE = 6 };

static struct config
good(const char *before, const char *management)
{
    char text[1024];
    snprintf(text, sizeof(text), "%s%s  management: %s\n", before, MESH, management);
    return rig_good(text);
}

static void
bad(const char *before, const char *management, const char *part)
{
    char text[1024];
    int line = LINE + (before[0] != '\0');
    snprintf(text, sizeof(text), "%s%s  management: %s\n", before, MESH, management);
    rig_bad(text, line, part);
}

TEST_CASE(test_forms)
{
    static const char *const same[] = {
        "\"127.0.0.1:1\"",
        "[\"127.0.0.1:1\"]",
        "{address: \"127.0.0.1:1\"}",
        "{addresses: \"127.0.0.1:1\"}",
        "{addresses: [\"127.0.0.1:1\"]}",
    };
    for (size_t i = 0; i < ARRAY_COUNT(same); i++) {
        struct config config = good("", same[i]);
        const struct config_management *management = &config.mesh.management;
        assert_int_equal(management->addresses.count, 1);
        assert_string_equal(management->addresses.items[0], "127.0.0.1:1");
        assert_int_equal(management->socket_mode_bits, 0600);
        assert_int_equal(management->allow_count, 0);
        assert_false(management->on_listen);
        config_free(&config);
    }
    struct config config = good("", "{addresses: [\"unix:a\"], socket_mode: \"0660\"}");
    assert_string_equal(config.mesh.management.addresses.items[0], "unix:/etc/shoal/a");
    assert_int_equal(config.mesh.management.socket_mode_bits, 0660);
    config_free(&config);
}

TEST_CASE(test_allow)
{
    struct config config =
        good(ASKED, "{allow: [{identity: a, methods: [getVModelStatus, registerModel], models: "
                    "[x, y-*]}, {identity: b}]}");
    const struct config_allow *allow = config.mesh.management.allow;
    assert_int_equal(config.mesh.management.allow_count, 2);
    assert_string_equal(allow[0].identity, "a");
    assert_int_equal(allow[0].methods, 1 << 6 | 1 << 0);
    assert_int_equal(allow[0].model_count, 2);
    assert_string_equal(allow[0].models[1], "y-*");
    assert_int_equal(allow[1].methods, 0);
    assert_int_equal(allow[1].model_count, 0);
    config_free(&config);
}

/* Beyond this machine a certificate is demanded, or none is meant. */
TEST_CASE(test_reachable_addresses)
{
    static const char open_to_all[] =
        "would let anyone who can reach it register and delete models";
    static const char *const local[] = {"\"[::1]:0\"", "\"localhost:1\"", "\"unix:/a\""};
    static const char *const weak[] = {"", TLS(""), TLS(", client_ca: ca, client_auth: optional"),
                                       TLS(", client_ca: ca, client_auth: none")};
    for (size_t i = 0; i < ARRAY_COUNT(weak); i++) {
        bad(weak[i], "\"port:1\"", open_to_all);
        bad(weak[i], "\"10.0.0.1:1\"", open_to_all);
        for (size_t k = 0; k < ARRAY_COUNT(local); k++) {
            struct config config = good(weak[i], local[k]);
            config_free(&config);
        }
        struct config config = good(weak[i], "{address: \"port:1\", plain: yes}");
        config_free(&config);
    }
    struct config config = good(ASKED, "\"port:1\"");
    config_free(&config);
    config = good(weak[2], "{addresses: \"port:1\", allow: [{identity: a}]}");
    config_free(&config);
}

TEST_CASE(test_mistakes)
{
    static const struct {
        const char *before;
        const char *management;
        const char *part;
    } cases[] = {
        {"", "{allow: [{identity: a}]}", "it needs `tls` at the top with `client_ca`"},
        {TLS(""), "{allow: [{identity: a}]}", "it needs `tls` at the top with `client_ca`"},
        {ASKED, "{addresses: {address: \"port:1\", plain: yes}, allow: [{identity: a}]}",
         "with `plain: yes` they show none"},
        {ASKED, "{address: \"port:1\", tls: yes}", "remove `tls`"},
        {ASKED, "{address: \"port:1\", tls: no}", "remove `tls`"},
        {"", "{socket_mode: \"0888\"}", "\"0888\" is not a mode such as 0660"},
        {ASKED, "{allow: [{methods: [setVModel]}]}", "`identity` is missing"},
        {ASKED, "{allow: [{identity: a, methods: [addModel]}]}", "`methods` must list words of"},
        {ASKED, "{allow: [{identity: a, models: []}]}", "`models` is out of range"},
        {ASKED, "{allow: [{identity: a, models: [\"a*b\"]}]}", "prefixes of ids followed by `*`"},
        {ASKED, "{allow: [{identity: a, models: [\"\"]}]}", "must list ids"},
        {ASKED, "{allow: [a]}", "`allow` must list maps with keys"},
        {"", "{adresses: \"port:1\"}", "did you mean `addresses`?"},
        {"", "{}\n  instance: [a]", "`instance` must be"},
        {"", "[]", "`addresses` is out of range"},
    };
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        struct config config;
        struct config_errors errors;
        char text[1024];
        snprintf(text, sizeof(text), "%s%s  management: %s\n", cases[i].before, MESH,
                 cases[i].management);
        rig_parse(text, strlen(text), &config, &errors);
        if (errors.count != 1 || strstr(errors.lines[0], cases[i].part) == NULL) {
            rig_print(&errors);
            fail_msg("wanted \"%s\":\n%s", cases[i].part, text);
        }
        config_errors_free(&errors);
        config_free(&config);
    }
}

/* ModelMesh's variable puts it on `listen`, too, unless the file says where it is. */
TEST_CASE(test_environment)
{
    setenv("MM_SERVICE_NAME", "s", 1);
    setenv("MM_PROBE_PORT", "NONE", 1);
    struct config config = rig_good(MESH "  instance: a\n");
    assert_true(config.mesh.management.on_listen);
    config_free(&config);
    config = good("", "\"unix:/a\"");
    assert_false(config.mesh.management.on_listen);
    config_free(&config);
    unsetenv("MM_SERVICE_NAME");
    unsetenv("MM_PROBE_PORT");
}

TEST_MAIN()
