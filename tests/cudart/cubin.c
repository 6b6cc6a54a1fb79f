/* cubin.c: a hash of each kernel's machine code, from a cubin file of nvcc: "hash name" a line, names mangled. It takes the
   instructions, the kernel's own constants, the sizes of its parameters and of its shared memory, and what relocations refer
   to: the place within the kernel, else the contents, never a name, an index or an order. So renaming, moving and comments
   leave it, and any other instruction does not. Usage: cubin FILE.cubin */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The parts of a 64-bit ELF file that are read here, little-endian. */
typedef struct elf_file {
    unsigned char ident[16];
    uint16_t type, machine;
    uint32_t version;
    uint64_t entry, programs, sections;
    uint32_t flags;
    uint16_t size, program_size, program_count, section_size, section_count, names;
} elf_file;
typedef struct elf_section {
    uint32_t name, type;
    uint64_t flags, address, offset, size;
    uint32_t link, info;
    uint64_t align, entry_size;
} elf_section;
typedef struct elf_symbol {
    uint32_t name;
    unsigned char info, other;
    uint16_t section;
    uint64_t value, size;
} elf_symbol;
typedef struct elf_relocation {
    uint64_t offset, info;
    int64_t addend;
} elf_relocation;
enum { NOTHING_THERE = 8, RELOCATIONS_WITH_ADDENDS = 4, RELOCATIONS = 9 }; /* types of sections */

static char *file;
static uint64_t file_size;
static const elf_section *sections;
static unsigned section_count;
static const char *names;

static void fail(const char *why) {
    fprintf(stderr, "cubin: %s\n", why);
    exit(1);
}
/* Within the file, or none of it is believed. */
static const void *at(uint64_t offset, uint64_t bytes) {
    if (offset > file_size || bytes > file_size - offset) fail("the file is cut short");
    return file + offset;
}
static const char *name_of(const elf_section *s) { return names + s->name; }
static uint64_t mix(uint64_t h, uint64_t x) {
    h = (h ^ x) * UINT64_C(0x9e3779b97f4a7c15);
    h = (h ^ (h >> 30)) * UINT64_C(0xbf58476d1ce4e5b9), h = (h ^ (h >> 27)) * UINT64_C(0x94d049bb133111eb);
    return h ^ (h >> 31);
}
static uint64_t hash(uint64_t h, const void *data, uint64_t bytes) {
    const unsigned char *p = (const unsigned char *)data;
    uint64_t i;
    h = mix(h, bytes);
    for (i = 0; i < bytes; i++) h = mix(h, p[i]);
    return h;
}
static uint64_t contents(uint64_t h, const elf_section *s) {
    return s->type == NOTHING_THERE ? mix(h, s->size) : hash(h, at(s->offset, s->size), s->size);
}

/* The section ".text.K" of a kernel K is its code; PREFIX of ".nv.shared.K": null where the name ends otherwise. */
static int prefix_of(const elf_section *s, const char *kernel) {
    const char *name = name_of(s);
    const size_t n = strlen(name), k = strlen(kernel);
    return n > k && name[n - k - 1] == '.' && !strcmp(name + n - k, kernel) ? (int)(n - k) : 0;
}
/* What a relocation refers to. */
static uint64_t target(const elf_section *symbols, uint64_t index, const char *kernel) {
    const elf_symbol *s = (const elf_symbol *)at(symbols->offset + index * sizeof *s, sizeof *s);
    const elf_section *in;
    int prefix;
    if (index * sizeof *s >= symbols->size) fail("a symbol is not there");
    if (!s->section || s->section >= section_count) { /* the driver's, such as vprintf: its name is no name of ours */
        const elf_section *strings = &sections[symbols->link];
        const char *name = (const char *)at(strings->offset + s->name, 1);
        return hash(1, name, strlen(name));
    }
    in = &sections[s->section], prefix = prefix_of(in, kernel);
    if (prefix) return mix(hash(2, name_of(in), (uint64_t)prefix), s->value);
    if (s->size && in->type != NOTHING_THERE && s->value + s->size <= in->size)
        return hash(3, at(in->offset + s->value, s->size), s->size);
    return mix(contents(4, in), s->size);
}
/* Relocations in any order. */
static uint64_t relocations(const elf_section *r, const char *kernel) {
    const uint64_t step = r->type == RELOCATIONS ? sizeof(elf_relocation) - 8 : sizeof(elf_relocation);
    uint64_t sum = 0, i;
    for (i = 0; i + step <= r->size; i += step) {
        elf_relocation x = {0, 0, 0};
        uint64_t h;
        memcpy(&x, at(r->offset + i, step), step);
        h = mix(mix(5, x.offset), x.info & 0xffffffff);
        sum += mix(mix(h, (uint64_t)x.addend), target(&sections[r->link], x.info >> 32, kernel));
    }
    return sum;
}
/* Of what belongs to one kernel; nothing but names and indices stands in its .nv.info, nothing that runs in .debug. */
static uint64_t kernel_hash(const char *kernel) {
    uint64_t sum = 0;
    unsigned i;
    for (i = 1; i < section_count; i++) {
        const elf_section *s = &sections[i];
        const int prefix = prefix_of(s, kernel);
        uint64_t h;
        if (!prefix || !strncmp(name_of(s), ".nv.info", 8) || !strncmp(name_of(s), ".debug", 6)) continue;
        h = hash(6, name_of(s), (uint64_t)prefix);
        if (s->type == RELOCATIONS || s->type == RELOCATIONS_WITH_ADDENDS) sum += mix(h, relocations(s, kernel));
        else sum += contents(h, s);
    }
    return sum;
}
int main(int argc, char **argv) {
    FILE *f = argc == 2 ? fopen(argv[1], "rb") : NULL;
    const elf_file *head;
    unsigned i, kernels = 0;
    if (!f) fail("usage: cubin FILE.cubin");
    fseek(f, 0, SEEK_END), file_size = (uint64_t)ftell(f), rewind(f);
    file = (char *)malloc(file_size + 1);
    if (!file || fread(file, 1, file_size, f) != file_size) fail("can't be read");
    file[file_size] = 0, fclose(f);
    head = (const elf_file *)at(0, sizeof *head);
    if (memcmp(head->ident, "\177ELF\2\1", 6) || head->section_size != sizeof(elf_section)) fail("no cubin");
    section_count = head->section_count;
    sections = (const elf_section *)at(head->sections, section_count * sizeof *sections);
    if (head->names >= section_count) fail("no names");
    names = (const char *)at(sections[head->names].offset, sections[head->names].size);
    for (i = 1; i < section_count; i++) {
        const char *name = name_of(&sections[i]);
        if (strncmp(name, ".text.", 6)) continue;
        kernels++;
        printf("%016llx\t%s\n", (unsigned long long)kernel_hash(name + 6), name + 6);
    }
    if (!kernels) fail("no kernels");
    free(file);
    return 0;
}
