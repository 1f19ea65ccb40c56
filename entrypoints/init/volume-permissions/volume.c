/* A volume: one PATH with everything below it on its mount. */
#include "program.h"

#include <stdatomic.h>
#include <time.h>

enum { SHOWN = 10 /* failures printed for each PATH */ };

struct volume volume;
static atomic_ullong failed;

void fail(const struct directory *directory, const char *name, const char *what)
{
    char path[PATH_MAX];
    int error = errno;
    if (error == ENOENT) /* it vanished meanwhile: nothing is left to change */
        return;
    if (atomic_fetch_add(&failed, 1) >= SHOWN)
        return;
    describe(directory, name, path, sizeof path);
    say("%s: %s: %s", path, what, strerror(error));
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void report(const struct counts *counts, double start)
{
    if (failed)
        say("%s: %llu failed%s; put the cause right and run again, what was done stays", volume.path, failed,
            failed > SHOWN ? ", the first 10 are above" : "");
    if (!options.quiet)
        say("%s: %llu entries, %llu changed, %llu failed, %llu skipped in %.1f s", volume.path, counts->entries,
            counts->changed, failed, counts->skipped, seconds() - start);
}

static void open_volume(const char *path)
{
    int root = open("/", WAYPOINT);
    char *names = strcpy(allocate(strlen(path)), path + 1);
    volume.path = path;
    volume.fd = walk(root, names, WAYPOINT);
    if (volume.fd < 0 || look(volume.fd, "", &volume.status))
        die(PARTIAL, "%s: cannot be opened (%s); check the mount and run again", path, strerror(errno));
    close_quietly(root);
    free(names);
}

bool make_writable(const char *path)
{
    double start = seconds();
    struct counts counts = {.entries = 1};
    failed = 0;
    open_volume(path);
    struct directory *top = new_directory(NULL, path);
    change(top, volume.fd, ".", &volume.status, &counts);
    struct counts below = work_together(top);
    counts.entries += below.entries;
    counts.changed += below.changed;
    counts.skipped += below.skipped;
    report(&counts, start);
    close_quietly(volume.fd);
    return failed == 0;
}
