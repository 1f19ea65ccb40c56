/* The workers, and the directories that wait for them.
 *
 * The stack is last in, first out: depth first keeps it short. A directory that is not read to its end waits there
 * too, below its subdirectories, while other workers may read on in it. */
#include "program.h"

#include <pthread.h>
#include <sys/resource.h>

enum { WAITING_MAX = 1024 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t news = PTHREAD_COND_INITIALIZER;
static struct directory *stack;
static size_t busy, idle; /* workers that may still push, and those that wait */
static size_t open_now, open_max;
static struct counts total;

struct worker {
    struct directory *here; /* the one last read, which stays open until it is in the next */
    bool busy;
    struct listing listing;
    struct counts counts;
};

/* --- with the lock held */

static void push(struct directory *directory)
{
    directory->next = stack;
    stack = directory;
    if (idle)
        pthread_cond_signal(&news);
}

static void unpin(struct directory *directory)
{
    if (--directory->pins)
        return;
    close(directory->fd);
    directory->fd = -1;
    open_now--;
}

static void release(struct directory *directory)
{
    while (directory && --directory->references == 0) {
        struct directory *parent = directory->parent;
        free(directory);
        directory = parent;
    }
}

static void leave(struct worker *worker)
{
    if (!worker->here)
        return;
    unpin(worker->here);
    release(worker->here);
    worker->here = NULL;
}

/* From here on the worker keeps the directory open. */
static void stay_in(struct worker *worker, struct directory *directory)
{
    directory->pins++;
    directory->references++;
    leave(worker);
    worker->here = directory;
}

/* --- taking the lock */

/* The next directory, or NULL when all is done. */
static struct directory *take(struct worker *worker)
{
    pthread_mutex_lock(&lock);
    busy -= worker->busy;
    while (!stack && busy) {
        idle++;
        pthread_cond_wait(&news, &lock);
        idle--;
    }
    struct directory *directory = stack;
    worker->busy = directory != NULL;
    if (directory) {
        stack = directory->next;
        busy++;
    } else {
        pthread_cond_broadcast(&news);
    }
    if (directory && directory->fd >= 0)
        stay_in(worker, directory);
    pthread_mutex_unlock(&lock);
    return directory;
}

/* By its parent's descriptor where that is open. */
static int open_directory(const struct worker *worker, struct directory *directory)
{
    struct directory *parent = directory->parent;
    if (!parent)
        return openat(volume.fd, ".", LISTING);
    pthread_mutex_lock(&lock);
    bool is_near = parent->fd >= 0;
    parent->pins += is_near;
    pthread_mutex_unlock(&lock);
    int fd = is_near ? openat(parent->fd, directory->name, LISTING) : open_far(directory, worker->here);
    int error = errno;
    pthread_mutex_lock(&lock);
    if (is_near)
        unpin(parent);
    if (directory->leans)
        unpin(parent);
    pthread_mutex_unlock(&lock);
    errno = error;
    return fd;
}

static bool enter(struct worker *worker, struct directory *directory)
{
    struct status status;
    int fd = open_directory(worker, directory);
    bool entered = false;
    if (fd < 0 || look(fd, "", &status))
        fail(directory, ".", "cannot be opened");
    else if (elsewhere(&status)) /* mounted over since its parent was read */
        worker->counts.skipped++;
    else
        entered = true;
    pthread_mutex_lock(&lock);
    if (entered) {
        directory->device = status.device;
        directory->inode = status.inode;
        directory->fd = fd;
        directory->pins = 1;
        open_now++;
        stay_in(worker, directory);
    } else {
        close_quietly(fd);
        release(directory);
    }
    pthread_mutex_unlock(&lock);
    return entered;
}

/* Lets other workers read on in a directory. False where too many are open, so that it is to be read to its
 * end now. */
static bool put_back(struct directory *directory)
{
    pthread_mutex_lock(&lock);
    bool may_wait = open_now <= open_max;
    if (may_wait)
        push(directory);
    pthread_mutex_unlock(&lock);
    return may_wait;
}

/* Gives the subdirectories found to all workers but one, which is returned for this worker. */
static struct directory *hand_over(struct directory *directory, struct directory *found, size_t count)
{
    pthread_mutex_lock(&lock);
    bool lean = count > 1 && open_now <= open_max;
    directory->portion = next_portion(directory->portion, count);
    directory->references += count;
    directory->pins += lean ? count : 0;
    while (found) {
        struct directory *next = found->next;
        found->leans = lean;
        if (!next)
            break;
        push(found);
        found = next;
    }
    pthread_mutex_unlock(&lock);
    return found;
}

static void end(struct directory *directory)
{
    pthread_mutex_lock(&lock);
    unpin(directory);
    release(directory);
    pthread_mutex_unlock(&lock);
}

static void give(struct directory *directory)
{
    pthread_mutex_lock(&lock);
    push(directory);
    pthread_mutex_unlock(&lock);
}

/* --- the work */

static struct directory *visit_names(struct worker *worker, struct directory *directory, size_t *count)
{
    struct directory *found = NULL;
    *count = 0;
    for (size_t i = 0; i < worker->listing.count; i++) {
        const char *name = worker->listing.names[i].text;
        if (!visit(directory, directory->fd, name, &worker->counts))
            continue;
        struct directory *child = new_directory(directory, name);
        child->next = found;
        found = child;
        ++*count;
    }
    return found;
}

/* How much to read now: another worker may just be setting it. */
static size_t portion_of(const struct directory *directory)
{
    pthread_mutex_lock(&lock);
    size_t portion = directory->portion;
    pthread_mutex_unlock(&lock);
    return portion;
}

/* One portion of a directory that the worker is in, and what to read next: a subdirectory, or NULL where others
 * wait. */
static struct directory *read_portion(struct worker *worker, struct directory *directory)
{
    bool at_end = false;
    size_t count;
    read_names(directory->fd, portion_of(directory), &worker->listing, &at_end);
    if (errno)
        fail(directory, ".", "cannot be read to its end");
    bool waits = !at_end && put_back(directory);
    struct directory *found = visit_names(worker, directory, &count);
    struct directory *next = hand_over(directory, found, count);
    if (at_end)
        end(directory);
    if (at_end || waits)
        return next;
    if (next)
        give(next);
    return directory;
}

static void *work(void *unused)
{
    struct worker worker = {.listing = new_listing()};
    for (struct directory *directory; (directory = take(&worker));)
        while (directory && (directory->fd >= 0 || enter(&worker, directory)))
            directory = read_portion(&worker, directory);
    pthread_mutex_lock(&lock);
    leave(&worker);
    total.entries += worker.counts.entries;
    total.changed += worker.counts.changed;
    total.skipped += worker.counts.skipped;
    pthread_mutex_unlock(&lock);
    free_listing(&worker.listing);
    return unused;
}

struct counts work_together(struct directory *top)
{
    pthread_t threads[JOBS_MAX];
    size_t started = 0;
    total = (struct counts){0};
    stack = top;
    while (started + 1 < options.jobs && pthread_create(&threads[started], NULL, work, NULL) == 0)
        started++; /* where no more threads are allowed, those there are do */
    work(NULL);
    while (started)
        pthread_join(threads[--started], NULL);
    return total;
}

/* A worker needs up to three descriptors at once, a few are always open, and directories that wait may have the
 * rest. Under a tight limit there are fewer workers. */
void share_descriptors(void)
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
    open_max = room < WAITING_MAX ? room : WAITING_MAX;
}
