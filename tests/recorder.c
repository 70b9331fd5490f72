/* Writes down, in one order for all processes, what is done to the files below one folder: for tests/power_cut.py.

   A record is a line of JSON-free words and, behind it, the bytes that were written:
       OP SIZE INO OTHER OFFSET LENGTH PATH\0PATH2\0 data
   What SQLite maps into memory (its -shm file) is left out: SQLite makes it anew after a crash. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MOST 4096

static struct shared { pthread_mutex_t turn; int is_made; } *shared; /* RECORD ".turn": made by the test beforehand */

static int record_fd(void) { return syscall(SYS_openat, AT_FDCWD, RECORD, O_WRONLY | O_APPEND | O_CLOEXEC, 0); }

__attribute__((constructor)) static void begin(void) {
    int fd = syscall(SYS_openat, AT_FDCWD, RECORD ".turn", O_RDWR | O_CLOEXEC, 0);
    void *seen = fd < 0 ? MAP_FAILED : mmap(0, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (seen == MAP_FAILED) abort();
    struct shared *found = seen;
    if (!found->is_made) { /* the test starts one process first, alone */
        pthread_mutexattr_t how;
        pthread_mutexattr_init(&how);
        pthread_mutexattr_setpshared(&how, PTHREAD_PROCESS_SHARED);
        pthread_mutexattr_setrobust(&how, PTHREAD_MUTEX_ROBUST); /* processes are killed here */
        pthread_mutex_init(&found->turn, &how);
        found->is_made = 1;
    }
    shared = found;
    syscall(SYS_close, fd);
}
static void take_turn(void) {
    if (pthread_mutex_lock(&shared->turn) == EOWNERDEAD) pthread_mutex_consistent(&shared->turn);
}
static void end_turn(void) { pthread_mutex_unlock(&shared->turn); }

/* The path below the folder, or 0 for what is not watched. */
static const char *below(const char *path) {
    size_t n = sizeof FOLDER - 1;
    if (strncmp(path, FOLDER, n) || (path[n] && path[n] != '/')) return 0;
    size_t length = strlen(path);
    if (length > 4 && !strcmp(path + length - 4, "-shm")) return 0;
    return path[n] ? path + n + 1 : path + n;
}
static const char *of_fd(int fd, char *room) {
    char name[64];
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(name, room, MOST - 1);
    if (n < 0) return 0;
    room[n] = 0;
    char *deleted = strstr(room, " (deleted)");
    if (deleted) *deleted = 0;
    return below(room);
}
static const char *of_at(int at, const char *path, char *room) {
    if (*path == '/') return below(path);
    if (at == AT_FDCWD) {
        if (!getcwd(room, MOST)) return 0;
    } else {
        char name[64];
        snprintf(name, sizeof name, "/proc/self/fd/%d", at);
        ssize_t n = readlink(name, room, MOST - 1);
        if (n < 0) return 0;
        room[n] = 0;
    }
    size_t n = strlen(room);
    snprintf(room + n, MOST - n, "/%s", path);
    return below(room);
}
static void note(const char *op, uint64_t ino, int64_t offset, const void *data, size_t length, const char *path,
                 const char *other) {
    char head[2 * MOST + 200];
    int n = snprintf(head, sizeof head, "%s %llu %lld %zu %zu %zu\n%s%s", op, (unsigned long long)ino, (long long)offset,
                     length, strlen(path), strlen(other), path, other);
    int was = errno, fd = record_fd();
    if (fd < 0) abort();
    char *whole = malloc(n + length + 1);
    memcpy(whole, head, n);
    if (length) memcpy(whole + n, data, length);
    whole[n + length] = '\n';
    if (syscall(SYS_write, fd, whole, n + length + 1) != (long)(n + length + 1)) abort();
    free(whole);
    syscall(SYS_close, fd);
    errno = was;
}
static uint64_t ino_of(int fd) {
    struct stat seen;
    return fstat(fd, &seen) ? 0 : seen.st_ino;
}

static int opened(int at, const char *path, int flags, mode_t mode) {
    char room[MOST];
    const char *name = (flags & (O_CREAT | O_TRUNC)) ? of_at(at, path, room) : 0;
    if (!name || (flags & O_TMPFILE) == O_TMPFILE) return syscall(SYS_openat, at, path, flags, mode);
    take_turn();
    struct stat before;
    int is_there = !fstatat(at, path, &before, flags & O_NOFOLLOW ? AT_SYMLINK_NOFOLLOW : 0);
    int fd = syscall(SYS_openat, at, path, flags, mode);
    if (fd >= 0 && !is_there) note("create", ino_of(fd), 0, 0, 0, name, "");
    if (fd >= 0 && is_there && (flags & O_TRUNC)) note("size", ino_of(fd), 0, 0, 0, name, "");
    end_turn();
    return fd;
}
#define MODE(last) va_list more; va_start(more, last); mode_t mode = va_arg(more, int); va_end(more)
int open(const char *path, int flags, ...) { MODE(flags); return opened(AT_FDCWD, path, flags, mode); }
int open64(const char *path, int flags, ...) { MODE(flags); return opened(AT_FDCWD, path, flags, mode); }
int openat(int at, const char *path, int flags, ...) { MODE(flags); return opened(at, path, flags, mode); }
int openat64(int at, const char *path, int flags, ...) { MODE(flags); return opened(at, path, flags, mode); }
int creat(const char *path, mode_t mode) { return opened(AT_FDCWD, path, O_WRONLY | O_CREAT | O_TRUNC, mode); }

ssize_t write(int fd, const void *data, size_t length) {
    char room[MOST];
    const char *name = of_fd(fd, room);
    if (!name) return syscall(SYS_write, fd, data, length);
    take_turn();
    int64_t offset = lseek(fd, 0, SEEK_CUR);
    int appends = fcntl(fd, F_GETFL) & O_APPEND;
    ssize_t done = syscall(SYS_write, fd, data, length);
    if (done > 0 && appends) offset = lseek(fd, 0, SEEK_CUR) - done;
    if (done > 0) note("write", ino_of(fd), offset, data, done, name, "");
    end_turn();
    return done;
}
static ssize_t written_at(int fd, const void *data, size_t length, int64_t offset) {
    char room[MOST];
    const char *name = of_fd(fd, room);
    if (!name) return syscall(SYS_pwrite64, fd, data, length, offset);
    take_turn();
    ssize_t done = syscall(SYS_pwrite64, fd, data, length, offset);
    if (done > 0) note("write", ino_of(fd), offset, data, done, name, "");
    end_turn();
    return done;
}
ssize_t pwrite(int fd, const void *d, size_t n, off_t o) { return written_at(fd, d, n, o); }
ssize_t pwrite64(int fd, const void *d, size_t n, off64_t o) { return written_at(fd, d, n, o); }

/* Everything else: done under the turn, and noted where it went well. */
#define ON_FD(call, op, offset) \
    char room[MOST]; \
    const char *name = of_fd(fd, room); \
    if (!name) return call; \
    take_turn(); \
    int failed = call; \
    if (!failed) note(op, ino_of(fd), offset, 0, 0, name, ""); \
    end_turn(); \
    return failed
int ftruncate(int fd, off_t size) { ON_FD(syscall(SYS_ftruncate, fd, size), "size", size); }
int ftruncate64(int fd, off64_t size) { ON_FD(syscall(SYS_ftruncate, fd, size), "size", size); }
int fsync(int fd) { ON_FD(syscall(SYS_fsync, fd), "sync", 0); }
int fdatasync(int fd) { ON_FD(syscall(SYS_fdatasync, fd), "sync", 0); }
int posix_fallocate(int fd, off_t o, off_t n) { ON_FD(syscall(SYS_fallocate, fd, 0, o, n), "room", o + n); }
int posix_fallocate64(int fd, off64_t o, off64_t n) { ON_FD(syscall(SYS_fallocate, fd, 0, o, n), "room", o + n); }

#define ON_PATH(at, path, call, op) \
    char room[MOST]; \
    const char *name = of_at(at, path, room); \
    if (!name) return call; \
    take_turn(); \
    struct stat seen = {0}; \
    fstatat(at, path, &seen, AT_SYMLINK_NOFOLLOW); \
    int failed = call; \
    if (!failed && !seen.st_ino) fstatat(at, path, &seen, AT_SYMLINK_NOFOLLOW); \
    if (!failed) note(op, seen.st_ino, 0, 0, 0, name, ""); \
    end_turn(); \
    return failed
int mkdir(const char *p, mode_t m) { ON_PATH(AT_FDCWD, p, syscall(SYS_mkdir, p, m), "mkdir"); }
int mkdirat(int at, const char *p, mode_t m) { ON_PATH(at, p, syscall(SYS_mkdirat, at, p, m), "mkdir"); }
int unlink(const char *p) { ON_PATH(AT_FDCWD, p, syscall(SYS_unlink, p), "unlink"); }
int rmdir(const char *p) { ON_PATH(AT_FDCWD, p, syscall(SYS_rmdir, p), "unlink"); }
int unlinkat(int at, const char *p, int f) { ON_PATH(at, p, syscall(SYS_unlinkat, at, p, f), "unlink"); }

int renameat(int at, const char *from, int to_at, const char *to) {
    char room[MOST], other_room[MOST];
    const char *name = of_at(at, from, room), *other = of_at(to_at, to, other_room);
    if (!name || !other) return syscall(SYS_renameat, at, from, to_at, to);
    take_turn();
    int failed = syscall(SYS_renameat, at, from, to_at, to);
    if (!failed) note("rename", 0, 0, 0, 0, name, other);
    end_turn();
    return failed;
}
int rename(const char *from, const char *to) { return renameat(AT_FDCWD, from, AT_FDCWD, to); }
