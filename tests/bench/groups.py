# SPDX-License-Identifier: Apache-2.0
"""All groups, in the order in which they are measured and shown."""

from contenders import (LOAD_FIGURES, OUTSTANDING, SIZES, Case, Group, Rings, closed, digits_group,
                        echo_group, echo_tcp_group, idle_contenders, local_group, models_groups,
                        ring_contenders, service_contenders, stages_contenders)
from gateways import gateway_groups
from meshes import mesh_group, register_group
from pickers import picker_groups
from pythons import python_group
from web import web_group

GROUPS = [
    *map(echo_group, SIZES),
    echo_tcp_group(),
    *map(local_group, SIZES),
    digits_group(),
    python_group(),
    *models_groups(),
    mesh_group(),
    register_group(),
    web_group(),
    *picker_groups(),
    *gateway_groups(),
    Group("stages", "stages without a network: echo, on two CPUs in turn",
          ("shoal_1", "shoal_2", "shoal_4"), stages_contenders,
          closed(1), figures=LOAD_FIGURES[:4] + [("second_stage_ns", "second stage ns")]),
    Group("service", "scale and shift: a Python service, Shoal without a network, Shoal over gRPC",
          ("python", "shoal", "shoal_grpc"), service_contenders,
          closed(*OUTSTANDING), figures=LOAD_FIGURES[:4]),
    Group("ring", "a ring between two threads, ns per item", Rings.NAMES, ring_contenders,
          [Case("stream"), Case("hop")], placements=("pinned",), figures=[("ns", "ns")]),
    Group("idle", "idle", ("bare", "shoal_4"), idle_contenders, [Case("idle")],
          placements=("pinned",), times=20,
          figures=[("cpu_s_per_minute", "CPU s per minute"), ("core_percent", "% of a core"),
                   ("wakes_per_s", "switches/s"), ("processes", "processes")]),
]
