/* What Linux says of this process. */
#ifndef QUIRE_RUNTIME_PROCESS_FACTS_H
#define QUIRE_RUNTIME_PROCESS_FACTS_H

#include <stdint.h>

struct process_facts {
    int64_t resident_bytes, virtual_bytes; /* 0: not known */
    double cpu_seconds;                    /* of all threads */
    int32_t num_descriptors;               /* open files and connections */
};
struct process_facts process_facts_read(void);

#endif
