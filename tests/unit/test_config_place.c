/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The configuration in its place: CPUs that the machine has and has not, also when the test itself
 * is pinned; modelets in each of the places where they are searched, and an error that names them
 * all; the examples of the tree load; files that can't be read; the manual names every key, and the
 * README holds it as it is; the page on security names limits and defaults that there are.
 */
#include <sched.h>
#include <sys/stat.h>

#include "coordinator/config/config_keys.h"
#include "ipc/counters.h"
#include "test_config_rig.h"

static enum status
parse_here(const char *path, const char *text, enum config_modelets modelets, struct config *config,
           struct config_errors *errors)
{
    struct error error = ERROR_NONE;
    struct config_options options = {CONFIG_PIN, modelets};
    struct config_text file = {.path = path, .text = text, .bytes = strlen(text)};
    return config_parse(&file, &options, config, errors, &error);
}

static void
expect_cpu(int cpu, const char *part)
{
    struct config config;
    struct config_errors errors;
    char text[256];
    snprintf(text, sizeof(text),
             "cpus: [%d]\npipelines:\n- name: p\n  stages:\n  - name: s\n    modelet: m\n"
             "    cpus: [%d, %d]\n",
             cpu, cpu, cpu);
    enum status status = parse_here(RIG_PATH, text, CONFIG_MODELETS_UNSEEN, &config, &errors);
    if (part == NULL) {
        assert_int_equal(status, STATUS_OK);
        assert_int_equal(config.cpu_count, 1);
        assert_int_equal(config.cpus[0], cpu);
        assert_int_equal(config.pipelines[0].stages[0].worker_count, 2);
        assert_int_equal(config.pipelines[0].stages[0].cpus[1], cpu);
    } else {
        assert_int_equal(errors.count, 3);
        assert_non_null(strstr(errors.lines[0], ":1: "));
        assert_non_null(strstr(errors.lines[2], ":7: "));
        assert_non_null(strstr(errors.lines[2], part));
    }
    config_errors_free(&errors);
    config_free(&config);
}

TEST_CASE(test_cpus)
{
    cpu_set_t before;
    cpu_set_t after;
    assert_int_equal(sched_getaffinity(0, sizeof(before), &before), 0);
    int first = -1;
    int last = -1;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &before)) {
            first = first < 0 ? cpu : first;
            last = cpu;
        }
    expect_cpu(first, NULL);
    expect_cpu(last, NULL);
    expect_cpu(CPU_SETSIZE - 1,
               "CPU 1023 does not exist or is not available to shoald: available are ");

    /* Pinned ourselves, we may still pin others elsewhere; and asking leaves no trace. */
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
    expect_cpu(last, NULL);
    expect_cpu(CPU_SETSIZE - 1, "does not exist");
    assert_int_equal(sched_getaffinity(0, sizeof(after), &after), 0);
    assert_true(CPU_EQUAL(&after, &one));
    assert_int_equal(sched_setaffinity(0, sizeof(before), &before), 0);
}

static char folder[64];

static void
touch(const char *name, mode_t mode)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fchmod(fileno(file), mode), 0);
    fclose(file);
}

/* `found`, in the folder; or NULL: not found, with `part` in the one error. */
static void
expect_modelet(const char *modelet, const char *found, const char *part)
{
    struct config config;
    struct config_errors errors;
    char path[128];
    char text[512];
    snprintf(path, sizeof(path), "%s/c.yaml", folder);
    snprintf(text, sizeof(text), "pipelines:\n- name: p\n  stages:\n  - name: s\n    modelet: %s\n",
             modelet);
    enum status status = parse_here(path, text, CONFIG_MODELETS_FIND, &config, &errors);
    if (found != NULL) {
        rig_print(&errors);
        char wanted[256];
        snprintf(wanted, sizeof(wanted), "%s/%s", folder, found);
        assert_int_equal(status, STATUS_OK);
        assert_string_equal(config.pipelines[0].stages[0].modelet, wanted);
    } else {
        assert_int_equal(status, STATUS_INVALID_ARGUMENT);
        assert_int_equal(errors.count, 1);
        assert_non_null(strstr(errors.lines[0], "c.yaml:5: "));
        assert_non_null(strstr(errors.lines[0], part));
    }
    config_errors_free(&errors);
    config_free(&config);
}

TEST_CASE(test_modelets)
{
    snprintf(folder, sizeof(folder), "/tmp/shoal-config-XXXXXX");
    assert_non_null(mkdtemp(folder));
    char text[256];
    static const char *const folders[] = {"a", "b", "libd.so"};
    for (size_t i = 0; i < ARRAY_COUNT(folders); i++) {
        snprintf(text, sizeof(text), "%s/%s", folder, folders[i]);
        assert_int_equal(mkdir(text, 0755), 0);
    }
    touch("libx.so", 0644);
    touch("a/libx.so", 0644);
    touch("a/liby.so", 0644);
    touch("b/liby.so", 0644);
    touch("b/libz.so", 0644);

    unsetenv("SHOAL_MODELET_PATH");
    expect_modelet("libx.so", "libx.so", NULL);
    expect_modelet("./libx.so", "./libx.so", NULL);
    expect_modelet("a/libx.so", "a/libx.so", NULL);
    expect_modelet("b/libx.so", NULL, "b/libx.so (paths are relative to /tmp/");
    expect_modelet("/no/such.so", NULL, "no readable file /no/such.so");
    expect_modelet("./libd.so", NULL, "no readable file");
    snprintf(text, sizeof(text), "%s/a/liby.so", folder);
    expect_modelet(text, "a/liby.so", NULL);
    expect_modelet("libz.so", NULL, "no file libz.so in any of /tmp/shoal-config-");
    char program[512];
    ssize_t length = readlink("/proc/self/exe", program, sizeof(program) - 1);
    assert_true(length > 0);
    program[length] = '\0';
    *strrchr(program, '/') = '\0';
    *strrchr(program, '/') = '\0';
    snprintf(text, sizeof(text), ", %.200s/lib/shoal", program);
    expect_modelet("libz.so", NULL, text);

    snprintf(text, sizeof(text), ":%s/a::%s/b:", folder, folder);
    setenv("SHOAL_MODELET_PATH", text, 1);
    expect_modelet("libx.so", "libx.so", NULL); /* the file's folder first */
    expect_modelet("liby.so", "a/liby.so", NULL);
    expect_modelet("libz.so", "b/libz.so", NULL);
    expect_modelet("libd.so", NULL, "/a, /tmp/shoal-config-");
    unsetenv("SHOAL_MODELET_PATH");

    snprintf(text, sizeof(text), "rm -rf '%s'", folder);
    assert_int_equal(system(text), 0);
}

/* The root of models must be there, and be a directory. */
static void
expect_root(const char *root, const char *part)
{
    static const char format[] = "pipelines:\n- name: p\n  models: {root: '%s', memory_mib: 1}\n"
                                 "  stages: [{name: s, modelet: /bin/true}]\n";
    char text[1024];
    struct config config;
    struct config_errors errors = {0};
    struct error error = ERROR_NONE;
    snprintf(text, sizeof(text), format, root);
    struct config_text file = {.path = "/etc/x.yaml", .text = text, .bytes = strlen(text)};
    enum status status = config_parse(&file, NULL, &config, &errors, &error);
    if (part == NULL && status != STATUS_OK)
        fail_msg("%s", errors.lines[0]);
    if (part != NULL && (status == STATUS_OK || strstr(errors.lines[0], part) == NULL))
        fail_msg("%s: %s", root, status == STATUS_OK ? "taken" : errors.lines[0]);
    config_errors_free(&errors);
    config_free(&config);
}

TEST_CASE(test_models_root)
{
    expect_root("/tmp", NULL);
    expect_root("/no/such", "/etc/x.yaml:3: `root`: no readable directory /no/such");
    expect_root("/bin/true", "no readable directory /bin/true");
    expect_root("none", "no readable directory /etc/none");
}

TEST_CASE(test_examples)
{
    static const char *const names[] = {"echo", "scale-shift", "digits"};
    for (size_t i = 0; i < ARRAY_COUNT(names); i++) {
        struct config config;
        struct config_errors errors;
        struct error error = ERROR_NONE;
        char path[1024];
        snprintf(path, sizeof(path), "%s/examples/%s/%s.yaml", getenv("SHOAL_SOURCE_DIR"), names[i],
                 names[i]);
        enum status status = config_load(path, &rig_anywhere, &config, &errors, &error);
        rig_print(&errors);
        if (status != STATUS_OK)
            fail_msg("%s", error.text);
        assert_int_equal(config.pipeline_count, 1);
        const struct config_pipeline *pipeline = &config.pipelines[0];
        assert_string_equal(pipeline->name, names[i]);
        if (strcmp(names[i], "digits") == 0) {
            assert_int_equal(pipeline->stage_count, 3);
            assert_string_equal(pipeline->stages[1].modelet, "libxgboost_modelet.so");
            assert_int_equal(pipeline->stages[1].worker_count, 2);
            assert_int_equal(pipeline->stages[1].batch_size, 64);
            assert_int_equal(pipeline->stages[1].batch_wait_ns, 2000000);
            assert_string_equal(pipeline->stages[1].batch_wait, "adaptive");
            assert_string_equal(pipeline->stages[1].params[0].value, "digits.ubj");
        }
        config_errors_free(&errors);
        config_free(&config);
    }
}

TEST_CASE(test_files)
{
    struct config config;
    struct config_errors errors;
    struct error error = ERROR_NONE;
    assert_int_equal(config_load("/no/such.yaml", NULL, &config, &errors, &error),
                     STATUS_NOT_FOUND);
    assert_string_equal(error.text, "/no/such.yaml: No such file or directory");
    config_errors_free(&errors);
    config_free(&config);
    assert_int_not_equal(config_load("/tmp", NULL, &config, &errors, &error), STATUS_OK);
    assert_string_equal(error.text, "reading /tmp: Is a directory");
    assert_int_equal(errors.count, 0);
    config_errors_free(&errors);
    config_free(&config);
    assert_int_equal(config_load("/dev/zero", NULL, &config, &errors, &error),
                     STATUS_INVALID_ARGUMENT);
    assert_string_equal(errors.lines[0],
                        "/dev/zero:1: more than 1024 KiB: too large for a configuration");
    assert_string_equal(error.text, "/dev/zero: 1 mistake");
    config_errors_free(&errors);
    config_free(&config);
}

/* ---- the manual ---- */

static char *
manual(enum config_manual_form form)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    assert_non_null(out);
    config_print_manual(out, form);
    fclose(out);
    return text;
}

TEST_CASE(test_manual)
{
    char *text = manual(CONFIG_MANUAL_TEXT);
    char *markdown = manual(CONFIG_MANUAL_MARKDOWN);
    for (size_t i = 0; i < KEY_COUNT; i++) {
        char line[256];
        char range[128];
        const struct config_key *key = &config_keys[i];
        snprintf(line, sizeof(line), "\n    %s\n        %s", key->name,
                 config_type_name(key->type));
        assert_non_null(strstr(text, line));
        config_range_text(key, range, sizeof(range));
        bool is_number = key->type == CONFIG_INTEGER || key->type == CONFIG_DECIMAL;
        const char *value = is_number                    ? range
                            : key->type == CONFIG_CHOICE ? ""
                                                         : config_type_name(key->type);
        snprintf(line, sizeof(line), "\n- `%s` (%s", key->name, value);
        assert_non_null(strstr(markdown, line));
        assert_true(strlen(key->help) > 10);
    }
    assert_non_null(strstr(text, "an integer, 0 to 4096 requests; default 0\n"));
    assert_non_null(strstr(markdown, "(0 to 60000 ms, default 2): "));
    assert_non_null(strstr(markdown, "(error|warn|info|debug, default info): "));
    assert_null(strchr(text, '`'));
    for (const char *line = text; *line != '\0'; line += strcspn(line, "\n") + 1)
        assert_true(strcspn(line, "\n") <= 100);
    free(text);
    free(markdown);
}

static char *
read_whole(const char *path)
{
    FILE *file = fopen(path, "r");
    char *text = NULL;
    size_t size = 0;
    if (file == NULL)
        return NULL;
    ssize_t got = getdelim(&text, &size, '\0', file);
    fclose(file);
    return got >= 0 ? text : NULL;
}

/* docs/configuration.md is the manual. SHOAL_UPDATE=1 writes it instead of comparing. */
TEST_CASE(test_manual_page)
{
    static const char begin[] = "<!-- config-keys -->\n";
    static const char end[] = "<!-- /config-keys -->";
    char path[1024];
    char program[512] = "";
    snprintf(path, sizeof(path), "%s/docs/configuration.md", getenv("SHOAL_SOURCE_DIR"));
    char *page = read_whole(path);
    char *from = page != NULL ? strstr(page, begin) : NULL;
    char *to = from != NULL ? strstr(from, end) : NULL;
    if (to == NULL)
        fail_msg("%s has no place for the keys: \"%s\" and \"%s\" around it", path, begin, end);
    from += strlen(begin);
    char *markdown = manual(CONFIG_MANUAL_MARKDOWN);
    bool current =
        (size_t)(to - from) == strlen(markdown) && memcmp(from, markdown, strlen(markdown)) == 0;
    if (!current && getenv("SHOAL_UPDATE") != NULL) {
        FILE *file = fopen(path, "w");
        assert_non_null(file);
        fprintf(file, "%.*s%s%s", (int)(from - page), page, markdown, to);
        assert_int_equal(fclose(file), 0);
    } else if (!current) {
        assert_true(readlink("/proc/self/exe", program, sizeof(program) - 1) > 0);
        fail_msg("docs/configuration.md does not hold the keys as they are. Run: SHOAL_UPDATE=1 "
                 "SHOAL_SOURCE_DIR=%s %s",
                 getenv("SHOAL_SOURCE_DIR"), program);
    }
    free(markdown);
    free(page);
}

static bool
is_counter(const char *name, size_t bytes)
{
    for (size_t i = 0; i < COUNTER_TABLE_COUNT; i++)
        if (strlen(counter_table[i].name) == bytes &&
            memcmp(counter_table[i].name, name, bytes) == 0)
            return true;
    return false;
}

/* Below the top, too: names of limits are not used twice. */
static const struct config_key *
limit_named(const char *name)
{
    for (size_t i = 0; i < KEY_COUNT; i++)
        if (strcmp(config_keys[i].name, name) == 0)
            return &config_keys[i];
    return NULL;
}

/* | `key` | default | `counter`, `counter` | what it bounds | */
static void
check_limit(const char *line)
{
    char name[64];
    char initial[64];
    char counters[128];
    if (sscanf(line, "| `%63[^`]` | %63[^|] | %127[^|]", name, initial, counters) != 3)
        fail_msg("no row of limits: %s", line);
    const struct config_key *key = limit_named(name);
    assert_non_null(key);
    initial[strcspn(initial, " ")] = '\0';
    assert_string_equal(initial, key->fallback);
    for (char *at = strtok(counters, "`, "); at != NULL; at = strtok(NULL, "`, "))
        if (strcmp(at, "none") != 0 && !is_counter(at, strlen(at)))
            fail_msg("%s: there is no counter %s", name, at);
}

/* The limits in docs/security.md are keys with these defaults, and counters that there are. */
TEST_CASE(test_security_page)
{
    char path[1024];
    snprintf(path, sizeof(path), "%s/docs/security.md", getenv("SHOAL_SOURCE_DIR"));
    char *page = read_whole(path);
    assert_non_null(page);
    char *from = strstr(page, "<!-- limits -->");
    char *to = strstr(page, "<!-- /limits -->");
    assert_true(from != NULL && to > from);
    *to = '\0';
    size_t rows = 0;
    for (char *line = strtok_r(from, "\n", &to); line != NULL; line = strtok_r(NULL, "\n", &to)) {
        if (strncmp(line, "| `", 3) != 0)
            continue;
        check_limit(line);
        rows++;
    }
    assert_true(rows > 10);
    free(page);
}

TEST_MAIN()
