/* One entry of a directory: what it is, and what is to be changed. */
#include "program.h"

#ifndef SYS_fchmodat2 /* newer than many libc headers */
#define SYS_fchmodat2 452
#endif

enum { GROUPS = 1024 };

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

static bool may_keep_setgid(void)
{
    const uint32_t version_3 = 0x20080522, fsetid = 1 << 4;
    struct {
        uint32_t version;
        int pid;
    } header = {version_3, 0};
    struct {
        uint32_t effective, permitted, inheritable;
    } sets[2] = {{0}};
    return syscall(SYS_capget, &header, sets) == 0 && sets[0].effective & fsetid;
}

static bool is_in_group(gid_t gid)
{
    gid_t groups[GROUPS];
    int count = getgroups(GROUPS, groups);
    while (count > 0)
        if (groups[--count] == gid)
            return true;
    return getegid() == gid;
}

/* chmod drops it, and says nothing, where the caller is not in the group and has no CAP_FSETID. */
static bool would_lose_setgid(const struct status *status)
{
    return status->mode & S_ISGID && !is_in_group(status->gid) && !may_keep_setgid();
}

/* The file is held by an O_PATH descriptor, which blocks on nothing and cannot be swapped for a symlink
 * between the look and the change; looking again also sees the bits the new owner cost. */
static bool share_with_group(const struct directory *directory, int at, const char *name)
{
    struct status status;
    const char *problem = "cannot change the mode";
    int fd = openat(at, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    int result = fd < 0 ? -1 : look(fd, "", &status);
    if (result == 0 && keeps_mode_of_its_own(status.mode) && !elsewhere(&status)) {
        if (would_lose_setgid(&status)) {
            problem = "cannot change the mode and keep its setgid bit without the capability FSETID";
            errno = EPERM;
            result = -1;
        } else {
            result = change_mode(fd, group_as_user(status.mode) & 07777);
        }
    }
    close_quietly(fd);
    if (result)
        fail(directory, name, problem);
    return result == 0;
}

static bool give_to_owner(const struct directory *directory, int at, const char *name)
{
    if (fchownat(at, name, options.uid, options.gid, AT_SYMLINK_NOFOLLOW) == 0)
        return true;
    fail(directory, name, "cannot change the owner");
    return false;
}

/* A file's owner first, which costs its setuid bit before the group may write it. A directory's mode first, while
 * it is root's and its setgid bit stays. */
void change(const struct directory *directory, int at, const char *name, const struct status *status,
            struct counts *counts)
{
    bool owner = status->uid != options.uid || (options.gid != KEEP_GROUP && status->gid != options.gid);
    bool mode = options.group_as_user && keeps_mode_of_its_own(status->mode) &&
                group_as_user(status->mode) != status->mode;
    if (!owner && !mode)
        return;
    if (!options.dry_run) {
        bool mode_first = mode && S_ISDIR(status->mode);
        if (mode_first && !share_with_group(directory, at, name))
            return;
        if (owner && !give_to_owner(directory, at, name))
            return;
        if (mode && !mode_first && !share_with_group(directory, at, name))
            return;
    }
    counts->changed++;
}

bool visit(const struct directory *directory, int at, const char *name, struct counts *counts)
{
    struct status status;
    counts->entries++;
    if (look(at, name, &status)) {
        fail(directory, name, "cannot be looked at");
        return false;
    }
    bool is_directory = S_ISDIR(status.mode);
    bool reserved = is_directory && (strcmp(name, "lost+found") == 0 || strcmp(name, ".snapshot") == 0);
    if (reserved || elsewhere(&status)) {
        counts->skipped++;
        return false;
    }
    change(directory, at, name, &status, counts);
    return is_directory;
}
