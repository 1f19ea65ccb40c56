/*
 * volume-permissions: makes a mounted volume writable for a non-root user.
 *
 * The only file of an init-container image, and its PID 1. It gives everything below the named
 * directories to one owner, writes only what differs, follows no symlink and enters no other mount.
 * CAP_CHOWN, CAP_FOWNER and CAP_DAC_OVERRIDE are enough to run it.
 *
 *     musl-gcc -std=c11 -O2 -Wall -Wextra -Werror -pthread -static -o volume-permissions volume-permissions.c
 */
#define _GNU_SOURCE
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#ifndef VERSION
#define VERSION "dev"
#endif
#ifndef SYS_openat2 /* newer than many libc headers */
#define SYS_openat2 437
#endif
#ifndef SYS_fchmodat2
#define SYS_fchmodat2 452
#endif

#define KEEP_GROUP ((gid_t)-1)
#define WAYPOINT (O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
#define LISTING (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)

enum {
    PARTIAL = 1,     /* exit status: some entries failed */
    USAGE = 2,       /* exit status: nothing was touched */
    SHOWN = 10,      /* failures printed for each PATH */
    BATCH = 1024,    /* subdirectories a worker holds before it hands them over */
    JOBS_MAX = 256,
    PAUSED_MAX = 1024,
};

static struct {
    uid_t uid;
    gid_t gid;
    bool group_as_user, dry_run, quiet;
    unsigned long jobs;
} options = {.uid = 1001, .gid = 1001};

/* A directory to be read, or above one that is. It holds its name only, and the path is put together when
 * it is needed: in a deep tree whole paths would cost depth squared. */
struct dir {
    struct dir *parent, *next;
    DIR *listing;      /* open while it is read, and while it pauses */
    size_t references; /* itself until it is read to its end, and each child that still exists */
    char name[];
};

struct status {
    mode_t mode;
    uid_t uid;
    gid_t gid;
    dev_t device;
    uint64_t mount; /* 0: the kernel does not tell */
};

/* The volume being worked on. */
static const char *volume;
static int volume_fd;
static struct status volume_status;
static atomic_ullong entries, changed, failed, skipped;

/* The stack of directories to read, last in first out: depth first keeps it short. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t news = PTHREAD_COND_INITIALIZER;
static struct dir *stack;
static size_t busy; /* workers that may still push */
static size_t paused, paused_max;

static _Noreturn void die(int status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs("volume-permissions: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    exit(status);
}

static void *allocate(size_t size)
{
    void *memory = malloc(size);
    if (!memory)
        die(PARTIAL, "out of memory; raise the memory limit and run again, what was done stays");
    return memory;
}

static void close_quietly(int fd)
{
    int error = errno;
    if (fd >= 0)
        close(fd);
    errno = error;
}

/* The path of `name` in `dir`, or of `dir` itself for ".". */
static char *path_of(const struct dir *dir, const char *name)
{
    bool itself = strcmp(name, ".") == 0;
    size_t length = itself ? 0 : strlen(name) + 1;
    for (const struct dir *d = dir; d; d = d->parent)
        length += strlen(d->name) + 1;
    char *path = allocate(length), *end = path + length - 1;
    *end = '\0';
    for (; dir; name = dir->name, dir = dir->parent, itself = false) {
        if (itself)
            continue;
        end -= strlen(name);
        memcpy(end, name, strlen(name));
        *--end = '/';
    }
    memcpy(path, name, strlen(name));
    return path;
}

static void fail(const struct dir *dir, const char *name, const char *what)
{
    int error = errno;
    if (error == ENOENT) /* it vanished meanwhile: nothing is left to change */
        return;
    if (atomic_fetch_add(&failed, 1) >= SHOWN)
        return;
    char *path = path_of(dir, name);
    for (char *c = path; *c; c++) /* a file's name must not be able to forge log lines */
        if (iscntrl((unsigned char)*c))
            *c = '?';
    fprintf(stderr, "volume-permissions: %s: %s: %s\n", path, what, strerror(error));
    free(path);
}

/* Declared here because libc headers lack the mount id, or the whole call. */
struct kernel_statx {
    uint32_t mask, block_size;
    uint64_t attributes;
    uint32_t links, uid, gid;
    uint16_t mode, padding;
    uint64_t inode, size, blocks, attributes_mask, times[8];
    uint32_t rdev_major, rdev_minor, dev_major, dev_minor;
    uint64_t mount, spare[13];
};
_Static_assert(sizeof(struct kernel_statx) == 256, "struct statx of the kernel");

/* lstat of `name` in `at`, or of `at` itself for "". */
static int look(int at, const char *name, struct status *status)
{
    const unsigned type_mode_uid_gid = 0x1b, mount_id = 0x1000;
    const int flags = AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | AT_EMPTY_PATH;
    struct kernel_statx answer;
    if (syscall(SYS_statx, at, name, flags, type_mode_uid_gid | mount_id, &answer) == 0) {
        *status = (struct status){answer.mode, answer.uid, answer.gid,
                                  makedev(answer.dev_major, answer.dev_minor),
                                  answer.mask & mount_id ? answer.mount : 0};
        return 0;
    }
    if (errno != ENOSYS && errno != EPERM) /* EPERM is how old seccomp filters say "unknown call" */
        return -1;
    struct stat old;
    if (fstatat(at, name, &old, flags))
        return -1;
    *status = (struct status){old.st_mode, old.st_uid, old.st_gid, old.st_dev, 0};
    return 0;
}

/* The mount id also sees bind mounts of the same filesystem. The device counts for directories only
 * where mount ids are known, because overlayfs may give its files the device of a lower layer. */
static bool elsewhere(const struct status *status)
{
    if (status->mount != volume_status.mount)
        return true;
    return status->device != volume_status.device && (S_ISDIR(status->mode) || !status->mount);
}

static bool keeps_mode_of_its_own(mode_t mode)
{
    return S_ISREG(mode) || S_ISDIR(mode);
}

static mode_t group_as_user(mode_t mode)
{
    return (mode & ~(mode_t)S_IRWXG) | (mode & S_IRWXU) >> 3;
}

/* chmod by an O_PATH descriptor. Kernels before 6.6 can do it only by way of /proc. */
static int change_mode(int fd, mode_t mode)
{
    if (syscall(SYS_fchmodat2, fd, "", mode, AT_EMPTY_PATH) == 0)
        return 0;
    int error = errno;
    if (error != ENOSYS && error != EPERM)
        return -1;
    char path[32];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (chmod(path, mode) == 0)
        return 0;
    if (errno == ENOENT) /* it is /proc that is missing, not the file */
        errno = error;
    return -1;
}

/* The file is held by an O_PATH descriptor, which blocks on nothing and cannot be swapped for a symlink
 * between the look and the change; looking again also sees the bits the new owner cost. */
static int share_with_group(int at, const char *name)
{
    struct status status;
    int fd = openat(at, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return -1;
    int result = look(fd, "", &status);
    if (result == 0 && keeps_mode_of_its_own(status.mode) && !elsewhere(&status))
        result = change_mode(fd, group_as_user(status.mode) & 07777);
    close_quietly(fd);
    return result;
}

static void change(const struct dir *dir, int at, const char *name, const struct status *status)
{
    bool owner = status->uid != options.uid || (options.gid != KEEP_GROUP && status->gid != options.gid);
    bool mode = options.group_as_user && keeps_mode_of_its_own(status->mode) &&
                group_as_user(status->mode) != status->mode;
    if (!owner && !mode)
        return;
    if (owner && !options.dry_run && fchownat(at, name, options.uid, options.gid, AT_SYMLINK_NOFOLLOW)) {
        fail(dir, name, "cannot change the owner");
        return;
    }
    if (mode && !options.dry_run && share_with_group(at, name)) {
        fail(dir, name, "cannot change the mode");
        return;
    }
    atomic_fetch_add(&changed, 1);
}

static struct dir *new_dir(struct dir *parent, const char *name)
{
    struct dir *dir = allocate(sizeof *dir + strlen(name) + 1);
    *dir = (struct dir){.parent = parent, .references = 1};
    strcpy(dir->name, name);
    return dir;
}

/* Deals with one entry of `dir`; a directory to go into is returned. */
static struct dir *visit(struct dir *dir, const char *name)
{
    struct status status;
    atomic_fetch_add(&entries, 1);
    if (look(dirfd(dir->listing), name, &status)) {
        fail(dir, name, "cannot be looked at");
        return NULL;
    }
    bool is_dir = S_ISDIR(status.mode);
    bool reserved = is_dir && (strcmp(name, "lost+found") == 0 || strcmp(name, ".snapshot") == 0);
    if (reserved || elsewhere(&status)) {
        atomic_fetch_add(&skipped, 1);
        return NULL;
    }
    change(dir, dirfd(dir->listing), name, &status);
    return is_dir ? new_dir(dir, name) : NULL;
}

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
static int walk(int at, char *path, int flags)
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

static int open_dir(const struct dir *dir)
{
    char *path = path_of(dir, "."), *below = path + strlen(volume);
    int fd = walk(volume_fd, *below ? below + 1 : below, LISTING);
    free(path);
    return fd;
}

static bool open_listing(struct dir *dir)
{
    struct status status;
    int fd = open_dir(dir);
    if (fd < 0 || look(fd, "", &status)) {
        fail(dir, ".", "cannot be opened");
    } else if (elsewhere(&status)) { /* mounted over since its parent was read */
        atomic_fetch_add(&skipped, 1);
    } else if ((dir->listing = fdopendir(fd))) {
        return true;
    } else {
        fail(dir, ".", "cannot be read");
    }
    close_quietly(fd);
    return false;
}

/* Reads on until the end or a full batch, and returns the subdirectories found. */
static struct dir *read_batch(struct dir *dir, bool *at_end)
{
    struct dir *found = NULL;
    for (int count = 0; !*at_end && count < BATCH;) {
        errno = 0;
        struct dirent *entry = readdir(dir->listing);
        if (!entry) {
            if (errno)
                fail(dir, ".", "cannot be read to its end");
            closedir(dir->listing);
            *at_end = true;
        } else if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            struct dir *child = visit(dir, entry->d_name);
            if (!child)
                continue;
            child->next = found;
            found = child;
            count++;
        }
    }
    return found;
}

/* With the lock held. */
static void push(struct dir *dir)
{
    dir->next = stack;
    stack = dir;
}

/* With the lock held. */
static void release(struct dir *dir)
{
    while (dir && --dir->references == 0) {
        struct dir *parent = dir->parent;
        free(dir);
        dir = parent;
    }
}

/* The next directory, or NULL when all is done. */
static struct dir *take(void)
{
    pthread_mutex_lock(&lock);
    while (!stack && busy)
        pthread_cond_wait(&news, &lock);
    struct dir *dir = stack;
    if (dir) {
        stack = dir->next;
        paused -= dir->listing != NULL;
        busy++;
    }
    pthread_mutex_unlock(&lock);
    return dir;
}

/* Gives the subdirectories found to all workers and, below them on the stack, the directory itself if
 * more of it is to be read: so a million subdirectories are never in memory at once. False when it must
 * be read on now, because too many others pause. */
static bool hand_over(struct dir *dir, struct dir *found, bool at_end)
{
    pthread_mutex_lock(&lock);
    bool pause = !at_end && paused < paused_max;
    if (pause) {
        paused++;
        push(dir);
    }
    for (struct dir *next; found; found = next) {
        next = found->next;
        dir->references++;
        push(found);
    }
    if (at_end)
        release(dir);
    busy -= at_end || pause;
    if (stack || !busy)
        pthread_cond_broadcast(&news);
    pthread_mutex_unlock(&lock);
    return at_end || pause;
}

static void *work(void *unused)
{
    for (struct dir *dir; (dir = take());) {
        bool at_end = !dir->listing && !open_listing(dir);
        struct dir *found;
        do
            found = read_batch(dir, &at_end);
        while (!hand_over(dir, found, at_end));
    }
    return unused;
}

static void work_together(void)
{
    pthread_t threads[JOBS_MAX];
    size_t started = 0;
    while (started + 1 < options.jobs && pthread_create(&threads[started], NULL, work, NULL) == 0)
        started++; /* where no more threads are allowed, those there are do */
    work(NULL);
    while (started)
        pthread_join(threads[--started], NULL);
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void report(double start)
{
    if (failed)
        fprintf(stderr, "volume-permissions: %s: %llu failed%s; put the cause right and run again, what was "
                "done stays\n", volume, failed, failed > SHOWN ? ", the first 10 are above" : "");
    if (!options.quiet)
        fprintf(stderr, "volume-permissions: %s: %llu entries, %llu changed, %llu failed, %llu skipped in "
                "%.1f s\n", volume, entries, changed, failed, skipped, seconds() - start);
}

static bool make_writable(const char *path)
{
    double start = seconds();
    struct dir *top = new_dir(NULL, path);
    char *names = path_of(top, ".");
    int slash = open("/", WAYPOINT);
    volume = path;
    volume_fd = walk(slash, names + 1, WAYPOINT);
    if (volume_fd < 0 || look(volume_fd, "", &volume_status))
        die(PARTIAL, "%s: cannot be opened (%s); check the mount and run again", path, strerror(errno));
    close_quietly(slash);
    free(names);
    entries = 1;
    changed = failed = skipped = 0;
    change(top, volume_fd, ".", &volume_status);
    push(top);
    work_together();
    report(start);
    close_quietly(volume_fd);
    return failed == 0;
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
    static const char *const with_all_below[] = {"bin",  "boot", "dev", "etc", "proc",
                                                 "sbin", "sys",  "usr", NULL};
    static const char *const alone[] = {"", "home", "opt", "root", "run", "srv", "var", NULL};
    const char *top = path + 1;
    size_t length = strcspn(top, "/");
    return strncmp(top, "lib", 3) == 0 || is_one_of(top, length, with_all_below) ||
           (top[length] == '\0' && is_one_of(top, length, alone));
}

/* The canonical path of a directory that may be changed; anything else ends the program. */
static char *checked(const char *given)
{
    char *path = allocate(strlen(given) + 1);
    strcpy(path, given);
    for (size_t length = strlen(path); length > 1 && path[length - 1] == '/';) /* "link/" is the link too */
        path[--length] = '\0';
    struct stat status;
    char *canonical = lstat(path, &status) ? NULL : realpath(path, NULL);
    if (!canonical)
        die(USAGE, "%s: cannot be found (%s); name the directory the volume is mounted at", given,
            strerror(errno));
    if (S_ISLNK(status.st_mode))
        die(USAGE, "%s: is a symbolic link; name the directory it leads to", given);
    if (!S_ISDIR(status.st_mode))
        die(USAGE, "%s: is not a directory; name the directory the volume is mounted at", given);
    free(path);
    while (canonical[0] == '/' && canonical[1] == '/') /* POSIX lets realpath keep two slashes */
        canonical++;
    if (is_system_path(canonical))
        die(USAGE, "%s: is a system path and stays as it is; name the directory the volume is mounted at",
            given);
    return canonical;
}

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

static void parse_options(int argc, char **argv)
{
    static const struct option known[] = {
        {"owner", required_argument, NULL, 'o'}, {"mode", required_argument, NULL, 'm'},
        {"dry-run", no_argument, NULL, 'n'},     {"quiet", no_argument, NULL, 'q'},
        {"jobs", required_argument, NULL, 'j'},  {"version", no_argument, NULL, 'v'},
        {"help", no_argument, NULL, 'h'},        {0},
    };
    opterr = 0;
    for (int option; (option = getopt_long(argc, argv, ":", known, NULL)) != -1;) {
        switch (option) {
        case 'o': parse_owner(optarg); break;
        case 'm': parse_mode(optarg); break;
        case 'n': options.dry_run = true; break;
        case 'q': options.quiet = true; break;
        case 'j': parse_jobs(optarg); break;
        case 'v': puts("volume-permissions " VERSION); exit(0);
        case 'h': help();
        case ':': die(USAGE, "%s needs a value; see --help", argv[optind - 1]);
        default: die(USAGE, "%s is not a known option; see --help", argv[optind - 1]);
        }
    }
}

static void choose_jobs(void)
{
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    if (!options.jobs)
        options.jobs = online < 1 ? 1 : online > 8 ? 8 : (unsigned long)online;
}

/* Shares the descriptors out: a worker needs up to three at once, a few are always open, and paused
 * directories may have the rest. Under a tight limit there are fewer workers. */
static void share_descriptors(void)
{
    const rlim_t always = 8, per_job = 3;
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit))
        return;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    rlim_t room = limit.rlim_cur > always + per_job ? limit.rlim_cur - always : per_job;
    if (options.jobs > room / per_job)
        options.jobs = room / per_job;
    room -= options.jobs * per_job;
    paused_max = room < PAUSED_MAX ? room : PAUSED_MAX;
}

static void look_for_openat2(void)
{
    int fd = open_names(AT_FDCWD, "/", WAYPOINT);
    names_at_once_max = fd < 0 ? 0 : PATH_MAX - 1;
    close_quietly(fd);
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
    parse_options(argc, argv);
    choose_jobs();
    share_descriptors();
    look_for_openat2();
    char **paths = argv + optind;
    if (!*paths && (stat(*fallback, &status) || !S_ISDIR(status.st_mode)))
        die(USAGE, "no PATH is given and /data is not a directory; name the directory the volume is mounted "
            "at");
    if (!*paths)
        paths = fallback;
    for (char **path = paths; *path; path++) /* all are checked before the first is changed */
        *path = checked(*path);
    bool all_done = true;
    for (char **path = paths; *path; path++)
        all_done &= make_writable(*path);
    return all_done ? 0 : PARTIAL;
}
