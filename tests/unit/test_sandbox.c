/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sandbox as far as it is pure: which parts each name takes away, what a name brings along,
 * what Landlock is asked for by the version that a kernel speaks, for want of what `required`
 * refuses, and that names and bits agree. That it holds is shown by
 * tests/integration/test_85_sandbox.py.
 */
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>

#include "../test.h"
#include "base/check.h"
#include "worker/sandbox.h"

enum { EVERY_PART = (1 << SANDBOX_PART_COUNT) - 1 };

TEST_CASE(test_parts_by_name)
{
    const struct {
        uint32_t allow;
        uint32_t without;
    } cases[] = {
        {0, 0},
        {SANDBOX_ALLOW_READING, 0},
        {SANDBOX_ALLOW_CODE, 0},
        {SANDBOX_ALLOW_CORE, 0},
        {SANDBOX_ALLOW_FILES, SANDBOX_PART_LANDLOCK_FILES},
        {SANDBOX_ALLOW_NETWORK, SANDBOX_PART_LANDLOCK_TCP | SANDBOX_PART_LANDLOCK_SOCKETS},
        {SANDBOX_ALLOW_PROCESSES, SANDBOX_PART_LANDLOCK_SIGNALS},
        {SANDBOX_ALLOW_FILES | SANDBOX_ALLOW_NETWORK | SANDBOX_ALLOW_PROCESSES,
         SANDBOX_PARTS_LANDLOCK},
        {SANDBOX_ALLOW_ALL, EVERY_PART},
        {SANDBOX_ALLOW_EVERY, EVERY_PART},
    };
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++)
        assert_int_equal(sandbox_parts(cases[i].allow), EVERY_PART & ~cases[i].without);
}

TEST_CASE(test_names_bring_others_along)
{
    assert_int_equal(sandbox_completed(0), 0);
    assert_int_equal(sandbox_completed(SANDBOX_ALLOW_NETWORK), SANDBOX_ALLOW_NETWORK);
    assert_int_equal(sandbox_completed(SANDBOX_ALLOW_FILES),
                     SANDBOX_ALLOW_FILES | SANDBOX_ALLOW_READING);
    assert_int_equal(sandbox_completed(SANDBOX_ALLOW_PROCESSES),
                     SANDBOX_ALLOW_PROCESSES | SANDBOX_ALLOW_READING | SANDBOX_ALLOW_CODE);
}

TEST_CASE(test_each_call_has_a_name_that_allows_it)
{
    const struct {
        int call;
        const char *name;
    } cases[] = {
        {SYS_socket, "network"}, {SYS_clone, "processes"}, {SYS_execve, "processes"},
        {SYS_openat, "files"},   {SYS_fcntl, "files"},     {SYS_readlinkat, "reading"},
        {SYS_mprotect, "code"},  {SYS_ptrace, "all"},      {SYS_madvise, "all"},
        {SYS_bpf, "all"},
    };
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++)
        assert_string_equal(calls_allowed_by(cases[i].call), cases[i].name);
}

TEST_CASE(test_landlock_by_version)
{
    const struct {
        int abi;
        uint64_t files;
        uint64_t tcp;
        uint64_t scopes;
        uint32_t parts;
    } cases[] = {
        {0, 0, 0, 0, 0},
        {1, 0x1fff, 0, 0, SANDBOX_PART_LANDLOCK_FILES},
        {2, 0x3fff, 0, 0, SANDBOX_PART_LANDLOCK_FILES},
        {3, 0x7fff, 0, 0, SANDBOX_PART_LANDLOCK_FILES},
        {4, 0x7fff, 3, 0, SANDBOX_PART_LANDLOCK_FILES | SANDBOX_PART_LANDLOCK_TCP},
        {5, 0xffff, 3, 0, SANDBOX_PART_LANDLOCK_FILES | SANDBOX_PART_LANDLOCK_TCP},
        {6, 0xffff, 3, 3, SANDBOX_PARTS_LANDLOCK},
        {7, 0xffff, 3, 3, SANDBOX_PARTS_LANDLOCK},
        {99, 0xffff, 3, 3, SANDBOX_PARTS_LANDLOCK}, /* asks for nothing that it does not know */
    };
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        struct landlock_rights rights = landlock_rights_for(cases[i].abi, 0);
        assert_int_equal(rights.files, cases[i].files);
        assert_int_equal(rights.tcp, cases[i].tcp);
        assert_int_equal(rights.scopes, cases[i].scopes);
        assert_int_equal(landlock_parts(&rights), cases[i].parts);
    }
}

TEST_CASE(test_landlock_by_name)
{
    const uint64_t execute = 1;
    struct landlock_rights rights = landlock_rights_for(7, SANDBOX_ALLOW_FILES);
    assert_int_equal(rights.files, 0);
    assert_int_equal(rights.scopes, 3);
    rights = landlock_rights_for(7, SANDBOX_ALLOW_NETWORK);
    assert_int_equal(rights.tcp, 0);
    assert_int_equal(landlock_parts(&rights),
                     SANDBOX_PART_LANDLOCK_FILES | SANDBOX_PART_LANDLOCK_SIGNALS);
    rights = landlock_rights_for(7, SANDBOX_ALLOW_PROCESSES);
    assert_int_equal(rights.files, 0xffff & ~execute);
    assert_int_equal(landlock_parts(&rights),
                     SANDBOX_PARTS_LANDLOCK & ~SANDBOX_PART_LANDLOCK_SIGNALS);
    /* for every permission of a stage, Landlock gives the parts that it reports as complete */
    for (uint32_t allow = 0; allow < SANDBOX_ALLOW_ALL; allow++) {
        rights = landlock_rights_for(7, allow);
        assert_int_equal(landlock_parts(&rights), sandbox_parts(allow) & SANDBOX_PARTS_LANDLOCK);
    }
}

TEST_CASE(test_required)
{
    const uint32_t doubled =
        SANDBOX_PART_LANDLOCK_TCP | SANDBOX_PART_LANDLOCK_SOCKETS | SANDBOX_PART_LANDLOCK_SIGNALS;
    assert_int_equal(sandbox_lacking(EVERY_PART, EVERY_PART), 0);
    assert_int_equal(sandbox_lacking(EVERY_PART, EVERY_PART & ~doubled), 0);
    uint32_t no_filter = EVERY_PART & ~doubled & ~(uint32_t)SANDBOX_PART_CALLS_STARTING;
    assert_int_equal(sandbox_lacking(EVERY_PART, no_filter), doubled | SANDBOX_PART_CALLS_STARTING);
    assert_int_equal(
        sandbox_lacking(EVERY_PART, EVERY_PART & ~(uint32_t)SANDBOX_PART_LANDLOCK_FILES),
        SANDBOX_PART_LANDLOCK_FILES);
    assert_int_equal(sandbox_lacking(0, 0), 0);
}

static void
check_suspected(uint32_t in_force, uint32_t allow, const char *text, const char *part)
{
    const struct sandbox sandbox = {.allow = allow, .in_force = in_force};
    const char *found = sandbox_suspected(&sandbox, text);
    if (part == NULL)
        assert_null(found);
    else
        assert_non_null(strstr(found != NULL ? found : "", part));
}

/* Only a part in force can be the reason. */
TEST_CASE(test_suspected)
{
    const char *eperm = "no socket: Operation not permitted (1)";
    const char *eacces = "Permission denied: /etc/passwd";
    const char *look_up = "gaierror: [Errno -3] Temporary failure in name resolution";
    const char *reading = "open to read (reading), ";
    const uint32_t files = SANDBOX_PART_LANDLOCK_FILES;
    const uint32_t calls = SANDBOX_PART_CALLS_SERVING;
    check_suspected(EVERY_PART, 0, eperm, reading);
    check_suspected(EVERY_PART, 0, eperm, "socket (network)");
    check_suspected(EVERY_PART, SANDBOX_IMPORTS, eperm, "allows: socket (network)");
    check_suspected(EVERY_PART, SANDBOX_SERVES_MODELS, eperm, "allows: socket (network)");
    check_suspected(EVERY_PART, SANDBOX_ALLOW_READING, eperm, "allows: socket (network)");
    check_suspected(EVERY_PART, 0, eacces, "`sandbox_allow: [files]`");
    check_suspected(files, 0, eacces, "`sandbox_allow: [files]`");
    check_suspected(calls, 0, eperm, reading);
    check_suspected(EVERY_PART, 0, look_up, "socket (network)");
    check_suspected(EVERY_PART, SANDBOX_ALLOW_NETWORK, look_up, NULL);
    check_suspected(EVERY_PART & ~calls, 0, eperm, NULL);
    check_suspected(EVERY_PART & ~calls, 0, look_up, NULL);
    check_suspected(EVERY_PART & ~files, SANDBOX_ALLOW_FILES, eacces, NULL);
    check_suspected(0, SANDBOX_ALLOW_ALL, eperm, NULL);
    check_suspected(EVERY_PART, 0, "Permission denied for this tier", NULL);
    check_suspected(EVERY_PART, 0, "no: Permission denied, Permission denied to Bob", "[files]");
    check_suspected(EVERY_PART, 0, "", NULL);
    check_suspected(EVERY_PART, 0, "no such flower", NULL);
}

TEST_CASE(test_names_and_bits_agree)
{
    char joined[256] = "";
    for (uint32_t i = 0; i < SANDBOX_ALLOW_COUNT; i++) {
        size_t used = strlen(joined);
        snprintf(joined + used, sizeof(joined) - used, "%s%s", i > 0 ? "|" : "",
                 sandbox_allow_name(i));
    }
    assert_string_equal(joined, SANDBOX_ALLOW_NAMES);
    assert_string_equal(sandbox_allow_name(5), "all");
    assert_int_equal(SANDBOX_ALLOW_ALL, 1 << 5);
    assert_string_equal(sandbox_allow_name(SANDBOX_ALLOW_COUNT), "?");
    assert_string_equal(sandbox_part_name(SANDBOX_INDEX_CALLS_SERVING), "calls_serving");
    assert_string_equal(sandbox_part_name(SANDBOX_PART_COUNT), "?");
}

TEST_MAIN()
