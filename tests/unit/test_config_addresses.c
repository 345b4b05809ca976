/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Addresses that the node listens on, and the mode of its unix sockets: which forms are taken, and
 * what is said about those that are not.
 */
#include "test_config_rig.h"

static void
fill(char *text, size_t room, const char *key, const char *value)
{
    int length = snprintf(text, room, "%s: %s\n%s", key, value, PIPELINES);
    assert_true(length > 0 && (size_t)length < room);
}

static void
expect_good(const char *key, const char *value)
{
    char text[1024];
    fill(text, sizeof(text), key, value);
    struct config config = rig_good(text);
    config_free(&config);
}

static void
expect_bad(const char *key, const char *value, const char *part)
{
    char text[1024];
    fill(text, sizeof(text), key, value);
    rig_bad(text, 1, part);
}

TEST_CASE(test_addresses)
{
    static const char *const good[] = {
        "'port:8033'", "port:8033",      "port:0",      "127.0.0.1:65535",
        "localhost:1", "my-host.x_y:80", "'[::1]:80'",  "'[fe80::1%eth0]:80'",
        "unix:/a",     "unix:a/b.sock",  "'unix:/a:b'", "'[::]:0', port:1",
    };
    static const struct {
        const char *value;
        const char *part;
    } bad[] = {
        {"foo", "\"foo\" is not an address: write \"port:8033\""},
        {"8033", "is not an address"},
        {"'::1:80'", "is not an address"},
        {"'[::1:80'", "is not an address"},
        {"'[::g]:80'", "is not an address"},
        {"'[127.0.0.1]:80'", "is not an address"},
        {"':80'", "is not an address"},
        {"'a/b:80'", "is not an address"},
        {"port:65536", "the port in \"port:65536\" must be 0 to 65535"},
        {"'port:'", "the port in"},
        {"port:-1", "the port in"},
        {"port:123456", "the port in"},
        {"'h:80x'", "the port in"},
        {"'unix:'", "needs a path"},
        {"'unix:/a b'", "a space"},
        {"\"unix:/a\\nb\"", "a control character"},
        {"unix:/a, 'unix:/a'", "\"unix:/a\" is given twice"},
        {"unix:a, 'unix:/etc/shoal/a'", "\"unix:/etc/shoal/a\" is given twice"},
        {"{port: 80}", "not a map"},
    };
    char list[512];
    for (size_t i = 0; i < ARRAY_COUNT(good); i++) {
        snprintf(list, sizeof(list), "[%s]", good[i]);
        expect_good("listen", list);
    }
    for (size_t i = 0; i < ARRAY_COUNT(bad); i++) {
        snprintf(list, sizeof(list), "[%s]", bad[i].value);
        expect_bad("listen", list, bad[i].part);
    }
    char path[200];
    memset(path, 'x', sizeof(path));
    snprintf(list, sizeof(list), "[unix:/%.106s]", path);
    expect_good("listen", list);
    snprintf(list, sizeof(list), "[unix:/%.107s]", path);
    expect_bad("listen", list, "a unix path of 108 bytes (\"/xxx");
    snprintf(list, sizeof(list), "[unix:%.96s]", path); /* with /etc/shoal/ before it */
    expect_good("listen", list);
    snprintf(list, sizeof(list), "[unix:%.97s]", path);
    expect_bad("listen", list, "must be at most 107");
}

TEST_CASE(test_socket_mode)
{
    struct config config = rig_good(PIPELINES "socket_mode: 0660\n");
    assert_int_equal(config.socket_mode_bits, 0660);
    config_free(&config);
    expect_good("socket_mode", "\"777\"");
    static const char *const bad[] = {"0668", "+660", "-660", "1777", "rwx", "0x1f"};
    for (size_t i = 0; i < ARRAY_COUNT(bad); i++)
        expect_bad("socket_mode", bad[i], "is not a mode such as 0660");
}

/* One needs no list. */
TEST_CASE(test_http_addresses)
{
    struct config config = rig_good(PIPELINES "metrics: port:2112\n");
    assert_int_equal(config.metrics.count, 1);
    assert_string_equal(config.metrics.items[0], "port:2112");
    config_free(&config);
    config = rig_good(PIPELINES "http: \"port:8008\"\n");
    assert_int_equal(config.http.count, 1);
    assert_string_equal(config.http.items[0], "port:8008");
    assert_int_equal(config.metrics.count, 0);
    config_free(&config);
    expect_good("http", "[port:1, 127.0.0.1:1]");
    expect_good("metrics", "\"[::1]:0\"");
    expect_good("metrics", "[port:1, 127.0.0.1:1]");
}

TEST_MAIN()
