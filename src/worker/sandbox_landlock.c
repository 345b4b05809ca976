/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Landlock: the files that may be opened, by any path (links, "..", /proc). The kernel is
 * asked for its version; its release is not used. Constants that the header of the oldest supported
 * system lacks are spelled out; they are the kernel's ABI.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/check.h"
#include "worker/sandbox.h"

enum {
    FILES_OF_ABI_1 = (1 << 13) - 1, /* EXECUTE … MAKE_SYM */
    FILES_REFER = 1 << 13,
    FILES_TRUNCATE = 1 << 14,
    FILES_IOCTL_DEV = 1 << 15,
    TCP_BIND = 1 << 0,
    TCP_CONNECT = 1 << 1,
    SCOPE_ABSTRACT_SOCKET = 1 << 0,
    SCOPE_SIGNAL = 1 << 1,
};

/* struct landlock_ruleset_attr of ABI 6; an older kernel accepts it if the members that it does not
 * know are zero. */
struct ruleset {
    uint64_t files;
    uint64_t tcp;
    uint64_t scopes;
};

struct landlock_rights
landlock_rights_for(int abi, uint32_t allow)
{
    struct landlock_rights rights = {0};
    if (abi >= 1 && !(allow & SANDBOX_ALLOW_FILES)) {
        rights.files = FILES_OF_ABI_1;
        rights.files |= abi >= 2 ? FILES_REFER : 0;
        rights.files |= abi >= 3 ? FILES_TRUNCATE : 0;
        rights.files |= abi >= 5 ? FILES_IOCTL_DEV : 0;
        if (allow &
            SANDBOX_ALLOW_PROCESSES) /* programs are read from the same places as libraries */
            rights.files &= ~(uint64_t)LANDLOCK_ACCESS_FS_EXECUTE;
    }
    if (abi >= 4 && !(allow & SANDBOX_ALLOW_NETWORK))
        rights.tcp = TCP_BIND | TCP_CONNECT;
    if (abi >= 6) {
        rights.scopes |= allow & SANDBOX_ALLOW_NETWORK ? 0 : SCOPE_ABSTRACT_SOCKET;
        rights.scopes |= allow & SANDBOX_ALLOW_PROCESSES ? 0 : SCOPE_SIGNAL;
    }
    return rights;
}

uint32_t
landlock_parts(const struct landlock_rights *rights)
{
    uint32_t parts = 0;
    parts |= rights->files != 0 ? SANDBOX_PART_LANDLOCK_FILES : 0;
    parts |= rights->tcp != 0 ? SANDBOX_PART_LANDLOCK_TCP : 0;
    parts |= rights->scopes & SCOPE_ABSTRACT_SOCKET ? SANDBOX_PART_LANDLOCK_SOCKETS : 0;
    parts |= rights->scopes & SCOPE_SIGNAL ? SANDBOX_PART_LANDLOCK_SIGNALS : 0;
    return parts;
}

/* ---- the places ---- */

/*
 * Places that a modelet may read beside its own. Mapping a library does not need the right to
 * execute, which is for programs and granted to none.
 */
static const struct {
    const char *path;
    uint32_t needs; /* only if the stage allows this; 0: always */
} places[] = {
    {"/lib", 0},
    {"/lib32", 0},
    {"/lib64", 0},
    {"/usr/lib", 0},
    {"/usr/lib32", 0},
    {"/usr/lib64", 0},
    {"/usr/local/lib", 0},
    {"/usr/share", 0}, /* time zones, locales, data of libraries */
    {"/etc/ld.so.cache", 0},
    {"/etc/localtime", 0},
    {"/proc/self", 0}, /* the process itself: its memory map, its limits */
    {"/proc/cpuinfo", 0},
    {"/proc/meminfo", 0},
    {"/proc/sys/vm/overcommit_memory", 0}, /* jemalloc */
    {"/sys/devices/system/cpu", 0},        /* OpenMP */
    {"/sys/devices/system/node", 0},
    {"/sys/fs/cgroup", 0}, /* a container's number of CPUs, for thread pools */
    {"/sys/kernel/mm/transparent_hugepage", 0},
    {"/dev/null", 0},
    {"/dev/zero", 0},
    {"/dev/random", 0},
    {"/dev/urandom", 0},
    {"/bin", SANDBOX_ALLOW_PROCESSES},
    {"/sbin", SANDBOX_ALLOW_PROCESSES},
    {"/usr/bin", SANDBOX_ALLOW_PROCESSES},
    {"/usr/sbin", SANDBOX_ALLOW_PROCESSES},
    {"/usr/local/bin", SANDBOX_ALLOW_PROCESSES},
};

/* A missing path is skipped. */
static int
rights_allow(int ruleset, const char *path, uint64_t of_file, uint64_t of_folder)
{
    int fd = open(path, O_PATH | O_CLOEXEC);
    if (fd < 0)
        return 0;
    struct stat info;
    int failed = 0;
    if (fstat(fd, &info) == 0) {
        bool folder = S_ISDIR(info.st_mode);
        struct landlock_path_beneath_attr rule = {
            .allowed_access = of_file | (folder ? of_folder : 0),
            .parent_fd = fd,
        };
        if (syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) != 0)
            failed = errno;
    }
    close(fd);
    return failed;
}

/* Allows reading a file, or all beneath a folder. */
static int
place_allow(int ruleset, const char *path)
{
    return rights_allow(ruleset, path, LANDLOCK_ACCESS_FS_READ_FILE, LANDLOCK_ACCESS_FS_READ_DIR);
}

/* Lets the kernel write a core file where core_pattern says: with the process's rights, unless a
 * program takes it. The modelet itself still cannot open files to write: seccomp. */
static int
core_allow(int ruleset, uint64_t handled)
{
    char pattern[HANDSHAKE_PATH_BYTES] = "";
    int fd = open("/proc/sys/kernel/core_pattern", O_RDONLY | O_CLOEXEC);
    ssize_t bytes = fd < 0 ? 0 : read(fd, pattern, sizeof(pattern) - 1);
    if (fd >= 0)
        close(fd);
    char *slash = bytes > 0 ? strrchr(pattern, '/') : NULL;
    if (pattern[0] == '|')
        return 0;
    if (slash != NULL)
        slash[slash == pattern ? 1 : 0] = '\0';
    /* over an older core file, too */
    return rights_allow(ruleset, slash != NULL ? pattern : ".",
                        LANDLOCK_ACCESS_FS_WRITE_FILE | (handled & FILES_TRUNCATE),
                        LANDLOCK_ACCESS_FS_MAKE_REG);
}

/* Allows the folder of a file: that of its name, and that of the file to which links lead. */
static int
folder_allow(int ruleset, const char *path)
{
    char folder[HANDSHAKE_PATH_BYTES];
    const char *slash = strrchr(path, '/');
    if (slash == NULL)
        return 0;
    int length = (int)(slash - path);
    snprintf(folder, sizeof(folder), "%.*s", length > 0 ? length : 1, path);
    int failed = place_allow(ruleset, folder);
    char *real = realpath(path, NULL);
    if (failed == 0 && real != NULL && strcmp(real, path) != 0) {
        slash = strrchr(real, '/');
        real[slash > real ? slash - real : 1] = '\0';
        failed = place_allow(ruleset, real);
    }
    free(real);
    return failed;
}

/* An interpreted modelet's own folder, and the packages that its stage names. */
static int
script_allow(int ruleset, const struct handshake_start *start)
{
    const char *packages = getenv("VIRTUAL_ENV"); /* examples/python; from the operator */
    char path[2 * HANDSHAKE_PATH_BYTES];
    int failed = folder_allow(ruleset, start->script);
    if (failed != 0 || packages == NULL || packages[0] == '\0')
        return failed;
    bool absolute = packages[0] == '/';
    int bytes = snprintf(path, sizeof(path), "%s%s%s", absolute ? "" : start->directory,
                         absolute ? "" : "/", packages);
    return bytes < (int)sizeof(path) ? place_allow(ruleset, path) : 0;
}

static int
places_allow(int ruleset, const struct handshake_start *start, uint32_t allow, uint64_t handled)
{
    const char *runtime = getenv("SHOAL_ONNXRUNTIME_DIR"); /* examples/onnx; from the operator */
    int failed = 0;
    for (size_t i = 0; i < ARRAY_COUNT(places) && failed == 0; i++)
        if (places[i].needs == 0 || (places[i].needs & allow))
            failed = place_allow(ruleset, places[i].path);
    if (failed == 0)
        failed = folder_allow(ruleset, start->modelet_path);
    if (failed == 0 && start->script[0] != '\0')
        failed = script_allow(ruleset, start);
    if (failed == 0 && start->directory[0] != '\0')
        failed = place_allow(ruleset, start->directory);
    if (failed == 0 && runtime != NULL && runtime[0] != '\0')
        failed = place_allow(ruleset, runtime);
    if (failed == 0 && start->model_path[0] != '\0')
        failed = place_allow(ruleset, start->model_path);
    if (failed == 0 && start->models_root[0] != '\0')
        failed = place_allow(ruleset, start->models_root);
    if (failed == 0 && start->models_cache[0] != '\0')
        failed = place_allow(ruleset, start->models_cache);
    if (failed == 0 && (allow & SANDBOX_ALLOW_CORE))
        failed = core_allow(ruleset, handled);
    return failed;
}

/* ---- putting it in force ---- */

static int
ruleset_enforce(const struct landlock_rights *rights, const struct handshake_start *start,
                uint32_t allow)
{
    const struct ruleset attributes = {rights->files, rights->tcp, rights->scopes};
    int ruleset = (int)syscall(SYS_landlock_create_ruleset, &attributes, sizeof(attributes), 0);
    if (ruleset < 0)
        return errno;
    int failed = rights->files != 0 ? places_allow(ruleset, start, allow, rights->files) : 0;
    if (failed == 0 && syscall(SYS_landlock_restrict_self, ruleset, 0) != 0)
        failed = errno;
    close(ruleset);
    return failed;
}

uint32_t
landlock_enter(const struct handshake_start *start, uint32_t allow, int *missing_errno)
{
    int abi = (int)syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
    if (abi < 0) {
        *missing_errno = errno;
        return 0;
    }
    *missing_errno = EOPNOTSUPP; /* for what this version lacks */
    struct landlock_rights rights = landlock_rights_for(abi, allow);
    uint32_t parts = landlock_parts(&rights);
    if (parts == 0)
        return 0;
    int failed = ruleset_enforce(&rights, start, allow);
    if (failed == 0)
        return parts;
    *missing_errno = failed;
    return 0;
}
