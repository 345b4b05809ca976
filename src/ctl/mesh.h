/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of shoalctl mesh, each for some of its words: argv[0] is the word.
 */
#pragma once

/* Over gRPC, of any node: register, status, set-vmodel … */
int mesh_call_run(int argc, char **argv);
/* Of the node on this machine, over its control socket: nodes, models, copies, vmodels. */
int mesh_list_run(int argc, char **argv);
int mesh_drain_run(int argc, char **argv);
