/* SPDX-License-Identifier: Apache-2.0 */
/* shoalctl mesh: which word is whose. */
#include "ctl/mesh.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "ctl/ctl.h"

static const struct {
    const char *word;
    int (*run)(int argc, char **argv);
} parts[] = {
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
    return error_set(error, STATUS_INVALID_ARGUMENT, "\"%.32s\" is nothing it does%s%s", value,
                     nearest != NULL ? ": meant " : "", nearest != NULL ? nearest : "");
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
    fprintf(stderr, "shoalctl mesh: say what; see shoalctl mesh --help\n");
    return CTL_USAGE;
}

const struct ctl_command mesh_command = {
    .name = "mesh",
    .arguments = "WORD [options] ...",
    .summary = "Look at a mesh of nodes, and manage its models and vmodels",
    .about = "Of the mesh, through the node on this machine (--counters) or any other (--target):\n"
             "  register ID PATH         makes a model known to all nodes\n"
             "  unregister ID            forgets it\n"
             "  status ID                says which nodes have it, or why they have not\n"
             "  load ID                  loads it now\n"
             "  set-vmodel VMODEL MODEL  makes a vmodel, or has it go over to another model\n"
             "  delete-vmodel VMODEL     deletes it\n"
             "  vmodel VMODEL            says which model it has\n\n"
             "Of what the node on this machine knows (--counters), as root or as its own user:\n"
             "  nodes                    who is there, with how much room, and who leads\n"
             "  models                   all that are registered, and how they are\n"
             "  copies ID                where one of them is, since when\n"
             "  vmodels                  all of them, and which go over\n"
             "  drain                    moves what this node has to others, and ends it\n\n"
             "Each has a --help of its own.\n",
    .example = "  shoalctl mesh register --type xgboost fraud-7 fraud/7\n"
               "  shoalctl mesh set-vmodel fraud fraud-7 --wait\n"
               "  shoalctl mesh nodes --watch\n",
    .run = mesh_run,
};
