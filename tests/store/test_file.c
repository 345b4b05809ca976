/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file store loses nothing that it confirmed. Cut at every byte, it opens with what was whole up
 * to there, and goes on; with any one byte of the middle changed it is refused, and left as it is.
 * A process that is killed while it writes, again and again, has reported nothing that is not there
 * afterwards. A disk that takes no more is reported as trouble, nothing of what it refused happens,
 * and the file does not grow without bound.
 */
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../random.h"
#include "mesh/store/frame.h"
#include "mesh/store/journal.h"
#include "mesh/store/table.h"
#include "seen.h"

enum { CHANGES = 12, KILLS = 40 };

static char folder[64];
static char path[96];
static struct seen seen;

static enum status
try_open(struct error *error)
{
    struct store_events events = seen_events(&seen);
    const struct store_options options = {"n1", &events};
    return store_open_file(rig_base(), &options, path, &seen.store, error);
}

static void
open_store(void)
{
    struct error error = ERROR_NONE;
    if (try_open(&error) != STATUS_OK)
        fail_msg("%s", error.text);
    WAIT_UNTIL(seen.wholes > 0);
}

static void
close_store(void)
{
    store_close(seen.store);
    seen_fini(&seen);
}

static void
opening_fails(enum status status, const char *text)
{
    struct error error = ERROR_NONE;
    assert_int_equal(try_open(&error), status);
    if (strstr(error.text, text) == NULL || strstr(error.text, path) == NULL)
        fail_msg("\"%s\" does not say \"%s\" and the file", error.text, text);
}

static char *
read_file(size_t *bytes)
{
    struct stat stat;
    int fd = open(path, O_RDONLY);
    assert_true(fd >= 0 && fstat(fd, &stat) == 0);
    *bytes = (size_t)stat.st_size;
    char *data = malloc(*bytes + 1);
    assert_non_null(data);
    assert_int_equal(read(fd, data, *bytes), stat.st_size);
    close(fd);
    return data;
}

static void
write_file(const char *data, size_t bytes)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, data, bytes), bytes);
    close(fd);
}

static off_t
file_size(void)
{
    struct stat stat_;
    assert_int_equal(stat(path, &stat_), 0);
    return stat_.st_size;
}

/* Model m is "v1", "v2", …; the file's length after each. */
static void
make_changes(size_t lengths[CHANGES])
{
    open_store();
    seen_join(&seen, "{}");
    for (int i = 0; i < CHANGES; i++) {
        char value[16];
        snprintf(value, sizeof(value), "v%d", i + 1);
        assert_int_equal(model_set(&seen, "m", seen_revision(&seen, STORE_MODELS, "m"), value),
                         STORE_OK);
        lengths[i] = (size_t)file_size();
    }
    close_store();
}

static int
start(void **state)
{
    static int number;
    (void)state;
    snprintf(path, sizeof(path), "%s/%d", folder, number++);
    return 0;
}

TEST_CASE(cut_at_each_byte)
{
    size_t lengths[CHANGES], bytes;
    make_changes(lengths);
    char *data = read_file(&bytes);
    assert_int_equal(bytes, lengths[CHANGES - 1]);
    for (size_t length = FRAME_FILE_BYTES; length <= bytes; length++) {
        char expected[16] = "";
        for (int i = 0; i < CHANGES && lengths[i] <= length; i++)
            snprintf(expected, sizeof(expected), "v%d", i + 1);
        write_file(data, length);
        open_store();
        const char *value = seen_value(&seen, STORE_MODELS, "m");
        assert_string_equal(value == NULL ? "" : value, expected);
        /* goes on from there */
        seen_join(&seen, "{}");
        assert_int_equal(model_set(&seen, "n", 0, "new"), STORE_OK);
        close_store();
        open_store();
        assert_string_equal(seen_value(&seen, STORE_MODELS, "n"), "new");
        value = seen_value(&seen, STORE_MODELS, "m");
        assert_string_equal(value == NULL ? "" : value, expected);
        assert_int_equal(seen.troubles, 0);
        close_store();
    }
    free(data);
}

TEST_CASE(says_what_it_cut)
{
    size_t lengths[CHANGES], bytes;
    make_changes(lengths);
    char *data = read_file(&bytes);
    write_file(data, bytes - 3);
    open_store();
    WAIT_UNTIL(seen.troubles == 1);
    assert_non_null(strstr(seen.trouble.text, "were removed"));
    assert_int_equal(file_size(), lengths[CHANGES - 2]);
    close_store();
    free(data);
}

/* Any byte but of the last frame, which might be one that was never confirmed. */
TEST_CASE(damaged)
{
    size_t lengths[CHANGES], bytes, left;
    make_changes(lengths);
    char *data = read_file(&bytes);
    for (size_t at = 0; at < lengths[CHANGES - 2]; at++) {
        data[at] ^= 0x20;
        write_file(data, bytes);
        opening_fails(STATUS_DATA_LOSS,
                      at < FRAME_FILE_BYTES ? "is not a registry file" : "which no crash causes");
        char *same = read_file(&left);
        assert_int_equal(left, bytes);
        assert_memory_equal(same, data, bytes);
        free(same);
        data[at] ^= 0x20;
    }
    free(data);
}

TEST_CASE(no_file_of_ours)
{
    write_file("", 0);
    opening_fails(STATUS_DATA_LOSS, "is not a registry file");
    write_file("models: []\n", 11);
    opening_fails(STATUS_DATA_LOSS, "is not a registry file");
    /* a frame that is whole, of entries that nobody writes */
    struct bytes file = {0};
    frame_file_put(&file);
    frame_open(&file);
    frame_entry_put(&file, 9, &(struct store_record){.id = "m", .revision = 1});
    frame_close(&file, FRAME_FILE_BYTES);
    write_file(file.data, file.used);
    opening_fails(STATUS_DATA_LOSS, "at byte 16: its content has another version");
    bytes_fini(&file);
    snprintf(path, sizeof(path), "%s/not/there", folder);
    struct error error = ERROR_NONE;
    assert_int_equal(try_open(&error), STATUS_NOT_FOUND);
}

TEST_CASE(one_process)
{
    open_store();
    struct store *first = seen.store;
    opening_fails(STATUS_UNAVAILABLE, "another process uses it");
    seen.store = first;
    close_store();
    open_store();
    close_store();
}

TEST_CASE(written_anew)
{
    enum { TIMES = 400, VALUE = 20000 };
    char *value = malloc(VALUE + 1);
    assert_non_null(value);
    memset(value, 'x', VALUE);
    value[VALUE] = '\0';
    open_store();
    seen_join(&seen, "{}");
    assert_int_equal(model_set(&seen, "stays", 0, "here"), STORE_OK);
    uint64_t stays = seen_revision(&seen, STORE_MODELS, "stays");
    off_t most = 0;
    for (int i = 0; i < TIMES; i++) {
        value[0] = (char)('a' + i % 26);
        assert_int_equal(model_set(&seen, "m", seen_revision(&seen, STORE_MODELS, "m"), value),
                         STORE_OK);
        most = file_size() > most ? file_size() : most;
    }
    assert_true(most < 1200000); /* of 8 million bytes that were written */
    uint64_t revision = seen_revision(&seen, STORE_MODELS, "m");
    assert_int_equal(model_set(&seen, "m", revision, NULL), STORE_OK);
    close_store();
    open_store();
    assert_null(seen_value(&seen, STORE_MODELS, "m"));
    assert_int_equal(seen_revision(&seen, STORE_MODELS, "stays"), stays);
    assert_true(seen.whole > revision); /* also of deleted records */
    assert_int_equal(seen.troubles, 0);
    close_store();
    free(value);
}

static void
see_nothing(void *context, enum store_table table, const char *id, uint64_t revision)
{
    (void)context, (void)table, (void)id, (void)revision;
    fail();
}

static void
see_put(void *context, const struct store_record *record)
{
    assert_string_equal(record->id, "stays");
    assert_int_equal(record->revision, 7);
    ++*(uint64_t *)context;
}

static void
see_revision(void *context, uint64_t revision)
{
    *(uint64_t *)context += revision;
}

/* The last deletion had a revision, too, which must not be given again. */
TEST_CASE(written_anew_knows_its_revision)
{
    uint64_t sum = 0;
    struct record_table table = {0};
    struct journal *journal;
    struct error error = ERROR_NONE;
    size_t cut;
    const struct journal_reader reader = {see_put, see_nothing, see_revision, &sum};
    const struct store_record record = {STORE_MODELS, "stays", "v", 1, 5, 7};
    table_put(&table, &record);
    assert_int_equal(journal_open(path, &reader, &journal, &cut, &error), STATUS_OK);
    assert_int_equal(journal_rewrite(journal, &table, 90, &error), STATUS_OK);
    journal_close(journal);
    assert_int_equal(journal_open(path, &reader, &journal, &cut, &error), STATUS_OK);
    assert_int_equal(sum, 91);
    journal_close(journal);
    table_fini(&table);
}

static void
set_file_limit(rlim_t bytes)
{
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = bytes;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

TEST_CASE(disk_is_full)
{
    signal(SIGXFSZ, SIG_IGN);
    open_store();
    seen_join(&seen, "{}");
    assert_int_equal(model_set(&seen, "a", 0, "a"), STORE_OK);
    off_t size = file_size();
    set_file_limit((rlim_t)size + 20);
    assert_int_equal(model_set(&seen, "b", 0, "b"), STORE_LOST);
    assert_int_equal(seen.troubles, 1);
    assert_non_null(strstr(seen.trouble.text, path));
    assert_null(seen_value(&seen, STORE_MODELS, "b"));
    assert_int_equal(file_size(), size);
    set_file_limit(RLIM_INFINITY);
    assert_int_equal(model_set(&seen, "b", 0, "b2"), STORE_OK);
    close_store();
    open_store();
    assert_string_equal(seen_value(&seen, STORE_MODELS, "a"), "a");
    assert_string_equal(seen_value(&seen, STORE_MODELS, "b"), "b2");
    close_store();
}

/* ---- killed ---- */

static int confirmed_fd;

/* Reports to the parent, which cannot be lost. */
static void
child_end(void *context, enum store_txn_end end, const struct error *error)
{
    (void)context;
    (void)error;
    if (end == STORE_OK && write(confirmed_fd, "k", 1) != 1)
        _exit(1);
}

/* Sets model k<n> to n, one after the other, from `first` on, with padding so that the file is
 * written anew now and then. */
static void
child(int first, int fd)
{
    static char value[30000];
    confirmed_fd = fd;
    open_store();
    seen_join(&seen, "{}");
    for (int n = first;; n++) {
        char id[16];
        struct error error = ERROR_NONE;
        snprintf(id, sizeof(id), "k%d", n);
        memset(value, ' ', sizeof(value));
        int used = snprintf(value, sizeof(value), "%d", n);
        value[used] = ' ';
        const struct store_change changes[] = {{STORE_MODELS, id, id, strlen(id)},
                                               {STORE_VMODELS, "last", value, sizeof(value)}};
        const struct store_txn txn = {seen.session, NULL, 0, changes, 2};
        if (store_txn(seen.store, &txn, (struct store_reply){child_end, NULL}, &error) != STATUS_OK)
            _exit(1);
        rig_turn();
    }
}

/* How many of its writes a child confirmed before it died at our hand. */
static int
run_child(int first, int after)
{
    int ends[2], confirmed = 0;
    char byte;
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        close(ends[0]);
        child(first, ends[1]);
        _exit(0);
    }
    close(ends[1]);
    while (read(ends[0], &byte, 1) == 1)
        if (++confirmed == after)
            kill(pid, SIGKILL);
    close(ends[0]);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    return confirmed;
}

TEST_CASE(killed)
{
    uint64_t random = random_seed((uint64_t)clock_now_ns());
    int known = 0; /* k0 to k<known - 1> are there */
    for (int i = 0; i < KILLS; i++) {
        int confirmed = run_child(known, 1 + (int)(random_draw(&random) % 40));
        open_store();
        int there = 0;
        char id[16], *end;
        for (snprintf(id, sizeof(id), "k0"); seen_value(&seen, STORE_MODELS, id) != NULL;)
            snprintf(id, sizeof(id), "k%d", ++there);
        /* all that was confirmed, and perhaps the one that was under way */
        assert_in_range(there, known + confirmed, known + confirmed + 1);
        /* both of each, or neither */
        const char *last = seen_value(&seen, STORE_VMODELS, "last");
        assert_non_null(last);
        assert_int_equal(strtol(last, &end, 10), there - 1);
        known = there;
        close_store();
        if (known > SEEN_RECORDS_MAX - 100) {
            known = 0;
            assert_int_equal(unlink(path), 0);
        }
    }
}

int
main(void)
{
    snprintf(folder, sizeof(folder), "/tmp/shoal-store-XXXXXX");
    if (mkdtemp(folder) == NULL)
        return 1;
    int failed = TEST_RUN(.setup = start);
    run("rm -r %s", folder);
    rig_end();
    return failed;
}
