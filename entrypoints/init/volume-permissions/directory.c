/* Directories as a tree in memory, and the ways to open them.
 *
 * A directory is opened by its parent's descriptor where that is open. Where it is not, because there are more
 * directories than descriptors, a worker goes there from the directory that it is in: up by "..", where each
 * must be the one that was read before, and down by name. Like that a deep tree costs its depth, not its square. */
#include "program.h"

struct directory *new_directory(struct directory *parent, const char *name)
{
    struct directory *directory = allocate(sizeof *directory + strlen(name) + 1);
    *directory = (struct directory){
        .parent = parent, .depth = parent ? parent->depth + 1 : 0, .references = 1, .fd = -1,
        .portion = next_portion(0, 0)};
    strcpy(directory->name, name);
    return directory;
}

/* Puts `text` in front of `start`; false where it does not fit. */
static bool prepend(char **start, const char *first, const char *text)
{
    size_t length = strlen(text);
    if ((size_t)(*start - first) < length)
        return false;
    *start = memcpy(*start - length, text, length);
    return true;
}

void describe(const struct directory *directory, const char *name, char *text, size_t size)
{
    const char *const room = text + strlen("...");
    char *start = text + size - 1;
    *start = '\0';
    bool fits = strcmp(name, ".") == 0 || (prepend(&start, room, name) && prepend(&start, room, "/"));
    for (; fits && directory; directory = directory->parent)
        fits = prepend(&start, room, directory->name) &&
               (!directory->parent || prepend(&start, room, "/"));
    if (!fits)
        prepend(&start, text, "...");
    memmove(text, start, strlen(start) + 1);
}

/* The names that lead from `above` down to `directory`; NULL: from the volume itself. */
static char *names_below(const struct directory *above, const struct directory *directory)
{
    size_t length = 1;
    for (const struct directory *d = directory; d != above && d->parent; d = d->parent)
        length += strlen(d->name) + 1;
    char *names = allocate(length), *start = names + length - 1;
    *start = '\0';
    for (const struct directory *d = directory; d != above && d->parent; d = d->parent) {
        if (*start)
            *--start = '/';
        prepend(&start, names, d->name);
    }
    memmove(names, start, strlen(start) + 1);
    return names;
}

static int go_down(int fd, const struct directory *above, const struct directory *directory)
{
    char *names = names_below(above, directory);
    int found = walk(fd, names, LISTING);
    free(names);
    return found;
}

static bool is_same(int fd, const struct directory *directory)
{
    struct status status;
    return look(fd, "", &status) == 0 && status.inode == directory->inode &&
           status.device == directory->device && !elsewhere(&status);
}

/* Up from `here` to `above`, whose descriptor is returned; -1 where somebody has moved one of them. */
static int go_up(const struct directory *here, const struct directory *above)
{
    int fd = openat(here->fd, ".", WAYPOINT);
    while (here != above && fd >= 0) {
        int next = openat(fd, "..", WAYPOINT);
        close_quietly(fd);
        here = here->parent;
        fd = next;
        if (fd >= 0 && !is_same(fd, here)) {
            close_quietly(fd);
            fd = -1;
        }
    }
    return fd;
}

/* The nearest directory that is above both, or one of them. */
static const struct directory *common(const struct directory *one, const struct directory *other)
{
    while (one != other)
        if (one->depth >= other->depth)
            one = one->parent;
        else
            other = other->parent;
    return one;
}

int open_far(const struct directory *directory, const struct directory *here)
{
    const size_t names_for_a_step = 8; /* so many names down cost as much as one step up */
    if (here) {
        const struct directory *above = common(here, directory);
        int fd = (here->depth - above->depth) * names_for_a_step < directory->depth ? go_up(here, above) : -1;
        if (fd >= 0) {
            int found = go_down(fd, above, directory);
            close_quietly(fd);
            if (found >= 0)
                return found;
        }
    }
    return go_down(volume.fd, NULL, directory);
}
