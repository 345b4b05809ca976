/* SPDX-License-Identifier: Apache-2.0 */
#include "quiet.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct quiet
quiet_begin(void)
{
    struct quiet quiet = {-1, memfd_create("stderr", MFD_CLOEXEC)};
    if (quiet.memory < 0)
        return quiet;
    fflush(stderr);
    quiet.kept = dup(STDERR_FILENO);
    if (quiet.kept < 0 || dup2(quiet.memory, STDERR_FILENO) < 0) {
        if (quiet.kept >= 0)
            close(quiet.kept);
        close(quiet.memory);
        quiet.kept = -1;
    }
    return quiet;
}

void
quiet_end(struct quiet *quiet, const char *words)
{
    if (quiet->kept < 0)
        return;
    fflush(stderr);
    dup2(quiet->kept, STDERR_FILENO);
    close(quiet->kept);
    FILE *lines = fdopen(quiet->memory, "r");
    if (lines == NULL) {
        close(quiet->memory);
        return;
    }
    rewind(lines);
    char line[1024]; /* each piece of a longer line counts as a line */
    while (fgets(line, sizeof line, lines) != NULL) {
        if (line[0] != '\n' && strncmp(line, words, strlen(words)) != 0)
            fputs(line, stderr);
    }
    fclose(lines);
}
