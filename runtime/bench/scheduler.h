/* quire bench scheduler: what the block manager and the scheduler cost, on traces of random tokens. It loads no model
 * and uses no device. */
#ifndef QUIRE_RUNTIME_BENCH_SCHEDULER_H
#define QUIRE_RUNTIME_BENCH_SCHEDULER_H

/* argv[0] is "scheduler". Returns the exit status. */
int bench_scheduler_command(int argc, char **argv);
extern const char bench_scheduler_summary[];

#endif
