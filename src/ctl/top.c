/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shoalctl top: stat on a screen that is redrawn each second. Without a terminal it is stat
 * --interval.
 */
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "ctl/ctl.h"
#include "ctl/report.h"
#include "ctl/screen.h"
#include "ctl/watch.h"

#define AT(field) offsetof(struct watch, field)

static const struct ctl_option options[] = {
    {"counters", "PATH", "the node's counters file; see shoalctl stat --help", .form = CTL_WORD,
     .at = AT(path)},
    {"pipeline", "NAME", "only this pipeline", .form = CTL_WORD, .at = AT(pipeline)},
    {"interval", "SECONDS", "default 1", .form = CTL_SECONDS, .at = AT(interval_ns)},
    {"count", "N", "end after N intervals; default: at q or Ctrl-C", .form = CTL_WHOLE,
     .at = AT(count), .most = INT32_MAX},
    {"json", NULL, "a line of JSON per interval instead of a screen: stat --interval --json",
     .form = CTL_AS_JSON, .at = AT(output)},
};

/* ---- the screen ---- */

static size_t
lines_of(const char *text)
{
    size_t lines = 0;
    for (; *text != '\0'; lines++) {
        text = strchrnul(text, '\n');
        text += *text == '\n';
    }
    return lines;
}

/* Returns the next line. */
static const char *
write_line(const char *text, size_t columns, FILE *out)
{
    size_t width = 0;
    size_t all = 0;
    for (const char *at = text; *at != '\0' && *at != '\n'; at++)
        all += (*at & 0xc0) != 0x80;
    for (; *text != '\0' && *text != '\n'; text++) {
        width += (*text & 0xc0) != 0x80;
        if (width < columns || all <= columns)
            putc(*text, out);
    }
    if (all > columns)
        putc('>', out);
    fputs("\033[K", out);
    return text + (*text == '\n');
}

void
screen_write(struct screen *screen, const char *text, FILE *out)
{
    size_t lines = lines_of(text);
    bool is_cut = lines > screen->rows;
    size_t rows = is_cut ? screen->rows - 1 : lines;
    if (screen->first > lines - rows)
        screen->first = lines - rows;
    for (size_t i = 0; i < screen->first; i++)
        text = strchr(text, '\n') + 1;
    fputs("\033[H", out);
    for (size_t row = 0; row < rows; row++) {
        fputs(row > 0 ? "\r\n" : "", out);
        text = write_line(text, screen->columns, out);
    }
    if (is_cut) {
        char place[128];
        snprintf(place, sizeof place, "-- lines %zu to %zu of %zu; arrows, space, b scroll --",
                 screen->first + 1, screen->first + rows, lines);
        fputs(rows > 0 ? "\r\n" : "", out);
        (void)write_line(place, screen->columns, out);
    }
    fputs("\033[J", out);
    fflush(out);
}

static void
draw(const char *text, struct screen *screen)
{
    struct winsize real;
    screen->rows = 24;
    screen->columns = 80;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &real) == 0 && real.ws_row > 0 && real.ws_col > 0) {
        screen->rows = real.ws_row;
        screen->columns = real.ws_col;
    }
    screen_write(screen, text, stdout);
}

/* Returns the text of a new snapshot. */
static char *
look(struct watch *watch)
{
    struct error error = ERROR_NONE;
    struct snapshot shown;
    char *text = NULL;
    size_t bytes = 0;
    FILE *memory = open_memstream(&text, &bytes);
    CHECK(memory != NULL);
    /* A node that is gone may return: wait for it, and show the error. */
    if (watch_step(watch, &shown, &error) == STATUS_OK) {
        report_print(&shown, watch->pipeline, REPORT_SCREEN, memory);
        snapshot_free(&shown);
    } else {
        fprintf(memory, "%s\n", error.text);
    }
    CHECK(fclose(memory) == 0);
    return text;
}

static volatile sig_atomic_t stopped;

static void
on_signal(int number)
{
    (void)number;
    stopped = 1;
}

/* Returns where a key moves the first line to. */
static size_t
scrolled(const struct screen *screen, const char *keys)
{
    const size_t page = screen->rows > 2 ? screen->rows - 2 : 1;
    const size_t first = screen->first;
    if (strcmp(keys, "\033[B") == 0 || strcmp(keys, "j") == 0)
        return first + 1;
    if (strcmp(keys, "\033[A") == 0 || strcmp(keys, "k") == 0)
        return first > 0 ? first - 1 : 0;
    if (strcmp(keys, "\033[6~") == 0 || strcmp(keys, " ") == 0)
        return first + page;
    if (strcmp(keys, "\033[5~") == 0 || strcmp(keys, "b") == 0)
        return first > page ? first - page : 0;
    return first;
}

/* Waits for the deadline, and scrolls; false: the user ends the command. */
static bool
wait_or_key(int64_t deadline_ns, const sigset_t *unblocked, const char *text, struct screen *screen)
{
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    for (;;) {
        int64_t left_ns = deadline_ns - clock_now_ns();
        if (left_ns <= 0)
            return true;
        struct timespec left = {left_ns / NS_PER_S, left_ns % NS_PER_S};
        int ready = ppoll(&input, 1, &left, unblocked);
        if (stopped)
            return false;
        if (ready <= 0)
            continue;
        char keys[16] = "";
        ssize_t count = read(STDIN_FILENO, keys, sizeof keys - 1);
        if (count <= 0)
            input.fd = -1; /* no more keys; signals still end it */
        else if (memchr(keys, 'q', (size_t)count) != NULL ||
                 memchr(keys, 'Q', (size_t)count) != NULL)
            return false;
        size_t first = scrolled(screen, keys);
        if (first == screen->first)
            continue;
        screen->first = first;
        draw(text, screen);
    }
}

static void
screen_run(struct watch *watch)
{
    struct termios before;
    bool keys = tcgetattr(STDIN_FILENO, &before) == 0;
    struct termios raw = before;
    sigset_t blocked, unblocked;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGINT);
    sigaddset(&blocked, SIGTERM);
    sigaddset(&blocked, SIGHUP);
    CHECK(sigprocmask(SIG_BLOCK, &blocked, &unblocked) == 0);
    struct sigaction action = {.sa_handler = on_signal};
    CHECK(sigaction(SIGINT, &action, NULL) == 0 && sigaction(SIGTERM, &action, NULL) == 0 &&
          sigaction(SIGHUP, &action, NULL) == 0);
    if (keys) {
        raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
        tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    }
    fputs("\033[?1049h\033[?25l", stdout); /* alternate screen, no cursor */
    int64_t next_ns = clock_now_ns();
    struct screen screen = {.first = 0};
    char *text = look(watch);
    draw(text, &screen);
    for (int64_t i = 0; watch->count == 0 || i < watch->count; i++) {
        next_ns = watch_next_ns(watch, next_ns);
        if (!wait_or_key(next_ns, &unblocked, text, &screen))
            break;
        free(text);
        text = look(watch);
        draw(text, &screen);
    }
    free(text);
    fputs("\033[?25h\033[?1049l", stdout);
    fflush(stdout);
    if (keys)
        tcsetattr(STDIN_FILENO, TCSANOW, &before);
}

static int
top_run(int argc, char **argv)
{
    struct watch watch = {.path = ctl_counters_default(), .interval_ns = NS_PER_S};
    struct error error = ERROR_NONE;
    struct snapshot first;
    int code = ctl_options_read(&top_command, argc, argv, NULL, &watch);
    if (code >= 0)
        return code;
    if (watch.output == CTL_JSON || !isatty(STDOUT_FILENO))
        return watch_print(&watch);
    if (watch_step(&watch, &first, &error) != STATUS_OK)
        return ctl_fail(error.status == STATUS_NOT_FOUND ? CTL_NEGATIVE : CTL_UNREACHABLE, CTL_TEXT,
                        &error);
    snapshot_free(&first);
    watch_free(&watch); /* the first screen shows totals since the start */
    screen_run(&watch);
    watch_free(&watch);
    return CTL_OK;
}

const struct ctl_command top_command = {
    .name = "top",
    .arguments = "[options]",
    .summary = "Show the counters of the local node, refreshed each second",
    .about =
        "Shows the main figures of `shoalctl stat` for the last interval, full screen, in 80\n"
        "columns. Arrows, space and b scroll; q or Ctrl-C ends it. If stdout is not a terminal,\n"
        "it is `shoalctl stat --interval 1`.\n",
    .exits = "  0  ended by q, Ctrl-C or --count\n"
             "  1  the node has no such pipeline\n",
    .example = "  shoalctl top --pipeline digits\n",
    CTL_OPTIONS(options),
    .run = top_run,
};
