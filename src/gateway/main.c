/* SPDX-License-Identifier: Apache-2.0 */
#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/check.h"
#include "base/listen_fds.h"
#include "base/log.h"
#include "base/usage.h"
#include "gateway/config/endpoint_file.h"
#include "gateway/config/key_file.h"
#include "gateway/config/settings.h"
#include "gateway/dashboard/dashboard.h"
#include "gateway/extproc/extproc.h"
#include "gateway/proxy/proxy.h"
#include "gateway/resources/resources.h"
#include "gateway/store/store.h"
#include "loop/loop.h"

enum { EXIT_USAGE = 2 };

enum gateway_option {
    OPTION_CHECK = 1,
    OPTION_LOG_LEVEL,
    OPTION_HELP_CONFIG,
    OPTION_VERSION,
    OPTION_HELP,
    OPTION_END
};

/* Element i is option i + 1. */
static const struct usage_option options[] = {
    {"check", NULL, "check CONFIG and the files that it names, and serve nothing"},
    {"log-level", "LEVEL", "error, warn, info or debug"},
    {"help-config", NULL, "every key of CONFIG, with its range, default and meaning"},
    {"version", NULL, "print the version"},
    {"help", "[=FORM]", "this text; FORM man: as a manual page, bash, zsh: completion"},
};

static const struct usage_command command = {
    .words = "",
    .arguments = "[OPTION]... CONFIG",
    .summary = "Passes requests of the OpenAI API on to the model server that suits each best, "
               "until SIGTERM or SIGINT",
    .about =
        "Chooses by queues, KV caches, loaded LoRA adapters and prompt prefixes; tries another\n"
        "server if one fails before its answer begins.\n"
        "\n"
        "SIGTERM and SIGINT drain: requests under way are finished. A second one stops at "
        "once.\n"
        "SIGHUP is ignored: the file of endpoints is read again whenever it changes.\n",
    .exits = "  0    clean stop\n"
             "  1    stopped with requests under way\n"
             "  2    refused to start\n",
    .example = "  printf 'endpoints: servers.yaml\\n' >gateway.yaml\n"
               "  shoal-gateway gateway.yaml\n",
    .options = options,
    .option_count = ARRAY_COUNT(options),
};

static const struct usage_program program = {
    .name = "shoal-gateway",
    .section = "8",
    .summary = "route requests of the OpenAI API over model servers",
    .see_also = ".BR shoald (8)",
    .commands = &command,
    .command_count = 1,
};

struct gateway_service {
    struct loop *loop;
    struct llm_proxy *proxy;
    struct extproc *extproc; /* NULL: not configured, as the next */
    struct pool_dashboard *dashboard;
    int signals;
    int exit_code;
    int reported; /* signals so far */
    int draining; /* front ends */
};

static int
usage_error(const char *text, const char *value)
{
    fprintf(stderr, "shoal-gateway: %s%s\nTry `shoal-gateway --help`.\n", text, value);
    return EXIT_USAGE;
}

static void
on_drained(void *context)
{
    struct gateway_service *service = context;
    if (--service->draining > 0)
        return;
    if (proxy_open_requests(service->proxy) > 0 ||
        (service->extproc != NULL && extproc_open_streams(service->extproc) > 0))
        service->exit_code = EXIT_FAILURE;
    loop_stop(service->loop);
}

static void
on_signal(void *context)
{
    struct gateway_service *service = context;
    struct signalfd_siginfo info;
    if (read(service->signals, &info, sizeof(info)) != sizeof(info))
        return;
    log_info("stopping signal=%u", info.ssi_signo);
    if (service->reported++ == 0) {
        service->draining = service->extproc != NULL ? 2 : 1;
        proxy_drain(service->proxy, on_drained, service);
        if (service->extproc != NULL)
            extproc_drain(service->extproc, on_drained, service);
        return;
    }
    service->exit_code = EXIT_FAILURE;
    loop_stop(service->loop);
}

static int
open_signals(void)
{
    sigset_t stops;
    sigemptyset(&stops);
    sigaddset(&stops, SIGTERM);
    sigaddset(&stops, SIGINT);
    CHECK(sigprocmask(SIG_BLOCK, &stops, NULL) == 0);
    CHECK(signal(SIGPIPE, SIG_IGN) != SIG_ERR && signal(SIGHUP, SIG_IGN) != SIG_ERR);
    int fd = signalfd(-1, &stops, SFD_CLOEXEC | SFD_NONBLOCK);
    CHECK(fd >= 0);
    return fd;
}

/* Allows as many descriptors as the system does: connections need them. */
static void
raise_descriptors(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return;
    limit.rlim_cur = limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
}

/* Checks the descriptors: without one every scrape fails, and clients could eject all endpoints. */
static enum status
check_descriptors(const struct gateway_settings *settings, struct error *error)
{
    /* An endpoint needs a scrape, models and a roll-out; a request needs a call, and one kept. */
    enum { OTHER = 192, OF_ENDPOINT = 3, OF_REQUEST = 2 };
    struct rlimit limit;
    uint64_t needed =
        OTHER + (uint64_t)settings->connections_max +
        (settings->ext_proc[0] != '\0' ? (uint64_t)settings->ext_proc_connections_max : 0) +
        (uint64_t)settings->endpoints_max * OF_ENDPOINT +
        (uint64_t)settings->requests_max * OF_REQUEST;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= needed)
        return STATUS_OK;
    return error_set(error, STATUS_RESOURCE_EXHAUSTED,
                     "this process may open %" PRIu64
                     " files, and this configuration needs %" PRIu64
                     ": raise the limit (ulimit -n, LimitNOFILE=), or lower connections_max, "
                     "requests_max or endpoints_max",
                     (uint64_t)limit.rlim_cur, needed);
}

static int
serve(const struct gateway_settings *settings)
{
    struct error error = ERROR_NONE;
    struct gateway_service service = {.signals = open_signals()};
    raise_descriptors();
    listen_fds_init();
    enum status status = check_descriptors(settings, &error);
    if (status == STATUS_OK)
        status = loop_create(&service.loop, &error);
    if (status == STATUS_OK)
        status = proxy_create(loop_base(service.loop), settings, &service.proxy, &error);
    if (status == STATUS_OK && settings->ext_proc[0] != '\0')
        status = extproc_create(loop_base(service.loop), settings, proxy_endpoints(service.proxy),
                                &service.extproc, &error);
    if (status == STATUS_OK && settings->dashboard[0] != '\0')
        status = pool_dashboard_create(loop_base(service.loop), settings,
                                       proxy_endpoints(service.proxy), &service.dashboard, &error);
    if (status == STATUS_OK) {
        struct loop_watch *watch =
            loop_watch_add(service.loop, service.signals, on_signal, &service);
        log_info("serving listen=%s", settings->listen);
        loop_run(service.loop);
        loop_watch_remove(watch);
    } else {
        log_error("start_failed error=\"%s\"", error.text);
        service.exit_code = EXIT_USAGE;
    }
    pool_dashboard_destroy(service.dashboard);
    extproc_destroy(service.extproc);
    proxy_destroy(service.proxy);
    if (service.loop != NULL)
        loop_destroy(service.loop);
    close(service.signals);
    log_info("stopped");
    return service.exit_code;
}

/* Prints each resource with its conditions, or each mistake. */
static enum status
check_resources(const struct gateway_settings *settings, struct error *error)
{
    const char *const paths[] = {settings->resources, settings->objectives};
    struct resource_set *set;
    struct bytes out = {0};
    enum status status = gateway_store_check(settings, error);
    if (status != STATUS_OK)
        return status;
    status = resources_read(paths, ARRAY_COUNT(paths), &set, error);
    if (status == STATUS_OK)
        resources_write_text(set, &out);
    for (uint32_t i = 0; i + 1 < set->mistake_count; i++)
        fprintf(stderr, "%s\n", set->mistakes[i]);
    if (set->mistake_count > 0)
        status = error_set(error, status, "%s", set->mistakes[set->mistake_count - 1]);
    if (settings->resources[0] != '\0' && out.used > 0)
        fwrite(out.data, 1, out.used, stdout);
    bytes_fini(&out);
    resources_free(set);
    return status;
}

static int
check(const struct gateway_settings *settings)
{
    struct error error = ERROR_NONE;
    uint32_t count;
    struct endpoint_entry *entries = calloc((size_t)settings->endpoints_max, sizeof(*entries));
    CHECK(entries != NULL);
    enum status status =
        endpoint_file_read(settings->endpoints, &settings->labels,
                           (uint32_t)settings->endpoints_max, entries, &count, &error);
    if (status == STATUS_OK)
        status = gateway_store_check_entries(settings, entries, count, &error);
    free(entries);
    if (status == STATUS_OK)
        status = pool_dashboard_check(settings, &error);
    if (status == STATUS_OK)
        status = check_resources(settings, &error);
    if (status == STATUS_OK && settings->keys[0] != '\0') {
        static struct key_entry keys[KEYS_MAX];
        uint32_t key_count;
        status = key_file_read(settings->keys, keys, &key_count, &error);
    }
    if (status != STATUS_OK) {
        fprintf(stderr, "%s\n", error.text);
        return EXIT_USAGE;
    }
    printf("valid: %u endpoints\n", count);
    return EXIT_SUCCESS;
}

static int
run(const char *path, bool only_check)
{
    static struct gateway_settings settings;
    struct error error = ERROR_NONE;
    settings_init(&settings);
    if (settings_read(&settings, path, &error) != STATUS_OK) {
        fprintf(stderr, "shoal-gateway: %s\n", error.text);
        return EXIT_USAGE;
    }
    return only_check ? check(&settings) : serve(&settings);
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

int
main(int count, char **arguments)
{
    struct option known[ARRAY_COUNT(options) + 1];
    bool only_check = false;
    int id;
    usage_getopt(options, ARRAY_COUNT(options), known);
    log_init("shoal-gateway", LOG_INFO);
    log_never_wait();
    while ((id = getopt_long(count, arguments, "", known, NULL)) != -1)
        switch ((enum gateway_option)id) {
        case OPTION_CHECK: only_check = true; break;
        case OPTION_LOG_LEVEL:
            if (log_level_from_name(optarg) < 0)
                return usage_error("--log-level: error, warn, info or debug, not ", optarg);
            log_set_level((enum log_level)log_level_from_name(optarg));
            break;
        case OPTION_HELP_CONFIG: settings_print_manual(stdout); return EXIT_SUCCESS;
        case OPTION_VERSION: puts("shoal-gateway " SHOAL_VERSION); return EXIT_SUCCESS;
        case OPTION_HELP: return print_help(optarg);
        case OPTION_END:
        default: return EXIT_USAGE;
        }
    if (optind + 1 != count)
        return usage_error("expected one CONFIG", "");
    return run(arguments[optind], only_check);
}
