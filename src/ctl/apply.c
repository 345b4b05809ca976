/* SPDX-License-Identifier: Apache-2.0 */
/* shoalctl apply, diff and delete. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/json.h"
#include "ctl/manifests.h"

/* ---- apply ---- */

static const struct ctl_option apply_options[] = {
    MANIFESTS_FILE,
    {"dry-run", NULL,
     "check the manifests, and print the model that each service and\n"
     "predictor registers; no node is asked",
     .form = CTL_FLAG, .at = offsetof(struct manifests_settings, dry_run)},
    MANIFESTS_CALL,
};

static struct manifest_file *files;

static void
print_valid(const struct manifests_settings *settings, const struct manifest *manifest)
{
    const struct manifest_model *model = &manifest->model;
    manifests_notify(settings, manifest->kind, manifest->name, "is valid (dry run)");
    if (model->id != NULL && settings->call.output == CTL_TEXT)
        printf("  model %s\n  type  %s\n  path  %s\n  key   %s\n", model->id, model->type,
               model->path, model->key);
}

static const manifests_object *
find(const struct manifests_list *list, const struct manifest *manifest)
{
    size_t position = 0;
    return manifests_next(list, &position, manifest_kind_name(manifest->kind), manifest->name);
}

/* The version that was listed makes a change in between an error. */
static enum ctl_exit
apply_one(struct manifests_settings *settings, struct client *client,
          const struct manifests_list *list, const struct manifest *manifest)
{
    struct error error = ERROR_NONE;
    const manifests_object *there = find(list, manifest);
    Shoal__Manifests__PutRequest request = SHOAL__MANIFESTS__PUT_REQUEST__INIT;
    Shoal__Manifests__Done *done;
    request.manifest = manifest->json;
    request.version = there != NULL && !there->deleted ? there->version : 0;
    if (manifests_ask(settings, client, &request.base, &done, &error) != STATUS_OK) {
        error_prefix(&error, "%s/%s: %s", manifest_kind_resource(manifest->kind), manifest->name,
                     status_name(error.status));
        return ctl_fail(CTL_NEGATIVE, settings->call.output, &error);
    }
    manifests_notify(settings, manifest->kind, manifest->name, done->done);
    shoal__manifests__done__free_unpacked(done, NULL);
    return CTL_OK;
}

static enum ctl_exit
apply_all(struct manifests_settings *settings, struct client *client, struct error *error)
{
    struct manifests_list list;
    enum ctl_exit code = CTL_OK;
    if (manifests_list_read(settings, client, &list, error) != STATUS_OK)
        code = CTL_NEGATIVE;
    for (size_t i = 0; code != CTL_NEGATIVE && i < settings->file_count; i++)
        for (uint32_t k = 0; k < files[i].count; k++)
            if (apply_one(settings, client, &list, &files[i].items[k]) != CTL_OK)
                code = CTL_NEGATIVE;
    manifests_list_free(&list);
    return code;
}

static int
apply_run(int argc, char **argv)
{
    struct manifests_settings settings = {.command = &apply_command};
    int code = manifests_settings_read(&settings, argc, argv);
    if (code >= 0)
        return code;
    code = manifests_files_read(&settings, &files);
    if (code == CTL_OK && !settings.dry_run)
        code = manifests_call(&settings, apply_all);
    else if (code == CTL_OK)
        for (size_t i = 0; i < settings.file_count; i++)
            for (uint32_t k = 0; k < files[i].count; k++)
                print_valid(&settings, &files[i].items[k]);
    manifests_files_free(&settings, files);
    return code;
}

const struct ctl_command apply_command = {
    .name = "apply",
    .arguments = "[options] -f FILE",
    .summary = "Create and change objects of ModelMesh Serving by manifests",
    .about = "ServingRuntime, ClusterServingRuntime, InferenceService, Predictor, Secret,\n"
             "ConfigMap and the kinds of a gateway. Every mistake is printed with its file, line\n"
             "and field, and nothing is applied then. An object that was changed meanwhile is\n"
             "left alone: apply it again.\n",
    .exits = "  0  all manifests are applied, or valid\n"
             "  1  there are mistakes, or an object could not be changed\n",
    .example = "  shoalctl apply -f isvc.yaml\n",
    CTL_OPTIONS(apply_options),
    .letters = "f",
    .run = apply_run,
};

/* ---- diff ---- */

static const struct ctl_option diff_options[] = {MANIFESTS_FILE, MANIFESTS_CALL};

/* One side of a comparison. */
struct diff_side {
    const struct manifest *manifest;
    enum ctl_output output;
    const char *mark; /* "-", "+" */
};

static void
print_field(const struct diff_side *side, const char *path, const json_t *value)
{
    char *text = json_dumps(value, JSON_ENCODE_ANY);
    if (side->output == CTL_TEXT) {
        printf("%s %s: %s\n", side->mark, path, text);
    } else {
        struct bytes line = {0};
        struct json json = json_begin(&line, JSON_STYLE_SPACED);
        json_open(&json, '{');
        json_field_string(&json, "kind", manifest_kind_name(side->manifest->kind));
        json_field_string(&json, "name", side->manifest->name);
        json_field_string(&json, "mark", side->mark);
        json_field_string(&json, "field", path);
        json_name(&json, "value");
        json_put_raw(&json, text, strlen(text));
        json_close(&json, '}');
        ctl_print_line(&line, stdout);
    }
    free(text);
}

/* Prints the fields of `one` that `other` has not, or has with another value. Returns their
 * number. */
static size_t
print_fields(const struct diff_side *side, json_t *one, json_t *other, const char *path)
{
    size_t count = 0;
    char below[512];
    const char *name;
    json_t *value;
    if (json_is_object(one)) {
        json_object_foreach(one, name, value)
        {
            snprintf(below, sizeof(below), "%s%s%s", path, path[0] != '\0' ? "." : "", name);
            count += print_fields(side, value, json_object_get(other, name), below);
        }
        return count;
    }
    if (json_is_array(one)) {
        for (size_t i = 0; i < json_array_size(one); i++) {
            snprintf(below, sizeof(below), "%s[%zu]", path, i);
            count += print_fields(side, json_array_get(one, i), json_array_get(other, i), below);
        }
        return count;
    }
    if (other != NULL && json_equal(one, other))
        return 0;
    print_field(side, path, one);
    return 1;
}

static size_t
diff_one(const struct manifests_settings *settings, const struct manifests_list *list,
         const struct manifest *manifest)
{
    enum ctl_output output = settings->call.output;
    const struct diff_side was = {manifest, output, "-"};
    const struct diff_side is = {manifest, output, "+"};
    const manifests_object *there = find(list, manifest);
    char *hidden = manifest->kind == MANIFEST_SECRET ? manifest_hide(manifest) : NULL;
    json_t *now = json_loads(there != NULL && !there->deleted ? there->manifest : "{}", 0, NULL);
    json_t *then = json_loads(hidden != NULL ? hidden : manifest->json, 0, NULL);
    if (output == CTL_TEXT && !json_equal(now, then))
        printf("%s/%s\n", manifest_kind_resource(manifest->kind), manifest->name);
    size_t count = print_fields(&was, now, then, "") + print_fields(&is, then, now, "");
    json_decref(now);
    json_decref(then);
    free(hidden);
    return count;
}

static enum ctl_exit
diff_all(struct manifests_settings *settings, struct client *client, struct error *error)
{
    struct manifests_list list;
    size_t count = 0;
    if (manifests_list_read(settings, client, &list, error) == STATUS_OK)
        for (size_t i = 0; i < settings->file_count; i++)
            for (uint32_t k = 0; k < files[i].count; k++)
                count += diff_one(settings, &list, &files[i].items[k]);
    manifests_list_free(&list);
    return error->status != STATUS_OK || count > 0 ? CTL_NEGATIVE : CTL_OK;
}

static int
diff_run(int argc, char **argv)
{
    struct manifests_settings settings = {.command = &diff_command};
    int code = manifests_settings_read(&settings, argc, argv);
    if (code >= 0)
        return code;
    code = manifests_files_read(&settings, &files);
    if (code == CTL_OK)
        code = manifests_call(&settings, diff_all);
    manifests_files_free(&settings, files);
    return code;
}

const struct ctl_command diff_command = {
    .name = "diff",
    .arguments = "[options] -f FILE",
    .summary = "Show what apply would change",
    .about = "A secret's values are not compared.\n",
    .exits = "  0  nothing\n"
             "  1  there are differences, or mistakes\n",
    .example = "  shoalctl diff -f isvc.yaml\n",
    CTL_OPTIONS(diff_options),
    .letters = "f",
    .run = diff_run,
};

/* ---- delete ---- */

static const struct ctl_option delete_options[] = {MANIFESTS_FILE, MANIFESTS_CALL};

static enum ctl_exit
delete_one(struct manifests_settings *settings, struct client *client, enum manifest_kind kind,
           const char *name)
{
    struct error error = ERROR_NONE;
    Shoal__Manifests__DeleteRequest request = SHOAL__MANIFESTS__DELETE_REQUEST__INIT;
    Shoal__Manifests__Done *done;
    request.kind = (char *)(uintptr_t)manifest_kind_name(kind);
    request.name = (char *)(uintptr_t)name;
    if (manifests_ask(settings, client, &request.base, &done, &error) != STATUS_OK)
        return ctl_fail(error.status == STATUS_DEADLINE_EXCEEDED ? CTL_LATE : CTL_NEGATIVE,
                        CTL_TEXT, &error);
    manifests_notify(settings, kind, name, done->done);
    shoal__manifests__done__free_unpacked(done, NULL);
    return CTL_OK;
}

static enum ctl_exit
delete_all(struct manifests_settings *settings, struct client *client, struct error *error)
{
    enum manifest_kind kind;
    enum ctl_exit code = CTL_OK;
    if (settings->file_count == 0) {
        CHECK(manifests_kind(settings, &kind, error) == STATUS_OK);
        return delete_one(settings, client, kind, settings->words[1]);
    }
    for (size_t i = 0; i < settings->file_count; i++)
        for (uint32_t k = 0; k < files[i].count; k++)
            if (delete_one(settings, client, files[i].items[k].kind, files[i].items[k].name) !=
                CTL_OK)
                code = CTL_NEGATIVE;
    return code;
}

static int
delete_run(int argc, char **argv)
{
    struct manifests_settings settings = {.command = &delete_command};
    struct error error = ERROR_NONE;
    enum manifest_kind kind;
    int code = manifests_settings_read(&settings, argc, argv);
    if (code >= 0)
        return code;
    if (settings.file_count > 0) {
        code = manifests_files_read(&settings, &files);
    } else if (manifests_kind(&settings, &kind, &error) != STATUS_OK || settings.word_count != 2) {
        if (error.status == STATUS_OK)
            error_set(&error, STATUS_INVALID_ARGUMENT, "expected a name as well, or -f FILE");
        return ctl_fail(CTL_USAGE, settings.call.output, &error);
    }
    if (code < 0 || code == CTL_OK)
        code = manifests_call(&settings, delete_all);
    if (settings.file_count > 0)
        manifests_files_free(&settings, files);
    return code;
}

const struct ctl_command delete_command = {
    .name = "delete",
    .arguments = "[options] KIND NAME | -f FILE",
    .summary = "Delete objects of ModelMesh Serving",
    .about = "A service's vmodel and its models go with it; wait --for=delete waits for that.\n",
    .example = "  shoalctl delete isvc fraud\n",
    CTL_OPTIONS(delete_options),
    .letters = "f",
    .run = delete_run,
};
