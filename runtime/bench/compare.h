/* quire bench --compare A.json B.json: two results of the same benchmark. */
#ifndef QUIRE_RUNTIME_BENCH_COMPARE_H
#define QUIRE_RUNTIME_BENCH_COMPARE_H

/* argv[0] is "--compare". Prints a row for each figure that both files have: the medians, their ratio and the spread. A
 * difference counts where the ranges of the runs, from the smallest to the largest, have nothing in common. Returns the
 * exit status. */
int bench_compare_command(int argc, char **argv);

#endif
