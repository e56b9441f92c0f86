/* Flags and settings of vLLM, llama.cpp and ollama that quire does not have, and what to do instead. */
#ifndef QUIRE_RUNTIME_FOREIGN_FLAGS_H
#define QUIRE_RUNTIME_FOREIGN_FLAGS_H

struct foreign_flag {
    const char *names;    /* "c|ctx-size", without dashes before them */
    const char *flag;     /* quire's flag of the same meaning; or NULL */
    const char *sentence; /* what to do, where there is no such flag; or NULL */
};

extern const struct foreign_flag foreign_flags[]; /* ended by one without names */

/* NULL: quire knows no program that has it. '_' and '-' are alike, and "no-" before a name is passed over. */
const struct foreign_flag *foreign_flag_find(const char *name);

#endif
