/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of `shoalctl mesh`; argv[0] is the sub-command.
 */
#pragma once

/* Calls any node over gRPC: register, status, set-vmodel and others. */
int mesh_call_run(int argc, char **argv);
/* Asks the local node's control socket: nodes, models, copies, vmodels; drain. */
int mesh_list_run(int argc, char **argv);
int mesh_drain_run(int argc, char **argv);
