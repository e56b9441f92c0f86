/* Advice for errors of the memory plan, found by trial: the plan is made again with one setting changed, and what makes
 * it succeed is advised. So every advice helps alone, and where no single setting helps there is none. */
#ifndef QUIRE_RUNTIME_PLAN_ADVICE_H
#define QUIRE_RUNTIME_PLAN_ADVICE_H

#include "runtime/engine/loaded_model.h"

/* Adds advice to *err, the error of a plan with these options. l->profile knows the device (memory_plan_device). On the
 * CPU an advised run needs not quite all that was free, because that changes from one run to the next. */
void plan_advise(const struct engine_options *o, const struct loaded_model *l, struct error *err);

/* Advises on an error of a system that gave less memory than planned, so that nobody knows how much less would do: to
 * lower each setting that takes memory and of which a half would still make a plan. */
void plan_advise_less(const struct engine_options *o, const struct loaded_model *l, struct error *err);

/* Whether the options would make a plan on the device of `l`. */
bool plan_succeeds(const struct engine_options *o, const struct loaded_model *l);

#endif
