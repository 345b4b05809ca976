/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rules.
 *  C1. A place may have a role (P4 and P5 in place.c): of an ARN, for which the security token
 *      service gives keys for the token in AWS_WEB_IDENTITY_TOKEN_FILE; or of the machine, whose
 *      metadata service has them (IMDSv2), if the node's configuration names it. Nothing is asked
 *      otherwise. Beyond ROLES_MAX roles the one that is renewed first is forgotten.
 *  C2. Keys are asked for again RENEW_S before they expire. If that fails they are used until they
 *      expire, and the next attempt is RETRY_S later; it is AGAIN_S later if the new ones expire as
 *      soon, for a metadata service may give the same ones till then. With keys that will still do
 *      a service is not waited for longer than PATIENCE_S.
 *  C3. Tokens and keys are in requests alone, and of an answer only its status and code are
 *      reported.
 */
#include "serving/storage/role.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <openssl/crypto.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "serving/storage/role_answer.h"
#include "serving/storage/sigv4.h"
#include "serving/storage/tasks.h"

enum {
    RENEW_S = 300,
    RETRY_S = 60,
    AGAIN_S = 2,
    PATIENCE_S = 10,
    TOKEN_BYTES_MAX = 64 << 10,
    ROLES_MAX = 64,
};

struct role_state {
    char *name; /* NULL: free */
    struct role_keys keys;
    uint64_t serial; /* of the keys, of all roles; 0: none yet */
    int64_t retry_s; /* no attempt before, while keys are valid; 0: none was made */
};

struct role {
    pthread_mutex_t lock; /* never held over anything that may block */
    uint64_t serials;
    struct role_state states[ROLES_MAX];
};

struct role *
role_create(void)
{
    struct role *role = calloc(1, sizeof(*role));
    CHECK(role != NULL && pthread_mutex_init(&role->lock, NULL) == 0);
    return role;
}

void
role_destroy(struct role *role)
{
    for (size_t i = 0; i < ROLES_MAX; i++) {
        role_keys_fini(&role->states[i].keys);
        free(role->states[i].name);
    }
    pthread_mutex_destroy(&role->lock);
    free(role);
}

/* ---- one request ---- */

struct role_ask {
    const char *method; /* NULL: GET, or POST with a body */
    const char *url, *body;
    const char *header, *value; /* NULL: none */
    bool is_direct;             /* by no proxy */
    struct bytes answer;        /* ends with a NUL, which `used` does not count */
};

static void
prepare(struct storage_task *task)
{
    const struct role_ask *ask = task->asked;
    task->url = strdup(ask->url);
    CHECK(task->url != NULL);
    task->method = ask->method;
    task->body = ask->body;
    task->is_direct = ask->is_direct;
    if (ask->header != NULL)
        task_add_line(task, "%s: %s", ask->header, ask->value);
}

static enum task_verdict
judge(struct storage_task *task, const struct transfer_end *end, struct error *error)
{
    char code[ROLE_CODE_BYTES];
    struct role_ask *ask = task->asked;
    if (end->head.status == 200) {
        bytes_put_char(&task->page, '\0');
        CHECK(!task->page.failed);
        task->page.used--;
        ask->answer = task->page;
        task->page = (struct bytes){0};
        return TASK_DONE;
    }
    enum task_verdict verdict = task_judge_status(task, end, error);
    role_answer_read_code(end->text, end->text_bytes, code);
    error_set(error, error->status, "the server answers %ld%s%s", end->head.status,
              code[0] != '\0' ? ", " : "", code); /* C3 */
    return verdict;
}

/* Asks with transfers of its own, as it may come amid those of the job. */
static enum status
ask_once(const struct storage_job *job, struct role_ask *ask, struct error *error)
{
    static const struct task_type type = {
        task_open_page, prepare, {task_begin_page, task_take_page, NULL}, judge, NULL};
    struct job_options options = *job->options;
    options.transfers = transfers_create();
    struct storage_job own = {.options = &options,
                              .request = job->request,
                              .is_cancelled = job->is_cancelled,
                              .context = job->context};
    struct storage_task task = {.job = &own, .asked = ask};
    enum status status = tasks_run(&own, &type, &task, 1, error);
    transfers_destroy(options.transfers);
    return status;
}

static void
forget(struct bytes *secret)
{
    if (secret->data != NULL)
        OPENSSL_cleanse(secret->data, secret->used);
    bytes_fini(secret);
}

/* ---- AssumeRoleWithWebIdentity ---- */

static const char *
variable(const char *name)
{
    const char *text = getenv(name);
    return text != NULL && text[0] != '\0' ? text : NULL;
}

/* Orchestrators replace the file before its token expires. */
static enum status
read_token(const char *path, struct bytes *token, struct error *error)
{
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return error_set_errno(error, "AWS_WEB_IDENTITY_TOKEN_FILE: %.200s", path);
    char *text = bytes_reserve(token, TOKEN_BYTES_MAX + 1);
    CHECK(text != NULL);
    size_t bytes = fread(text, 1, TOKEN_BYTES_MAX, file);
    bool is_whole = feof(file) != 0;
    fclose(file);
    while (bytes > 0 && (unsigned char)text[bytes - 1] <= ' ')
        bytes--;
    text[bytes] = '\0';
    token->used = bytes;
    if (is_whole && bytes > 0 && strlen(text) == bytes)
        return STATUS_OK;
    return error_set(error, STATUS_FAILED_PRECONDITION,
                     "AWS_WEB_IDENTITY_TOKEN_FILE: %.200s has no token of at most %d KiB", path,
                     TOKEN_BYTES_MAX >> 10);
}

static void
put_field(struct bytes *body, const char *name, const char *value)
{
    bytes_put_text(body, name);
    sigv4_encode(body, value, SIGV4_ENCODE_SLASH);
}

static enum status
ask_token_service(const struct storage_job *job, struct role_keys *keys, struct error *error)
{
    char url[1024];
    const char *session = variable("AWS_ROLE_SESSION_NAME");
    const char *endpoint = variable("AWS_ENDPOINT_URL_STS");
    struct bytes token = {0};
    struct bytes body = {0};
    endpoint = endpoint != NULL ? endpoint : variable("AWS_ENDPOINT_URL");
    if (endpoint != NULL)
        snprintf(url, sizeof(url), "%.1000s", endpoint);
    else
        snprintf(url, sizeof(url), "https://sts.%s.amazonaws.com/", job->place.region);
    enum status status = read_token(variable("AWS_WEB_IDENTITY_TOKEN_FILE"), &token, error);
    if (status == STATUS_OK) {
        put_field(&body,
                  "Action=AssumeRoleWithWebIdentity&Version=2011-06-15&RoleArn=", job->place.role);
        put_field(&body, "&RoleSessionName=", session != NULL ? session : "shoald");
        put_field(&body, "&WebIdentityToken=", token.data);
        bytes_put_char(&body, '\0');
        CHECK(!body.failed);
        struct role_ask ask = {.url = url, .body = body.data};
        status = ask_once(job, &ask, error);
        if (status == STATUS_OK)
            status = role_answer_read_xml(ask.answer.data, ask.answer.used, keys, error);
        forget(&ask.answer);
    }
    forget(&body);
    forget(&token);
    return status == STATUS_OK ? status
                               : error_prefix(error, "the security token service at %.200s", url);
}

/* ---- the instance's metadata ---- */

/* One line that may be part of a header. */
static bool
take_line(const struct bytes *answer, char *line, size_t room)
{
    size_t bytes = strcspn(answer->data, "\r\n");
    if (bytes == 0 || bytes >= room)
        return false;
    memcpy(line, answer->data, bytes);
    line[bytes] = '\0';
    for (size_t i = 0; i < bytes; i++)
        if ((unsigned char)line[i] <= ' ' || (unsigned char)line[i] >= 0x7f)
            return false;
    return true;
}

/* Takes the name of a role, as AWS has them. */
static bool
take_name(const struct bytes *answer, char *name, size_t room)
{
    static const char kept[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+=,.@_-";
    return take_line(answer, name, room) && strspn(name, kept) == strlen(name);
}

static enum status
ask_metadata(const struct storage_job *job, struct role_keys *keys, struct error *error)
{
    static const char header[] = "X-aws-ec2-metadata-token";
    const char *service = job->options->place.metadata;
    int bytes = (int)strlen(service);
    char url[2048];
    char token[TRANSFER_TEXT_BYTES];
    char name[256] = "";
    while (bytes > 0 && service[bytes - 1] == '/')
        bytes--;
    snprintf(url, sizeof(url), "%.*s/latest/api/token", bytes, service);
    struct role_ask ask = {.method = "PUT",
                           .url = url,
                           .body = "",
                           .header = "X-aws-ec2-metadata-token-ttl-seconds",
                           .value = "60",
                           .is_direct = true};
    enum status status = ask_once(job, &ask, error);
    bool is_good = status == STATUS_OK && take_line(&ask.answer, token, sizeof(token));
    forget(&ask.answer);
    for (int i = 0; i < 2 && is_good; i++) {
        snprintf(url, sizeof(url), "%.*s/latest/meta-data/iam/security-credentials/%s", bytes,
                 service, name);
        ask = (struct role_ask){.url = url, .header = header, .value = token, .is_direct = true};
        status = ask_once(job, &ask, error);
        is_good = status == STATUS_OK && (i == 1 || take_name(&ask.answer, name, sizeof(name)));
        if (is_good && i == 1)
            status = role_answer_read_json(ask.answer.data, ask.answer.used, keys, error);
        forget(&ask.answer);
    }
    OPENSSL_cleanse(token, sizeof(token));
    if (status == STATUS_OK && !is_good)
        status = error_set(error, STATUS_DATA_LOSS, "its answer is no name");
    return status == STATUS_OK ? status
                               : error_prefix(error, "the metadata service at %.200s", service);
}

/* ---- keys ---- */

/* Locked. */
static struct role_state *
state_of(struct role *role, const char *name)
{
    struct role_state *chosen = &role->states[0];
    for (size_t i = 0; i < ROLES_MAX; i++) {
        struct role_state *state = &role->states[i];
        if (state->name == NULL || strcmp(state->name, name) == 0) {
            chosen = state; /* free ones are behind all others */
            break;
        }
        if (state->keys.expires_s < chosen->keys.expires_s)
            chosen = state;
    }
    if (chosen->name != NULL && strcmp(chosen->name, name) == 0)
        return chosen;
    role_keys_fini(&chosen->keys);
    free(chosen->name);
    *chosen = (struct role_state){.name = strdup(name)};
    CHECK(chosen->name != NULL);
    return chosen;
}

static void
give(const struct role_state *role, struct storage_place *place)
{
    char **const to[] = {&place->key_id, &place->secret, &place->token};
    const char *const from[] = {role->keys.id, role->keys.secret, role->keys.token};
    if (place->role_serial == role->serial)
        return;
    for (size_t i = 0; i < ARRAY_COUNT(to); i++) {
        if (*to[i] != NULL)
            OPENSSL_cleanse(*to[i], strlen(*to[i]));
        free(*to[i]);
        CHECK(from[i] != NULL);
        *to[i] = strdup(from[i]);
        CHECK(*to[i] != NULL);
    }
    place->role_serial = role->serial;
}

/* True: the place has keys that will do. */
static bool
give_valid(struct role *role, struct storage_place *place, bool *is_valid)
{
    int64_t now_s = time(NULL);
    pthread_mutex_lock(&role->lock);
    struct role_state *state = state_of(role, place->role);
    *is_valid = state->serial > 0 && now_s < state->keys.expires_s;
    bool will_do = *is_valid && (now_s < state->keys.expires_s - RENEW_S || now_s < state->retry_s);
    if (will_do)
        give(state, place);
    else if (*is_valid)
        state->retry_s = now_s + PATIENCE_S; /* one fetch asks, others go on */
    pthread_mutex_unlock(&role->lock);
    return will_do;
}

/* `patience_s`: at most, unless it is 0. */
static enum status
ask(const struct storage_job *job, int patience_s, struct role_keys *keys, struct error *error)
{
    struct storage_request request = *job->request;
    int64_t until_ns = clock_now_ns() + patience_s * (int64_t)NS_PER_S;
    bool is_less = patience_s > 0 && until_ns < request.deadline_ns;
    if (is_less)
        request.deadline_ns = until_ns;
    const struct storage_job asking = {.options = job->options,
                                       .request = &request,
                                       .is_cancelled = job->is_cancelled,
                                       .context = job->context,
                                       .place = job->place};
    enum status status = job->place.is_web_role ? ask_token_service(&asking, keys, error)
                                                : ask_metadata(&asking, keys, error);
    if (status == STATUS_DEADLINE_EXCEEDED && is_less)
        status =
            error_set(error, status, "the role's service gave no keys within %d s", patience_s);
    return status;
}

enum status
role_renew(struct storage_job *job, struct error *error)
{
    struct role *role = job->options->role;
    struct role_keys keys = {0};
    bool is_valid = false;
    if (job->place.role == NULL || give_valid(role, &job->place, &is_valid))
        return STATUS_OK;
    enum status status = ask(job, is_valid ? PATIENCE_S : 0, &keys, error);
    pthread_mutex_lock(&role->lock);
    struct role_state *state = state_of(role, job->place.role);
    if (status == STATUS_OK) {
        role_keys_fini(&state->keys);
        state->keys = keys;
        state->serial = ++role->serials;
    }
    bool is_left = state->serial > 0 && time(NULL) < state->keys.expires_s; /* C2 */
    state->retry_s = time(NULL) + (status == STATUS_OK ? AGAIN_S : RETRY_S);
    if (status == STATUS_OK || is_left)
        give(state, &job->place);
    pthread_mutex_unlock(&role->lock);
    if (status == STATUS_OK || !is_left || status == STATUS_CANCELLED)
        return status;
    log_warn_limited("storage_role_kept error=\"%s\"", error->text);
    error_clear(error);
    return STATUS_OK;
}
