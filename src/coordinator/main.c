/* SPDX-License-Identifier: Apache-2.0 */
#include <assert.h>
#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/check.h"
#include "base/listen_fds.h"
#include "base/log.h"
#include "base/usage.h"
#include "coordinator/config/config.h"
#include "coordinator/loop/predecessor.h"
#include "coordinator/node.h"
#include "coordinator/serve_command.h"

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

enum option_id {
    OPTION_CHECK = 1,
    OPTION_NO_MODELS,
    OPTION_LISTEN,
    OPTION_COUNTERS,
    OPTION_NO_PIN,
    OPTION_LOG_LEVEL,
    OPTION_WORKER,
    OPTION_HELP_CONFIG,
    OPTION_VERSION,
    OPTION_HELP,
    OPTION_END
};

/* Element i is option i + 1. */
static const struct usage_option options[] = {
    {"check", NULL,
     "check CONFIG, the files that it names and its addresses, and load its\n"
     "modelets, and each model of its folders in turn, in workers; print\n"
     "every mistake; serve nothing"},
    {"no-models", NULL, "with --check: read the folders of models, but load none of them"},
    {"listen", "ADDRESS",
     "listen here instead of where CONFIG says; may be repeated:\n"
     "port:8033, 127.0.0.1:8033, [::1]:8033, unix:/run/shoal/grpc.sock"},
    {"counters", "PATH", "file of the counters, which shoalctl reads"},
    {"no-pin", NULL, "leave every process unpinned; ignores `cpus`"},
    {"log-level", "LEVEL", "error, warn, info or debug"},
    {"worker", "PROGRAM", "the worker program (default: shoal-worker beside this program)"},
    {"help-config", "[=FORM]",
     "the manual of the configuration: every key, type, range and\n"
     "default; FORM markdown: as a table, man: as a manual page"},
    {"version", NULL, "print the version"},
    {"help", "[=FORM]", "this text; FORM man: as a manual page, bash, zsh: completion"},
};

static const struct usage_command run_command = {
    .words = "",
    .arguments = "[OPTION]... CONFIG",
    .summary = "Serves the pipelines that CONFIG (YAML) describes over gRPC and HTTP, until "
               "SIGTERM or SIGINT",
    .about = "`shoald serve PATH...` serves model files without a CONFIG: `shoald serve --help`.\n"
             "\n"
             "SIGTERM and SIGINT drain: new requests are refused, those in flight finish, then\n"
             "the workers stop. A second signal ends the process within 3 s, even if a part of\n"
             "it hangs; a third one at once. SIGHUP reads CONFIG again and reloads every\n"
             "pipeline, as `shoalctl reload --all` does.\n",
    .exits = "  0    clean stop\n"
             "  2    refused to start\n"
             "  3    drained, but a part did not end\n"
             "  130  the second signal was SIGINT\n"
             "  143  it was SIGTERM\n",
    .options = options,
    .option_count = ARRAY_COUNT(options),
};

/* `serve`'s is filled in by main. */
static struct usage_command commands[2];

static const struct usage_program program = {
    .name = "shoald",
    .section = "8",
    .summary = "serve machine-learning models",
    .see_also = ".BR shoald.yaml (5),\n.BR shoalctl (1),\n.BR shoal\\-worker (8)",
    .commands = commands,
    .command_count = ARRAY_COUNT(commands),
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
    log_init("shoald", LOG_INFO);
    log_error("start_failed error=\"%s%s\"", text, value);
    fprintf(stderr, "shoald: %s%s\nTry `shoald --help`.\n", text, value);
    return EXIT_USAGE;
}

static int
print_help(const char *form_name)
{
    enum usage_form form = USAGE_TEXT;
    if (form_name != NULL && !usage_form_read(form_name, &form))
        return usage_error("--help: man, bash or zsh, not ", form_name);
    usage_print(stdout, &program, form);
    return EXIT_SUCCESS;
}

static int
print_manual(const char *form)
{
    if (form == NULL)
        config_print_manual(stdout, CONFIG_MANUAL_TEXT);
    else if (strcmp(form, "markdown") == 0)
        config_print_manual(stdout, CONFIG_MANUAL_MARKDOWN);
    else if (strcmp(form, "man") == 0)
        config_print_manual(stdout, CONFIG_MANUAL_MAN);
    else
        return usage_error("--help-config: markdown or man, not ", form);
    return EXIT_SUCCESS;
}

static void
take_option(struct arguments *arguments, int id)
{
    struct node_options *node = &arguments->node;
    switch ((enum option_id)id) {
    case OPTION_CHECK: arguments->check = true; break;
    case OPTION_NO_MODELS: node->loads_models = false; break;
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
    case OPTION_HELP_CONFIG: arguments->exit_code = print_manual(optarg); break;
    case OPTION_VERSION:
        printf("shoald %s\n", SHOAL_VERSION);
        arguments->exit_code = EXIT_SUCCESS;
        break;
    case OPTION_HELP: arguments->exit_code = print_help(optarg); break;
    case OPTION_END:
    default: arguments->exit_code = usage_error("unknown option", ""); break;
    }
}

static void
find_program(char *path, size_t room)
{
    ssize_t bytes = readlink("/proc/self/exe", path, room - 1);
    CHECK(bytes > 0);
    path[bytes] = '\0';
}

/* The worker program beside this one. */
static void
find_worker(char *path, size_t room)
{
    find_program(path, room);
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

static int
read_arguments(int argc, char **argv, struct arguments *arguments)
{
    struct option known[OPTION_END];
    static_assert(ARRAY_COUNT(options) == OPTION_END - 1, "one line for each option");
    usage_getopt(options, ARRAY_COUNT(options), known);
    int id;
    while (arguments->exit_code < 0 && (id = getopt_long(argc, argv, "", known, NULL)) != -1)
        take_option(arguments, id);
    if (arguments->exit_code >= 0)
        return arguments->exit_code;
    if (!arguments->node.loads_models && !arguments->check)
        return usage_error("--no-models: only with --check", "");
    if (argc - optind != 1)
        return usage_error("expected exactly one configuration file", "");
    arguments->node.config_path = argv[optind];
    return SERVE_GO_ON;
}

int
main(int argc, char **argv)
{
    static char worker[PATH_BYTES];
    static char own[PATH_BYTES];
    find_worker(worker, sizeof(worker));
    find_program(own, sizeof(own));
    struct arguments arguments = {.node = {.pin = true,
                                           .loads_models = true,
                                           .log_level = -1,
                                           .worker_program = worker,
                                           .program = own,
                                           .arguments = argv},
                                  .exit_code = -1};
    arguments.node.listen = arguments.listen;
    commands[0] = run_command;
    commands[1] = serve_command;
    bool serves = argc > 1 && strcmp(argv[1], serve_command.words) == 0;
    int exit_code = serves ? serve_read(argc - 1, argv + 1, &arguments.node)
                           : read_arguments(argc, argv, &arguments);
    if (exit_code != SERVE_GO_ON)
        return exit_code;
    if (access(arguments.node.worker_program, X_OK) != 0)
        return usage_error("no worker program at ", arguments.node.worker_program);
    listen_fds_init();
    struct error error = ERROR_NONE;
    if (predecessor_read(&error) != STATUS_OK)
        return usage_error(error.text, "");
    raise_descriptors();
    if (arguments.check)
        return node_check(&arguments.node);
    exit_code = node_run(&arguments.node);
    if (serves && exit_code == EXIT_USAGE)
        serve_explain();
    end(exit_code);
}
