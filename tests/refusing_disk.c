/* A disk that refuses every change below DISK for a while: TROUBLE_FILE holds the errno. For tests/test_refusing_disk.py. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static volatile int64_t *trouble;  /* an errno, for every process from the moment it is written down; 0 for none */

__attribute__((constructor)) static void begin(void) {
    int fd = open(TROUBLE_FILE, O_RDONLY | O_CLOEXEC);
    void *seen = fd < 0 ? MAP_FAILED : mmap(0, sizeof(int64_t), PROT_READ, MAP_SHARED, fd, 0);
    if (seen == MAP_FAILED) abort();
    trouble = seen;
    close(fd);
}
static int on_disk(const char *path) {
    char here[4096];
    if (*path == '/') return !strncmp(path, DISK, sizeof DISK - 1);
    return getcwd(here, sizeof here - 1) && on_disk(strcat(here, "/"));  /* a supervisor stands in its home */
}
static int refused(const char *path) {
    if (!trouble || !*trouble || !on_disk(path)) return 0;
    errno = (int)*trouble;
    return 1;
}
static int fd_refused(int fd) {
    char name[64], path[4096];
    if (!trouble || !*trouble) return 0;
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(name, path, sizeof path - 1);
    if (n < 0) return 0;
    path[n] = 0;
    return refused(path);
}
#define REAL(name) static __typeof__(name) *real; if (!real) real = dlsym(RTLD_NEXT, #name)
#define CHANGES(flags) ((flags) & (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC))
#define OPEN(name) \
    int name(const char *path, int flags, ...) { \
        REAL(name); va_list more; va_start(more, flags); mode_t mode = va_arg(more, int); va_end(more); \
        if (CHANGES(flags) && refused(path)) return -1; \
        return real(path, flags, mode); }
#define OPENAT(name) \
    int name(int at, const char *path, int flags, ...) { \
        REAL(name); va_list more; va_start(more, flags); mode_t mode = va_arg(more, int); va_end(more); \
        if (CHANGES(flags) && (*path == '/' ? refused(path) : fd_refused(at))) return -1; \
        return real(at, path, flags, mode); }
OPEN(open) OPEN(open64) OPENAT(openat) OPENAT(openat64)
#define BY_FD(type, name, args, names, fd) type name args { REAL(name); return fd_refused(fd) ? -1 : real names; }
#define BY_PATH(name, args, names, path) int name args { REAL(name); return refused(path) ? -1 : real names; }
BY_FD(ssize_t, write, (int fd, const void *b, size_t n), (fd, b, n), fd)
BY_FD(ssize_t, pwrite, (int fd, const void *b, size_t n, off_t o), (fd, b, n, o), fd)
BY_FD(ssize_t, pwrite64, (int fd, const void *b, size_t n, off64_t o), (fd, b, n, o), fd)
BY_FD(int, ftruncate, (int fd, off_t n), (fd, n), fd)
BY_FD(int, ftruncate64, (int fd, off64_t n), (fd, n), fd)
BY_FD(int, fsync, (int fd), (fd), fd)
BY_FD(int, fdatasync, (int fd), (fd), fd)
BY_PATH(rename, (const char *path, const char *to), (path, to), path)
BY_PATH(mkdir, (const char *path, mode_t m), (path, m), path)
BY_PATH(unlink, (const char *path), (path), path)
BY_PATH(rmdir, (const char *path), (path), path)
int posix_fallocate(int fd, off_t o, off_t n) { REAL(posix_fallocate); return fd_refused(fd) ? errno : real(fd, o, n); }
int posix_fallocate64(int fd, off64_t o, off64_t n) { REAL(posix_fallocate64); return fd_refused(fd) ? errno : real(fd, o, n); }
