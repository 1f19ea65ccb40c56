/* What a file is, and whether it belongs to the volume. */
#include "program.h"

#include <sys/sysmacros.h>

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

int look(int at, const char *name, struct status *status)
{
    const unsigned type_mode_uid_gid_inode = 0x11b, mount_id = 0x1000;
    const int flags = AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | AT_EMPTY_PATH;
    struct kernel_statx answer;
    if (syscall(SYS_statx, at, name, flags, type_mode_uid_gid_inode | mount_id, &answer) == 0) {
        *status = (struct status){answer.mode, answer.uid, answer.gid,
                                  makedev(answer.dev_major, answer.dev_minor), answer.inode,
                                  answer.mask & mount_id ? answer.mount : 0};
        return 0;
    }
    if (errno != ENOSYS && errno != EPERM) /* EPERM is how old seccomp filters say "unknown call" */
        return -1;
    struct stat old;
    if (fstatat(at, name, &old, flags))
        return -1;
    *status = (struct status){old.st_mode, old.st_uid, old.st_gid, old.st_dev, old.st_ino, 0};
    return 0;
}

/* The mount id also sees bind mounts of the same filesystem. The device counts for directories only
 * where mount ids are known, because overlayfs may give its files the device of a lower layer. */
bool elsewhere(const struct status *status)
{
    if (status->mount != volume.status.mount)
        return true;
    return status->device != volume.status.device && (S_ISDIR(status->mode) || !status->mount);
}
