/* volume-permissions: make a mounted volume writable for a user that is not root.
 *
 * It gives each PATH and all below it to one owner. It may be process 1, and needs CHOWN, FOWNER and DAC_OVERRIDE.
 *
 * The volume's user may rename and replace files while the program runs. So the program opens each file below the
 * descriptor of its directory, follows no symlink, and checks and changes the open file, not a path. */
#define _GNU_SOURCE
#define _FILE_OFFSET_BITS 64
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifndef VERSION /* the image's Dockerfile sets both */
#define VERSION "dev"
#define OWNER 1001
#endif
#define say(...) (snprintf(message, sizeof message, __VA_ARGS__), print_message())
#define die(code, ...) (say(__VA_ARGS__), _exit(code))

enum { PARTIAL = 1, USAGE = 2, INTERRUPTED = 128 }; /* exit codes */
enum { ANY = O_PATH | O_NOFOLLOW | O_CLOEXEC, FOLDER = ANY | O_DIRECTORY, LISTING = FOLDER & ~O_PATH };
enum { ACROSS_MOUNTS = 0x02 | 0x04 | 0x08, ON_ONE_MOUNT = ACROSS_MOUNTS | 0x01 }; /* RESOLVE_* of openat2 */
enum { SYS_OPENAT2 = 437, SYS_FCHMODAT2 = 452 }; /* newer than many libc headers */
enum { SHOWN = 10 /* failures of each PATH */, PORTION = 4 << 20, LEVELS_MAX = 4096, SPARE_DESCRIPTORS = 8 };
static const gid_t KEEP_GROUP = (gid_t)-1;

struct directory {
    struct directory *above; /* NULL: `name` is a whole path */
    char *name;
    int fd;
};

static struct { uid_t uid; gid_t gid; bool group_as_user, dry_run, quiet; } options = {.uid = OWNER, .gid = OWNER};
static struct volume { char *path; int fd; struct stat status; unsigned long mount; } volume, *volumes;
static struct counts { unsigned long entries, changed, failed, skipped; } counts;
static struct directory *deferred; /* too deep: each waits, and `above` is the next one */
static long levels_max;
static bool has_openat2 = true; /* not before Linux 5.6, nor in some seccomp profiles */
static char message[2 * PATH_MAX];

/* Print one line. All but printable ASCII is escaped, so that no file name forges a line or controls a terminal. */
static void print_message(void) {
    char line[32 + 4 * sizeof message], *end = line + sprintf(line, "volume-permissions: "), *rest = line;
    for (const unsigned char *c = (const unsigned char *)message; *c; c++)
        end += sprintf(end, *c == '\\' ? "\\\\" : *c == '\n' ? "\\n" : *c < ' ' || *c > '~' ? "\\x%02x" : "%c", *c);
    *end++ = '\n';
    for (ssize_t written; rest < end && (written = write(STDERR_FILENO, rest, (size_t)(end - rest))) > 0;)
        rest += written;
}

static void *allocate(size_t size) {
    void *memory = malloc(size);
    if (!memory) die(PARTIAL, "out of memory; raise the memory limit and run again, what was done stays");
    return memory;
}

static char *path_of(const struct directory *directory) {
    size_t length = strlen(directory->name) + 1;
    for (const struct directory *each = directory->above; each; each = each->above) length += strlen(each->name) + 1;
    char *path = allocate(length), *start = path + length;
    for (*--start = '\0'; directory; directory = directory->above) {
        start -= strlen(directory->name);
        memcpy(start, directory->name, strlen(directory->name));
        if (directory->above) *--start = '/';
    }
    return path;
}

/* Count a failure with a directory or an entry of it; `errno` is the cause. */
static void fail(const struct directory *entry, const char *what) {
    int error = errno;
    if (error == ENOENT || counts.failed++ >= SHOWN) return; /* what was removed meanwhile needs no change */
    char *path = path_of(entry);
    say("%.*s: %s: %s", PATH_MAX, path, what, strerror(error));
    free(path);
}

/* Open `name` below `at`. No symlink is followed; with O_PATH, a symlink is opened itself. */
static int open_below(int at, const char *name, int flags, unsigned resolve) {
    struct { unsigned long long flags, mode, resolve; } how = {(unsigned)flags, 0, resolve};
    return has_openat2 ? (int)syscall(SYS_OPENAT2, at, name, &how, sizeof how) : openat(at, name, flags);
}

/* Open the directory `path` below `fd`, and close `fd`; `flags` are for the last name. On one mount, openat2 takes many
 * names at once. Else it is name by name, and after a failure `path` ends at the name that cannot be opened. */
static int walk(int fd, char *path, int flags, unsigned resolve) {
    while (*path && fd >= 0) {
        char *name = path + strspn(path, "/"), *end = strchrnul(name, '/'), *more;
        while (has_openat2 && resolve == ON_ONE_MOUNT && *end && (more = strchrnul(end + 1, '/')) - name < PATH_MAX)
            end = more;
        char next = *end;
        *end = '\0';
        int below = open_below(fd, name, next ? FOLDER : flags, resolve);
        close(fd);
        if ((fd = below) >= 0) *end = next;
        path = end;
    }
    return fd;
}

/* The mount of an open file, where openat2 does not keep to one mount; 0 if there is no /proc. */
static unsigned long mount_of(int fd) {
    char path[40];
    unsigned long mount;
    snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
    FILE *file = fopen(path, "re");
    if (!file || fscanf(file, "pos: %*s flags: %*s mnt_id: %lu", &mount) != 1) mount = 0;
    if (file) fclose(file);
    return mount;
}

/* Is an open file outside of the volume's mount or file system? A file of overlayfs may have the device of a lower
 * layer, so the devices of files are compared only if their mounts are unknown. */
static bool elsewhere(int fd, const struct stat *status) {
    bool same_device = status->st_dev == volume.status.st_dev;
    if (has_openat2) return S_ISDIR(status->st_mode) && !same_device;
    return mount_of(fd) != volume.mount || (!same_device && (S_ISDIR(status->st_mode) || !volume.mount));
}

static mode_t group_as_user(mode_t mode) { return (mode & ~(mode_t)S_IRWXG) | (mode & S_IRWXU) >> 3; }

/* chmod of an O_PATH descriptor. Linux before 6.6 has it only by way of /proc. */
static int change_mode(int fd, mode_t mode) {
    char path[40];
    int result = (int)syscall(SYS_FCHMODAT2, fd, "", mode, AT_EMPTY_PATH);
    if (result == 0 || (errno != ENOSYS && errno != EPERM)) return result;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if ((result = chmod(path, mode)) && errno == ENOENT) errno = ENOSYS; /* /proc is missing, not the file */
    return result;
}

/* Change an open file if its owner or mode differs. A new owner costs a file its setuid and setgid bits, and comes
 * first: the group must not get such a program to write to. Without the capability FSETID, chmod drops the setgid bit
 * of another group's directory: so such a directory is in the program's own group meanwhile. */
static void change(int fd, const struct stat *status, const struct directory *entry) {
    mode_t old = status->st_mode;
    gid_t gid = options.gid == KEEP_GROUP ? status->st_gid : options.gid;
    bool owner = status->st_uid != options.uid || status->st_gid != gid;
    bool mode = options.group_as_user && (S_ISREG(old) || S_ISDIR(old)) && group_as_user(old) != old;
    bool setgid = mode && S_ISDIR(old) && old & S_ISGID;
    mode_t new = group_as_user(old) & (owner && !S_ISDIR(old) ? 01777 : 07777);
    if (!options.dry_run) {
        if ((owner || setgid) && fchownat(fd, "", options.uid, setgid ? getegid() : gid, AT_EMPTY_PATH))
            return fail(entry, "cannot change the owner");
        if (mode && change_mode(fd, new)) return fail(entry, "cannot change the mode");
        if (setgid && fchownat(fd, "", options.uid, gid, AT_EMPTY_PATH)) return fail(entry, "cannot change the group");
    }
    counts.changed += owner || mode;
}

/* Open an entry of a directory. If it is to be skipped or cannot be opened, count that and return -1. */
static int open_entry(const struct directory *entry, int flags, struct stat *status) {
    int fd = open_below(entry->above->fd, entry->name, flags, ON_ONE_MOUNT);
    bool is_open = fd >= 0 && fstat(fd, status) == 0;
    bool is_reserved = strcmp(entry->name, "lost+found") == 0 || strcmp(entry->name, ".snapshot") == 0;
    bool skip = is_open ? (is_reserved && S_ISDIR(status->st_mode)) || elsewhere(fd, status) : errno == EXDEV;
    if (is_open && !skip) return fd;
    if (skip) counts.skipped++;
    else fail(entry, "cannot be opened");
    if (fd >= 0) close(fd);
    return -1;
}

/* Shell's sort takes half the time of musl's qsort. */
static void sort_by_inode(struct dirent **entries, size_t count) {
    for (size_t gap = count / 2; gap; gap = gap == 2 ? 1 : gap * 5 / 11)
        for (size_t i = gap, to; i < count; i++) {
            struct dirent *entry = entries[i];
            for (to = i; to >= gap && entries[to - gap]->d_ino > entry->d_ino; to -= gap)
                entries[to] = entries[to - gap];
            entries[to] = entry;
        }
}

static void defer(const struct directory *directory) {
    struct directory *each = allocate(sizeof *each);
    *each = (struct directory){deferred, path_of(directory), -1};
    deferred = each;
}

/* Change everything below a directory, which is open on this level, and close it. Portions of it are taken in the order
 * of inodes: a disk then reads and writes each block of inodes once. A subdirectory so deep that descriptors would run
 * out below it waits until all else is done. */
static void read_directory(struct directory *directory, long level) {
    static _Alignas(struct dirent) char buffer[PORTION];
    static struct dirent *entries[PORTION / 24]; /* no entry is shorter */
    struct stat status;
    long filled;
    while ((filled = syscall(SYS_getdents64, directory->fd, buffer, PORTION)) > 0) {
        size_t count = 0;
        for (char *at = buffer; at < buffer + filled; at += entries[count++]->d_reclen)
            entries[count] = (struct dirent *)at;
        sort_by_inode(entries, count);
        char *names = allocate((size_t)filled), *end = names; /* of the subdirectories */
        for (size_t i = 0; i < count; i++) {
            struct directory entry = {directory, entries[i]->d_name, -1};
            if (strcmp(entry.name, ".") == 0 || strcmp(entry.name, "..") == 0) continue;
            counts.entries++;
            if ((entry.fd = open_entry(&entry, ANY, &status)) < 0) continue;
            change(entry.fd, &status, &entry);
            close(entry.fd);
            if (S_ISDIR(status.st_mode)) end = stpcpy(end, entry.name) + 1;
        }
        for (char *name = names; name < end; name += strlen(name) + 1) {
            struct directory entry = {directory, name, -1};
            if (level >= levels_max || level >= LEVELS_MAX) defer(&entry);
            else if ((entry.fd = open_entry(&entry, LISTING, &status)) >= 0) read_directory(&entry, level + 1);
        }
        free(names);
    }
    if (filled < 0) fail(directory, "cannot be read to its end");
    close(directory->fd);
}

/* Change a volume and everything below it, and print the summary. Return true if nothing failed. */
static bool make_writable(const struct volume *next) {
    volume = *next;
    struct timespec start, end;
    struct stat status;
    struct directory top = {NULL, volume.path, volume.fd};
    clock_gettime(CLOCK_MONOTONIC, &start);
    counts = (struct counts){.entries = 1};
    change(volume.fd, &volume.status, &top);
    defer(&top);
    for (struct directory *each; (each = deferred); free(each)) {
        deferred = each->above;
        each->above = NULL;
        each->fd = walk(openat(volume.fd, ".", LISTING), each->name + strlen(volume.path), LISTING, ON_ONE_MOUNT);
        if (each->fd < 0 || fstat(each->fd, &status)) fail(each, "cannot be opened");
        else if (!elsewhere(each->fd, &status)) read_directory(each, 1);
        free(each->name);
    }
    clock_gettime(CLOCK_MONOTONIC, &end);
    if (counts.failed)
        say("%s: %lu failed%s; put the cause right and run again, what was done stays", volume.path, counts.failed,
            counts.failed > SHOWN ? ", the first 10 are above" : "");
    if (!options.quiet)
        say("%s: %lu entries, %lu changed, %lu failed, %lu skipped in %.1f s", volume.path, counts.entries,
            counts.changed, counts.failed, counts.skipped,
            (double)(end.tv_sec - start.tv_sec) + (double)(end.tv_nsec - start.tv_nsec) / 1e9);
    return !counts.failed;
}

/* Is it one of the first twelve names or below it, or exactly one of the others? */
static bool is_system_path(const char *path) {
    static const char *const names[] = {"bin", "boot", "dev", "etc", "lib", "lib32", "lib64", "libx32", "proc",
        "sbin", "sys", "usr", "home", "opt", "root", "run", "srv", "var"};
    size_t length = strcspn(path, "/"), count = path[length] ? 12 : sizeof names / sizeof *names;
    while (count-- > 0)
        if (strlen(names[count]) == length && strncmp(names[count], path, length) == 0) return true;
    return false;
}

/* Open a PATH from the root. It stays open until its turn, so that it is the directory that was checked. */
static struct volume open_volume(const char *given) {
    char cwd[PATH_MAX] = "";
    if (!*given || (*given != '/' && !getcwd(cwd, sizeof cwd)))
        die(USAGE, "'%s': cannot be found; name the directory the volume is mounted at", given);
    size_t size = strlen(cwd) + strlen(given) + 2;
    char *names = allocate(size), *path = allocate(size), *end = path;
    sprintf(names, "%s/%s", cwd, given);
    for (char *name = strtok(names, "/"); name; name = strtok(NULL, "/"))
        if (strcmp(name, "..") == 0) die(USAGE, "%s: contains '..'; give the path without it", given);
        else if (strcmp(name, ".") != 0) end += sprintf(end, "/%s", name);
    free(names);
    if (end == path || is_system_path(path + 1))
        die(USAGE, "%s: is a system path and stays as it is; name the directory the volume is mounted at", given);
    struct volume found = {.path = path, .fd = walk(open("/", FOLDER), path, FOLDER, ACROSS_MOUNTS)};
    if (found.fd < 0 && lstat(path, &found.status) == 0 && S_ISLNK(found.status.st_mode))
        die(USAGE, "%s: %s is a symbolic link; name the directory it leads to", given, path);
    if (found.fd < 0 || fstat(found.fd, &found.status))
        die(USAGE, "%s: cannot be found (%s); name the directory the volume is mounted at", given, strerror(errno));
    found.mount = has_openat2 ? 0 : mount_of(found.fd);
    return found;
}

static unsigned parse_id(const char *text) {
    unsigned long long id = strtoull(text, NULL, 10);
    if (!*text || strlen(text) > 10 || text[strspn(text, "0123456789")] || id > 4294967294)
        die(USAGE, "--owner is not UID or UID:GID; give numbers from 0 to 4294967294, such as 1001:1001");
    return (unsigned)id;
}

static const char help[] =
    "Usage: volume-permissions [OPTION]... [PATH]...\n"
    "Give each PATH (default: /data) and all below it to one owner, on that mount only.\n\n"
    "  --owner UID[:GID]  the owner, in numbers (default %d:%d); without GID the group stays\n"
    "  --mode g=u         also give the group the user's bits on files and directories\n"
    "  --dry-run          change nothing, count what would be changed\n"
    "  --quiet            print failures only\n"
    "  --version, --help  print and exit\n\n"
    "Symlinks are never followed; other mounts, and directories named lost+found or .snapshot, are skipped.\n"
    "Exit code: 0 done, 1 some entries failed, 2 wrong usage or a refused PATH, 130 or 143 interrupted.\n";

/* Return the index of the first PATH. */
static int parse_options(int argc, char **argv) {
    enum { FIRST = 256, OWNER_IS, MODE, DRY_RUN, QUIET, PRINT_VERSION, HELP }; /* above all letters */
    static const struct option known[] = {{"owner", 1, NULL, OWNER_IS}, {"mode", 1, NULL, MODE},
        {"dry-run", 0, NULL, DRY_RUN}, {"quiet", 0, NULL, QUIET}, {"version", 0, NULL, PRINT_VERSION},
        {"help", 0, NULL, HELP}, {0}};
    opterr = 0;
    for (int option; (option = getopt_long(argc, argv, ":", known, NULL)) != -1;) {
        switch (option) {
        case OWNER_IS:
            options.uid = parse_id(strsep(&optarg, ":")); /* which leaves the GID or NULL in `optarg` */
            options.gid = optarg ? parse_id(optarg) : KEEP_GROUP;
            break;
        case MODE:
            if ((options.group_as_user = strcmp(optarg, "g=u") == 0)) break;
            die(USAGE, "--mode %s is not known; g=u is the only one", optarg);
        case DRY_RUN: options.dry_run = true; break;
        case QUIET: options.quiet = true; break;
        case PRINT_VERSION: puts("volume-permissions " VERSION); exit(0);
        case HELP: printf(help, OWNER, OWNER); exit(0);
        case ':': die(USAGE, "%s needs a value; see --help", argv[optind - 1]);
        default: /* of a letter, getopt does not say in which argument it is */
            if (optopt > 0 && optopt < FIRST) die(USAGE, "-%c is not a known option; see --help", optopt);
            die(USAGE, "%s is not a known option; see --help", argv[optind - 1]);
        }
    }
    return optind;
}

static void stop(int signal) { _exit(INTERRUPTED + signal); }

int main(int argc, char **argv) {
    static char *fallback[] = {"/data", NULL}, **paths = fallback;
    signal(SIGTERM, stop); /* the kernel ends process 1 only by a signal that it handles */
    signal(SIGINT, stop);
    signal(SIGPIPE, SIG_IGN); /* the work matters more than the log */
    if (argc > 0 && !*(paths = argv + parse_options(argc, argv))) paths = fallback;
    has_openat2 = open_below(AT_FDCWD, ".", FOLDER, ACROSS_MOUNTS) >= 0;
    volumes = allocate(((size_t)argc + 1) * sizeof *volumes);
    int count = 0, done = 0;
    for (; paths[count]; count++) volumes[count] = open_volume(paths[count]); /* before the first is changed */
    levels_max = sysconf(_SC_OPEN_MAX) - SPARE_DESCRIPTORS - count;
    for (int i = 0; i < count; i++) done += make_writable(&volumes[i]);
    return done == count ? 0 : PARTIAL;
}
