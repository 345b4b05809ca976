/* SPDX-License-Identifier: Apache-2.0 */
/* shoalctl mesh: dispatches its commands. */
#include "ctl/mesh.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "ctl/ctl.h"

static const struct ctl_part parts[] = {
    {"register", mesh_call_run}, {"unregister", mesh_call_run}, {"status", mesh_call_run},
    {"load", mesh_call_run},     {"set-vmodel", mesh_call_run}, {"delete-vmodel", mesh_call_run},
    {"vmodel", mesh_call_run},   {"nodes", mesh_list_run},      {"models", mesh_list_run},
    {"copies", mesh_list_run},   {"vmodels", mesh_list_run},    {"drain", mesh_drain_run},
};

static enum status
unknown_part(void *context, const char *value, struct error *error)
{
    const char *words[ARRAY_COUNT(parts)];
    (void)context;
    for (size_t i = 0; i < ARRAY_COUNT(parts); i++)
        words[i] = parts[i].word;
    const char *nearest = ctl_nearest(value, words, ARRAY_COUNT(parts));
    return error_set(error, STATUS_INVALID_ARGUMENT, "\"%.32s\" is not one of its commands%s%s",
                     value, nearest != NULL ? ": did you mean " : "",
                     nearest != NULL ? nearest : "");
}

static enum status
no_option(void *context, size_t index, const char *value, struct error *error)
{
    (void)context;
    (void)index;
    (void)value;
    return error_set(error, STATUS_INVALID_ARGUMENT, "takes no option");
}

static int
mesh_run(int argc, char **argv)
{
    for (size_t i = 0; argc > 1 && i < ARRAY_COUNT(parts); i++)
        if (strcmp(argv[1], parts[i].word) == 0)
            return parts[i].run(argc - 1, argv + 1);
    struct ctl_reader reader = {no_option, unknown_part, NULL};
    int code = ctl_options_read(&mesh_command, &reader, argc, argv);
    if (code >= 0)
        return code;
    fprintf(stderr, "shoalctl mesh: a command is missing; see shoalctl mesh --help\n");
    return CTL_USAGE;
}

const struct ctl_command mesh_command = {
    .name = "mesh",
    .arguments = "COMMAND [options] ...",
    .summary = "Inspect a mesh of nodes and manage its models and vmodels",
    .about = "Through the local node (--counters) or any other (--target):\n"
             "  register ID PATH         register a model with all nodes\n"
             "  unregister ID            remove it\n"
             "  status ID                show which nodes have loaded it, or why they have not\n"
             "  load ID                  load it now\n"
             "  set-vmodel VMODEL MODEL  create a vmodel, or move it to another model\n"
             "  delete-vmodel VMODEL     delete it\n"
             "  vmodel VMODEL            show its model\n\n"
             "The local node's view (--counters), for root and the node's user:\n"
             "  nodes                    list the nodes with their free memory, and the leader\n"
             "  models                   list the registered models and their state\n"
             "  copies ID                list the copies of a model, and since when they exist\n"
             "  vmodels                  list the vmodels and their transitions\n"
             "  drain                    move this node's models to others and stop it\n\n"
             "Each command has its own --help.\n",
    .example = "  shoalctl mesh register --type xgboost fraud-7 fraud/7\n"
               "  shoalctl mesh set-vmodel fraud fraud-7 --wait\n"
               "  shoalctl mesh nodes --watch\n",
    .parts = parts,
    .part_count = ARRAY_COUNT(parts),
    .run = mesh_run,
};
