/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/manifests.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/json.h"

/* ---- options ---- */

enum status
manifests_take_file(void *context, const char *value, struct error *error)
{
    struct manifests_settings *settings = context;
    if (settings->file_count == MANIFESTS_FILES_MAX)
        return error_set(error, STATUS_INVALID_ARGUMENT, "more than %d files", MANIFESTS_FILES_MAX);
    settings->files[settings->file_count++] = value;
    return STATUS_OK;
}

enum status
manifests_take_output(void *context, const char *value, struct error *error)
{
    struct manifests_settings *settings = context;
    settings->as_json = true;
    return strcmp(value, "json") == 0
               ? STATUS_OK
               : error_set(error, STATUS_INVALID_ARGUMENT, "only json, not \"%.32s\"", value);
}

/* "KIND/NAME" is a kind and a name. */
static enum status
on_argument(void *context, const char *value, struct error *error)
{
    struct manifests_settings *settings = context;
    const char *slash = strchr(value, '/');
    size_t kind_bytes = slash != NULL ? (size_t)(slash - value) : 0;
    if (settings->word_count + (slash != NULL) >= MANIFESTS_WORDS_MAX || value[0] == '\0')
        return error_set(error, STATUS_INVALID_ARGUMENT, "expected KIND and NAME, or KIND/NAME");
    if (slash == NULL) {
        settings->words[settings->word_count++] = value;
        return STATUS_OK;
    }
    if (settings->word_count > 0 || kind_bytes >= sizeof(settings->kind_word))
        return error_set(error, STATUS_INVALID_ARGUMENT, "expected KIND/NAME");
    memcpy(settings->kind_word, value, kind_bytes);
    settings->words[0] = settings->kind_word;
    settings->words[1] = slash + 1;
    settings->word_count = 2;
    return STATUS_OK;
}

int
manifests_settings_read(struct manifests_settings *settings, int argc, char **argv)
{
    struct error error = ERROR_NONE;
    settings->call.timeout_ms = MESH_CALL_TIMEOUT_MS;
    int code = ctl_options_read(settings->command, argc, argv, on_argument, settings);
    if (code >= 0)
        return code;
    settings->as_json |= settings->call.output == CTL_JSON;
    settings->deadline_ns = clock_now_ns() + settings->call.timeout_ms * NS_PER_MS;
    return mesh_call_check(&settings->call, &error) == STATUS_OK
               ? -1
               : ctl_fail(CTL_USAGE, settings->call.output, &error);
}

enum status
manifests_kind(const struct manifests_settings *settings, enum manifest_kind *kind,
               struct error *error)
{
    if (settings->word_count == 0)
        return error_set(error, STATUS_INVALID_ARGUMENT, "expected a kind, such as isvc");
    return manifest_kind_find(settings->words[0], kind)
               ? STATUS_OK
               : error_set(error, STATUS_INVALID_ARGUMENT,
                           "\"%.64s\" is no kind: isvc, predictor, servingruntime, "
                           "clusterservingruntime, secret, configmap, or one of the gateway such "
                           "as llmroute",
                           settings->words[0]);
}

void
manifests_notify(const struct manifests_settings *settings, enum manifest_kind kind,
                 const char *name, const char *done)
{
    char object[MANIFEST_NAME_BYTES_MAX + 64];
    struct bytes line = {0};
    struct json json = json_begin(&line, JSON_STYLE_SPACED);
    snprintf(object, sizeof(object), "%s/%s", manifest_kind_resource(kind), name);
    if (settings->call.output == CTL_TEXT) {
        printf("%s %s\n", object, done);
        return;
    }
    json_open(&json, '{');
    json_field_string(&json, "object", object);
    json_field_string(&json, "done", done);
    json_close(&json, '}');
    ctl_print_line(&line, stdout);
}

/* ---- files ---- */

static enum status
read_text(const char *path, char **text, size_t *bytes, struct error *error)
{
    bool is_stdin = strcmp(path, "-") == 0;
    FILE *in = is_stdin ? stdin : fopen(path, "re");
    if (in == NULL)
        return error_set_errno(error, "%s", path);
    *text = ctl_allocate(MANIFEST_FILE_BYTES_MAX + 1, 1);
    *bytes = fread(*text, 1, MANIFEST_FILE_BYTES_MAX + 1, in);
    bool failed = ferror(in) != 0;
    if (!is_stdin)
        fclose(in);
    if (!failed)
        return STATUS_OK;
    free(*text);
    *text = NULL;
    return error_set(error, STATUS_UNAVAILABLE, "%s: cannot be read", path);
}

static int
read_file(const struct manifests_settings *settings, const char *path, struct manifest_file *file)
{
    struct error error = ERROR_NONE;
    char *text = NULL;
    size_t bytes = 0;
    int code = CTL_OK;
    if (read_text(path, &text, &bytes, &error) != STATUS_OK) {
        code = ctl_fail(CTL_UNREACHABLE, settings->call.output, &error);
    } else if (manifest_read(strcmp(path, "-") == 0 ? "stdin" : path, text, bytes, file, &error) !=
               STATUS_OK) {
        for (uint32_t i = 0; i < file->mistake_count; i++)
            fprintf(stderr, "%s\n", file->mistakes[i]);
        code = ctl_fail(CTL_NEGATIVE, settings->call.output, &error);
    }
    free(text);
    return code;
}

int
manifests_files_read(const struct manifests_settings *settings, struct manifest_file **files)
{
    struct error error = ERROR_NONE;
    int code = CTL_OK;
    *files = ctl_allocate(settings->file_count + 1, sizeof(**files));
    if (settings->file_count == 0) {
        error_set(&error, STATUS_INVALID_ARGUMENT, "expected -f FILE");
        code = ctl_fail(CTL_USAGE, settings->call.output, &error);
    }
    for (size_t i = 0; i < settings->file_count; i++) {
        int one = read_file(settings, settings->files[i], &(*files)[i]);
        code = one > code ? one : code;
    }
    return code;
}

void
manifests_files_free(const struct manifests_settings *settings, struct manifest_file *files)
{
    for (size_t i = 0; i < settings->file_count; i++)
        manifest_file_free(&files[i]);
    free(files);
}

/* ---- calls ---- */

int
manifests_call(struct manifests_settings *settings,
               enum ctl_exit (*act)(struct manifests_settings *settings, struct client *client,
                                    struct error *error))
{
    struct client client;
    struct error error = ERROR_NONE;
    if (mesh_call_find(&settings->call, &error) != STATUS_OK)
        return ctl_fail(CTL_USAGE, settings->call.output, &error);
    rpc_init();
    enum ctl_exit code = CTL_UNREACHABLE;
    if (client_open(&client, settings->call.target, &settings->call.tls, &error) == STATUS_OK &&
        mesh_call_reach(&settings->call, &client, &error) == STATUS_OK)
        code = act(settings, &client, &error);
    if (error.status == STATUS_DEADLINE_EXCEEDED)
        code = CTL_LATE;
    if (error.status != STATUS_OK)
        ctl_fail(code, settings->call.output, &error);
    client_close(&client);
    rpc_shutdown();
    return code;
}

static void *
call(const struct manifests_settings *settings, struct client *client,
     const ProtobufCMessage *request, const ProtobufCMessageDescriptor *answer, struct error *error)
{
    const char *method = request->descriptor == &shoal__manifests__put_request__descriptor ? "put"
                         : request->descriptor == &shoal__manifests__list_request__descriptor
                             ? "list"
                             : "delete";
    char path[64];
    snprintf(path, sizeof(path), "/shoal.manifests.Manifests/%s", method);
    return client_ask(client, path, request, answer, settings->deadline_ns, error);
}

enum status
manifests_ask(struct manifests_settings *settings, struct client *client,
              const ProtobufCMessage *request, Shoal__Manifests__Done **done, struct error *error)
{
    *done = call(settings, client, request, &shoal__manifests__done__descriptor, error);
    return error->status;
}

enum status
manifests_list_read(struct manifests_settings *settings, struct client *client,
                    struct manifests_list *list, struct error *error)
{
    Shoal__Manifests__ListRequest request = SHOAL__MANIFESTS__LIST_REQUEST__INIT;
    list->page_count = 0;
    for (;;) {
        Shoal__Manifests__ListResponse *page = call(
            settings, client, &request.base, &shoal__manifests__list_response__descriptor, error);
        if (page == NULL)
            return error->status;
        list->pages[list->page_count++] = page;
        if (page->next[0] == '\0')
            return STATUS_OK;
        if (list->page_count == ARRAY_COUNT(list->pages))
            return error_set(error, STATUS_RESOURCE_EXHAUSTED, "too many objects to list");
        request.after = page->next;
    }
}

void
manifests_list_free(struct manifests_list *list)
{
    for (size_t i = 0; i < list->page_count; i++)
        shoal__manifests__list_response__free_unpacked(list->pages[i], NULL);
    list->page_count = 0;
}

const manifests_object *
manifests_next(const struct manifests_list *list, size_t *position, const char *kind,
               const char *name)
{
    size_t before = 0;
    for (size_t i = 0; i < list->page_count; i++) {
        const Shoal__Manifests__ListResponse *page = list->pages[i];
        for (size_t k = *position > before ? *position - before : 0; k < page->n_objects; k++) {
            const manifests_object *object = page->objects[k];
            *position = before + k + 1;
            if ((kind == NULL || strcmp(object->kind, kind) == 0) &&
                (name == NULL || strcmp(object->name, name) == 0))
                return object;
        }
        before += page->n_objects;
    }
    return NULL;
}
