/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A cgroup's limits, read from folders that look as the kernel's do: version 2 with nested
 * groups, "max", absent and unreadable files, groups of a namespace; version 1; and both at once.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "../test.h"
#include "coordinator/limits.h"

#define MIB (UINT64_C(1) << 20)

static char root[] = "/tmp/shoal-limits.XXXXXX";

/* Makes the folders of the path, too. NULL: a folder stands where the file should be. */
static void
put(const char *path, const char *text)
{
    char full[512];
    snprintf(full, sizeof(full), "%s/%s", root, path);
    for (char *slash = full + sizeof(root); (slash = strchr(slash, '/')) != NULL; slash++) {
        *slash = '\0';
        (void)mkdir(full, 0755);
        *slash = '/';
    }
    if (text == NULL) {
        assert_int_equal(mkdir(full, 0755), 0);
        return;
    }
    FILE *file = fopen(full, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static int
setup(void **state)
{
    (void)state;
    memcpy(root + sizeof(root) - 7, "XXXXXX", 6);
    return mkdtemp(root) == NULL;
}

static int
teardown(void **state)
{
    (void)state;
    char command[64];
    snprintf(command, sizeof(command), "rm -r %s", root);
    return system(command); // NOLINT(cert-env33-c): our own folder
}

static void
check(uint64_t mib)
{
    assert_int_equal(limits_memory_bytes(root), mib * MIB);
}

TEST_CASE(test_own_group)
{
    put("proc/self/cgroup", "0::/system.slice/shoald.service\n");
    put("sys/fs/cgroup/memory.max", "max\n"); /* as a container's root has it */
    put("sys/fs/cgroup/system.slice/memory.max", "max\n");
    put("sys/fs/cgroup/system.slice/shoald.service/memory.max", "167772160\n");
    put("sys/fs/cgroup/system.slice/other.service/memory.max", "1048576\n");
    check(160);
}

TEST_CASE(test_smallest_on_the_way_to_the_root)
{
    put("proc/self/cgroup", "0::/a/b:b/c c\n");
    put("sys/fs/cgroup/a/b:b/c c/memory.max", "max\n");
    check(0);
    put("sys/fs/cgroup/a/b:b/memory.max", "1073741824\n");
    check(1024);
    put("sys/fs/cgroup/a/memory.max", "536870912\n");
    check(512);
    put("sys/fs/cgroup/a/b:b/c c/memory.max", "805306368\n");
    check(512);
    put("sys/fs/cgroup/memory.max", "268435456\n");
    check(256);
}

/* The controller is not given to the group: it has no such file, those around it count. */
TEST_CASE(test_absent)
{
    check(0);
    put("proc/self/cgroup", "0::/\n");
    check(0);
    put("sys/fs/cgroup/memory.max", "max\n");
    check(0);
    put("proc/self/cgroup", "0::/gone (deleted)\n");
    put("sys/fs/cgroup/memory.max", "33554432\n");
    check(32);
    put("proc/self/cgroup", "0::/../../outside\n"); /* of the namespace */
    check(32);
    put("proc/self/cgroup", "");
    check(0);
}

TEST_CASE(test_unreadable)
{
    put("proc/self/cgroup", "nonsense\n0\n0:\n0::/a/b\n");
    put("sys/fs/cgroup/a/b/memory.max", NULL);
    put("sys/fs/cgroup/a/memory.max", "garbage\n");
    check(0);
    put("sys/fs/cgroup/memory.max", "33554432\n");
    check(32);
    put("sys/fs/cgroup/a/memory.max", "");
    check(32);
    put("sys/fs/cgroup/a/memory.max", "99999999999999999999999999\n");
    check(32);
}

TEST_CASE(test_long_path)
{
    char line[8192];
    memset(line, 'a', sizeof(line));
    memcpy(line, "0::/", 4);
    line[sizeof(line) - 1] = '\0';
    put("proc/self/cgroup", line);
    put("sys/fs/cgroup/memory.max", "33554432\n");
    check(32);
}

TEST_CASE(test_version_1_and_both)
{
    put("proc/self/cgroup", "4:memory:/user/me\n3:cpu,cpuacct:/user\n0::/user\n");
    put("sys/fs/cgroup/memory/user/me/memory.limit_in_bytes", "9223372036854771712\n");
    put("sys/fs/cgroup/cpu,cpuacct/user/memory.max", "1048576\n");
    check(0);
    put("sys/fs/cgroup/memory/user/memory.limit_in_bytes", "536870912\n");
    check(512);
    put("sys/fs/cgroup/user/memory.max", "268435456\n");
    check(256);
}

TEST_MAIN(.setup = setup, .teardown = teardown)
