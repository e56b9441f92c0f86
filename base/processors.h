/* The number of processors, for deciding how many threads compute. */
#ifndef QUIRE_BASE_PROCESSORS_H
#define QUIRE_BASE_PROCESSORS_H

/* How many processors this process may keep busy, at least 1: those of its affinity mask, or fewer where a control
 * group (version 1 or 2) has a quota of processor time. More threads than the quota has whole processors, rounded up,
 * would wait for each other while they are stopped. */
int processors_allowed(void);

/* Counts as processors_allowed does, with the quotas in the files below the folder `root` instead of /: for tests. */
int processors_allowed_below(const char *root);

#endif
