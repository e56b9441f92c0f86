/* quire COMMAND [flags] */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#ifdef _OPENMP
#include <omp.h>
#endif

#include "runtime/commands.h"

struct command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *summary;
};

static const struct command commands[] = {
    {"chat", command_chat, "talk with a model in the terminal"},
    {"generate", command_generate, "run a file of prompts through a model"},
    {"profile", command_profile, "show where the memory goes, and how many requests fit"},
    {"bench", command_bench, "measure how fast a model runs here"},
};
enum { NUM_COMMANDS = sizeof commands / sizeof commands[0] };

static void print_usage(FILE *out)
{
    fputs("usage: quire COMMAND [flags]\n\n", out);
    for (int i = 0; i < NUM_COMMANDS; i++) fprintf(out, "  %-10s %s\n", commands[i].name, commands[i].summary);
    fputs("\nquire COMMAND --help lists the command's flags; quire --version says which quire this is.\n", out);
}

static int unknown_command(const char *name)
{
    fprintf(stderr, "quire: there is no command '%s'\n", name);
    print_usage(stderr);
    return EXIT_STATUS_USAGE;
}

/* Text that never reached the terminal or file is a failure; whoever closed a pipe knows of it. */
static int flush_stdout(int exit_status)
{
    errno = 0;
    if ((fflush(stdout) == 0 && !ferror(stdout)) || exit_status != EXIT_STATUS_OK) return exit_status;
    if (errno != EPIPE) fprintf(stderr, "quire: cannot write to standard output: %s\n", strerror(errno ? errno : EIO));
    return EXIT_STATUS_FAILURE;
}

/* A file that is opened gets the lowest free number: were 0, 1 or 2 free, the weights would be read as standard input,
 * or warnings written into the answers. Opened the wrong way round, so that to use one fails, and is said. */
static void fill_standard_files(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0) open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
}

/* OpenMP's threads spin while they wait. Where other programs run too, a spinning thread takes the processor from the
 * very thread that it waits for: a small model answered 15 times slower on a busy machine. Sleeping costs some
 * microseconds an operation. OpenMP reads the policy before main, so the program starts once more with it set. Not
 * where OpenMP binds threads (OMP_PROC_BIND): this one is bound to one processor already, which the new start would
 * take for all that there are. Nor where the dynamic loader was run by hand: then /proc/self/exe is the loader. */
static void sleep_while_waiting(char **argv)
{
    if (getenv("OMP_WAIT_POLICY") || getauxval(AT_BASE) == 0) return;
#ifdef _OPENMP
    if (omp_get_num_places() > 0) return;
#endif
    if (setenv("OMP_WAIT_POLICY", "passive", 0) == 0) execv("/proc/self/exe", argv);
    /* still here: it works as well without, only slower at times */
}

int main(int argc, char **argv)
{
    sleep_while_waiting(argv);
    fill_standard_files();
    /* A closed pipe, or a file at its limit, is a write error like any other, and every command looks at those. */
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
    if (argc < 2) {
        print_usage(stderr);
        return EXIT_STATUS_USAGE;
    }
    const char *name = argv[1];
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0) {
        print_usage(stdout);
        return flush_stdout(EXIT_STATUS_OK);
    }
    if (strcmp(name, "--version") == 0) {
        puts("quire " QUIRE_VERSION);
        return flush_stdout(EXIT_STATUS_OK);
    }
    for (int i = 0; i < NUM_COMMANDS; i++) {
        if (strcmp(name, commands[i].name) == 0) return flush_stdout(commands[i].run(argc - 1, argv + 1));
    }
    return unknown_command(name);
}
