/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/crash_symbols.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILES_MAX = 256, PATH_BYTES = 1024 };

struct symbol_file {
    const struct link_map *map;
    ElfW(Addr) base; /* of the map, which may be used again for another library */
    const char *data;
    size_t bytes;
};

static struct symbol_file files[FILES_MAX];
static uint32_t file_count;
static char own_path[PATH_BYTES]; /* of this program, which the linker calls "" */

/* ---- files ---- */

static const char *
path_of(const struct link_map *map)
{
    return map->l_name != NULL && map->l_name[0] != '\0' ? map->l_name : own_path;
}

/* False: it cannot be read. */
static bool
file_map(struct symbol_file *file, const struct link_map *map)
{
    struct stat info;
    int fd = open(path_of(map), O_RDONLY | O_CLOEXEC);
    void *data = MAP_FAILED;
    if (fd >= 0 && fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_size > 0)
        data = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (fd >= 0)
        close(fd);
    if (data == MAP_FAILED)
        return false;
    *file = (struct symbol_file){map, map->l_addr, data, (size_t)info.st_size};
    return true;
}

static const struct symbol_file *
file_kept(const struct link_map *map)
{
    for (uint32_t i = 0; i < file_count; i++)
        if (files[i].map == map && files[i].base == map->l_addr)
            return &files[i];
    return NULL;
}

static const struct symbol_file *
file_keep(const struct link_map *map)
{
    const struct symbol_file *kept = file_kept(map);
    if (kept != NULL || file_count == FILES_MAX || !file_map(&files[file_count], map))
        return kept;
    return &files[file_count++];
}

static const struct link_map *
map_of(uintptr_t address)
{
    struct dl_find_object found;
    return _dl_find_object((void *)address, &found) == 0 ? found.dlfo_link_map : NULL; /* NOLINT */
}

static int
keep_one(struct dl_phdr_info *info, size_t bytes, void *context)
{
    (void)bytes;
    (void)context;
    for (uint32_t i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        if (segment->p_type != PT_LOAD || !(segment->p_flags & PF_X))
            continue;
        const struct link_map *map = map_of(info->dlpi_addr + segment->p_vaddr);
        if (map != NULL)
            (void)file_keep(map);
        break;
    }
    return 0;
}

void
crash_symbols_keep(void)
{
    if (own_path[0] == '\0') {
        ssize_t bytes = readlink("/proc/self/exe", own_path, sizeof(own_path) - 1);
        own_path[bytes > 0 ? bytes : 0] = '\0';
    }
    (void)dl_iterate_phdr(keep_one, NULL);
}

/* ---- symbols ---- */

/* NULL: not within the file, or not aligned for what it should be. */
static const void *
part_of(const struct symbol_file *file, uint64_t offset, uint64_t bytes, size_t alignment)
{
    bool inside = offset <= file->bytes && bytes <= file->bytes - offset;
    return inside && offset % alignment == 0 ? file->data + offset : NULL;
}

/* The table with all functions, else that of the exported ones. */
static const ElfW(Shdr) * symbol_table(const struct symbol_file *file, const ElfW(Shdr) * *strings)
{
    const ElfW(Ehdr) *head = part_of(file, 0, sizeof(*head), _Alignof(ElfW(Ehdr)));
    if (head == NULL || memcmp(head->e_ident, ELFMAG, SELFMAG) != 0 ||
        head->e_shentsize != sizeof(ElfW(Shdr)))
        return NULL;
    const ElfW(Shdr) *sections = part_of(
        file, head->e_shoff, (uint64_t)head->e_shnum * sizeof(*sections), _Alignof(ElfW(Shdr)));
    const ElfW(Shdr) *found = NULL;
    for (uint32_t i = 0; sections != NULL && i < head->e_shnum; i++) {
        uint32_t type = sections[i].sh_type;
        bool better = type == SHT_SYMTAB || (type == SHT_DYNSYM && found == NULL);
        if (better && sections[i].sh_link < head->e_shnum)
            found = &sections[i];
    }
    if (found != NULL)
        *strings = &sections[found->sh_link];
    return found;
}

static const char *
string_at(const struct symbol_file *file, const ElfW(Shdr) * strings, uint32_t index)
{
    const char *text = part_of(file, strings->sh_offset, strings->sh_size, 1);
    if (text == NULL || index >= strings->sh_size ||
        memchr(text + index, '\0', strings->sh_size - index) == NULL)
        return NULL;
    return text + index;
}

static void
find_function(const struct symbol_file *file, struct crash_symbol *symbol)
{
    const ElfW(Shdr) *strings = NULL;
    const ElfW(Shdr) *table = symbol_table(file, &strings);
    const ElfW(Sym) *symbols =
        table == NULL ? NULL : part_of(file, table->sh_offset, table->sh_size, _Alignof(ElfW(Sym)));
    for (uint64_t i = 0; symbols != NULL && i < table->sh_size / sizeof(*symbols); i++) {
        const ElfW(Sym) *one = &symbols[i];
        if (ELF64_ST_TYPE(one->st_info) != STT_FUNC || one->st_shndx == SHN_UNDEF ||
            symbol->offset < one->st_value || symbol->offset - one->st_value >= one->st_size)
            continue;
        symbol->function = string_at(file, strings, one->st_name);
        symbol->function_offset = symbol->offset - one->st_value;
        return;
    }
}

void
crash_symbol_locate(uintptr_t address, struct crash_symbol *symbol)
{
    const struct link_map *map = map_of(address);
    *symbol = (struct crash_symbol){.offset = address};
    if (map == NULL)
        return;
    symbol->file = path_of(map);
    symbol->offset = address - map->l_addr;
}

void
crash_symbol_name(uintptr_t address, struct crash_symbol *symbol)
{
    const struct link_map *map = map_of(address);
    const struct symbol_file *file = map == NULL ? NULL : file_keep(map);
    if (file != NULL)
        find_function(file, symbol);
}
