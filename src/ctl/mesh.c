/* SPDX-License-Identifier: Apache-2.0 */
/* shoalctl mesh: dispatches its commands. */
#include "ctl/mesh.h"

#include "base/check.h"
#include "ctl/ctl.h"

static const struct ctl_part parts[] = {
    {"register", mesh_call_run}, {"unregister", mesh_call_run}, {"status", mesh_call_run},
    {"load", mesh_call_run},     {"set-vmodel", mesh_call_run}, {"delete-vmodel", mesh_call_run},
    {"vmodel", mesh_call_run},   {"nodes", mesh_list_run},      {"models", mesh_list_run},
    {"copies", mesh_list_run},   {"vmodels", mesh_list_run},    {"drain", mesh_drain_run},
};

static int
mesh_run(int argc, char **argv)
{
    return ctl_parts_run(&mesh_command, argc, argv);
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
