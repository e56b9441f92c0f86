/* What one says beside a measurement: the build and the machine. */
#ifndef QUIRE_RUNTIME_BENCH_SETTING_H
#define QUIRE_RUNTIME_BENCH_SETTING_H

#include "runtime/report.h"

/* Adds lines to the title, and the same facts to the JSON. `gpu`: the device that computes, "cuda:0"; NULL: none does.
 */
void bench_report_machine(struct report *r, const char *gpu);

#endif
