/* SPDX-License-Identifier: Apache-2.0 */
#include "../test.h"
#include "model_rig.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_ROOM = 4096 };

static char folder[] = "/tmp/shoal-test-XXXXXX";

int
rig_setup(void **state)
{
    (void)state;
    return mkdtemp(folder) != NULL ? 0 : -1;
}

int
rig_teardown(void **state)
{
    (void)state;
    DIR *directory = opendir(folder);
    const struct dirent *entry;
    while (directory != NULL && (entry = readdir(directory)) != NULL)
        remove(rig_path(entry->d_name)); /* "." and ".." are not empty */
    if (directory != NULL)
        closedir(directory);
    return rmdir(folder);
}

const char *
rig_path(const char *name)
{
    static char path[PATH_ROOM];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

const char *
rig_write(const char *name, const void *bytes, size_t size)
{
    const char *path = rig_path(name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
    return path;
}

int
rig_try(const char *modelet, uint32_t param_count, const struct shoal_param *params,
        struct shoal_harness **harness, struct shoal_error *error)
{
    char path[PATH_ROOM];
    snprintf(path, sizeof path, "%s/lib/shoal/lib%s.so", getenv("SHOAL_BUILD_DIR"), modelet);
    struct shoal_harness_options options = {
        .path = path,
        .folder = folder,
        .batch_size = SHOAL_HARNESS_BATCH_MAX,
        .params = params,
        .param_count = param_count,
    };
    return shoal_harness_open(&options, harness, error);
}

struct shoal_harness *
rig_open(const char *modelet, uint32_t param_count, const struct shoal_param *params)
{
    struct shoal_harness *harness;
    struct shoal_error error;
    if (rig_try(modelet, param_count, params, &harness, &error) != SHOAL_OK)
        fail_msg("%s: %s", modelet, error.text);
    return harness;
}

static void
says(const char *text, const char *words)
{
    if (strstr(text, words) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", text, words);
}

void
rig_refuses(const char *modelet, const char *path, const char *words)
{
    char kept[PATH_ROOM];
    snprintf(kept, sizeof kept, "%s", path);
    const struct shoal_param params[] = {{"model", kept}};
    struct shoal_harness *harness;
    struct shoal_error error;
    assert_int_not_equal(rig_try(modelet, 1, params, &harness, &error), SHOAL_OK);
    says(error.text, words);
    says(error.text, kept);
    harness = rig_open(modelet, 0, NULL);
    assert_int_not_equal(shoal_harness_load(harness, kept, &error), SHOAL_OK);
    says(error.text, words);
    says(error.text, kept);
    shoal_harness_close(harness);
}

void
rig_refuses_what_is_no_file(const char *modelet)
{
    rig_refuses(modelet, rig_path("nothing"), "No such file or directory");
    rig_refuses(modelet, rig_write("empty", "", 0), "is empty");
    rig_refuses(modelet, folder, "is a folder with ");
    assert_int_equal(mkfifo(rig_path("fifo"), 0600), 0);
    rig_refuses(modelet, rig_path("fifo"), "is not a regular file");
    remove(rig_path("fifo"));
    rig_refuses(modelet, "/dev/zero", "is not a regular file");
}

void
rig_failed(const struct shoal_harness_item *item, int32_t status, const char *words)
{
    assert_int_equal(item->item.status, status);
    says(item->error.text, words);
    assert_int_equal(item->output_count, 0);
}

const float *
rig_floats(const struct shoal_harness_item *item, const char *name, size_t count)
{
    if (item->item.status != SHOAL_OK)
        fail_msg("status %d: %s", item->item.status, item->error.text);
    const struct shoal_tensor *output = shoal_harness_output(item, name);
    assert_non_null(output);
    assert_int_equal(output->datatype, SHOAL_FP32);
    assert_int_equal(output->bytes, count * sizeof(float));
    return output->data;
}
