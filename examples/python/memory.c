/* SPDX-License-Identifier: Apache-2.0 */
#include "memory.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Below this, copying costs less than the system calls and page faults of a mapping. */
enum { VIEW_BYTES_MIN = 64 << 10, ALIGNMENT = 64 };

struct memory {
    PyObject ob_base;
    void *data;
    size_t bytes;
    size_t room;   /* of own memory; 0: a view */
    void *mapping; /* of a view: the pages around its data */
    size_t mapped_bytes;
};

static int
memory_getbuffer(PyObject *object, Py_buffer *view, int flags)
{
    struct memory *self = (struct memory *)(void *)object;
    return PyBuffer_FillInfo(view, object, self->data, (Py_ssize_t)self->bytes, 1, flags);
}

static void
memory_dealloc(PyObject *object)
{
    struct memory *self = (struct memory *)(void *)object;
    if (self->room > 0)
        free(self->data);
    else
        munmap(self->mapping, self->mapped_bytes);
    PyObject_Free(self);
}

static PyBufferProcs memory_buffer = {.bf_getbuffer = memory_getbuffer};

static PyTypeObject memory_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "shoal.Memory",
    .tp_basicsize = sizeof(struct memory),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_dealloc = memory_dealloc,
    .tp_as_buffer = &memory_buffer,
};

bool
memory_prepare(void)
{
    return PyType_Ready(&memory_type) == 0;
}

static struct memory *
memory_new(void)
{
    struct memory *self = PyObject_New(struct memory, &memory_type);
    if (self == NULL)
        return NULL;
    self->data = self->mapping = NULL;
    self->bytes = self->room = self->mapped_bytes = 0;
    return self;
}

/* ---- own memory ---- */

static struct memory *
own_create(size_t bytes)
{
    size_t room = (bytes / ALIGNMENT + 1) * ALIGNMENT;
    void *data = aligned_alloc(ALIGNMENT, room);
    struct memory *self = data != NULL ? memory_new() : NULL;
    if (self == NULL) {
        free(data);
        (void)PyErr_NoMemory();
        return NULL;
    }
    self->data = data;
    self->room = room;
    return self;
}

struct memory *
memory_own(struct memory **cached, size_t bytes, void **data)
{
    struct memory *self = *cached;
    if (self == NULL || Py_REFCNT(self) != 1 || self->room < bytes) {
        self = own_create(bytes);
        if (self == NULL)
            return NULL;
        Py_XDECREF(*cached); /* it lives on in what user code has kept of it */
        *cached = self;
    }
    Py_INCREF(self);
    self->bytes = bytes;
    *data = self->data;
    return self;
}

/* ---- views ---- */

struct memory *
memory_view(const void *data, size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t offset = (uintptr_t)data & (page - 1);
    if (bytes < VIEW_BYTES_MIN)
        return NULL;
    /* old size 0: the same pages once more, if they are shared ones */
    char *begin = (char *)(uintptr_t)data - offset;
    void *mapping = mremap(begin, 0, offset + bytes, MREMAP_MAYMOVE);
    if (mapping == MAP_FAILED)
        return NULL;
    struct memory *self = mprotect(mapping, offset + bytes, PROT_READ) == 0 ? memory_new() : NULL;
    if (self == NULL) {
        munmap(mapping, offset + bytes);
        PyErr_Clear();
        return NULL;
    }
    self->mapping = mapping;
    self->mapped_bytes = offset + bytes;
    self->data = (char *)mapping + offset;
    self->bytes = bytes;
    return self;
}

/* A thread that reads the view meanwhile sees either pages: mremap exchanges them at once. */
static void
view_detach(struct memory *self)
{
    size_t offset = (size_t)((char *)self->data - (char *)self->mapping);
    char *copy =
        mmap(NULL, self->mapped_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (copy == MAP_FAILED)
        Py_FatalError("no memory for the copy of a tensor that was kept beyond run");
    memcpy(copy + offset, self->data, self->bytes);
    if (mprotect(copy, self->mapped_bytes, PROT_READ) != 0 ||
        mremap(copy, self->mapped_bytes, self->mapped_bytes, MREMAP_MAYMOVE | MREMAP_FIXED,
               self->mapping) == MAP_FAILED)
        Py_FatalError("a tensor that was kept beyond run cannot be copied");
}

void
memory_end_run(struct memory *memory)
{
    if (memory == NULL)
        return;
    if (memory->room == 0 && Py_REFCNT(memory) > 1)
        view_detach(memory);
    Py_DECREF(memory);
}
