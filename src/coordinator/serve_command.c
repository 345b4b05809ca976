/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/serve_command.h"

#include <errno.h>
#include <getopt.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/log.h"
#include "coordinator/check_addresses.h"
#include "coordinator/serve.h"

enum {
    GRPC_PORT = 8033,
    HTTP_PORT = 8008,
    METRICS_PORT = 2112,
    DASHBOARD_PORT = 8088,
    CACHE_GIB = 10,
    EXIT_REFUSED = 2
};

enum serve_option {
    OPTION_LISTEN = 1,
    OPTION_HTTP_PORT,
    OPTION_GRPC_PORT,
    OPTION_METRICS_PORT,
    OPTION_DASHBOARD_PORT,
    OPTION_WORKERS,
    OPTION_MEMORY,
    OPTION_CACHE,
    OPTION_SERVER_NAME,
    OPTION_PRINT,
    OPTION_COUNTERS,
    OPTION_LOG_LEVEL,
    OPTION_HELP,
    OPTION_END
};

/* Element i is option i + 1. */
static const struct usage_option options[OPTION_END - 1] = {
    {"listen", "HOST",
     "address to serve on (default: 127.0.0.1); 0.0.0.0 lets other\n"
     "machines call every model"},
    {"http-port", "PORT", "for REST (default: 8008; 0: none)"},
    {"grpc-port", "PORT", "for gRPC (default: 8033)"},
    {"metrics-port", "PORT", "for Prometheus (default: 2112; 0: none)"},
    {"dashboard-port", "PORT",
     "for the dashboard, on this machine only (default: 8088;\n"
     "0: none)"},
    {"workers", "N",
     "processes for each model, or for each format of a folder\n"
     "(default: one for each processor, at most 4)"},
    {"memory", "MIB", "for the models of a folder (default: half of the free memory)"},
    {"cache-gib", "GIB", "disk space for models that are URIs (default: 10)"},
    {"server-name", "NAME", "in the server's metadata (default: shoal)"},
    {"print-config", NULL, "print the configuration that this would run, and exit"},
    {"counters", "PATH", "file of the counters, which shoalctl reads"},
    {"log-level", "LEVEL", "error, warn (default), info or debug"},
    {"help", NULL, "this text"},
};

const struct usage_command serve_command = {
    .words = "serve",
    .arguments = "[OPTION]... PATH...",
    .summary =
        "Serves models without a configuration file: XGBoost, ONNX, mlp, scikit-learn, Python",
    .about =
        "A PATH is a model or a folder of models, recognized by content. A file `iris.ubj` is\n"
        "model `iris`; so is a folder `iris` with a file `model.ubj`. In any other folder each\n"
        "file and each sub-folder is a model; new and changed ones are loaded while the node\n"
        "serves. Python code (`iris.py`) and pickled models of scikit-learn (`.pkl`, `.joblib`)\n"
        "are served if they are named themselves. A PATH may be an URI of https://, http:// or\n"
        "s3://; its model is fetched before the node starts. Of the first 20 models the node\n"
        "prints the tensors and a command that calls it.\n",
    .exits = NULL,
    .example = "  shoald serve iris.ubj\n"
               "  shoald serve --listen 0.0.0.0 models/\n",
    .options = options,
    .option_count = ARRAY_COUNT(options),
};

struct serve_arguments {
    struct serve_options serve;
    struct node_options *node;
    bool print;
    int exit_code;
};

static struct serve_options served;

static int
mistake(const char *text, const char *value)
{
    log_init("shoald", LOG_INFO);
    log_error("start_failed error=\"%s%s\"", text, value);
    fprintf(stderr, "shoald serve: %s%s\nTry `shoald serve --help`.\n", text, value);
    return EXIT_REFUSED;
}

static uint32_t
number(struct serve_arguments *arguments, int id, unsigned long least, unsigned long most)
{
    char *end;
    char text[160];
    unsigned long value = strtoul(optarg, &end, 10);
    if (optarg[0] < '0' || optarg[0] > '9' || *end != '\0' || value < least || value > most) {
        snprintf(text, sizeof(text), "--%s: a number from %lu to %lu, not ", options[id - 1].name,
                 least, most);
        arguments->exit_code = mistake(text, optarg);
        return 0;
    }
    return (uint32_t)value;
}

static void
print_help(void)
{
    const struct usage_program program = {
        .name = "shoald", .commands = &serve_command, .command_count = 1};
    usage_print(stdout, &program, USAGE_TEXT);
}

static void
take_option(struct serve_arguments *arguments, int id)
{
    struct serve_options *serve = &arguments->serve;
    enum { PORT_MAX = 65535, PROCESSES_MAX = 64, MEMORY_MAX = 1 << 24, CACHE_MAX = 1 << 20 };
    switch ((enum serve_option)id) {
    case OPTION_LISTEN: serve->host = optarg; break;
    case OPTION_HTTP_PORT: serve->http_port = (uint16_t)number(arguments, id, 0, PORT_MAX); break;
    case OPTION_GRPC_PORT: serve->grpc_port = (uint16_t)number(arguments, id, 1, PORT_MAX); break;
    case OPTION_METRICS_PORT:
        serve->metrics_port = (uint16_t)number(arguments, id, 0, PORT_MAX);
        break;
    case OPTION_DASHBOARD_PORT:
        serve->dashboard_port = (uint16_t)number(arguments, id, 0, PORT_MAX);
        break;
    case OPTION_WORKERS: serve->workers = number(arguments, id, 1, PROCESSES_MAX); break;
    case OPTION_MEMORY: serve->memory_mib = number(arguments, id, 1, MEMORY_MAX); break;
    case OPTION_CACHE: serve->cache_gib = number(arguments, id, 1, CACHE_MAX); break;
    case OPTION_SERVER_NAME: serve->server_name = optarg; break;
    case OPTION_PRINT: arguments->print = true; break;
    case OPTION_COUNTERS: arguments->node->counters_path = optarg; break;
    case OPTION_LOG_LEVEL:
        arguments->node->log_level = log_level_from_name(optarg);
        if (arguments->node->log_level < 0)
            arguments->exit_code = mistake("--log-level: error, warn, info or debug, not ", optarg);
        break;
    case OPTION_HELP:
        print_help();
        arguments->exit_code = EXIT_SUCCESS;
        break;
    case OPTION_END:
    default: arguments->exit_code = mistake("unknown option", ""); break;
    }
}

static int
make_config(struct serve_arguments *arguments)
{
    static char path[SERVE_PATH_BYTES];
    struct bytes yaml = {0};
    struct error error = ERROR_NONE;
    enum status status = serve_write_config(&arguments->serve, &yaml, &error);
    if (status == STATUS_OK && arguments->print)
        fwrite(yaml.data, 1, yaml.used, stdout);
    else if (status == STATUS_OK)
        status = serve_keep_config(&yaml, path, &error);
    bytes_fini(&yaml);
    if (status != STATUS_OK) {
        log_init("shoald", LOG_INFO);
        log_error("start_failed error=\"%s\"", error.text);
        fprintf(stderr, "shoald serve: %s\n", error.text);
        return EXIT_REFUSED;
    }
    arguments->node->config_path = path;
    arguments->node->greets = true;
    return arguments->print ? EXIT_SUCCESS : SERVE_GO_ON;
}

int
serve_read(int argc, char **argv, struct node_options *node)
{
    struct serve_arguments arguments = {.serve = {.host = "127.0.0.1",
                                                  .grpc_port = GRPC_PORT,
                                                  .http_port = HTTP_PORT,
                                                  .metrics_port = METRICS_PORT,
                                                  .dashboard_port = DASHBOARD_PORT,
                                                  .cache_gib = CACHE_GIB},
                                        .node = node,
                                        .exit_code = SERVE_GO_ON};
    struct option known[OPTION_END];
    usage_getopt(options, ARRAY_COUNT(options), known);
    int id;
    while (arguments.exit_code == SERVE_GO_ON &&
           (id = getopt_long(argc, argv, "", known, NULL)) != -1)
        take_option(&arguments, id);
    if (arguments.exit_code != SERVE_GO_ON)
        return arguments.exit_code;
    if (optind == argc)
        return mistake("expected a model, or a folder of models", "");
    arguments.serve.paths = (const char *const *)argv + optind;
    arguments.serve.path_count = (uint32_t)(argc - optind);
    served = arguments.serve;
    return make_config(&arguments);
}

void
serve_explain(void)
{
    const struct {
        const char *host;
        uint16_t port;
        enum serve_option option;
    } ports[] = {
        {served.host, served.grpc_port, OPTION_GRPC_PORT},
        {served.host, served.http_port, OPTION_HTTP_PORT},
        {served.host, served.metrics_port, OPTION_METRICS_PORT},
        {"127.0.0.1", served.dashboard_port, OPTION_DASHBOARD_PORT},
    };
    for (size_t i = 0; i < ARRAY_COUNT(ports); i++) {
        char address[SERVE_ADDRESS_BYTES];
        struct error error = ERROR_NONE;
        int failure = 0;
        snprintf(address, sizeof(address), "%.255s:%u", ports[i].host, ports[i].port);
        if (ports[i].port != 0 && check_tcp_address(address, &failure, &error) == STATUS_OK &&
            failure == EADDRINUSE)
            fprintf(stderr, "shoald serve: another program listens on %s; --%s chooses a port\n",
                    address, options[ports[i].option - 1].name);
    }
}
