#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Each rule of tidy.py finds what it is there for, and nothing in what only looks like it.

A small tree is written into a temporary folder for each case. BROKEN: exactly one finding, of the
rule that is named, at the line that is named. FINE: none at all. A rule without a broken case
fails the test, so a new rule cannot come without one.
"""

import os
import tempfile
import unittest

import tidy

SPDX = "/* SPDX-License-Identifier: Apache-2.0 */\n"
HEADER = SPDX + "/* The module. */\n#pragma once\n"
TEST = SPDX + "/* Its proof. */\n"


def function(name, lines):
    return f"int\n{name}(void)\n{{\n" + "    name();\n" * (lines - 3) + "}\n"


# rule, line, {path: text}
BROKEN = [
    ("layers", 2, {"src/base/a.c": SPDX + '#include "shm/ring.h"\n'}),
    ("layers", 2, {"src/shm/a.c": SPDX + '#include "rpc/rpc.h"\n'}),
    ("layers", 2, {"src/rpc/a.c": SPDX + '#include "shm/ring.h"\n'}),
    ("layers", 2, {"src/http/a.c": SPDX + '#include "coordinator/node.h"\n'}),
    ("layers", 2, {"src/worker/a.c": SPDX + '#include "coordinator/workers/worker_pools.h"\n'}),
    ("layers", 2, {"src/coordinator/a.c": SPDX + '#include "worker/batch.h"\n'}),
    ("layers", 2, {"src/coordinator/mesh/a.c": SPDX + '#include "worker/batch.h"\n'}),
    ("layers", 2, {"src/coordinator/pipeline/a.c": SPDX + '#include "coordinator/workers/pool_member.h"\n'}),
    ("layers", 2, {"src/coordinator/pipeline/a.c": SPDX + '#include "coordinator/models/models.h"\n'}),
    ("layers", 2, {"src/coordinator/loop/a.c": SPDX + '#include "coordinator/node.h"\n'}),
    ("layers", 2, {"src/coordinator/front/a.c": SPDX + '#include "mesh/edge/runner.h"\n'}),
    ("layers", 2, {"src/ctl/a.c": SPDX + '#include "coordinator/config/config.h"\n'}),
    ("layers", 2, {"src/base/a.c": SPDX + "#include <shoal/modelet.h>\n"}),
    ("layers", 2, {"src/mesh/core/a.c": SPDX + '#include "coordinator/config/config.h"\n'}),
    ("layers", 2, {"src/mesh/core/a.c": SPDX + '#include "mesh/etcd/etcd.h"\n'}),
    ("layers", 2, {"src/mesh/etcd/a.c": SPDX + '#include "mesh/mesh.h"\n'}),
    ("layers", 2, {"src/ctl/a.c": SPDX + '#include "mesh/etcd/etcd.h"\n'}),
    ("libraries", 2, {"src/mesh/etcd/call.c": SPDX + "#include <curl/curl.h>\n"}),
    ("layers", 2, {"src/shm/a.c": SPDX + '#include "ring.h"\n'}),
    ("layers", 2, {"examples/echo/echo.c": SPDX + '#include "base/check.h"\n'}),
    ("layers", 2, {"examples/digits/client.c": SPDX + '#include "shm/ring.h"\n'}),
    ("libraries", 2, {"src/coordinator/front/front.c": SPDX + "#include <grpc/grpc.h>\n"}),
    ("libraries", 2, {"src/coordinator/pipeline/gather.c": SPDX + "#include <event2/event.h>\n"}),
    ("libraries", 2, {"src/coordinator/config/config.c": SPDX + "#include <yaml.h>\n"}),
    ("libraries", 2, {"src/coordinator/main.c": SPDX + "#include <jansson.h>\n"}),
    ("libraries", 2, {"src/coordinator/main.c": SPDX + "#include <dlfcn.h>\n"}),
    ("libraries", 2, {"src/coordinator/dispatch.c": SPDX + '#include "inference/oip.pb-c.h"\n'}),
    ("libraries", 2, {"src/rpc/call.c": SPDX + "#include <protobuf-c/protobuf-c.h>\n"}),
    ("libraries", 2, {"src/worker/step.c": SPDX + "#include <linux/futex.h>\n"}),
    ("libraries", 2, {"src/worker/step.c": SPDX + "#include <xgboost/c_api.h>\n"}),
    ("libraries", 2, {"src/shm/arena.c": SPDX + "#include <jemalloc/jemalloc.h>\n"}),
    ("libraries", 2, {"src/base/clock.c": SPDX + "#include <cmocka.h>\n"}),
    ("atomics", 2, {"src/coordinator/a.c": SPDX + "#include <stdatomic.h>\n"}),
    ("atomics", 2, {"src/coordinator/a.c": SPDX + "static _Atomic int shared;\n"}),
    ("atomics", 2, {"src/worker/a.c": SPDX + "int x = __atomic_load_n(p, 5);\n"}),
    ("function-length", 3, {"src/base/a.c": SPDX + function("long_one", 71)}),
    ("function-length", 2, {"src/base/a.c": SPDX + "int long_one(void) {\n" + "a;\n" * 70 + "}\n"}),
    ("function-length", 6, {"src/base/a.c": SPDX + "struct a {\n    int b;\n};\n" +
                            function("after_a_struct", 90)}),
    ("function-length", 3, {"src/base/a.c": SPDX + "int\nbranches(void)\n{\n#if A\n    if (a) {\n"
                            "#else\n    if (b) {\n#endif\n    }\n" + "a;\n" * 70 + "}\n"}),
    ("file-length", 801, {"src/base/a.c": SPDX + "int a;\n" * 800}),
    ("columns", 2, {"src/base/a.c": SPDX + "/* " + "x" * 95 + " */\n"}),
    ("booleans", 4, {"src/base/a.h": HEADER + "void a_open(struct a *a, bool fast);\n"}),
    ("booleans", 4, {"src/base/a.h": HEADER + "enum status a_open(struct a *a, int b,\n    const bool c);\n"}),
    ("booleans", 5, {"src/base/a.h": HEADER + "struct a {\n    int (*send)(void *context, bool last);\n"
                     "};\n"}),
    ("booleans", 4, {"include/shoal/a.h": SPDX + "/* A module. */\n#ifndef SHOAL_A_H\n"
                     "void a_set_ready(struct a *a, bool now);\n#define SHOAL_A_H\n#endif\n"}),
    ("parameters", 4, {"src/base/a.h": HEADER + "int a(int b, int c, int d, int e, int f, int g, int h);\n"}),
    ("parameters", 3, {"src/base/a.c": SPDX + "static int\na(int b, int c, int d, int e,\n  int f, int g,"
                       " void (*h)(int i, int j))\n{\n}\n"}),
    ("banned", 2, {"src/base/a.c": SPDX + "strcpy(a, b);\n"}),
    ("banned", 2, {"tests/unit/a.c": SPDX + "sprintf(a, b);\n"}),
    ("banned", 2, {"src/base/a.c": SPDX + "char *a = alloca(3);\n"}),
    ("banned", 2, {"src/base/a.c": SPDX + "volatile int a;\n"}),
    ("sleep", 3, {"tests/unit/test_a.c": TEST + "usleep(1);\n"}),
    ("sleep", 5, {"tests/unit/test_a.c": TEST + "int\nhope(void)\n{ nanosleep(a, b); }\n"}),
    ("sleep", 2, {"tests/integration/test_a.py": "# SPDX-License-Identifier: Apache-2.0\n"
                  "time.sleep(1)\n"}),
    ("sleep", 2, {"tests/integration/test_a.sh": "# SPDX-License-Identifier: Apache-2.0\nsleep 1\n"}),
    ("log-formats", 2, {"src/base/a.c": SPDX + 'void a(void) { log_warn("a b=%5d", 1); }\n'}),
    ("log-formats", 2, {"src/base/a.c": SPDX + 'void a(void) { log_info_limited("a b=\\"%p\\"", b); }\n'}),
    ("log-formats", 2, {"src/base/a.c": SPDX + 'void a(void) { log_line(c(d), "a b=%" PRIu64 " c=%g", b, c); }\n'}),
    ("unfinished", 1, {"README.md": "TO" "DO: write\n"}),
    ("unfinished", 2, {"src/base/a.c": SPDX + "/* FIX" "ME */\n"}),
    ("licence", 1, {"src/base/a.c": "int a;\n"}),
    ("licence", 1, {"tests/a.py": "#!/usr/bin/env python3\nimport os\n"}),
    ("licence", 1, {"src/base/CMakeLists.txt": "shoal_library(shoal_base)\n"}),
    ("header", 1, {"src/base/a.h": SPDX + "/* A module. */\n#ifndef SHOAL_A_H\n#define SHOAL_A_H\n#endif\n"}),
    ("header", 1, {"include/shoal/a.h": HEADER}),
    ("opening", 2, {"src/base/a.h": SPDX + "#pragma once\n/* Too late. */\n"}),
    ("opening", 2, {"tests/unit/test_a.c": SPDX + "#include <stddef.h>\n"}),
    ("headless", 3, {"src/base/a.c": SPDX + "/* It waits.\n * Who comes first is served. */\n"}),
    ("headless", 2, {"src/base/a.c": SPDX + "int a; /* What it holds. */\n"}),
    ("headless", 4, {"tests/a.py": '#!/bin/python3\n# SPDX-License-Identifier: Apache-2.0\na = "It is. What?"\n'
                     'b = 1  # Wha' 'tever it was.\n'}),
    ("headless", 2, {"tests/a.py": '# SPDX-License-Identifier: Apache-2.0\n"""Wh' 'oever asks."""\n'}),
    ("headless", 3, {"docs/a.md": "# Who may look\n\nWho may look is told.\n"}),
    ("headless", 2, {"docs/a.md": "- One of a list.\n- What is left.\n"}),
    ("columns", 1, {"docs/a.md": "word " * 21 + "\n"}),
    ("counters", 2, {"src/ipc/counters.def": SPDX + "COUNTER(STAGE, RUN_AGAIN, \"...\")\n",
                     "docs/operating.md": "`run_again`\n",
                     "tests/unit/test_a.c": TEST + "run_again(); STAGE_RUN_AGAIN_TWICE();\n"}),
    ("operators-page", 2, {"src/ipc/counters.def": SPDX + "COUNTER(STAGE, RUN_AGAIN, \"...\")\n",
                           "docs/operating.md": "run_again, `run`\n",
                           "tests/unit/test_a.c": TEST + "check(STAGE_RUN_AGAIN);\n"}),
    ("tags", 2, {"src/base/a.c": SPDX + "struct a {\n    int b;\n};\n",
                 "src/shm/b.h": HEADER + "struct b;\n",
                 "src/worker/a.c": SPDX + "enum a { B };\n"}),
    ("tags", 3, {"src/base/a.h": HEADER + "struct a {\n    int b;\n};\n",
                 "tests/unit/test_a.c": TEST + "union a { int b; };\n"}),
    ("planted", 1, {"tests/planted/07-a.patch": "", "tests/sim/planted/07-b.patch": ""}),
    ("planted", 1, {"tests/gateway/planted/07-a.patch": "", "tests/gateway/planted/07-b.patch": ""}),
    ("operators-page", 2, {"src/worker/a.c": SPDX + "int a = log_error(\"it_broke why=%s\", why);\n"}),
]

FINE = [
    {"src/worker/a.c": SPDX + '#include "shm/ring.h"\n#include <shoal/modelet.h>\n#include <stdio.h>\n'},
    {"src/coordinator/workers/a.c": SPDX + '#include "coordinator/pipeline/pipeline_models.h"\n'},
    {"src/coordinator/a.c": SPDX + '#include "coordinator/mesh/a.h"\n#include "coordinator/node.h"\n'},
    {"src/base/a.c": SPDX + '/* #include "shm/ring.h" */\n// #include <grpc/grpc.h>\n'},
    {"tests/unit/test_a.c": TEST + '#include <grpc/grpc.h>\n#include "rpc/rpc.h"\n#include "local.h"\n'},
    {"src/shm/a.c": SPDX + "#include <stdatomic.h>\nstatic _Atomic int a;\n"},
    {"src/base/a.h": HEADER + "void a_set_ready(struct a *a, bool ready);\nvoid a_json_bool(struct a *a,"
     " bool value);\nbool a_is(const struct a *a);\n#define A(b, c, d, e, f, g, h) 1\n"},
    {"src/base/a.c": SPDX + "static void\na(bool b)\n{\n    call(b, c, d, e, f, g, h);\n}\n"},
    {"src/base/a.c": SPDX + function("short_one", 70)},
    {"src/base/a.c": SPDX + "static const int a[] = {\n" + "    1,\n" * 100 + "};\n"},
    {"src/base/a.c": SPDX + function("one", 40) + function("two", 40)},
    {"src/base/a.c": SPDX + 'const char *a = "strcpy(volatile _Atomic)"; /* alloca(3) */\n'},
    {"src/base/a.c": SPDX + 'static volatile sig_atomic_t stop;\n__asm__ volatile("nop");\n'},
    {"tests/unit/wait.c": SPDX + "void\nwait_for(int a)\n{\n    usleep(a);\n}\n"},
    {"tests/integration/a.py": "# SPDX-License-Identifier: Apache-2.0\ndef wait_until(f):\n    x()\n"
     "    time.sleep(1)\n"},
    {"tests/integration/a.sh": "# SPDX-License-Identifier: Apache-2.0\nwait_for() {\n    sleep 1\n}\n"},
    {"tests/a.sh": "# SPDX-License-Identifier: Apache-2.0\nmktemp -d /tmp/a.XX" "XXXX\n"},
    {"tests/a.sh": "#!/usr/bin/env bash\n# SPDX-License-Identifier: Apache-2.0\n"},
    {"src/base/a.h": HEADER},
    {"include/shoal/a.h": SPDX + "/* A module. */\n#ifndef SHOAL_A_H\n#define SHOAL_A_H\n#endif\n"},
    {"src/ipc/counters.def": SPDX + "COUNTER(STAGE, RUN_AGAIN, COUNT)\n",
     "docs/operating.md": "| `run_again` | - |\n",
     "tests/integration/a.py": "# SPDX-License-Identifier: Apache-2.0\nexpect('run_again', 1)\n"},
    {"src/ipc/counters.def": SPDX + "COUNTER(STAGE, RUN_AGAIN, COUNT)\n",
     "docs/operating.md": "| `run_again` | - |\n",
     "tests/unit/test_a.c": TEST + "assert_int_equal(value[STAGE_RUN_AGAIN], 1);\n"},
    {"src/ipc/counters.def": SPDX + "COUNTER(WORKER, ITEMS_OK, ITEMS)\n",
     "tests/unit/test_a.c": TEST + "assert_int_equal(value[WORKER_ITEMS_OK], 1);\n"},
    {"src/base/a.c": SPDX + "struct a { int b; };\nstruct a c;\n/* struct a { */\n",
     "tests/unit/test_a.c": TEST + "struct b { int b; };\n",
     "tests/unit/test_b.c": TEST + "struct b { int b; };\n"},
    {"src/coordinator/a.c": SPDX + "int a = log_info(\"all_is_well x=%d\", x);\n"},
    {"src/base/a.c": SPDX + 'const char *a = "What. Who?"; /* Says what. What is it? It says\n * what. */\n'},
    {"docs/a.md": "# What it is\n\n| a |\n|---|\n|" + "b " * 60 + "|\n\n```\n" + "c " * 60 + "\n```\n"},
    {"tests/planted/07-a.patch": "", "tests/planted/08-a.patch": "", "tests/gateway/planted/07-a.patch": ""},
    {"build/a.c": "no licence\n", ".git/config": "no licence\n"},
]


def findings_in(tree):
    with tempfile.TemporaryDirectory() as root:
        for path, text in tree.items():
            os.makedirs(os.path.join(root, os.path.dirname(path)), exist_ok=True)
            with open(os.path.join(root, path), "w", encoding="utf-8") as file:
                file.write(text)
        return [(rule, line) for _, line, rule, _ in tidy.findings(tidy.read_tree(root))]


class Rules(unittest.TestCase):
    def test_broken(self):
        for rule, line, tree in BROKEN:
            with self.subTest(rule=rule, tree=tree):
                self.assertEqual(findings_in(tree), [(rule, line)])

    def test_fine(self):
        for tree in FINE:
            with self.subTest(tree=tree):
                self.assertEqual(findings_in(tree), [])

    def test_every_rule_has_a_broken_case(self):
        planted = {rule for rule, _, _ in BROKEN}
        self.assertEqual(planted, set(tidy.FILE_RULES) | set(tidy.TREE_RULES))

    def test_layers_have_no_cycle(self):
        """A folder that may include another is not below it: so the folders have an order."""
        below = {folder: {f"src/{other}" for other in others} & set(tidy.LAYERS) - {folder}
                 for folder, others in tidy.LAYERS.items()}
        while below:
            lowest = {folder for folder, others in below.items() if not others & set(below)}
            self.assertTrue(lowest, f"these know each other: {sorted(below)}")
            below = {folder: others for folder, others in below.items() if folder not in lowest}

    def test_exceptions_are_needed(self):
        """An exception that nothing uses any more is taken out of the table."""
        sources = tidy.read_tree(os.environ.get("SHOAL_SOURCE_DIR", "."))
        for rule, files, reason in tidy.EXCEPTIONS:
            with self.subTest(rule=rule, files=files):
                self.assertTrue(reason)
                excused = [source for source in sources if source.under(*files)]
                self.assertTrue(any(list(tidy.FILE_RULES[rule](source)) for source in excused))


if __name__ == "__main__":
    unittest.main()
