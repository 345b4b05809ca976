/* SPDX-License-Identifier: Apache-2.0 */
/* Texts for callers name no absolute path in any surroundings; other texts stay as they are. */
#include <string.h>

#include "../test.h"
#include "base/hide_paths.h"

static const char *const roots[] = {"/srv/models/", "/mnt/my disk/models"};

static void
check(const char *text, const char *wanted)
{
    char reported[512];
    hide_paths(text, roots, 2, reported, sizeof(reported));
    assert_string_equal(reported, wanted);
}

TEST_CASE(test_paths_beneath_a_root_become_relative)
{
    check("/srv/models/a/b.ubj: torn", "a/b.ubj: torn");
    check("path \"/srv/models/a\" is in /srv/models, not in '/mnt/my disk/models/b c'",
          "path \"a\" is in ., not in 'b c'");
    check("(/srv/models)", "(.)");
    check("=/srv/models//a", "=a");
}

TEST_CASE(test_of_others_the_name_is_left)
{
    check("/etc/passwd", ".../passwd");
    check("/srv/modelsX/a: no", ".../a: no");
    check("a, //usr//lib/libx.so.1; and </opt/d/>", "a, .../libx.so.1; and <.../d>");
    check("file:///var/x is it", "file:.../x is it");
    check("key=/a/b", "key=.../b");
    check("/tmp/../srv/models/a", ".../a");
}

TEST_CASE(test_other_texts_stay)
{
    static const char *const texts[] = {
        "",
        "a/b and/or ./c ../d ~/e x_/y",
        "1 / 2",
        "/",
        "http://host:1/a/b",
        "ends with /",
        "\xc3\xa4/b",
        "50%/s",
        "// is it",
        "a//b",
    };
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        check(texts[i], texts[i]);
}

TEST_CASE(test_a_short_room_cuts)
{
    char reported[8];
    for (size_t room = 1; room <= sizeof(reported); room++) {
        memset(reported, 'x', sizeof(reported));
        hide_paths("at /a/b/c and on", roots, 2, reported, room);
        assert_int_equal(strlen(reported), room - 1);
        assert_memory_equal(reported, "at .../c", room - 1);
    }
}

TEST_MAIN()
