/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The log never waits for its reader. stderr is a pipe that nobody reads: as many lines as do not
 * fit are written without blocking, the surplus is counted, and when the pipe is read again every
 * line that was kept comes whole and in order, and one line says how many are missing. A log whose
 * reader never comes back ends within its bound. Lines that a full disk refuses are counted too.
 */
#include "../test.h"
#include "base/log.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"

enum { FEW = 10, LINES = 6000 }; /* LINES: more than buffer and pipe take */

static const char padding[] =
    "0123456789012345678901234567890123456789012345678901234567890123456789"
    "012345678901234567890123456789";

struct rig {
    int kept_stderr;
    int pipe[2];
};

static void
open_pipe(struct rig *rig)
{
    rig->kept_stderr = dup(STDERR_FILENO);
    assert_int_equal(pipe(rig->pipe), 0);
    assert_true(fcntl(rig->pipe[1], F_SETPIPE_SZ, 4096) > 0);
    assert_true(dup2(rig->pipe[1], STDERR_FILENO) >= 0);
    close(rig->pipe[1]);
}

static void
close_pipe(struct rig *rig)
{
    assert_true(dup2(rig->kept_stderr, STDERR_FILENO) >= 0);
    close(rig->kept_stderr);
    close(rig->pipe[0]);
}

/* A full row of numbers with a gap. */
struct seen {
    uint64_t lines;
    uint64_t reported; /* missing, as the log says */
    long last;
};

static void
look_at_line(struct seen *seen, const char *line)
{
    const char *number = strstr(line, "number=");
    const char *dropped = strstr(line, "log_resumed dropped=");
    if (dropped != NULL) {
        seen->reported += strtoull(dropped + strlen("log_resumed dropped="), NULL, 10);
        return;
    }
    assert_non_null(number);
    long value = strtol(number + strlen("number="), NULL, 10);
    assert_true(value > seen->last);
    seen->last = value;
    seen->lines++;
}

static struct seen
read_all(int fd)
{
    struct seen seen = {.last = -1};
    FILE *file = fdopen(dup(fd), "r");
    assert_non_null(file);
    char line[2048];
    while (fgets(line, sizeof(line), file) != NULL) {
        assert_int_equal(line[strlen(line) - 1], '\n');
        look_at_line(&seen, line);
        if (seen.lines + seen.reported == LINES)
            break;
    }
    fclose(file);
    return seen;
}

TEST_CASE(test_full_disk_is_counted)
{
    struct error error = ERROR_NONE;
    log_init("test", LOG_INFO);
    uint64_t before = log_dropped();
    int kept = dup(STDERR_FILENO);
    int full = open("/dev/full", O_WRONLY);
    assert_true(kept >= 0 && full >= 0);
    assert_int_equal(dup2(full, STDERR_FILENO), STDERR_FILENO);
    assert_int_equal(log_start(&error), STATUS_OK);
    for (int i = 0; i < FEW; i++)
        log_info("line number=%d", i);
    log_stop(60 * NS_PER_S);
    assert_int_equal(dup2(kept, STDERR_FILENO), STDERR_FILENO);
    close(kept);
    close(full);
    assert_int_equal(log_dropped() - before, FEW);
}

/* Last: it leaves a writer behind. */
TEST_CASE(test_full_pipe_blocks_nobody)
{
    struct rig rig;
    struct error error = ERROR_NONE;
    log_init("test", LOG_INFO);
    uint64_t before = log_dropped();
    open_pipe(&rig);
    assert_int_equal(log_start(&error), STATUS_OK);
    for (int i = 0; i < LINES; i++)
        log_info("line number=%d padding=%s", i, padding);
    uint64_t dropped = log_dropped() - before;
    assert_true(dropped > 0 && dropped < LINES);
    struct seen seen = read_all(rig.pipe[0]);
    assert_int_equal(seen.lines + seen.reported, LINES);
    assert_int_equal(seen.reported, dropped);
    assert_int_equal(log_dropped() - before, dropped);

    for (int i = 0; i < LINES; i++)
        log_info("line number=%d padding=%s", i, padding);
    log_stop(NS_PER_MS); /* returns, although nobody reads */
    log_info("never written, and nobody waits for it");
    close_pipe(&rig);
}

TEST_MAIN()
