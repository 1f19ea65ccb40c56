/* What the program is told. */
#include "program.h"

#include <getopt.h>

#ifndef VERSION
#define VERSION "dev"
#endif

struct options options = {.uid = 1001, .gid = 1001};

static bool parse_number(const char *text, unsigned long long max, unsigned long long *number)
{
    size_t length = strlen(text);
    if (length == 0 || length > 10 || strspn(text, "0123456789") != length)
        return false;
    *number = strtoull(text, NULL, 10);
    return *number <= max;
}

static void parse_owner(char *text)
{
    const unsigned long long max = 4294967294; /* one more means "leave it" to chown */
    unsigned long long uid, gid = KEEP_GROUP;
    char *colon = strchr(text, ':');
    if (colon)
        *colon = '\0';
    if (!parse_number(text, max, &uid) || (colon && !parse_number(colon + 1, max, &gid)))
        die(USAGE, "--owner is not UID or UID:GID; give numbers from 0 to 4294967294, such as 1001:1001");
    options.uid = (uid_t)uid;
    options.gid = (gid_t)gid;
}

static void parse_jobs(const char *text)
{
    unsigned long long jobs;
    if (!parse_number(text, JOBS_MAX, &jobs) || jobs == 0)
        die(USAGE, "--jobs %s is not a number of threads; give one from 1 to %d", text, JOBS_MAX);
    options.jobs = jobs;
}

static void parse_mode(const char *text)
{
    if (strcmp(text, "g=u") != 0)
        die(USAGE, "--mode %s is not known; g=u is the only one", text);
    options.group_as_user = true;
}

static _Noreturn void help(void)
{
    puts("Usage: volume-permissions [OPTION]... [PATH]...\n"
         "Give each PATH (default: /data) and all below it to one owner, on that mount only.\n\n"
         "  --owner UID[:GID]  the owner, in numbers (default 1001:1001); without GID the group stays\n"
         "  --mode g=u         also give the group the user's bits on files and directories\n"
         "  --dry-run          change nothing, count what would be changed\n"
         "  --quiet            print failures only\n"
         "  --jobs N           threads (default: the processors, at most 8)\n"
         "  --version, --help  print and exit\n\n"
         "Symlinks are never followed. Other mounts and directories named lost+found or .snapshot are\n"
         "skipped. Exit status: 0 done, 1 some entries failed, 2 wrong usage or a refused PATH,\n"
         "130 or 143 interrupted; a second run finishes what the first left.");
    exit(0);
}

enum { OWNER = 256, MODE, DRY_RUN, QUIET, JOBS, PRINT_VERSION, HELP }; /* above all letters */

/* Of a letter, getopt does not say in which argument it was. */
static _Noreturn void unknown(const char *argument)
{
    if (optopt > 0 && optopt < OWNER)
        die(USAGE, "-%c is not a known option; see --help", optopt);
    die(USAGE, "%s is not a known option; see --help", argument);
}

int parse_options(int argc, char **argv)
{
    static const struct option known[] = {
        {"owner", required_argument, NULL, OWNER}, {"mode", required_argument, NULL, MODE},
        {"dry-run", no_argument, NULL, DRY_RUN},   {"quiet", no_argument, NULL, QUIET},
        {"jobs", required_argument, NULL, JOBS},   {"version", no_argument, NULL, PRINT_VERSION},
        {"help", no_argument, NULL, HELP},         {0},
    };
    opterr = 0;
    if (argc < 1) /* or what follows argv, the environment, would be taken for paths */
        die(USAGE, "it was started without a name; see --help");
    for (int option; (option = getopt_long(argc, argv, ":", known, NULL)) != -1;) {
        switch (option) {
        case OWNER: parse_owner(optarg); break;
        case MODE: parse_mode(optarg); break;
        case DRY_RUN: options.dry_run = true; break;
        case QUIET: options.quiet = true; break;
        case JOBS: parse_jobs(optarg); break;
        case PRINT_VERSION: puts("volume-permissions " VERSION); exit(0);
        case HELP: help();
        case ':': die(USAGE, "%s needs a value; see --help", argv[optind - 1]);
        default: unknown(argv[optind - 1]);
        }
    }
    return optind;
}
