/*
 * volume-permissions: makes a mounted volume writable for a non-root user.
 *
 * The only file of an init-container image, and its PID 1. It gives everything below the named
 * directories to one owner, writes only what differs, follows no symlink and enters no other mount.
 * CAP_CHOWN, CAP_FOWNER and CAP_DAC_OVERRIDE are enough to run it.
 *
 *     musl-gcc -std=c11 -O2 -Wall -Wextra -Werror -pthread -static -o volume-permissions *.c
 */
#include "program.h"

#include <signal.h>

static void choose_jobs(void)
{
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    if (!options.jobs)
        options.jobs = online < 1 ? 1 : online > 8 ? 8 : (unsigned long)online;
}

/* Nothing needs tidying up, and a message could block on a full pipe. */
static void stop(int signal)
{
    _exit(128 + signal);
}

/* The kernel does not end PID 1 by a signal that it has no handler for. */
static void handle_signals(void)
{
    struct sigaction action = {.sa_handler = stop};
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    signal(SIGPIPE, SIG_IGN); /* the work matters more than the log */
}

int main(int argc, char **argv)
{
    static char *fallback[] = {"/data", NULL};
    struct stat status;
    handle_signals();
    char **paths = argv + parse_options(argc, argv);
    choose_jobs();
    share_descriptors();
    look_for_openat2();
    if (!*paths && (stat(*fallback, &status) || !S_ISDIR(status.st_mode)))
        die(USAGE, "no PATH is given and /data is not a directory; name the directory the volume is mounted "
            "at");
    if (!*paths)
        paths = fallback;
    for (char **path = paths; *path; path++) /* all are checked before the first is changed */
        *path = checked_path(*path);
    bool all_done = true;
    for (char **path = paths; *path; path++)
        all_done &= make_writable(*path);
    return all_done ? 0 : PARTIAL;
}
