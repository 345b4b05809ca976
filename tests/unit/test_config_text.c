/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Texts that are no configuration: broken YAML, with the line where it breaks; what YAML has and a
 * configuration does not (aliases, anchors, tags, further documents); bytes that are no text; files
 * that are too large, too deep or have too many of something; and some thousands of random
 * mutations of good files, each of which must load or be refused with at least one line, and never
 * more. The seed is printed: SHOAL_SEED gives it again.
 */
#include <ctype.h>
#include <time.h>

#include "../random.h"
#include "test_config_rig.h"

TEST_CASE(test_syntax)
{
    static const struct {
        const char *text;
        int line;
        const char *part;
    } cases[] = {
        {"", 1, "the file is empty: at least `pipelines` is needed"},
        {"\n\n# only a comment\n", 1, "the file is empty"},
        {"---\n...\n", 1, "the file is empty"},
        {"~\n", 1, "the file is empty"},
        {"hello\n", 1, "the file must be a map with keys, not \"hello\""},
        {"# a\n- a\n- b\n", 2, "the file must be a map with keys, not a list"},
        {PIPELINES "a: b: c\n", 4, "not YAML: mapping values are not allowed in this context"},
        {PIPELINES "listen: [a, b\n", 5, "not YAML: "},
        {PIPELINES "log_level: 'info\n", 5,
         "not YAML: found unexpected end of stream, while scanning "
         "a quoted scalar that begins on line 4"},
        {PIPELINES "\tlog_level: info\n", 4, "indent with spaces, not with a tab"},
        {PIPELINES "  \tlog_level: info\n", 4, "not with a tab"},
        {PIPELINES "log_level: %info\n", 4,
         "not YAML: found character that cannot start any token"},
        {PIPELINES "log_level: info}\n", 4, "must be a word"},
        {PIPELINES "}\n", 4, "not YAML: "},
        {PIPELINES "? [a, b]\n: c\n", 4, "a key must be a word, not a list or a map"},
        {PIPELINES "? {a: b}\n: c\n", 4, "a key must be a word"},
        {PIPELINES "--- \n" PIPELINES, 4, "a second document"},
        {PIPELINES "...\n---\na: b\n", 5, "a second document"},
        {PIPELINES "log_level: &x info\n", 4, "anchors (&x) are not supported"},
        {PIPELINES "&k log_level: info\n", 4, "anchors (&k) are not supported"},
        {PIPELINES "log_level: *x\n", 4,
         "aliases (*x) are not supported: write the value out here"},
        {PIPELINES "*x : info\n", 4, "aliases (*x) are not supported"},
        {PIPELINES "log_level: !!str info\n", 4,
         "tags (\"tag:yaml.org,2002:str\") are not supported"},
        {PIPELINES "log_level: !a%0ab info\n", 4, "tags (\"!a?b\") are not supported"},
        {"%YAML 1.1\n%TAG !e! tag:e\n---\n" PIPELINES, 2, "%TAG: tags are not supported"},
        {PIPELINES "cpus: !!seq [0]\n", 4, "tags ("},
        {PIPELINES "log_level: \"in\\0fo\"\n", 4, "a NUL byte (\\0) in a text"},
        {PIPELINES "log_level: in\xff"
                   "fo\n",
         4, "not UTF-8 text: invalid leading UTF-8 octet (byte 0xff)"},
        {PIPELINES "# \xc3\n", 4, "not UTF-8 text: "},
        {PIPELINES "\x01\n", 4, "not UTF-8 text: control characters are not allowed"},
    };
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++)
        rig_bad(cases[i].text, cases[i].line, cases[i].part);
    static const char nul[] = PIPELINES "log_level: \0info\n";
    rig_bad_bytes(nul, sizeof(nul) - 1, 4, "a NUL byte: the file must be UTF-8 text");
    static const char utf16[] = "\xff\xfe"
                                "a\0:\0 \0b\0";
    rig_bad_bytes(utf16, sizeof(utf16) - 1, 1, "a NUL byte");
}

TEST_CASE(test_good_yaml)
{
    static const char *const good[] = {
        PIPELINES,
        "\xef\xbb\xbf" PIPELINES, /* a byte order mark */
        "%YAML 1.1\n---\n" PIPELINES "...\n",
        "{\"pipelines\": [{\"name\": \"p\", \"stages\": [{\"name\": \"s\", \"modelet\": \"m\"}]}]}",
        PIPELINES "# %TAG is a word here\n",
        "pipelines:\r\n- name: p\r\n  stages:\r\n  - name: s\r\n    modelet: m\r\n",
        "pipelines:\n- name: p # ä\n  stages:\n  - name: s\n    modelet: >-\n      m.so\n",
    };
    for (size_t i = 0; i < ARRAY_COUNT(good); i++) {
        struct config config = rig_good(good[i]);
        assert_int_equal(config.pipelines[0].stage_count, 1);
        config_free(&config);
    }
}

/* ---- too much of something ---- */

struct text {
    char *bytes;
    size_t size;
    FILE *out;
};

static FILE *
text_begin(struct text *text)
{
    text->out = open_memstream(&text->bytes, &text->size);
    assert_non_null(text->out);
    return text->out;
}

static void
text_refused(struct text *text, int line, const char *part)
{
    fclose(text->out);
    rig_bad_bytes(text->bytes, text->size, line, part);
    free(text->bytes);
}

static void
text_accepted(struct text *text)
{
    fclose(text->out);
    struct config config = rig_good(text->bytes);
    config_free(&config);
    free(text->bytes);
}

TEST_CASE(test_counts)
{
    struct text text;
    for (int more = 0; more < 2; more++) {
        FILE *out = text_begin(&text);
        fputs("pipelines:\n", out);
        for (int i = 0; i < CONFIG_PIPELINES_MAX + more; i++)
            fprintf(out, "- {name: p%d, stages: [{name: s, modelet: m}]}\n", i);
        if (more)
            text_refused(&text, 66, "`pipelines` has 65 elements: must be at most 64");
        else
            text_accepted(&text);

        out = text_begin(&text);
        fputs("pipelines:\n- name: p\n  stages:\n", out);
        for (int i = 0; i < STAGES_MAX + more; i++)
            fprintf(out, "  - {name: s%d, modelet: m}\n", i);
        if (more)
            text_refused(&text, 20, "`stages` has 17 elements: must be at most 16");
        else
            text_accepted(&text);

        out = text_begin(&text);
        fputs("pipelines:\n- name: p\n  stages:\n  - name: s\n    modelet: m\n    cpus:\n", out);
        for (int i = 0; i < STAGE_WORKERS_MAX + more; i++)
            fprintf(out, "    - %d\n", i);
        if (more)
            text_refused(&text, 71, "`cpus` has 65 elements: must be at most 64");
        else
            text_accepted(&text);

        out = text_begin(&text);
        fputs(PIPELINES "listen:\n", out);
        for (int i = 0; i < CONFIG_LISTEN_MAX + more; i++)
            fprintf(out, "- port:%d\n", i);
        if (more)
            text_refused(&text, 21, "`listen` has 17 elements: must be at most 16");
        else
            text_accepted(&text);

        out = text_begin(&text);
        fputs("pipelines:\n- name: p\n  stages:\n  - name: s\n    modelet: m\n    params:\n", out);
        for (int i = 0; i < CONFIG_PARAMS_MAX + more; i++)
            fprintf(out, "      k%d: v\n", i);
        if (more)
            text_refused(&text, 71, "`params` has more than 64 values");
        else
            text_accepted(&text);

        out = text_begin(&text);
        fputs("pipelines:\n- name: p\n  stages:\n  - name: s\n    modelet: m\n    params: { k: ",
              out);
        for (int i = 0; i < HANDSHAKE_VALUE_BYTES - 1 + more; i++)
            fputc('v', out);
        fputs(" }\n", out);
        if (more)
            text_refused(&text, 4, "`params`: a value has 512 bytes: must be at most 511");
        else
            text_accepted(&text);
    }
}

TEST_CASE(test_sizes)
{
    struct text text;
    FILE *out = text_begin(&text);
    fputs(PIPELINES "# ", out);
    while (ftell(out) < CONFIG_FILE_BYTES_MAX - 1)
        fputc('x', out);
    fputc('\n', out);
    text_accepted(&text);

    out = text_begin(&text);
    fputs(PIPELINES "# ", out);
    while (ftell(out) < CONFIG_FILE_BYTES_MAX)
        fputc('x', out);
    fputc('\n', out);
    text_refused(&text, 1, "more than 1024 KiB");

    static const char *const deep[] = {"[", "{a: ", "- ", "? "};
    for (size_t i = 0; i < ARRAY_COUNT(deep); i++) {
        out = text_begin(&text);
        fputs(PIPELINES "cpus:\n  ", out);
        for (int depth = 0; depth < 100000; depth++)
            fputs(deep[i], out);
        text_refused(&text, 5, "too deep");
    }

    out = text_begin(&text);
    fputs(PIPELINES "cpus: [", out);
    for (int i = 0; i < 200000; i++)
        fputs("1,\n", out);
    fputs("]\n", out);
    fclose(text.out);
    struct config config;
    struct config_errors errors;
    rig_parse(text.bytes, text.size, &config, &errors);
    assert_int_equal(errors.count, 1);
    assert_non_null(strstr(errors.lines[0], "too many values"));
    config_errors_free(&errors);
    config_free(&config);
    free(text.bytes);
}

/* Each level names the one before ten times: refused, not expanded. */
TEST_CASE(test_alias_bomb)
{
    struct config config;
    struct config_errors errors;
    struct text text;
    FILE *out = text_begin(&text);
    fputs("a0: &a0 [x]\n", out);
    for (int i = 1; i < 9; i++) {
        fprintf(out, "a%d: &a%d [", i, i);
        for (int j = 0; j < 10; j++)
            fprintf(out, "*a%d, ", i - 1);
        fputs("]\n", out);
    }
    fclose(out);
    rig_parse(text.bytes, text.size, &config, &errors);
    /* anchors, aliases, unknown keys, and no pipelines */
    assert_int_equal(errors.count, 9 + 80 + 9 + 1);
    config_errors_free(&errors);
    config_free(&config);
    free(text.bytes);
}

TEST_CASE(test_many_mistakes)
{
    struct config config;
    struct config_errors errors;
    struct text text;
    FILE *out = text_begin(&text);
    fputs(PIPELINES, out);
    for (int i = 0; i < 20000; i++)
        fprintf(out, "key%d: 1\n", i);
    fclose(out);
    rig_parse(text.bytes, text.size, &config, &errors);
    assert_int_equal(errors.count, 101);
    assert_non_null(strstr(errors.lines[0], ":4: \"key0\" is not a key"));
    assert_string_equal(errors.lines[100], RIG_PATH ": and 19900 more mistakes");
    config_errors_free(&errors);
    config_free(&config);
    free(text.bytes);
}

/* ---- mutations ---- */

static uint64_t random_state;

static const char *const seeds[] = {
    PIPELINES,
    "listen: [\"port:8033\", \"unix:/run/shoal/grpc.sock\"]\n"
    "cpus: [0]                      # coordinator\n"
    "pipelines:\n"
    "  - name: digits\n"
    "    slots: 1024\n"
    "    stages:\n"
    "      - { name: normalize, modelet: libnormalize.so, cpus: [1] }\n"
    "      - { name: classify, modelet: libxgboost_modelet.so, cpus: [1, 1], batch_size: 64,\n"
    "          batch_wait_ms: 2, params: { model: digits.ubj } }\n"
    "      - { name: label, modelet: liblabel.so, workers: 1, model: {id: a, path: b, key: c} }\n",
};

static const char *const pieces[] = {
    "[",        "]",      "{",
    "}",        ": ",     "- ",
    "\n",       "  ",     "\t",
    "&a ",      "*a",     "!!x ",
    "\"",       "'",      "|\n",
    ">\n",      "#",      "---\n",
    "...",      "? ",     "\xff",
    "\xc3\xa4", "name",   "stages",
    "cpus",     "slots",  "99999",
    "-1",       "0.5",    "~",
    "<<",       "%YAML",  ",",
    "unix:",    "port:0", "params: {a: b}",
    "\\0",      "\r",     "\xe2\x80\xa8",
};

enum { MUTANT_BYTES_MAX = 4096, MUTANTS = 6000, CHANGES_MAX = 5 };

static size_t
mutate(char *bytes, size_t size)
{
    size_t at = random_draw(&random_state) % (size + 1);
    size_t length = random_draw(&random_state) % 12;
    size_t from = random_draw(&random_state) % (size + 1);
    const char *piece = pieces[random_draw(&random_state) % ARRAY_COUNT(pieces)];
    switch (random_draw(&random_state) % 4) {
    case 0: /* out */
        length = length < size - at ? length : size - at;
        memmove(bytes + at, bytes + at + length, size - at - length);
        return size - length;
    case 1: /* in */ length = strlen(piece); break;
    case 2: /* again */
        length = length < size - from ? length : size - from;
        piece = bytes + from;
        break;
    default: /* changed */
        if (at < size)
            bytes[at] = (char)random_draw(&random_state);
        return size;
    }
    if (size + length > MUTANT_BYTES_MAX)
        return size;
    char copy[64];
    memcpy(copy, piece, length);
    memmove(bytes + at + length, bytes + at, size - at);
    memcpy(bytes + at, copy, length);
    return size + length;
}

static void
check_errors(const struct config_errors *errors)
{
    assert_true(errors->count > 0 && errors->count <= 101);
    long last = 0;
    for (uint32_t i = 0; i < errors->count; i++) {
        const char *line = errors->lines[i];
        assert_int_equal(strncmp(line, RIG_PATH ":", strlen(RIG_PATH) + 1), 0);
        if (i < 100) {
            long number = strtol(line + strlen(RIG_PATH) + 1, NULL, 10);
            assert_true(number >= 1 && number >= last);
            last = number;
        }
        for (const char *c = line; *c != '\0'; c++)
            assert_false(iscntrl((unsigned char)*c) && (unsigned char)*c < 0x80);
    }
}

TEST_CASE(test_mutations)
{
    static char bytes[MUTANT_BYTES_MAX];
    random_state = random_seed((uint64_t)time(NULL));
    unsigned good = 0;
    for (int i = 0; i < MUTANTS; i++) {
        struct config config;
        struct config_errors errors;
        const char *seed = seeds[random_draw(&random_state) % ARRAY_COUNT(seeds)];
        size_t size = strlen(seed);
        memcpy(bytes, seed, size);
        for (uint64_t change = 1 + random_draw(&random_state) % CHANGES_MAX; change > 0; change--)
            size = mutate(bytes, size);
        if (rig_parse(bytes, size, &config, &errors) == STATUS_OK)
            good++;
        else
            check_errors(&errors);
        config_errors_free(&errors);
        config_free(&config);
    }
    print_message("%u of %d mutants load\n", good, MUTANTS);
    assert_true(good > 0 && good < MUTANTS);
}

TEST_MAIN()
