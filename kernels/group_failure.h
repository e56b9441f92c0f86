/* Why the ranks of a group (collective.h) cannot go on: one of them has failed, or its process has ended. The ranks of
 * a process share one. Whoever waits for another rank, on a processor or for a device, looks at it meanwhile, so that
 * no rank waits for ever: operations then return without a result, and stream_synchronize and event_synchronize report
 * the failure. Any thread may call these functions. */
#ifndef QUIRE_KERNELS_GROUP_FAILURE_H
#define QUIRE_KERNELS_GROUP_FAILURE_H

#include <stdbool.h>

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct group_failure;

struct group_failure *group_failure_create(void); /* NULL: out of memory */
/* Whoever keeps one calls free, too; the last call frees it. NULL is allowed. */
void group_failure_keep(struct group_failure *f);
void group_failure_free(struct group_failure *f);

/* Records the first failure; later ones change nothing. */
void group_fail(struct group_failure *f, enum status status, const char *sentence);
bool group_has_failed(const struct group_failure *f); /* NULL: no group */
/* OK, or what was recorded, with its sentence in *err. */
enum status group_failure_get(struct group_failure *f, struct error *err);

/* Has function(context) called once when the group fails, by the thread that finds out, or at once if it has: for what
 * must be told to end, such as a communicator. It must neither fail nor wait. group_failure_forget: it is not called
 * any more when this returns. */
typedef void group_failure_function(void *context);
void group_failure_tell(struct group_failure *f, group_failure_function *function, void *context);
void group_failure_forget(struct group_failure *f, void *context);

#ifdef __cplusplus
}
#endif

#endif
