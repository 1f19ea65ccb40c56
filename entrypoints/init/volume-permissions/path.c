/* Paths: which may be changed, and how they are opened without following a symlink. */
#include "program.h"

#ifndef SYS_openat2 /* newer than many libc headers */
#define SYS_openat2 437
#endif

/* Zero on kernels before 5.6, which lack openat2. */
static size_t names_at_once_max;

static int open_names(int at, const char *names, int flags)
{
    struct {
        uint64_t flags, mode, resolve;
    } how = {(uint64_t)flags, 0, 0x04 /* RESOLVE_NO_SYMLINKS */};
    return (int)syscall(SYS_openat2, at, names, &how, sizeof how);
}

/* The length of as many leading names of `path` as one call can take. */
static size_t names_at_once(const char *path)
{
    size_t length = strlen(path);
    if (length > names_at_once_max)
        for (length = names_at_once_max; length && path[length] != '/'; length--)
            ;
    return length ? length : strcspn(path, "/");
}

/* Opens the directory `path` below `at`; a symlink on the way is an error. No descriptor is kept for the
 * directories between, so neither a deep nor a wide tree runs out of them. */
int walk(int at, char *path, int flags)
{
    int fd = openat(at, ".", *path ? WAYPOINT : flags);
    while (*path && fd >= 0) {
        char *rest = path + names_at_once(path);
        bool last = !*rest;
        if (!last)
            *rest++ = '\0';
        int next = names_at_once_max ? open_names(fd, path, last ? flags : WAYPOINT)
                                     : openat(fd, path, last ? flags : WAYPOINT);
        close_quietly(fd);
        fd = next;
        path = rest;
    }
    return fd;
}

static bool is_one_of(const char *name, size_t length, const char *const *list)
{
    for (; *list; list++)
        if (strlen(*list) == length && strncmp(name, *list, length) == 0)
            return true;
    return false;
}

/* Takes a canonical path. */
static bool is_system_path(const char *path)
{
    static const char *const with_all_below[] = {"bin",   "boot",   "dev",  "etc",  "lib", "lib32", "lib64",
                                                 "libx32", "proc", "sbin", "sys", "usr",   NULL};
    static const char *const alone[] = {"", "home", "opt", "root", "run", "srv", "var", NULL};
    const char *top = path + 1;
    size_t length = strcspn(top, "/");
    return is_one_of(top, length, with_all_below) || (top[length] == '\0' && is_one_of(top, length, alone));
}

static _Noreturn void refuse(const char *given, const char *why)
{
    die(USAGE, "%s: %s; name the directory the volume is mounted at", *given ? given : "''", why);
}

/* What a symlink in the path leads to is for whoever may write beside it to say, so there must be none. */
static void refuse_symlinks(const char *given)
{
    char *names = strcpy(allocate(strlen(given) + 1), given);
    for (char *end = names; *end;) {
        struct stat status;
        end += strspn(end, "/");
        end += strcspn(end, "/");
        char next = *end;
        *end = '\0';
        if (*names && lstat(names, &status) == 0 && S_ISLNK(status.st_mode))
            die(USAGE, "%s: %s is a symbolic link; name the directory it leads to", given, names);
        *end = next;
    }
    free(names);
}

char *checked_path(const char *given)
{
    struct stat status;
    char *canonical = realpath(given, NULL);
    if (!canonical) {
        char why[256];
        snprintf(why, sizeof why, "cannot be found (%s)", strerror(errno));
        refuse(given, why);
    }
    refuse_symlinks(given);
    if (stat(canonical, &status) || !S_ISDIR(status.st_mode))
        refuse(given, "is not a directory");
    while (canonical[0] == '/' && canonical[1] == '/') /* POSIX lets realpath keep two slashes */
        canonical++;
    if (is_system_path(canonical))
        refuse(given, "is a system path and stays as it is");
    return canonical;
}

void look_for_openat2(void)
{
    int fd = open_names(AT_FDCWD, "/", WAYPOINT);
    names_at_once_max = fd < 0 ? 0 : PATH_MAX - 1;
    close_quietly(fd);
}
