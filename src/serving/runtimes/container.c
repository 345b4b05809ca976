/* SPDX-License-Identifier: Apache-2.0 */
/* One container of a manifest as a process of this host. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "serving/manifest/check.h"
#include "serving/runtimes/amount.h"
#include "serving/runtimes/expand.h"
#include "serving/runtimes/plan.h"

/* A variable is looked for among all. */
enum { VARIABLES_MAX = 256 };

struct making {
    const struct manifest *manifest;
    const struct tree_node *container;
    const struct runtime_host *host;
    struct bytes *problems;
    struct variables variables; /* of the manifest's env */
    char place[64];             /* where KServe has the repository; "": no adapter */
    size_t *room;               /* bytes left for texts */
    bool is_full;               /* reported */
};

static const char *
name_of(const struct tree_node *container)
{
    return manifest_text(container, "name");
}

static const char *
or_empty(const char *text)
{
    return text != NULL ? text : "";
}

static void
report_full(struct making *making)
{
    if (!making->is_full)
        runtime_problem(making->problems,
                        "container \"%.60s\": with their variables, args and env of this runtime "
                        "have more than 1 MiB: write fewer references to variables",
                        name_of(making->container));
    making->is_full = true;
}

/* The node's folder in place of KServe's. To be freed. */
static char *
place_repository(const struct making *making, const char *text)
{
    struct bytes to = {0};
    const char *at = making->place[0] != '\0' ? strstr(text, making->place) : NULL;
    for (; at != NULL; at = strstr(text, making->place)) {
        bytes_put(&to, text, (size_t)(at - text));
        bytes_put_text(&to, making->host->repository);
        text = at + strlen(making->place);
    }
    bytes_put_text(&to, text);
    bytes_put_char(&to, '\0');
    CHECK(!to.failed);
    return bytes_take(&to, &(size_t){0});
}

/* Expands a text with its variables' values and the node's folder for models; "" if there is no
 * room, which is reported. To be freed. */
static char *
expand_text(struct making *making, const char *text)
{
    char *placed = place_repository(making, text);
    char *value = expand(placed, &making->variables, *making->room);
    free(placed);
    if (value == NULL) {
        report_full(making);
        return must_copy("");
    }
    *making->room -= strlen(value);
    return value;
}

/* ---- values of variables ---- */

/* False: there is none, which is reported unless the variable is optional. */
static bool
value_of_key(struct making *making, const char *variable, const struct tree_node *from,
             enum manifest_kind kind, struct bytes *value)
{
    const char *name = manifest_text(from, "name");
    const char *key = manifest_text(from, "key");
    const char *optional = manifest_text(from, "optional");
    const char *word = manifest_kind_name(kind);
    enum runtime_value found = RUNTIME_VALUE_NO_OBJECT;
    if (name != NULL && name[0] != '\0')
        found = making->host->value(making->host->context, kind, name, key, value);
    if (found == RUNTIME_VALUE_FOUND || (optional != NULL && strcmp(optional, "true") == 0))
        return found == RUNTIME_VALUE_FOUND;
    if (name == NULL || name[0] == '\0')
        runtime_problem(making->problems,
                        "container \"%.60s\": env \"%.60s\": no %s is named: set the name of the "
                        "one with the key \"%.60s\"",
                        name_of(making->container), variable, word, key);
    else
        runtime_problem(making->problems,
                        "container \"%.60s\": env \"%.60s\": %s \"%.100s\" %s "
                        "\"%.60s\": apply one that has it",
                        name_of(making->container), variable, word, name,
                        found == RUNTIME_VALUE_NO_KEY ? "has no key" : "does not exist; its key is",
                        key);
    return false;
}

/* The value of metadata.labels['KEY'] or metadata.annotations['KEY']; NULL: none. */
static const char *
member(const struct tree_node *metadata, const char *path, const char *map)
{
    char key[512];
    size_t bytes = strlen(map);
    if (strncmp(path, map, bytes) != 0 || strncmp(path + bytes, "['", 2) != 0)
        return NULL;
    snprintf(key, sizeof(key), "%s", path + bytes + 2);
    key[strcspn(key, "'")] = '\0';
    return or_empty(manifest_text(manifest_find(metadata, strchr(map, '.') + 1), key));
}

static const char *
value_of_field(struct making *making, const char *path)
{
    const struct tree_node *metadata = manifest_find(making->manifest->document, "metadata");
    const struct runtime_host *host = making->host;
    const char *space = manifest_text(metadata, "namespace");
    const char *const fields[][2] = {
        {"metadata.name", host->instance},
        {"metadata.uid", host->instance},
        {"metadata.namespace", space != NULL ? space : "default"},
        {"spec.nodeName", host->instance},
        {"spec.serviceAccountName", ""},
        {"status.podIP", host->address},
        {"status.podIPs", host->address},
        {"status.hostIP", host->address},
    };
    for (size_t i = 0; i < ARRAY_COUNT(fields); i++)
        if (strcmp(fields[i][0], path) == 0)
            return fields[i][1];
    const char *found = member(metadata, path, "metadata.labels");
    return found != NULL ? found : member(metadata, path, "metadata.annotations");
}

/* Returns the resource in thousandths. A request that is not given is the limit, a limit that is
 * not given the host's whole. */
static uint64_t
resource(const struct runtime_host *host, const struct tree_node *container, const char *list,
         const char *name)
{
    const struct tree_node *resources = manifest_find(container, "resources");
    const char *limit = manifest_text(manifest_find(resources, "limits"), name);
    const char *amount = manifest_text(manifest_find(resources, list), name);
    if (amount == NULL && strcmp(list, "requests") == 0)
        amount = limit != NULL ? limit : "0";
    if (amount != NULL)
        return amount_milli(amount);
    if (strcmp(name, "memory") == 0)
        return host->memory_bytes * 1000;
    return strcmp(name, "cpu") == 0 ? host->cpu_milli : 0;
}

static const struct tree_node *
find_container(const struct manifest *manifest, const char *name)
{
    const struct tree_node *list =
        manifest_find(manifest_find(manifest->document, "spec"), "containers");
    const struct tree_node *one = list->first;
    while (one != NULL && strcmp(name_of(one), name) != 0)
        one = one->next;
    return one;
}

const struct tree_node *
runtime_find_container(const struct manifest *manifest, const char *type, const char *suffix)
{
    const struct tree_node *spec = manifest_find(manifest->document, "spec");
    size_t bytes = strlen(type);
    for (const struct tree_node *one = manifest_find(spec, "containers")->first; one != NULL;
         one = one->next) {
        const char *name = manifest_text(one, "name");
        if (strncmp(name, type, bytes) == 0 && strcmp(name + bytes, suffix) == 0)
            return one;
    }
    return NULL;
}

bool
runtime_is_adapted(const struct manifest *manifest)
{
    const char *type = manifest->adapter.server_type;
    return type != NULL && runtime_find_container(manifest, type, "-adapter") == NULL;
}

uint64_t
runtime_memory_requested(const struct tree_node *container)
{
    return amount_divide(resource(NULL, container, "requests", "memory"), 1000);
}

static bool
value_of_resource(struct making *making, const char *variable, const struct tree_node *from,
                  struct bytes *value)
{
    static const char *const known[] = {"limits.cpu",
                                        "limits.memory",
                                        "requests.cpu",
                                        "requests.memory",
                                        "limits.ephemeral-storage",
                                        "requests.ephemeral-storage"};
    const char *path = manifest_text(from, "resource");
    const char *divisor = manifest_text(from, "divisor");
    const char *named = manifest_text(from, "containerName");
    const struct tree_node *container =
        named != NULL ? find_container(making->manifest, named) : making->container;
    bool is_known = false;
    char text[32];
    for (size_t i = 0; i < ARRAY_COUNT(known); i++)
        is_known = is_known || strcmp(known[i], path) == 0;
    if (container == NULL || !is_known) {
        runtime_problem(making->problems,
                        "container \"%.60s\": env \"%.60s\": there is no %s "
                        "\"%.60s\"",
                        name_of(making->container), variable,
                        container == NULL ? "container" : "resource",
                        container == NULL ? named : path);
        return false;
    }
    bool is_limit = strncmp(path, "limits.", strlen("limits.")) == 0;
    uint64_t milli =
        resource(making->host, container, is_limit ? "limits" : "requests", strchr(path, '.') + 1);
    snprintf(text, sizeof(text), "%" PRIu64,
             amount_divide(milli, divisor != NULL && strcmp(divisor, "0") != 0
                                      ? amount_milli(divisor)
                                      : 1000));
    bytes_put_text(value, text);
    return true;
}

static bool
value_from(struct making *making, const char *variable, const struct tree_node *source,
           struct bytes *value)
{
    const struct tree_node *secret = manifest_find(source, "secretKeyRef");
    const struct tree_node *map = manifest_find(source, "configMapKeyRef");
    const struct tree_node *field = manifest_find(source, "fieldRef");
    if (secret != NULL)
        return value_of_key(making, variable, secret, MANIFEST_SECRET, value);
    if (map != NULL)
        return value_of_key(making, variable, map, MANIFEST_CONFIG_MAP, value);
    if (field == NULL)
        return value_of_resource(making, variable, manifest_find(source, "resourceFieldRef"),
                                 value);
    const char *path = manifest_text(field, "fieldPath");
    const char *found = value_of_field(making, path);
    if (found == NULL)
        runtime_problem(making->problems,
                        "container \"%.60s\": env \"%.60s\": there is no field "
                        "%.100s here",
                        name_of(making->container), variable, path);
    else
        bytes_put_text(value, found);
    return found != NULL;
}

/* ---- variables ---- */

/* Recognizes variables by which the dynamic linker, a library or an interpreter runs other code
 * than the program's. A star stands for any end. */
static bool
is_dangerous(const char *name)
{
    static const char *const names[] = {
        "LD_*",
        "GCONV_PATH",
        "OPENSSL_*",
        "PATH",
        "BASH_*",
        "ENV",
        "SHELLOPTS",
        "PS4",
        "IFS",
        "PERL*",
        "RUBYLIB",
        "RUBYOPT",
        "NODE_*",
        "CLASSPATH",
        "JAVA_TOOL_OPTIONS",
        "JDK_JAVA_OPTIONS",
        "_JAVA_OPTIONS",
        "PYTHONPATH",
        "PYTHONHOME",
        "PYTHONSTARTUP",
        "PYTHONWARNINGS",
        "PYTHONBREAKPOINT",
        "PYTHONUSERBASE",
        "PYTHONPYCACHEPREFIX",
    };
    for (size_t i = 0; i < ARRAY_COUNT(names); i++) {
        size_t bytes = strcspn(names[i], "*");
        if (strncmp(name, names[i], bytes) == 0 && (names[i][bytes] == '*' || name[bytes] == '\0'))
            return true;
    }
    return false;
}

static void
put_variable(struct making *making, const struct tree_node *one)
{
    const char *name = manifest_text(one, "name");
    const struct tree_node *source = manifest_find(one, "valueFrom");
    struct bytes text = {0};
    if (name[0] == '\0' || strchr(name, '=') != NULL) {
        runtime_problem(making->problems,
                        "container \"%.60s\": env \"%.60s\" is no name of a "
                        "variable",
                        name_of(making->container), name);
        return;
    }
    if (making->host->commands != RUNTIME_COMMANDS_ANY && is_dangerous(name)) {
        runtime_problem(making->problems,
                        "container \"%.60s\": env \"%.60s\" makes programs run "
                        "other code: set `run_commands: on` in this node's `mesh` to allow it",
                        name_of(making->container), name);
        return;
    }
    bytes_put_text(&text, name);
    bytes_put_char(&text, '=');
    size_t bytes = text.used;
    bool there = true;
    if (source != NULL) {
        there = value_from(making, name, source, &text);
        if (text.used - bytes > *making->room) {
            report_full(making);
            text.used = bytes;
        }
        *making->room -= text.used - bytes;
    } else {
        char *value = expand_text(making, or_empty(manifest_text(one, "value")));
        bytes_put_text(&text, value);
        free(value);
    }
    bytes_put_char(&text, '\0');
    CHECK(!text.failed);
    if (there)
        variables_put(&making->variables, bytes_take(&text, &(size_t){0}));
    bytes_fini(&text);
}

/* Takes those of the node that no variable of the manifest replaces, then the manifest's. */
static char **
make_environment(const struct making *making)
{
    struct variables all = {0};
    for (char *const *one = making->host->passed; one != NULL && *one != NULL; one++)
        variables_put(&all, must_copy(*one));
    for (uint32_t i = 0; i < making->variables.count; i++)
        variables_put(&all, must_copy(making->variables.items[i]));
    return all.items != NULL ? all.items : must_allocate(1, sizeof(char *));
}

/* ---- the program ---- */

/* The command of an image: by its whole name, else without the tag or digest. NULL: none. A name
 * with "=" would lead into a command. */
static const char *
command_of(const struct runtime_host *host, const char *image)
{
    const char *slash = strrchr(image, '/');
    const char *last = slash != NULL ? slash : image;
    const size_t lengths[] = {strlen(image), (size_t)(last - image) + strcspn(last, ":@")};
    for (size_t i = 0; i < ARRAY_COUNT(lengths) && strchr(image, '=') == NULL; i++)
        for (char *const *one = host->images; one != NULL && *one != NULL; one++)
            if (strncmp(*one, image, lengths[i]) == 0 && (*one)[lengths[i]] == '=')
                return *one + lengths[i] + 1;
    return NULL;
}

struct words {
    char **items;
    uint32_t count;
};

/* Takes the text. */
static void
words_put(struct words *words, char *text)
{
    words->items = realloc(words->items, (words->count + 2) * sizeof(char *));
    CHECK(words->items != NULL);
    words->items[words->count++] = text;
    words->items[words->count] = NULL;
}

static void
words_split(struct words *words, const char *text)
{
    for (text += strspn(text, " \t"); *text != '\0'; text += strspn(text, " \t")) {
        size_t bytes = strcspn(text, " \t");
        words_put(words, must_format("%.*s", (int)bytes, text));
        text += bytes;
    }
}

static void
words_free(struct words *words)
{
    for (uint32_t i = 0; i < words->count; i++)
        free(words->items[i]);
    free(words->items);
    *words = (struct words){0};
}

static void
words_place(struct words *words, const struct making *making)
{
    for (uint32_t i = 0; i < words->count; i++) {
        char *placed = place_repository(making, words->items[i]);
        free(words->items[i]);
        words->items[i] = placed;
    }
}

static bool
words_same(const struct words *words, const struct tree_node *list)
{
    uint32_t i = 0;
    for (const struct tree_node *one = list->first; one != NULL; one = one->next, i++)
        if (i == words->count || strcmp(words->items[i], one->text) != 0)
            return false;
    return i == words->count;
}

static bool
is_program(const char *path)
{
    struct stat file;
    return stat(path, &file) == 0 && S_ISREG(file.st_mode) && access(path, X_OK) == 0;
}

/* A path, or a name in the PATH of the node; NULL: there is none. */
static char *
find_program(const char *name, char *const *passed)
{
    if (strchr(name, '/') != NULL)
        return name[0] == '/' && is_program(name) ? must_copy(name) : NULL;
    const char *path = "/usr/local/bin:/usr/bin:/bin";
    for (char *const *one = passed; one != NULL && *one != NULL; one++)
        if (strncmp(*one, "PATH=", 5) == 0)
            path = *one + 5;
    while (*path != '\0' && *name != '\0') {
        size_t bytes = strcspn(path, ":");
        char *whole = must_format("%.*s/%s", (int)bytes, path, name);
        if (bytes > 0 && is_program(whole))
            return whole;
        free(whole);
        path += bytes + (path[bytes] == ':');
    }
    return NULL;
}

/* N2: the image's command, or the manifest's in its place. */
static void
choose_command(struct making *making, struct words *words, const char **shown)
{
    const struct tree_node *list = manifest_find(making->container, "command");
    const char *name = name_of(making->container);
    const char *image = manifest_text(making->container, "image");
    const char *command = command_of(making->host, image);
    if (command == NULL)
        runtime_problem(making->problems,
                        "container \"%.60s\": image \"%.200s\" is no program of "
                        "this node: add `images: {\"%.200s\": COMMAND}` to its `mesh`",
                        name, image, image);
    words_split(words, command != NULL ? command : "");
    if (list == NULL || list->count == 0 || words_same(words, list)) {
        words_place(words, making);
        return;
    }
    words_free(words);
    *shown = list->first->text;
    if (making->host->commands != RUNTIME_COMMANDS_ANY)
        runtime_problem(making->problems,
                        "container \"%.60s\": command \"%.100s\" is not the one "
                        "that `images` names for it: leave `command` out, name exactly that, or "
                        "set `run_commands: on` in this node's `mesh`",
                        name, list->first->text);
    for (const struct tree_node *one = list->first; one != NULL; one = one->next)
        words_put(words, expand_text(making, one->text));
}

static void
choose_program(struct making *making, struct runtime_container *made)
{
    const struct tree_node *list = manifest_find(making->container, "args");
    const char *shown = NULL; /* the manifest's own text, since its variables may be secrets */
    struct words words = {0};
    choose_command(making, &words, &shown);
    if (words.count > 0) {
        made->program = find_program(words.items[0], making->host->passed);
        if (made->program == NULL)
            runtime_problem(making->problems,
                            "container \"%.60s\": command \"%.200s\" is no "
                            "program of this host: install it, or name its path",
                            name_of(making->container), shown != NULL ? shown : words.items[0]);
    }
    for (const struct tree_node *one = list != NULL ? list->first : NULL; one != NULL;
         one = one->next)
        words_put(&words, expand_text(making, one->text));
    made->arguments = words.items != NULL ? words.items : must_allocate(1, sizeof(char *));
}

/* ---- the whole ---- */

static uint64_t
limit_of(const struct tree_node *container, const char *name)
{
    const char *limit =
        manifest_text(manifest_find(manifest_find(container, "resources"), "limits"), name);
    return limit != NULL ? amount_milli(limit) : 0;
}

void
runtime_container_make(const struct manifest *manifest, const struct tree_node *container,
                       /* NOLINTNEXTLINE(readability-non-const-parameter): `making` counts it */
                       const struct runtime_host *host, size_t *room,
                       struct runtime_container *made, struct bytes *problems)
{
    struct making making = {.manifest = manifest,
                            .container = container,
                            .host = host,
                            .problems = problems,
                            .room = room};
    const struct tree_node *env = manifest_find(container, "env");
    const char *folder = manifest_text(container, "workingDir");
    if (runtime_is_adapted(manifest) && host->repository != NULL)
        snprintf(making.place, sizeof(making.place), "/models/_%s_models",
                 manifest->adapter.server_type);
    bool has_many = env != NULL && env->count > VARIABLES_MAX;
    if (has_many)
        runtime_problem(problems, "container \"%.60s\": env has more than %d variables",
                        name_of(container), VARIABLES_MAX);
    for (const struct tree_node *one = env != NULL && !has_many ? env->first : NULL; one != NULL;
         one = one->next)
        put_variable(&making, one);
    *made = (struct runtime_container){
        .name = must_copy(name_of(container)),
        .folder = must_copy(folder != NULL && folder[0] != '\0' ? folder : "/"),
        .memory_bytes = amount_divide(limit_of(container, "memory"), 1000),
        .cpu_milli = limit_of(container, "cpu"),
    };
    choose_program(&making, made);
    made->environment = make_environment(&making);
    variables_fini(&making.variables);
}

static void
texts_free(char **texts)
{
    for (char **one = texts; one != NULL && *one != NULL; one++)
        free(*one);
    free(texts);
}

void
runtime_container_fini(struct runtime_container *container)
{
    free(container->name);
    free(container->program);
    free(container->folder);
    texts_free(container->arguments);
    texts_free(container->environment);
}

static bool
texts_same(char *const *one, char *const *other)
{
    while (*one != NULL && *other != NULL && strcmp(*one, *other) == 0) {
        one++;
        other++;
    }
    return *one == NULL && *other == NULL;
}

bool
runtime_container_same(const struct runtime_container *one, const struct runtime_container *other)
{
    return strcmp(one->name, other->name) == 0 &&
           strcmp(or_empty(one->program), or_empty(other->program)) == 0 &&
           strcmp(one->folder, other->folder) == 0 && one->memory_bytes == other->memory_bytes &&
           one->cpu_milli == other->cpu_milli && texts_same(one->arguments, other->arguments) &&
           texts_same(one->environment, other->environment);
}
