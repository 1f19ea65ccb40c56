/* What the parts of volume-permissions share; each .c file begins with what it is for. */
#ifndef PROGRAM_H
#define PROGRAM_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define KEEP_GROUP ((gid_t)-1)
#define WAYPOINT (O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
#define LISTING (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)

enum {
    PARTIAL = 1, /* exit status: some entries failed */
    USAGE = 2,   /* exit status: nothing was touched */
    JOBS_MAX = 256,
};

/* --- options.c */

extern struct options {
    uid_t uid;
    gid_t gid;
    bool group_as_user, dry_run, quiet;
    unsigned long jobs;
} options;

/* The index of the first PATH. */
int parse_options(int argc, char **argv);

/* --- message.c */

/* Writes one line to stderr; what is not printable in it is shown as text. */
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
_Noreturn void die(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* --- path.c */

/* Opens the directory `path` below `at`; a symlink on the way is an error. `path` is used up. */
int walk(int at, char *path, int flags);
/* The canonical path of a directory that may be changed; anything else ends the program. */
char *checked_path(const char *given);
void look_for_openat2(void);

/* --- status.c */

struct status {
    mode_t mode;
    uid_t uid;
    gid_t gid;
    dev_t device;
    uint64_t inode;
    uint64_t mount; /* 0: the kernel does not tell */
};

/* lstat of `name` in `at`, or of `at` itself for "". */
int look(int at, const char *name, struct status *status);
/* Is it on another mount than the volume? */
bool elsewhere(const struct status *status);

/* --- directory.c */

/* A directory to be read, or above one that is. It holds its name only, and a path is put together when
 * it is needed: in a deep tree whole paths would cost depth squared. */
struct directory {
    struct directory *parent, *next;
    dev_t device;
    uint64_t inode;
    size_t depth;
    size_t references; /* itself until it is read to its end, each child, and each worker in it */
    size_t pins;       /* what needs `fd`, which is closed with the last */
    size_t portion;    /* bytes to be read of it at once */
    int fd;            /* -1 while it is closed */
    bool leans;        /* it pins its parent until it is opened */
    char name[];
};

struct directory *new_directory(struct directory *parent, const char *name);
/* The path of `name` in `directory`, or of `directory` itself for ".", as far as `size` goes. */
void describe(const struct directory *directory, const char *name, char *text, size_t size);
/* Opens `directory`, whose parent is closed, from `here` (or NULL); -1 with `errno`. */
int open_far(const struct directory *directory, const struct directory *here);

/* --- volume.c */

struct counts {
    unsigned long long entries, changed, skipped;
};

/* The volume being worked on. */
extern struct volume {
    const char *path;
    int fd;
    struct status status;
} volume;

/* Counts a failure, and prints the first few; `errno` is its cause. */
void fail(const struct directory *directory, const char *name, const char *what);
/* Everything below the canonical path gets its owner. */
bool make_writable(const char *path);

/* --- entry.c */

/* Deals with `name` in `directory`, whose handle is `at`. True: a directory to go into. */
bool visit(const struct directory *directory, int at, const char *name, struct counts *counts);
/* Gives what was looked at its owner and mode. */
void change(const struct directory *directory, int at, const char *name, const struct status *status,
            struct counts *counts);

/* --- listing.c */

/* Names read from a directory at once, in the order of their inodes. */
struct listing {
    char *buffer;
    size_t count;
    struct name {
        uint64_t inode;
        const char *text;
    } *names, *spare;
};

struct listing new_listing(void);
void free_listing(struct listing *listing);
/* Reads on, until the end or `portion` bytes; `errno` is not 0 where it ended too early. */
void read_names(int fd, size_t portion, struct listing *listing, bool *at_end);
/* How much to read the next time (or the first, after 0), after so many subdirectories. */
size_t next_portion(size_t portion, size_t subdirectories);

/* --- queue.c */

/* Goes through `top` and everything below it with all workers. */
struct counts work_together(struct directory *top);
/* Raises the limit of descriptors, and shares them out. */
void share_descriptors(void);

void *allocate(size_t size);
void close_quietly(int fd);

#endif
