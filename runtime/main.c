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

#include "kernels/backend.h"
#include "runtime/commands.h"

struct command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *summary;
};

static const struct command commands[] = {
    {"chat", command_chat, "talk with a model in the terminal"},
    {"generate", command_generate, "run a file of prompts through a model"},
    {"merge", command_merge, "put the outputs of several quire generate into one"},
    {"profile", command_profile, "show where the memory goes, and how many requests fit"},
    {"inspect", command_inspect, "show what a checkpoint folder holds, and what of it fits here"},
    {"tokenize", command_tokenize, "show the token ids of a text, or the text of ids"},
    {"template", command_template, "show what the chat template makes of a conversation"},
    {"bench", command_bench, "measure how fast a model runs here"},
};
enum { NUM_COMMANDS = sizeof commands / sizeof commands[0] };

static void print_usage(FILE *out)
{
    fputs("usage: quire COMMAND [flags]\n\n", out);
    for (int i = 0; i < NUM_COMMANDS; i++) fprintf(out, "  %-10s %s\n", commands[i].name, commands[i].summary);
    fputs("\nquire COMMAND --help lists the command's flags; quire --version says which quire this is, and for which "
          "GPUs.\n",
          out);
}

static void print_version(void)
{
    char cuda[4096];
    backend_describe_cuda(cuda, sizeof cuda);
    printf("quire %s\n%s", QUIRE_VERSION, cuda);
}

static int unknown_command(const char *name)
{
    fprintf(stderr, "quire: there is no command '%s'\n", name);
    print_usage(stderr);
    return EXIT_STATUS_USAGE;
}

/* Output that could not be written is a failure. A closed pipe gets no message: whoever closed it knows. */
static int flush_stdout(int exit_status)
{
    errno = 0;
    if ((fflush(stdout) == 0 && !ferror(stdout)) || exit_status != EXIT_STATUS_OK) return exit_status;
    if (errno != EPIPE) fprintf(stderr, "quire: cannot write to standard output: %s\n", strerror(errno ? errno : EIO));
    return EXIT_STATUS_FAILURE;
}

/* open() returns the lowest free descriptor: if 0, 1 or 2 were free, the weights would be read as standard input, or
 * warnings would be written into the answers. Each of them that is closed gets /dev/null, opened in the wrong direction
 * so that every use of it fails and is reported. */
static void fill_standard_files(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0) open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
}

/* OpenMP's threads spin while they wait. On a machine that runs other programs too, a spinning thread takes the
 * processor from the thread that it waits for; sleeping instead costs microseconds per operation. OpenMP reads its wait
 * policy before main, so the program executes itself again with the policy set. It does not where OpenMP binds threads
 * (OMP_PROC_BIND), because this thread is then bound to one processor and the new process would see only that one, nor
 * where the dynamic loader was run by hand, because /proc/self/exe is then the loader. */
static void sleep_while_waiting(char **argv)
{
    if (getenv("OMP_WAIT_POLICY") || getauxval(AT_BASE) == 0) return;
#ifdef _OPENMP
    if (omp_get_num_places() > 0) return;
#endif
    if (setenv("OMP_WAIT_POLICY", "passive", 0) == 0) execv("/proc/self/exe", argv);
    /* If that failed, quire works without it, only slower on a busy machine. */
}

int main(int argc, char **argv)
{
    sleep_while_waiting(argv);
    fill_standard_files();
    /* A closed pipe and a file at its size limit become write errors, which every command reports. */
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
        print_version();
        return flush_stdout(EXIT_STATUS_OK);
    }
    for (int i = 0; i < NUM_COMMANDS; i++) {
        if (strcmp(name, commands[i].name) == 0) return flush_stdout(commands[i].run(argc - 1, argv + 1));
    }
    return unknown_command(name);
}
