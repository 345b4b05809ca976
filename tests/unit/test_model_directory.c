/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proves that what is listed follows what lies in the root: at the start, after each way in which a
 * sub-directory can come, go and change, after events were lost, after the root was lost, and after
 * random changes; that what cannot be listed is said once; and that what is half written is not
 * listed. Real directories, real inotify, a real loop; the list is kept by the test, which refuses
 * the names that begin with "taken".
 *
 * ctest: timeout=120 presets=dev,tsan because the watcher and the list are threads
 */

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../random.h"
#include "../test.h"
#include "base/check.h"
#include "base/log.h"
#include "coordinator/models/model_directory.h"
#include "coordinator/models/model_look.h"
#include "test_models_rig.h"

enum { MODELS_MAX = 24000, DEADLINE_S = 60, SEEDED_MODELS = 40, RANDOM_STEPS = 400 };

struct listed {
    char id[SHOAL_NAME_BYTES_MAX + 1];
    char path[256];
    char type[CONFIG_NAME_BYTES_MAX + 1];
    char key[LOOK_KEY_BYTES_MAX + 1];
    uint64_t version;
};

struct rig {
    char base[64]; /* of all that the test makes */
    char root[96];
    char log_path[96];
    int stderr_fd;
    struct loop *loop;
    struct loop_timer *look;
    struct model_directory *directory;
    struct listed *models;
    uint32_t model_count;
    uint32_t anew; /* how often one was listed that was already */
    uint32_t kept; /* how often one was kept */
    bool was_late;
    bool refuses;
    /* of the wait that is under way: */
    bool (*holds)(struct rig *rig);
    int64_t deadline_ns;
    bool held;
    const char *id;
    const char *path;
    uint32_t wanted;
};

static struct rig rig;

/* ---- the list ---- */

static struct listed *
find(const char *id)
{
    for (uint32_t i = 0; i < rig.model_count; i++)
        if (strcmp(rig.models[i].id, id) == 0)
            return &rig.models[i];
    return NULL;
}

static bool
is_listed(const char *id)
{
    return find(id) != NULL;
}

static void
drop(const char *id)
{
    struct listed *model = find(id);
    if (model != NULL)
        *model = rig.models[--rig.model_count];
}

static enum directory_listing
list(void *context, const struct directory_model *seen, struct error *error)
{
    const struct model_spec *spec = &seen->spec;
    const char *type = seen->type;
    uint64_t version = seen->version;
    assert_ptr_equal(context, &rig);
    assert_memory_equal(spec->id, spec->path, strlen(spec->id));
    if (rig.refuses && strncmp(spec->id, "taken", strlen("taken")) == 0) {
        error_set(error, STATUS_ALREADY_EXISTS, "\"%s\" is taken", spec->id);
        return LISTING_REFUSED;
    }
    if (strcmp(type, "other") == 0) {
        drop(spec->id);
        return LISTING_OTHERS;
    }
    if (strcmp(type, "late") == 0 && !rig.was_late) {
        rig.was_late = true;
        return LISTING_LATER;
    }
    struct listed *model = find(spec->id);
    if (model != NULL) {
        assert_true(model->version != version); /* or there is nothing to say */
        rig.anew++;
    } else {
        assert_true(rig.model_count < MODELS_MAX);
        model = &rig.models[rig.model_count++];
    }
    model->version = version;
    snprintf(model->id, sizeof(model->id), "%s", spec->id);
    snprintf(model->path, sizeof(model->path), "%s", spec->path);
    snprintf(model->type, sizeof(model->type), "%s", type);
    snprintf(model->key, sizeof(model->key), "%s", spec->key);
    return LISTING_DONE;
}

static void
unlist(void *context, const char *id)
{
    (void)context;
    struct listed *model = find(id);
    assert_non_null(model);
    *model = rig.models[--rig.model_count];
}

static enum directory_listing
refuse(void *context, const char *id, const struct error *why)
{
    (void)context;
    assert_true(why->status != STATUS_OK);
    rig.kept += is_listed(id);
    return is_listed(id) ? LISTING_DONE : LISTING_REFUSED;
}

/* ---- waiting ---- */

static void
look(void *context)
{
    (void)context;
    rig.held = rig.holds(&rig);
    if (rig.held || clock_now_ns() > rig.deadline_ns)
        loop_stop(rig.loop);
    else
        loop_timer_set(rig.look, NS_PER_MS);
}

static void
wait_for(bool (*holds)(struct rig *))
{
    rig.holds = holds;
    rig.deadline_ns = clock_now_ns() + DEADLINE_S * NS_PER_S;
    loop_timer_set(rig.look, 0);
    loop_run(rig.loop);
    assert_true(rig.held);
}

static bool
id_is_listed(struct rig *context)
{
    return is_listed(context->id);
}

static bool
one_is_kept(struct rig *context)
{
    return context->kept > 0;
}

/* Listed as it was, in spite of what its files are now. */
static void
wait_kept(const char *id)
{
    rig.kept = 0;
    wait_for(one_is_kept);
    assert_true(is_listed(id));
}

static bool
id_is_not_listed(struct rig *context)
{
    return !is_listed(context->id);
}

static bool
was_listed_anew(struct rig *context)
{
    return context->anew == context->wanted && is_listed(context->id);
}

static void
wait_listed(const char *id)
{
    rig.id = id;
    wait_for(id_is_listed);
}

static void
wait_not_listed(const char *id)
{
    rig.id = id;
    wait_for(id_is_not_listed);
}

static bool
id_has_path(struct rig *context)
{
    const struct listed *model = find(context->id);
    return model != NULL && strcmp(model->path, context->path) == 0;
}

static void
wait_path(const char *id, const char *path)
{
    rig.id = id;
    rig.path = path;
    wait_for(id_has_path);
}

static void
wait_listed_anew(const char *id)
{
    rig.id = id;
    rig.wanted = rig.anew + 1;
    wait_for(was_listed_anew);
}

/* ---- what lies there ---- */

static void
make_model(const char *name, const char *key)
{
    make_model_in(rig.root, name, key);
}

static void
move(const char *from_directory, const char *from, const char *to)
{
    char source[512];
    snprintf(source, sizeof(source), "%s", path_of(from_directory, from, ""));
    source[strlen(source) - 1] = '\0';
    char target[512];
    snprintf(target, sizeof(target), "%s", path_of(rig.root, to, ""));
    target[strlen(target) - 1] = '\0';
    assert_int_equal(rename(source, target), 0);
}

static void
remove_model(const char *name)
{
    remove_model_in(rig.root, name);
}

static uint32_t
lines_logged(const char *text)
{
    uint32_t count = 0;
    char line[2048];
    FILE *file = fopen(rig.log_path, "r");
    assert_non_null(file);
    while (fgets(line, sizeof(line), file) != NULL)
        count += strstr(line, text) != NULL;
    fclose(file);
    return count;
}

/* Of those that are, the first is shown. */
static void
nothing_was_complained_of(void)
{
    char line[2048];
    const char *complaint = "";
    FILE *file = fopen(rig.log_path, "r");
    assert_non_null(file);
    while (*complaint == '\0' && fgets(line, sizeof(line), file) != NULL)
        if (strstr(line, "model_not_listed") != NULL)
            complaint = line;
    fclose(file);
    assert_string_equal(complaint, "");
}

/* ---- set-up ---- */

/* Before it, the entries that are there at the start. */
static void
start_looking(int64_t look_ns)
{
    struct error error = ERROR_NONE;
    const struct model_directory_options options = {.loop = rig.loop,
                                                    .pipeline = "p",
                                                    .root = rig.root,
                                                    .look_ns = look_ns,
                                                    .list = list,
                                                    .unlist = unlist,
                                                    .refuse = refuse,
                                                    .context = &rig};
    assert_int_equal(model_directory_create(&options, &rig.directory, &error), STATUS_OK);
}

static void
start(void)
{
    start_looking(20 * (int64_t)NS_PER_MS);
}

static int
setup(void **state)
{
    (void)state;
    rig = (struct rig){.base = "/tmp/shoal-models.XXXXXX", .refuses = true};
    CHECK(mkdtemp(rig.base) != NULL);
    snprintf(rig.root, sizeof(rig.root), "%s/root", rig.base);
    CHECK(mkdir(rig.root, 0755) == 0);
    snprintf(rig.log_path, sizeof(rig.log_path), "%s/log", rig.base);
    rig.models = calloc(MODELS_MAX, sizeof(*rig.models));
    CHECK(rig.models != NULL);
    struct error error = ERROR_NONE;
    CHECK(loop_create(&rig.loop, &error) == STATUS_OK);
    rig.look = loop_timer_create(loop_base(rig.loop), look, NULL);
    log_init("test", LOG_INFO);
    int fd = open(rig.log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    rig.stderr_fd = dup(STDERR_FILENO);
    CHECK(fd >= 0 && rig.stderr_fd >= 0 && dup2(fd, STDERR_FILENO) >= 0);
    close(fd);
    return 0;
}

static int
teardown(void **state)
{
    (void)state;
    model_directory_destroy(rig.directory);
    loop_timer_destroy(rig.look);
    loop_destroy(rig.loop);
    dup2(rig.stderr_fd, STDERR_FILENO);
    close(rig.stderr_fd);
    remove_all(rig.base);
    free(rig.models);
    return 0;
}

/* ---- at the start ---- */

TEST_CASE(test_present_models_are_listed)
{
    make_model("plain", NULL);
    make_model("keyed", "{\"sha256\": \"00\"}");
    make_model("Zwölf Boote", NULL);
    make_model(".hidden", NULL);
    assert_int_equal(mkdir(path_of(rig.root, "empty", ""), 0755), 0);
    write_file(path_of(rig.root, "", "file"), "x", 1);
    start();
    assert_int_equal(rig.model_count, 4);
    assert_string_equal(find("plain")->key, "");
    assert_string_equal(find("keyed")->key, "{\"sha256\": \"00\"}");
    assert_true(is_listed("Zwölf Boote"));
    assert_true(is_listed("empty")); /* what it lacks, the modelet says */
    nothing_was_complained_of();
}

static void
write_in_root(const char *name, const char *text)
{
    write_file(path_of(rig.root, "", name), text, strlen(text));
}

#define AN_MLP "SHOALMLP and more"
#define AN_XGBOOST "{\"learner\":{}}"
#define AN_ONNX "\x08\x07\x12\x03pt"

/* Files of a known format are models, and the format is the type where no key gives another. */
TEST_CASE(test_formats)
{
    write_in_root("a.mlp", AN_MLP);
    write_in_root("b.v2.json", AN_XGBOOST);
    write_in_root("c", AN_ONNX);
    write_in_root(".d.mlp", AN_MLP);
    write_in_root("README.md", "not a model");
    write_in_root("tokens.json", "{\"not\": \"a booster\"}");
    write_in_root("broken.onnx", "not ONNX");
    make_model("several", NULL);
    write_file(path_of(rig.root, "several", "x.onnx"), AN_ONNX, strlen(AN_ONNX));
    write_file(path_of(rig.root, "several", "y.mlp"), AN_MLP, strlen(AN_MLP));
    make_model("preferred", NULL);
    write_file(path_of(rig.root, "preferred", "x.onnx"), AN_ONNX, strlen(AN_ONNX));
    write_file(path_of(rig.root, "preferred", "model.mlp"), AN_MLP, strlen(AN_MLP));
    make_model("keyed", "{\"model_type\": {\"name\": \"mine\"}}");
    write_file(path_of(rig.root, "keyed", "model.mlp"), AN_MLP, strlen(AN_MLP));
    start();
    static const char *const wanted[][3] = {
        {"a", "a.mlp", "mlp"},      {"b.v2", "b.v2.json", "xgboost"},  {"c", "c", "onnx"},
        {"several", "several", ""}, {"preferred", "preferred", "mlp"}, {"keyed", "keyed", "mine"}};
    assert_int_equal(rig.model_count, ARRAY_COUNT(wanted));
    for (size_t i = 0; i < ARRAY_COUNT(wanted); i++) {
        const struct listed *model = find(wanted[i][0]);
        assert_non_null(model);
        assert_string_equal(model->path, wanted[i][1]);
        assert_string_equal(model->type, wanted[i][2]);
    }
    assert_int_equal(lines_logged("model_not_listed"), 1);
    assert_int_equal(lines_logged("model=\"broken.onnx\" error=\"its content is not of"), 1);
}

/* Of entries with one id the first by name is listed, whichever came first, and the next one once
 * it has gone. */
TEST_CASE(test_one_id_once)
{
    write_in_root("m.onnx", AN_ONNX);
    write_in_root("m.mlp", AN_MLP);
    make_model("m-2", NULL);
    write_in_root("m.extra.mlp", AN_MLP);
    start();
    assert_int_equal(rig.model_count, 3);
    assert_string_equal(find("m")->path, "m.mlp");
    assert_int_equal(lines_logged("model=\"m.onnx\" error=\"m.mlp is a model of the same id"), 1);
    make_model_in(rig.base, "m", NULL);
    move(rig.base, "m", "m");
    wait_path("m", "m");
    remove_model("m");
    wait_path("m", "m.mlp");
    assert_int_equal(unlink(path_of(rig.root, "", "m.mlp")), 0);
    wait_path("m", "m.onnx");
    write_in_root("m.onnx", AN_ONNX "again");
    wait_listed_anew("m");
    assert_int_equal(unlink(path_of(rig.root, "", "m.onnx")), 0);
    wait_not_listed("m");
    assert_true(is_listed("m-2") && is_listed("m.extra"));
}

TEST_CASE(test_unlisted_entries_are_logged_once)
{
    char long_name[SHOAL_NAME_BYTES_MAX + 2];
    memset(long_name, 'n', sizeof(long_name) - 1);
    long_name[sizeof(long_name) - 1] = '\0';
    char long_key[LOOK_KEY_BYTES_MAX + 2];
    memset(long_key, ' ', sizeof(long_key) - 1);
    memcpy(long_key, "{}", 2);
    long_key[sizeof(long_key) - 1] = '\0';
    make_model(long_name, NULL);
    make_model("\xff\xfe", NULL);
    make_model("long key", long_key);
    long_key[LOOK_KEY_BYTES_MAX] = '\0';
    make_model("longest key", long_key);
    make_model("no json", "{\"a\": }");
    make_model("no object", "[1]");
    make_model("zero byte", NULL);
    write_file(path_of(rig.root, "zero byte", "key.json"), "{}\0{}", 5);
    make_model("fifo", NULL);
    assert_int_equal(mkfifo(path_of(rig.root, "fifo", "key.json"), 0600), 0);
    make_model("key is a directory", NULL);
    assert_int_equal(mkdir(path_of(rig.root, "key is a directory", "key.json"), 0700), 0);
    make_model("key leads out", NULL);
    assert_int_equal(symlink("/etc/hostname", path_of(rig.root, "key leads out", "key.json")), 0);
    make_model("taken", NULL);
    assert_int_equal(symlink("/etc", path_of(rig.root, "", "leads out")), 0);
    start();
    assert_int_equal(rig.model_count, 1);
    assert_int_equal(strlen(find("longest key")->key), LOOK_KEY_BYTES_MAX);
    static const char *const said[] = {
        "its name has 128 bytes, a model's id at most 127",
        "its name is not UTF-8",
        "model=\"long key\" error=\"key.json: more than 4095 bytes",
        "model=\"no json\" error=\"key.json: line 1: ",
        "model=\"no object\" error=\"key.json: not a JSON object",
        "model=\"zero byte\" error=\"key.json: ",
        "model=\"fifo\" error=\"key.json: not a regular file",
        "model=\"key is a directory\" error=\"key.json: not a regular file",
        "model=\"key leads out\" error=\"key.json: ",
        "model=\"taken\" error=\"\\\"taken\\\" is taken",
        "model=\"leads out\" error=\"it is a link that leads out of the root",
    };
    /* some looks later */
    make_model("marker", NULL);
    wait_listed("marker");
    age(path_of(rig.root, "marker", "weights"));
    wait_listed_anew("marker");
    for (size_t i = 0; i < ARRAY_COUNT(said); i++)
        assert_int_equal(lines_logged(said[i]), 1);
    assert_int_equal(lines_logged("model_not_listed"), ARRAY_COUNT(said));
    assert_int_equal(rig.model_count, 2);
}

/* ---- afterwards ---- */

TEST_CASE(test_coming_and_going)
{
    make_model("first", NULL);
    start();
    make_model("made", NULL);
    wait_listed("made");
    make_model_in(rig.base, "moved", "{}");
    move(rig.base, "moved", "moved");
    wait_listed("moved");
    move(rig.root, "moved", "renamed");
    wait_listed("renamed");
    wait_not_listed("moved");
    remove_model("made");
    wait_not_listed("made");
    assert_true(is_listed("first"));
    assert_int_equal(rig.model_count, 2);
    assert_int_equal(lines_logged("model_not_listed"), 0);
}

TEST_CASE(test_another_content_is_another_model)
{
    make_model("m", NULL);
    make_model("other", NULL);
    start();
    /* the whole of it, exchanged: renameat2(RENAME_EXCHANGE), there is no moment without one */
    make_model_in(rig.base, "m", "{\"v\": 2}");
    char next[512];
    snprintf(next, sizeof(next), "%s/m", rig.base);
    char path[512];
    snprintf(path, sizeof(path), "%s/m", rig.root);
    assert_int_equal(renameat2(AT_FDCWD, next, AT_FDCWD, path, RENAME_EXCHANGE), 0);
    wait_listed_anew("m");
    assert_string_equal(find("m")->key, "{\"v\": 2}");
    /* a file of it */
    write_file(path_of(rig.root, "m", ".new"), "w", 1);
    char from[512];
    snprintf(from, sizeof(from), "%s", path_of(rig.root, "m", ".new"));
    assert_int_equal(rename(from, path_of(rig.root, "m", "weights")), 0);
    age(path_of(rig.root, "m", ""));
    wait_listed_anew("m");
    /* overwritten in place */
    write_file(path_of(rig.root, "m", "weights"), "W", 1);
    wait_listed_anew("m");
    /* the key */
    write_file(path_of(rig.root, "m", "key.json"), "{\"v\": 3}", 8);
    wait_listed_anew("m");
    assert_string_equal(find("m")->key, "{\"v\": 3}");
    /* a key that is none: kept; then it is one again */
    write_file(path_of(rig.root, "m", "key.json"), "oops", 4);
    wait_kept("m");
    assert_string_equal(find("m")->key, "{\"v\": 3}");
    write_file(path_of(rig.root, "m", "key.json"), "{}", 2);
    wait_listed_anew("m");
    /* a new file in it, one taken out */
    write_file(path_of(rig.root, "m", "vocabulary"), "a b", 3);
    age(path_of(rig.root, "m", ""));
    wait_listed_anew("m");
    assert_int_equal(unlink(path_of(rig.root, "m", "vocabulary")), 0);
    age(path_of(rig.root, "m", ""));
    wait_listed_anew("m");
    assert_true(is_listed("other"));
}

/* As a ConfigMap is mounted: names are links through one that is renamed over. */
TEST_CASE(test_links_beneath_the_root)
{
    assert_int_equal(mkdir(path_of(rig.root, ".v1", ""), 0755), 0);
    assert_int_equal(mkdir(path_of(rig.root, ".v2", ""), 0755), 0);
    make_model(".v1/m", "{\"v\": 1}");
    make_model(".v2/m", "{\"v\": 2}");
    assert_int_equal(symlink(".v1", path_of(rig.root, "", "..data")), 0);
    assert_int_equal(symlink("..data/m", path_of(rig.root, "", "m")), 0);
    start();
    assert_string_equal(find("m")->key, "{\"v\": 1}");
    assert_int_equal(symlink(".v2", path_of(rig.root, "", "..next")), 0);
    char from[512];
    snprintf(from, sizeof(from), "%s", path_of(rig.root, "", "..next"));
    assert_int_equal(rename(from, path_of(rig.root, "", "..data")), 0);
    wait_listed_anew("m");
    assert_string_equal(find("m")->key, "{\"v\": 2}");
}

TEST_CASE(test_refused_models_are_tried_again)
{
    make_model("taken", NULL);
    start();
    assert_int_equal(rig.model_count, 0);
    rig.refuses = false;
    wait_listed("taken");
    assert_int_equal(lines_logged("model_not_listed"), 1);
}

TEST_CASE(test_other_peoples_models)
{
    make_model("m", "{\"model_type\": \"other\"}");
    start_looking(NS_PER_S);
    assert_false(is_listed("m"));
    write_file(path_of(rig.root, "m", "key.json"), "{\"model_type\": \"late\"}", 22);
    wait_listed("m"); /* put off once */
    write_file(path_of(rig.root, "m", "key.json"), "{\"model_type\": \"other\"}", 23);
    wait_not_listed("m");
    write_file(path_of(rig.root, "m", "key.json"), "{}", 2);
    wait_listed("m");
    assert_int_equal(lines_logged("model_not_listed"), 0);
}

static bool
root_is_lost(struct rig *context)
{
    (void)context;
    return lines_logged("models_root_lost") > 0;
}

TEST_CASE(test_the_root_is_lost_and_found)
{
    make_model("stays", NULL);
    make_model("goes", NULL);
    start();
    char away[128];
    snprintf(away, sizeof(away), "%s/away", rig.base);
    assert_int_equal(rename(rig.root, away), 0);
    make_model_in(away, "unseen", NULL);
    wait_for(root_is_lost);
    assert_int_equal(rig.model_count, 2);
    /* another directory under that name */
    char next[128];
    snprintf(next, sizeof(next), "%s/next", rig.base);
    assert_int_equal(mkdir(next, 0755), 0);
    make_model_in(next, "stays", NULL);
    make_model_in(next, "comes", NULL);
    assert_int_equal(rename(next, rig.root), 0);
    wait_listed("comes");
    wait_not_listed("goes");
    assert_true(is_listed("stays"));
    assert_int_equal(rig.model_count, 2);
    make_model("after", NULL); /* the new root is watched */
    wait_listed("after");
    assert_int_equal(lines_logged("models_root_lost"), 1);
    assert_int_equal(lines_logged("models_root_back"), 1);
}

/* ---- more than inotify keeps ---- */

static bool
all_are_there(struct rig *context)
{
    return context->model_count == context->wanted && is_listed("last");
}

TEST_CASE(test_events_are_lost)
{
    enum { COMING_AND_GOING = 9000, KEPT = 300 }; /* the queue has 16,384 */
    char name[32];
    start_looking(3600 * NS_PER_S); /* that events were lost is what makes it look */
    make_model("first", NULL);      /* the thread waits for the loop, which does not run */
    for (int i = 0; i < COMING_AND_GOING; i++) {
        assert_int_equal(mkdir(path_of(rig.root, "c", ""), 0755), 0);
        assert_int_equal(rmdir(path_of(rig.root, "c", "")), 0);
    }
    for (int i = 0; i < KEPT; i++) {
        snprintf(name, sizeof(name), "kept-%d", i);
        make_model(name, NULL);
    }
    make_model("last", NULL);
    rig.wanted = KEPT + 2;
    wait_for(all_are_there);
}

/* ---- random changes ---- */

struct expected {
    bool there;
    char key[16];
};

static struct expected expected[SEEDED_MODELS];

static bool
as_expected(struct rig *context)
{
    uint32_t there = 0;
    for (int i = 0; i < SEEDED_MODELS; i++) {
        char name[16];
        snprintf(name, sizeof(name), "m%d", i);
        const struct listed *model = find(name);
        there += expected[i].there;
        if ((model != NULL) != expected[i].there ||
            (model != NULL && strcmp(model->key, expected[i].key) != 0))
            return false;
    }
    return there == context->model_count;
}

static void
random_step(uint64_t *seed)
{
    int i = (int)(random_draw(seed) % SEEDED_MODELS);
    char name[16];
    snprintf(name, sizeof(name), "m%d", i);
    struct expected *one = &expected[i];
    char key[16];
    snprintf(key, sizeof(key), "{\"k\": %d}", (int)(random_draw(seed) % 1000));
    if (!one->there) {
        make_model_in(rig.base, name, key);
        move(rig.base, name, name);
        one->there = true;
    } else if (random_draw(seed) % 2 == 0) {
        remove_model(name);
        one->there = false;
    } else {
        write_file(path_of(rig.root, name, "key.json"), key, strlen(key));
    }
    snprintf(one->key, sizeof(one->key), "%s", key);
}

TEST_CASE(test_random_changes)
{
    uint64_t seed = random_seed((uint64_t)clock_now_ns());
    memset(expected, 0, sizeof(expected));
    start();
    for (int i = 0; i < RANDOM_STEPS; i++) {
        random_step(&seed);
        if (random_draw(&seed) % 20 == 0)
            wait_for(as_expected);
    }
    wait_for(as_expected);
    nothing_was_complained_of();
}

/* ---- the end ---- */

/* The thread waits for the loop, which has stopped. */
TEST_CASE(test_ends_with_changes_left)
{
    start();
    for (int i = 0; i < 200; i++) {
        char name[16];
        snprintf(name, sizeof(name), "m%d", i);
        make_model(name, NULL);
    }
    assert_int_equal(rig.model_count, 0);
    model_directory_destroy(rig.directory);
    rig.directory = NULL;
    assert_int_equal(rig.model_count, 0);
}

TEST_MAIN(.setup = setup, .teardown = teardown)
