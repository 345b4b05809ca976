/* SPDX-License-Identifier: Apache-2.0 */
/* A tree made of libyaml's events. */
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "base/check.h"
#include "yaml/tree.h"

struct builder {
    yaml_parser_t parser;
    const struct tree_limits *limits;
    struct tree_report *report;
    const char *input;
    size_t input_bytes;
    uint32_t node_count;
    int depth;
    int line;     /* of the last event */
    bool stopped; /* a mistake after which nothing more can be read; reported */
};

static struct tree_node *build_value(struct builder *builder, const yaml_event_t *event);

/* The two texts enclose the name of the file's kind. */
static void
stop(struct builder *builder, int line, const char *text, const char *rest)
{
    if (!builder->stopped)
        report_add(builder->report, line, "%s%s%s", text, builder->limits->what, rest);
    builder->stopped = true;
}

/* ---- mistakes of syntax ---- */

static int
line_of(const char *input, size_t offset)
{
    int line = 1;
    for (size_t i = 0; i < offset; i++)
        line += input[i] == '\n';
    return line;
}

/* libyaml's text does not make clear that a tab precedes the first word of a line. */
static bool
tab_indents(const struct builder *builder, int line)
{
    const char *at = builder->input;
    const char *end = at + builder->input_bytes;
    for (int i = 1; i < line && at != NULL; i++) {
        at = memchr(at, '\n', (size_t)(end - at));
        at = at != NULL ? at + 1 : NULL;
    }
    while (at != NULL && at < end && *at == ' ')
        at++;
    return at != NULL && at < end && *at == '\t';
}

static void
report_syntax(struct builder *builder)
{
    const yaml_parser_t *parser = &builder->parser;
    const char *problem = parser->problem != NULL ? parser->problem : "unreadable";
    if (builder->stopped)
        return;
    builder->stopped = true;
    CHECK(parser->error != YAML_MEMORY_ERROR);
    if (parser->error == YAML_READER_ERROR) {
        size_t offset = parser->problem_offset < builder->input_bytes ? parser->problem_offset
                                                                      : builder->input_bytes;
        report_add(builder->report, line_of(builder->input, offset),
                   "not UTF-8 text: %s (byte 0x%02x)", problem,
                   (unsigned)parser->problem_value & 0xff);
        return;
    }
    int line = (int)parser->problem_mark.line + 1;
    const char *hint = tab_indents(builder, line) ? ": indent with spaces, not with a tab" : "";
    if (parser->context != NULL)
        report_add(builder->report, line, "not YAML: %s, %s that begins on line %d%s", problem,
                   parser->context, (int)parser->context_mark.line + 1, hint);
    else
        report_add(builder->report, line, "not YAML: %s%s", problem, hint);
}

static bool
next_event(struct builder *builder, yaml_event_t *event)
{
    if (!builder->stopped && yaml_parser_parse(&builder->parser, event)) {
        builder->line = (int)event->start_mark.line + 1;
        return true;
    }
    report_syntax(builder);
    memset(event, 0, sizeof(*event));
    return false;
}

/* ---- nodes ---- */

static struct tree_node *
node_make(struct builder *builder, enum node_kind kind, const yaml_event_t *event)
{
    struct tree_node *node = must_allocate(1, sizeof(*node));
    node->kind = kind;
    node->line = (int)event->start_mark.line + 1;
    if (++builder->node_count > builder->limits->nodes_max)
        stop(builder, node->line, "too many values: no ", " needs so many");
    return node;
}

void
tree_free(struct tree_node *node)
{
    while (node != NULL) {
        struct tree_node *next = node->next;
        tree_free(node->first); /* as deep as the tree, which is limited */
        free(node->key);
        free(node->text);
        free(node);
        node = next;
    }
}

static void
refuse_marks(struct builder *builder, struct tree_node *node, const yaml_char_t *anchor,
             const yaml_char_t *tag)
{
    char shown[REPORT_VALUE_BYTES];
    bool is_shown = !builder->limits->has_secrets;
    if (anchor != NULL)
        report_add(builder->report, node->line,
                   "anchors (&%.40s) are not supported: write the value out where it is needed, in "
                   "quotes if it begins with &",
                   is_shown ? (const char *)anchor : "…");
    if (tag != NULL) {
        report_add(builder->report, node->line,
                   "tags (%s) are not supported: write the value alone, in quotes if it begins "
                   "with !",
                   is_shown ? text_show((const char *)tag, shown) : "!…");
        node->kind = NODE_BROKEN;
    }
}

static struct tree_node *
build_scalar(struct builder *builder, const yaml_event_t *event)
{
    struct tree_node *node = node_make(builder, NODE_SCALAR, event);
    const char *text = (const char *)event->data.scalar.value;
    node->style = event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE ? NODE_PLAIN : NODE_QUOTED;
    node->text = must_copy(text);
    if (strlen(text) != event->data.scalar.length) {
        report_add(builder->report, node->line, "a NUL byte (\\0) in a text: remove it");
        node->kind = NODE_BROKEN;
    }
    refuse_marks(builder, node, event->data.scalar.anchor, event->data.scalar.tag);
    return node;
}

static struct tree_node *
build_list(struct builder *builder, const yaml_event_t *start)
{
    struct tree_node *list = node_make(builder, NODE_LIST, start);
    refuse_marks(builder, list, start->data.sequence_start.anchor, start->data.sequence_start.tag);
    struct tree_node **link = &list->first;
    yaml_event_t event;
    while (next_event(builder, &event)) {
        bool end = event.type == YAML_SEQUENCE_END_EVENT;
        if (!end) {
            *link = build_value(builder, &event);
            link = &(*link)->next;
            list->count++;
        }
        yaml_event_delete(&event);
        if (end)
            break;
    }
    return list;
}

static struct tree_node *
build_map(struct builder *builder, const yaml_event_t *start)
{
    struct tree_node *map = node_make(builder, NODE_MAP, start);
    refuse_marks(builder, map, start->data.mapping_start.anchor, start->data.mapping_start.tag);
    struct tree_node **link = &map->first;
    yaml_event_t event;
    while (next_event(builder, &event)) {
        if (event.type == YAML_MAPPING_END_EVENT) {
            yaml_event_delete(&event);
            break;
        }
        struct tree_node *key = build_value(builder, &event);
        yaml_event_delete(&event);
        if (!next_event(builder, &event)) {
            tree_free(key);
            break;
        }
        struct tree_node *value = build_value(builder, &event);
        yaml_event_delete(&event);
        if (key->kind == NODE_SCALAR) {
            value->key = key->text;
            value->key_line = key->line;
            key->text = NULL;
            *link = value;
            link = &value->next;
            map->count++;
        } else {
            if (key->kind != NODE_BROKEN)
                report_add(builder->report, key->line, "a key must be a word, not a list or a map");
            tree_free(value);
        }
        tree_free(key);
    }
    return map;
}

/* Never NULL: refused values become NODE_BROKEN. */
static struct tree_node *
build_value(struct builder *builder, const yaml_event_t *event)
{
    struct tree_node *node;
    int line = (int)event->start_mark.line + 1;
    if (++builder->depth > builder->limits->depth_max)
        stop(builder, line, "too deep: no ", " nests values so far");
    switch (event->type) {
    case YAML_SCALAR_EVENT: node = build_scalar(builder, event); break;
    case YAML_SEQUENCE_START_EVENT: node = build_list(builder, event); break;
    case YAML_MAPPING_START_EVENT: node = build_map(builder, event); break;
    default:
        CHECK(event->type == YAML_ALIAS_EVENT);
        node = node_make(builder, NODE_BROKEN, event);
        report_add(builder->report, line,
                   "aliases (*%.40s) are not supported: write the value out here, in quotes if it "
                   "begins with *",
                   builder->limits->has_secrets ? "…" : (const char *)event->data.alias.anchor);
    }
    builder->depth--;
    return node;
}

/* ---- the documents ---- */

/* The next event must be one of these two, the second of which ends the list. */
static bool
begins(struct builder *builder, yaml_event_type_t wanted, yaml_event_type_t last)
{
    yaml_event_t event;
    if (!next_event(builder, &event))
        return false;
    bool found = event.type == wanted;
    CHECK(found || event.type == last);
    yaml_event_delete(&event);
    return found;
}

static struct tree_node *
build_document(struct builder *builder)
{
    yaml_event_t event;
    if (!next_event(builder, &event))
        return NULL;
    struct tree_node *tree = build_value(builder, &event);
    yaml_event_delete(&event);
    (void)begins(builder, YAML_DOCUMENT_END_EVENT, YAML_DOCUMENT_END_EVENT);
    return tree;
}

static struct tree_node *
build_documents(struct builder *builder)
{
    struct tree_node *first = NULL;
    struct tree_node **link = &first;
    uint32_t count = 0;
    (void)begins(builder, YAML_STREAM_START_EVENT, YAML_STREAM_START_EVENT);
    while (begins(builder, YAML_DOCUMENT_START_EVENT, YAML_STREAM_END_EVENT)) {
        if (count++ == builder->limits->documents_max) {
            stop(builder, builder->line,
                 count == 2 ? "a second document: a " : "too many documents: a ",
                 count == 2 ? " has one" : " has fewer");
            break;
        }
        *link = build_document(builder);
        if (*link != NULL)
            link = &(*link)->next;
    }
    if (count == 0 && !builder->stopped) {
        builder->stopped = true;
        report_add(builder->report, 1, "%s", builder->limits->empty);
    }
    return first;
}

/* Refuses input before libyaml sees it: NULs end a text early, and each %TAG is compared with all
 * others. */
static bool
bytes_refused(const char *text, size_t size, const struct tree_limits *limits,
              struct tree_report *report)
{
    if (size > limits->bytes_max) {
        report_add(report, 1, "more than %zu KiB: too large for a %s", limits->bytes_max / 1024,
                   limits->what);
        return true;
    }
    const char *nul = memchr(text, '\0', size);
    if (nul != NULL) {
        report_add(report, line_of(text, (size_t)(nul - text)),
                   "a NUL byte: the file must be UTF-8 text");
        return true;
    }
    static const char directive[] = "%TAG";
    const char *tag = memmem(text, size, directive, strlen(directive));
    while (tag != NULL && tag > text && tag[-1] != '\n' && tag[-1] != '\r')
        tag = memmem(tag + 1, size - (size_t)(tag + 1 - text), directive, strlen(directive));
    if (tag == NULL)
        return false;
    report_add(report, line_of(text, (size_t)(tag - text)), "%%TAG: tags are not supported");
    return true;
}

struct tree_node *
tree_read(const char *text, size_t size, const struct tree_limits *limits,
          struct tree_report *report)
{
    if (size == 0)
        text = ""; /* it may be NULL */
    if (bytes_refused(text, size, limits, report))
        return NULL;
    static const char mark[] =
        "\xef\xbb\xbf"; /* editors may put it first; libyaml stumbles over it */
    if (size >= 3 && memcmp(text, mark, 3) == 0) {
        text += 3;
        size -= 3;
    }
    struct builder builder = {
        .limits = limits, .report = report, .input = text, .input_bytes = size};
    CHECK(yaml_parser_initialize(&builder.parser));
    yaml_parser_set_encoding(&builder.parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&builder.parser, (const unsigned char *)text, size);
    struct tree_node *tree = build_documents(&builder);
    yaml_parser_delete(&builder.parser);
    if (builder.stopped) {
        tree_free(tree);
        return NULL;
    }
    return tree;
}
