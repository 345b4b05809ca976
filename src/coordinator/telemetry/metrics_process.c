/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Figures of this process, from /proc.
 */
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "coordinator/telemetry/metrics.h"

/* Fields of /proc/self/stat, counted from 0 after the name, which may hold anything but a last ')'.
 */
enum { FIELD_USER = 11, FIELD_SYSTEM = 12, FIELD_VIRTUAL = 20, FIELD_RESIDENT = 21, FIELDS };

static bool
read_stat(unsigned long long fields[FIELDS])
{
    char text[1024];
    FILE *file = fopen("/proc/self/stat", "re");
    if (file == NULL)
        return false;
    size_t bytes = fread(text, 1, sizeof(text) - 1, file);
    fclose(file);
    text[bytes] = '\0';
    char *rest = strrchr(text, ')');
    if (rest == NULL)
        return false;
    char *place = NULL;
    char *word = strtok_r(rest + 1, " ", &place);
    for (int i = 0; i < FIELDS; i++, word = strtok_r(NULL, " ", &place)) {
        if (word == NULL)
            return false;
        fields[i] = 0;
        (void)sscanf(word, "%llu", &fields[i]); /* the state is a letter, some are negative */
    }
    return true;
}

static uint64_t
count_files(void)
{
    DIR *directory = opendir("/proc/self/fd");
    if (directory == NULL)
        return 0;
    uint64_t count = 0;
    while (readdir(directory) != NULL)
        count++;
    closedir(directory);
    return count - 3; /* ., .., and this one */
}

void
process_figures_read(struct process_figures *figures)
{
    *figures = (struct process_figures){.open_files = count_files()};
    unsigned long long fields[FIELDS];
    if (read_stat(fields)) {
        double ticks = (double)sysconf(_SC_CLK_TCK);
        figures->cpu_seconds = (double)(fields[FIELD_USER] + fields[FIELD_SYSTEM]) / ticks;
        figures->virtual_bytes = fields[FIELD_VIRTUAL];
        figures->resident_bytes = fields[FIELD_RESIDENT] * (uint64_t)sysconf(_SC_PAGESIZE);
    }
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0)
        figures->files_max = files.rlim_cur;
}
