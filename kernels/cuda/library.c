#include "kernels/cuda/library.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

struct library_path library_path(const char *name, int place)
{
    const char *folder = place < 2 ? "" : "/usr/local/cuda/lib64/";
    struct library_path path;
    snprintf(path.text, sizeof path.text, "%s%s.so.%d", folder, name, place % 2 ? 12 : 13);
    return path;
}

void *library_open(const char *name)
{
    void *library = NULL;
    for (int i = 0; i < LIBRARY_PLACES && !library; i++)
        library = dlopen(library_path(name, i).text, RTLD_NOW | RTLD_LOCAL);
    return library;
}

bool library_find(void *library, const char *symbol, void *function)
{
    void *found = dlsym(library, symbol);
    memcpy(function, &found, sizeof found); /* ISO C has no cast from an object's address to a function's */
    return found != NULL;
}
