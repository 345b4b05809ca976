/* SPDX-License-Identifier: Apache-2.0 */
#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/check.h"
#include "base/log.h"
#include "coordinator/config/config.h"
#include "coordinator/node.h"

#ifndef SHOAL_VERSION
#define SHOAL_VERSION "0.1.0"
#endif

enum { LISTEN_MAX = 16, EXIT_USAGE = 2, PATH_BYTES = 4096, DESCRIPTORS_MAX = 1 << 20 };

/*
 * jemalloc reads this; MALLOC_CONF in the environment overrides it. gRPC makes an object of some
 * KiB for each call. By default a thread caches 20 of that size, and takes the arena's lock for
 * each further one that is outstanding.
 */
extern const char *malloc_conf;
const char *malloc_conf = "tcache_nslots_small_min:200,tcache_nslots_large:64";

static const char usage[] =
    "Usage: shoald [OPTION]... CONFIG\n"
    "Serves the pipelines that CONFIG (YAML) describes over gRPC, until SIGTERM or SIGINT.\n"
    "\n"
    "  --check            check CONFIG, print every mistake with its line, start nothing\n"
    "  --listen ADDRESS   listen here instead of where CONFIG says; may be repeated:\n"
    "                     port:8033, 127.0.0.1:8033, [::1]:8033, unix:/run/shoal/grpc.sock\n"
    "  --counters PATH    file of the counters, which shoalctl reads\n"
    "  --no-pin           leave every process unpinned and ignore `cpus`\n"
    "  --log-level LEVEL  error, warn, info or debug\n"
    "  --worker PROGRAM   the worker program (default: shoal-worker beside this program)\n"
    "  --help-config      the manual of the configuration: every key, type, range and default\n"
    "  --help-config=markdown   the same as a table\n"
    "  --version\n"
    "  --help\n"
    "\n"
    "SIGTERM and SIGINT drain: no new requests, those in flight are finished, then the workers "
    "are\n"
    "stopped. A second one stops at once, within 3 s even if a part hangs; a third one ends the "
    "process.\n"
    "SIGHUP reads CONFIG again and reloads every pipeline, as `shoalctl reload` does.\n"
    "Exit codes: 0 clean stop, 2 refused to start, 3 drained and then hung, 130 second signal was\n"
    "SIGINT, 143 it was SIGTERM.\n";

enum option_id {
    OPTION_CHECK = 1,
    OPTION_LISTEN,
    OPTION_COUNTERS,
    OPTION_NO_PIN,
    OPTION_LOG_LEVEL,
    OPTION_WORKER,
    OPTION_HELP_CONFIG,
    OPTION_VERSION,
    OPTION_HELP
};

static const struct option long_options[] = {
    {"check", no_argument, NULL, OPTION_CHECK},
    {"listen", required_argument, NULL, OPTION_LISTEN},
    {"counters", required_argument, NULL, OPTION_COUNTERS},
    {"no-pin", no_argument, NULL, OPTION_NO_PIN},
    {"log-level", required_argument, NULL, OPTION_LOG_LEVEL},
    {"worker", required_argument, NULL, OPTION_WORKER},
    {"help-config", optional_argument, NULL, OPTION_HELP_CONFIG},
    {"version", no_argument, NULL, OPTION_VERSION},
    {"help", no_argument, NULL, OPTION_HELP},
    {NULL, 0, NULL, 0},
};

struct arguments {
    struct node_options node;
    const char *listen[LISTEN_MAX];
    bool check;
    int exit_code; /* -1: go on */
};

static int
usage_error(const char *text, const char *value)
{
    fprintf(stderr, "shoald: %s%s\nTry `shoald --help`.\n", text, value);
    return EXIT_USAGE;
}

static void
take_option(struct arguments *arguments, int id)
{
    struct node_options *node = &arguments->node;
    switch ((enum option_id)id) {
    case OPTION_CHECK: arguments->check = true; break;
    case OPTION_LISTEN:
        if (node->listen_count == LISTEN_MAX)
            arguments->exit_code = usage_error("too many --listen", "");
        else
            arguments->listen[node->listen_count++] = optarg;
        break;
    case OPTION_COUNTERS: node->counters_path = optarg; break;
    case OPTION_NO_PIN: node->pin = false; break;
    case OPTION_LOG_LEVEL:
        node->log_level = log_level_from_name(optarg);
        if (node->log_level < 0)
            arguments->exit_code =
                usage_error("--log-level: error, warn, info or debug, not ", optarg);
        break;
    case OPTION_WORKER: node->worker_program = optarg; break;
    case OPTION_HELP_CONFIG:
        config_print_manual(stdout, optarg != NULL && strcmp(optarg, "markdown") == 0
                                        ? CONFIG_MANUAL_MARKDOWN
                                        : CONFIG_MANUAL_TEXT);
        arguments->exit_code = EXIT_SUCCESS;
        break;
    case OPTION_VERSION:
        printf("shoald %s\n", SHOAL_VERSION);
        arguments->exit_code = EXIT_SUCCESS;
        break;
    case OPTION_HELP:
        fputs(usage, stdout);
        arguments->exit_code = EXIT_SUCCESS;
        break;
    default: arguments->exit_code = usage_error("unknown option", ""); break;
    }
}

/* The worker program beside this one. */
static void
find_worker(char *path, size_t room)
{
    ssize_t bytes = readlink("/proc/self/exe", path, room - 1);
    CHECK(bytes > 0);
    path[bytes] = '\0';
    char *slash = strrchr(path, '/');
    CHECK(slash != NULL);
    snprintf(slash + 1, room - (size_t)(slash + 1 - path), "shoal-worker");
}

/* Raises the limit of descriptors to the system's maximum for this process. */
static void
raise_descriptors(void)
{
    struct rlimit files;
    CHECK(getrlimit(RLIMIT_NOFILE, &files) == 0);
    rlim_t most = files.rlim_max < DESCRIPTORS_MAX ? files.rlim_max : DESCRIPTORS_MAX;
    if (files.rlim_cur >= most)
        return;
    files.rlim_cur = most;
    CHECK(setrlimit(RLIMIT_NOFILE, &files) == 0);
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define LOOKS_FOR_LEAKS 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define LOOKS_FOR_LEAKS 1
#endif
#endif

extern void __gcov_dump(void) __attribute__((weak));

/* Nothing of ours is left to do, and destructors of libraries have been seen to hang. */
static _Noreturn void
end(int exit_code)
{
#ifdef LOOKS_FOR_LEAKS
    exit(exit_code);
#else
    fflush(stdout);
    if (__gcov_dump != NULL)
        __gcov_dump();
    _exit(exit_code);
#endif
}

int
main(int argc, char **argv)
{
    static char worker[PATH_BYTES];
    find_worker(worker, sizeof(worker));
    struct arguments arguments = {.node = {.pin = true, .log_level = -1, .worker_program = worker},
                                  .exit_code = -1};
    arguments.node.listen = arguments.listen;
    int id;
    while (arguments.exit_code < 0 && (id = getopt_long(argc, argv, "", long_options, NULL)) != -1)
        take_option(&arguments, id);
    if (arguments.exit_code >= 0)
        return arguments.exit_code;
    if (argc - optind != 1)
        return usage_error("expected exactly one configuration file", "");
    if (access(arguments.node.worker_program, X_OK) != 0)
        return usage_error("no worker program at ", arguments.node.worker_program);
    arguments.node.config_path = argv[optind];
    raise_descriptors();
    if (arguments.check)
        return node_check(&arguments.node);
    end(node_run(&arguments.node));
}
