/* quire COMMAND [flags] */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/edit_distance.h"
#include "base/notice.h"
#include "runtime/bus_error.h"
#include "runtime/commands.h"
#include "runtime/interrupt.h"
#include "runtime/version.h"

static void print_usage(FILE *out)
{
    fputs("usage: quire COMMAND [flags]\n\n", out);
    for (int i = 0; i < COMMAND_COUNT; i++)
        fprintf(out, "  %-10s %s\n", command_list[i]->name, command_list[i]->summary);
    fputs("\n"
          "  quire chat --model org/name    a folder, or a model in the Hugging Face cache\n"
          "  quire serve -m org/name        for clients of OpenAI's API, at port 8000\n"
          "  quire generate -m org/name -i prompts.jsonl -o answers.jsonl\n"
          "  quire profile -m org/name\n"
          "\n"
          "quire COMMAND --help shows the common flags of a command, --help-all every flag.\n"
          "A flag is also read from the environment (--max-model-len: QUIRE_MAX_MODEL_LEN)\n"
          "and from a file (--config FILE). Without --model: a small model that ships here.\n"
          "quire --version says which quire this is, and for which processors and GPUs.\n"
          "Exit status: 0 done, 1 failed or incomplete, 2 wrong usage, 130 ended by Ctrl-C.\n",
          out);
}

/* Commands of ollama and vLLM, and what to do here. */
static const char *what_instead(const char *name)
{
    static const struct {
        const char *name, *sentence;
    } commands[] = {
        {"run", "quire chat --model ORG/NAME talks with a model, quire generate runs a file of prompts"},
        {"pull", "quire downloads nothing: hf download ORG/NAME does, and --model ORG/NAME then finds it"},
        {"list", "quire keeps no list: hf cache ls shows the models that --model ORG/NAME finds"},
        {"ls", "quire keeps no list: hf cache ls shows the models that --model ORG/NAME finds"},
        {"rm", "quire keeps no models: hf cache rm takes one out of the Hugging Face cache"},
        {"show", "quire inspect --model ORG/NAME shows what a model is"},
        {"run-batch", "quire generate -i FILE -o FILE answers OpenAI batch files"},
        {"complete", "quire generate goes on with the texts of a file or a pipe"},
    };
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        if (strcmp(commands[i].name, name) == 0) return commands[i].sentence;
    return NULL;
}

static int unknown_command(const char *name)
{
    const char *instead = what_instead(name);
    struct nearest nearest = nearest_begin(name);
    for (int i = 0; i < COMMAND_COUNT; i++) nearest_consider(&nearest, command_list[i]->name);
    if (instead)
        notice_printf(stderr, "quire: there is no command '%s': %s\n", name, instead);
    else if (nearest.word)
        notice_printf(stderr, "quire: there is no command '%s'; did you mean %s? quire --help lists the commands\n",
                      name, nearest.word);
    else
        notice_printf(stderr, "quire: there is no command '%s'; quire --help lists the commands\n", name);
    return EXIT_STATUS_USAGE;
}

/* Output that could not be written is a failure. A closed pipe gets no message: whoever closed it knows. */
static int flush_stdout(int exit_status)
{
    errno = 0;
    if ((fflush(stdout) == 0 && !ferror(stdout)) || exit_status != EXIT_STATUS_OK) return exit_status;
    if (errno != EPIPE)
        notice_printf(stderr, "quire: cannot write to standard output: %s\n", strerror(errno ? errno : EIO));
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

/* What is printed without a command; -1: argv asks for none of it. The last two are for the build. */
static int print_about(int argc, char **argv)
{
    const char *name = argv[1];
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0 ||
        strcmp(name, "--help-all") == 0)
        print_usage(stdout);
    else if (strcmp(name, "--version") == 0)
        version_print(stdout);
    else if (strcmp(name, "--print-man") == 0)
        return manual_print(stdout) ? EXIT_STATUS_OK : EXIT_STATUS_FAILURE;
    else if (strcmp(name, "--print-completion") == 0)
        return argc > 2 && completions_print(argv[2], stdout) ? EXIT_STATUS_OK : EXIT_STATUS_USAGE;
    else
        return -1;
    return EXIT_STATUS_OK;
}

int main(int argc, char **argv)
{
    fill_standard_files();
    /* A closed pipe and a file at its size limit become write errors, which every command reports. */
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
    bus_error_catch();
    if (argc < 2) {
        print_usage(stderr);
        return EXIT_STATUS_USAGE;
    }
    const int about = print_about(argc, argv);
    if (about >= 0) return flush_stdout(about);
    for (int i = 0; i < COMMAND_COUNT; i++) {
        if (strcmp(argv[1], command_list[i]->name) != 0) continue;
        const int exit_status = flush_stdout(command_run(command_list[i], argc - 1, argv + 1));
        interrupt_raise();
        return exit_status;
    }
    return unknown_command(argv[1]);
}
