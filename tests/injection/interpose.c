/* Stands before the C library's calls on files and processes, and lets one of them fail or be the last.

Preloaded into a process it does nothing until that process calls access("/arm-injection/…"), which says what to do
(see `arm`). From then on it counts the calls that touch the home or a process, one number for each role; a traced
pass writes them down, an attacked one fails or kills at one of them. A forked child of a supervisor is the gate, and
the gate's child is the worker to be, until it is another program: both have counts of their own. */

#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <regex.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define ARM "/arm-injection/"
#define KILL -1
#define MOST_FILES 4096

static struct {
    int configured; /* armed or not, this process takes the library along */
    int on;         /* this process is the one that is counted */
    char role[24], target[24];
    char home[1024], trace[1024], hit[1024], once[1024];
    long at, times, count;
    int fault;         /* an errno, KILL, or 0 for a pass that only counts */
    char path[4096];   /* of the first call that failed: a fault that stays is this file's */
    regex_t wanted;    /* with `picks`: calls like "fsync /home/runs" that it does not find are not counted */
    int picks;
} state;
static unsigned char written[MOST_FILES]; /* by descriptor: only what was written to can fail when it is closed */

static const char *const SYSTEM[] = {"/proc", "/proc/sys/kernel/random/boot_id", NULL};

/* --- without going through ourselves ------------------------------------------------------------- */

static void append(const char *path, const char *line) {
    int fd = syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) return;
    syscall(SYS_write, fd, line, strlen(line));
    syscall(SYS_close, fd);
}

static void value(const char *text, const char *name, char *into, size_t room) {
    const char *from = strstr(text, name);
    into[0] = 0;
    if (!from) return;
    from += strlen(name);
    size_t length = strcspn(from, ";");
    if (length >= room) length = room - 1;
    memcpy(into, from, length);
    into[length] = 0;
}

/* The first process of the target role finds the file and is the one; those that come after it are let alone. */
static void become(const char *role) {
    snprintf(state.role, sizeof state.role, "%s", role);
    state.count = 0;
    state.on = !strcmp(role, state.target) && syscall(SYS_unlinkat, AT_FDCWD, state.once, 0) == 0;
}

/* "role=…;target=…;home=…;at=N;times=N;fault=N;wanted=REGEX;trace=PATH;hit=PATH;once=PATH" */
static void arm(const char *text) {
    char number[32], role[24], wanted[256];
    value(text, "role=", role, sizeof role);
    value(text, "target=", state.target, sizeof state.target);
    value(text, "home=", state.home, sizeof state.home);
    value(text, "trace=", state.trace, sizeof state.trace);
    value(text, "hit=", state.hit, sizeof state.hit);
    value(text, "once=", state.once, sizeof state.once);
    value(text, "at=", number, sizeof number);
    state.at = atol(number);
    value(text, "times=", number, sizeof number);
    state.times = atol(number);
    value(text, "fault=", number, sizeof number);
    state.fault = atoi(number);
    value(text, "wanted=", wanted, sizeof wanted);
    state.picks = wanted[0] && regcomp(&state.wanted, wanted, REG_EXTENDED | REG_NOSUB) == 0;
    state.path[0] = 0;
    state.configured = 1;
    become(role);
}

/* --- what is counted ------------------------------------------------------------------------------ */

static int is_in_home(const char *path) {
    size_t length = strlen(state.home);
    return !strncmp(path, state.home, length) && (path[length] == '/' || !path[length]);
}

/* Of all processes those of this home alone: how many others there are is chance. */
static int is_of_a_process_of_ours(const char *path) {
    static char variables[1 << 17];
    char name[64];
    int pid, fd;
    long size;
    if (sscanf(path, "/proc/%d/", &pid) != 1) return 0;
    snprintf(name, sizeof name, "/proc/%d/environ", pid);
    fd = syscall(SYS_openat, AT_FDCWD, name, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    size = syscall(SYS_read, fd, variables, sizeof variables);
    syscall(SYS_close, fd);
    return size > 0 && memmem(variables, size, state.home, strlen(state.home)) != NULL;
}

static int is_counted(const char *path) {
    if (is_in_home(path)) return 1;
    /* These two touch little, and all of it matters. */
    if (!strcmp(state.role, "gate") || !strcmp(state.role, "worker-to-be")) return 1;
    for (const char *const *one = SYSTEM; *one; one++)
        if (!strcmp(path, *one)) return 1;
    return !strncmp(path, "/proc/", 6) && is_of_a_process_of_ours(path);
}

/* Where a descriptor leads; empty where to nothing that has a name. */
static void path_of(int fd, char *into, size_t room) {
    char name[64];
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    long length = syscall(SYS_readlinkat, AT_FDCWD, name, into, room - 1);
    into[length < 0 ? 0 : length] = 0;
}

/* Supervisors stand in their home, and have no other path of it. */
static void full_path(int folder, const char *path, char *into, size_t room) {
    if (!path || path[0] == '/') {
        snprintf(into, room, "%s", path ? path : "");
        return;
    }
    if (folder == AT_FDCWD) {
        long length = syscall(SYS_readlinkat, AT_FDCWD, "/proc/self/cwd", into, room - 1);
        into[length < 0 ? 0 : length] = 0;
    } else
        path_of(folder, into, room);
    size_t length = strlen(into);
    if (path[0] && strcmp(path, ".")) snprintf(into + length, room - length, "/%s", path);
}

/* By what it does and where in the room, which is the folder that the home lies in. */
static int is_wanted(const char *call, const char *path) {
    char text[5000];
    if (!state.picks) return 1;
    const char *folder = strrchr(state.home, '/');
    size_t room = folder && is_in_home(path) ? (size_t)(folder - state.home) : 0;
    snprintf(text, sizeof text, "%s %s", call, path + room);
    return regexec(&state.wanted, text, 0, NULL, 0) == 0;
}

static int can(const int *errors, int wanted) {
    for (; *errors; errors++)
        if (*errors == wanted) return 1;
    return 0;
}

/* One call that counts: 0, or the errno it is to fail with. `errors` are those it can really give. */
static int visit(const char *call, const char *path, const int *errors) {
    char line[5000];
    if (!state.on || !is_wanted(call, path)) return 0;
    state.count++;
    if (!state.fault) {
        int length = snprintf(line, sizeof line, "%ld\t%s\t%s\t", state.count, call, path);
        for (; *errors; errors++) length += snprintf(line + length, sizeof line - length, "%d ", *errors);
        snprintf(line + length, sizeof line - length, "\n");
        append(state.trace, line);
        return 0;
    }
    if (state.times <= 0 || state.count < state.at) return 0;
    if (state.fault != KILL && !can(errors, state.fault)) return 0;
    if (state.path[0] && strcmp(state.path, path)) return 0;
    snprintf(line, sizeof line, "%ld\t%s\t%s\n", state.count, call, path);
    append(state.hit, line);
    if (state.fault == KILL) {
        syscall(SYS_kill, syscall(SYS_getpid), SIGKILL);
        for (;;) pause();
    }
    snprintf(state.path, sizeof state.path, "%s", path);
    state.times--;
    return state.fault;
}

#define ERRORS(...) ((const int[]){__VA_ARGS__, 0})
#define NONE ((const int[]){0})

static int visit_path(const char *call, int folder, const char *path, const int *errors) {
    char full[4200];
    if (!state.on) return 0;
    full_path(folder, path, full, sizeof full);
    return is_counted(full) ? visit(call, full, errors) : 0;
}

static int visit_file(const char *call, int fd, const int *errors) {
    char path[4200];
    if (!state.on) return 0;
    path_of(fd, path, sizeof path);
    return is_in_home(path) ? visit(call, path, errors) : 0;
}

static void now_written(int fd) {
    if (state.on && fd >= 0 && fd < MOST_FILES) written[fd] = 1;
}

#define REAL(type, name, ...)                                                                                          \
    static type (*real)(__VA_ARGS__);                                                                                  \
    if (!real) real = (type(*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)
#define FAIL_IF(told)                                                                                                  \
    do {                                                                                                               \
        int wanted = (told);                                                                                           \
        if (wanted) {                                                                                                  \
            errno = wanted;                                                                                            \
            return -1;                                                                                                 \
        }                                                                                                              \
    } while (0)

/* --- opening, closing ----------------------------------------------------------------------------- */

/* A file that is there needs no room to be opened. */
static const int *open_errors(int folder, const char *path, int flags) {
    static const int making[] = {EIO, ENOSPC, EMFILE, 0}, reading[] = {EIO, EMFILE, 0};
    if (!state.on || !(flags & O_CREAT)) return reading;
    return syscall(SYS_faccessat, folder, path, F_OK) == 0 ? reading : making;
}

#define OPEN(name)                                                                                                     \
    int name(const char *path, int flags, ...) {                                                                       \
        REAL(int, #name, const char *, int, ...);                                                                      \
        va_list more;                                                                                                  \
        va_start(more, flags);                                                                                         \
        mode_t mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(more, mode_t) : 0;                                      \
        va_end(more);                                                                                                  \
        FAIL_IF(visit_path("open", AT_FDCWD, path, open_errors(AT_FDCWD, path, flags)));                                               \
        return real(path, flags, mode);                                                                                \
    }
OPEN(open)
OPEN(open64)

#define OPENAT(name)                                                                                                   \
    int name(int folder, const char *path, int flags, ...) {                                                           \
        REAL(int, #name, int, const char *, int, ...);                                                                 \
        va_list more;                                                                                                  \
        va_start(more, flags);                                                                                         \
        mode_t mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(more, mode_t) : 0;                                      \
        va_end(more);                                                                                                  \
        FAIL_IF(visit_path("openat", folder, path, open_errors(folder, path, flags)));                                               \
        return real(folder, path, flags, mode);                                                                        \
    }
OPENAT(openat)
OPENAT(openat64)

int close(int fd) {
    REAL(int, "close", int);
    int error = 0;
    if (state.on && fd >= 0 && fd < MOST_FILES && written[fd]) {
        written[fd] = 0;
        error = visit_file("close", fd, ERRORS(EIO));
    }
    int result = real(fd); /* it is closed in any case */
    FAIL_IF(error);
    return result;
}

DIR *opendir(const char *path) {
    REAL(DIR *, "opendir", const char *);
    int error = visit_path("opendir", AT_FDCWD, path, ERRORS(EIO, EMFILE));
    if (error) {
        errno = error;
        return NULL;
    }
    return real(path);
}

#define READDIR(name, type)                                                                                            \
    struct type *name(DIR *folder) {                                                                                   \
        REAL(struct type *, #name, DIR *);                                                                             \
        int error = state.on ? visit_file("readdir", dirfd(folder), ERRORS(EIO)) : 0;                                  \
        if (error) {                                                                                                   \
            errno = error;                                                                                             \
            return NULL;                                                                                               \
        }                                                                                                              \
        return real(folder);                                                                                           \
    }
READDIR(readdir, dirent)
READDIR(readdir64, dirent64)

/* --- reading, writing ----------------------------------------------------------------------------- */

ssize_t read(int fd, void *buffer, size_t size) {
    REAL(ssize_t, "read", int, void *, size_t);
    FAIL_IF(visit_file("read", fd, ERRORS(EIO)));
    return real(fd, buffer, size);
}

ssize_t readv(int fd, const struct iovec *parts, int count) {
    REAL(ssize_t, "readv", int, const struct iovec *, int);
    FAIL_IF(visit_file("readv", fd, ERRORS(EIO)));
    return real(fd, parts, count);
}

#define PREAD(name, type)                                                                                              \
    ssize_t name(int fd, void *buffer, size_t size, type offset) {                                                     \
        REAL(ssize_t, #name, int, void *, size_t, type);                                                               \
        FAIL_IF(visit_file("pread", fd, ERRORS(EIO)));                                                                 \
        return real(fd, buffer, size, offset);                                                                         \
    }
PREAD(pread, off_t)
PREAD(pread64, off64_t)

/* Nor does what is written over, which is what slots are for. `at` is -1 for wherever the file stands. */
static const int *write_errors(int fd, size_t size, off_t at) {
    static const int growing[] = {EIO, ENOSPC, 0}, within[] = {EIO, 0};
    if (!state.on) return growing;
    off_t here = lseek(fd, 0, SEEK_CUR), end;
    if (here < 0) return growing;
    end = lseek(fd, 0, SEEK_END);
    lseek(fd, here, SEEK_SET);
    if (at < 0) at = fcntl(fd, F_GETFL) & O_APPEND ? end : here;
    return at + (off_t)size <= end ? within : growing;
}

ssize_t write(int fd, const void *buffer, size_t size) {
    REAL(ssize_t, "write", int, const void *, size_t);
    FAIL_IF(visit_file("write", fd, write_errors(fd, size, -1)));
    now_written(fd);
    return real(fd, buffer, size);
}

ssize_t writev(int fd, const struct iovec *parts, int count) {
    REAL(ssize_t, "writev", int, const struct iovec *, int);
    FAIL_IF(visit_file("writev", fd, ERRORS(EIO, ENOSPC)));
    now_written(fd);
    return real(fd, parts, count);
}

#define PWRITE(name, type)                                                                                             \
    ssize_t name(int fd, const void *buffer, size_t size, type offset) {                                               \
        REAL(ssize_t, #name, int, const void *, size_t, type);                                                         \
        FAIL_IF(visit_file("pwrite", fd, write_errors(fd, size, offset)));                                             \
        now_written(fd);                                                                                               \
        return real(fd, buffer, size, offset);                                                                         \
    }
PWRITE(pwrite, off_t)
PWRITE(pwrite64, off64_t)

#define SENDFILE(name, type)                                                                                           \
    ssize_t name(int to, int from, type *offset, size_t size) {                                                        \
        REAL(ssize_t, #name, int, int, type *, size_t);                                                                \
        FAIL_IF(visit_file("sendfile", to, ERRORS(EIO, ENOSPC)));                                                      \
        now_written(to);                                                                                               \
        return real(to, from, offset, size);                                                                           \
    }
SENDFILE(sendfile, off_t)
SENDFILE(sendfile64, off64_t)

ssize_t copy_file_range(int from, off64_t *at, int to, off64_t *offset, size_t size, unsigned flags) {
    REAL(ssize_t, "copy_file_range", int, off64_t *, int, off64_t *, size_t, unsigned);
    FAIL_IF(visit_file("copy_file_range", to, ERRORS(EIO, ENOSPC)));
    now_written(to);
    return real(from, at, to, offset, size, flags);
}

#define ON_FILE(name, ...)                                                                                             \
    int name(int fd) {                                                                                                 \
        REAL(int, #name, int);                                                                                         \
        FAIL_IF(visit_file(#name, fd, ERRORS(__VA_ARGS__)));                                                           \
        return real(fd);                                                                                               \
    }
ON_FILE(fsync, EIO, ENOSPC)
ON_FILE(fdatasync, EIO, ENOSPC)

#define TRUNCATE(name, type)                                                                                           \
    int name(int fd, type size) {                                                                                      \
        REAL(int, #name, int, type);                                                                                   \
        FAIL_IF(visit_file("ftruncate", fd, ERRORS(EIO)));                                                             \
        now_written(fd);                                                                                               \
        return real(fd, size);                                                                                         \
    }
TRUNCATE(ftruncate, off_t)
TRUNCATE(ftruncate64, off64_t)

#define ALLOCATE(name, type)                                                                                           \
    int name(int fd, type from, type size) {                                                                           \
        REAL(int, #name, int, type, type);                                                                             \
        int error = visit_file("posix_fallocate", fd, ERRORS(EIO, ENOSPC));                                            \
        return error ? error : real(fd, from, size); /* it returns the errno */                                        \
    }
ALLOCATE(posix_fallocate, off_t)
ALLOCATE(posix_fallocate64, off64_t)

#define MMAP(name, type)                                                                                               \
    void *name(void *where, size_t size, int protection, int flags, int fd, type offset) {                             \
        REAL(void *, #name, void *, size_t, int, int, int, type);                                                      \
        if (fd >= 0) (void)visit_file("mmap", fd, NONE);                                                               \
        return real(where, size, protection, flags, fd, offset);                                                       \
    }
MMAP(mmap, off_t)
MMAP(mmap64, off64_t)

/* --- names ---------------------------------------------------------------------------------------- */

#define TWO_PATHS(name)                                                                                                \
    int name(const char *from, const char *to) {                                                                       \
        REAL(int, #name, const char *, const char *);                                                                  \
        FAIL_IF(visit_path(#name, AT_FDCWD, to, ERRORS(EIO, ENOSPC)));                                                 \
        return real(from, to);                                                                                         \
    }
TWO_PATHS(rename)
TWO_PATHS(link)
TWO_PATHS(symlink)

int renameat(int at, const char *from, int folder, const char *to) {
    REAL(int, "renameat", int, const char *, int, const char *);
    FAIL_IF(visit_path("renameat", folder, to, ERRORS(EIO, ENOSPC)));
    return real(at, from, folder, to);
}

int linkat(int at, const char *from, int folder, const char *to, int flags) {
    REAL(int, "linkat", int, const char *, int, const char *, int);
    FAIL_IF(visit_path("linkat", folder, to, ERRORS(EIO, ENOSPC)));
    return real(at, from, folder, to, flags);
}

#define ON_PATH(name, ...)                                                                                             \
    int name(const char *path) {                                                                                       \
        REAL(int, #name, const char *);                                                                                \
        FAIL_IF(visit_path(#name, AT_FDCWD, path, ERRORS(__VA_ARGS__)));                                               \
        return real(path);                                                                                             \
    }
ON_PATH(unlink, EIO)
ON_PATH(rmdir, EIO)
ON_PATH(chdir, EIO)

int unlinkat(int folder, const char *path, int flags) {
    REAL(int, "unlinkat", int, const char *, int);
    FAIL_IF(visit_path("unlinkat", folder, path, ERRORS(EIO)));
    return real(folder, path, flags);
}

int mkdir(const char *path, mode_t mode) {
    REAL(int, "mkdir", const char *, mode_t);
    FAIL_IF(visit_path("mkdir", AT_FDCWD, path, ERRORS(EIO, ENOSPC)));
    return real(path, mode);
}

int mkdirat(int folder, const char *path, mode_t mode) {
    REAL(int, "mkdirat", int, const char *, mode_t);
    FAIL_IF(visit_path("mkdirat", folder, path, ERRORS(EIO, ENOSPC)));
    return real(folder, path, mode);
}

int chmod(const char *path, mode_t mode) {
    REAL(int, "chmod", const char *, mode_t);
    FAIL_IF(visit_path("chmod", AT_FDCWD, path, ERRORS(EIO)));
    return real(path, mode);
}

int fchmod(int fd, mode_t mode) {
    REAL(int, "fchmod", int, mode_t);
    FAIL_IF(visit_file("fchmod", fd, ERRORS(EIO)));
    return real(fd, mode);
}

int fchmodat(int folder, const char *path, mode_t mode, int flags) {
    REAL(int, "fchmodat", int, const char *, mode_t, int);
    FAIL_IF(visit_path("fchmodat", folder, path, ERRORS(EIO)));
    return real(folder, path, mode, flags);
}

int utimensat(int folder, const char *path, const struct timespec times[2], int flags) {
    REAL(int, "utimensat", int, const char *, const struct timespec[2], int);
    FAIL_IF(visit_path("utimensat", folder, path, ERRORS(EIO)));
    return real(folder, path, times, flags);
}

int futimens(int fd, const struct timespec times[2]) {
    REAL(int, "futimens", int, const struct timespec[2]);
    FAIL_IF(visit_file("futimens", fd, ERRORS(EIO)));
    return real(fd, times);
}

/* --- looking -------------------------------------------------------------------------------------- */

#define STAT(name, type)                                                                                               \
    int name(const char *path, struct type *into) {                                                                    \
        REAL(int, #name, const char *, struct type *);                                                                 \
        FAIL_IF(visit_path("stat", AT_FDCWD, path, ERRORS(EIO)));                                                      \
        return real(path, into);                                                                                       \
    }
STAT(stat, stat)
STAT(stat64, stat64)
STAT(lstat, stat)
STAT(lstat64, stat64)

#define FSTAT(name, type)                                                                                              \
    int name(int fd, struct type *into) {                                                                              \
        REAL(int, #name, int, struct type *);                                                                          \
        FAIL_IF(visit_file("fstat", fd, ERRORS(EIO)));                                                                 \
        return real(fd, into);                                                                                         \
    }
FSTAT(fstat, stat)
FSTAT(fstat64, stat64)

#define FSTATAT(name, type)                                                                                            \
    int name(int folder, const char *path, struct type *into, int flags) {                                             \
        REAL(int, #name, int, const char *, struct type *, int);                                                       \
        FAIL_IF(visit_path("fstatat", folder, path, ERRORS(EIO)));                                                     \
        return real(folder, path, into, flags);                                                                        \
    }
FSTATAT(fstatat, stat)
FSTATAT(fstatat64, stat64)

#define STATVFS(name, type)                                                                                            \
    int name(const char *path, struct type *into) {                                                                    \
        REAL(int, #name, const char *, struct type *);                                                                 \
        FAIL_IF(visit_path("statvfs", AT_FDCWD, path, ERRORS(EIO)));                                                   \
        return real(path, into);                                                                                       \
    }
STATVFS(statvfs, statvfs)
STATVFS(statvfs64, statvfs64)

int access(const char *path, int mode) {
    REAL(int, "access", const char *, int);
    if (!strncmp(path, ARM, strlen(ARM))) {
        arm(path + strlen(ARM));
        return 0;
    }
    FAIL_IF(visit_path("access", AT_FDCWD, path, ERRORS(EIO)));
    return real(path, mode);
}

ssize_t readlink(const char *path, char *into, size_t room) {
    REAL(ssize_t, "readlink", const char *, char *, size_t);
    FAIL_IF(visit_path("readlink", AT_FDCWD, path, ERRORS(EIO)));
    return real(path, into, room);
}

/* --- locks ---------------------------------------------------------------------------------------- */

int flock(int fd, int how) {
    REAL(int, "flock", int, int);
    FAIL_IF(visit_file("flock", fd, how & LOCK_NB ? ERRORS(ENOLCK, EAGAIN) : ERRORS(ENOLCK)));
    return real(fd, how);
}

#define FCNTL(name)                                                                                                    \
    int name(int fd, int what, ...) {                                                                                  \
        REAL(int, #name, int, int, ...);                                                                               \
        va_list more;                                                                                                  \
        va_start(more, what);                                                                                          \
        void *with = va_arg(more, void *);                                                                             \
        va_end(more);                                                                                                  \
        int frees = what == F_SETLK && ((struct flock *)with)->l_type == F_UNLCK;                                      \
        if (what == F_SETLK) FAIL_IF(visit_file("lock", fd, frees ? NONE : ERRORS(ENOLCK, EAGAIN)        ));         \
        if (what == F_SETLKW) FAIL_IF(visit_file("lock", fd, ERRORS(ENOLCK)));                                         \
        if (what == F_DUPFD || what == F_DUPFD_CLOEXEC) FAIL_IF(visit_file("dup", fd, ERRORS(EMFILE)));                \
        return real(fd, what, with);                                                                                   \
    }
FCNTL(fcntl)
FCNTL(fcntl64)

/* --- processes ------------------------------------------------------------------------------------ */

static pid_t forked(pid_t child) {
    if (child != 0 || !state.configured) return child;
    if (!strcmp(state.role, "supervisor"))
        become("gate");
    else if (!strcmp(state.role, "gate"))
        become("worker-to-be");
    else
        state.on = state.configured = 0;
    return child;
}

pid_t fork(void) {
    REAL(pid_t, "fork", void);
    FAIL_IF(visit("fork", "", ERRORS(EAGAIN)));
    return forked(real());
}

/* Its child would come back through our frame: a plain fork does the same, slower. */
pid_t vfork(void) {
    REAL(pid_t, "fork", void);
    FAIL_IF(visit("vfork", "", ERRORS(EAGAIN)));
    return forked(real());
}

/* What is started takes this library along, whatever environment it is given. */
static char **with_library(char *const environment[]) {
    Dl_info own;
    size_t count = 0;
    while (environment[count]) count++;
    char **more = calloc(count + 2, sizeof *more);
    if (!more || !dladdr((void *)with_library, &own)) return (char **)environment;
    char *entry = malloc(strlen(own.dli_fname) + 16);
    sprintf(entry, "LD_PRELOAD=%s", own.dli_fname);
    memcpy(more, environment, count * sizeof *more);
    more[count] = entry;
    return more;
}

#define SPAWN(name)                                                                                                    \
    int name(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions,                                  \
             const posix_spawnattr_t *attributes, char *const arguments[], char *const environment[]) {                \
        REAL(int, #name, pid_t *, const char *, const posix_spawn_file_actions_t *, const posix_spawnattr_t *,         \
             char *const[], char *const[]);                                                                            \
        int error = visit("posix_spawn", "", ERRORS(EAGAIN, EMFILE, EIO)); /* it returns the errno */                  \
        if (error) return error;                                                                                       \
        return real(pid, path, actions, attributes, arguments,                                                         \
                    state.configured ? with_library(environment) : environment);                                       \
    }
SPAWN(posix_spawn)
SPAWN(posix_spawnp)

int execve(const char *path, char *const arguments[], char *const environment[]) {
    REAL(int, "execve", const char *, char *const[], char *const[]);
    FAIL_IF(visit("execve", path, ERRORS(EIO, EMFILE, EAGAIN)));
    return real(path, arguments, environment);
}

int execv(const char *path, char *const arguments[]) {
    REAL(int, "execv", const char *, char *const[]);
    FAIL_IF(visit("execv", path, ERRORS(EIO, EMFILE, EAGAIN)));
    return real(path, arguments);
}

int pipe(int ends[2]) {
    REAL(int, "pipe", int[2]);
    FAIL_IF(visit("pipe", "", ERRORS(EMFILE)));
    return real(ends);
}

int pipe2(int ends[2], int flags) {
    REAL(int, "pipe2", int[2], int);
    FAIL_IF(visit("pipe", "", ERRORS(EMFILE)));
    return real(ends, flags);
}

int kill(pid_t pid, int number) {
    REAL(int, "kill", pid_t, int);
    (void)visit("kill", "", NONE);
    return real(pid, number);
}

pid_t waitpid(pid_t pid, int *status, int options) {
    REAL(pid_t, "waitpid", pid_t, int *, int);
    if (!(options & WNOHANG)) (void)visit("waitpid", "", NONE); /* how often one looks is chance */
    return real(pid, status, options);
}

pid_t wait4(pid_t pid, int *status, int options, struct rusage *used) {
    REAL(pid_t, "wait4", pid_t, int *, int, struct rusage *);
    (void)visit("wait4", "", NONE);
    return real(pid, status, options, used);
}

/* Python has no other way to descriptors of processes. */
long syscall(long number, ...) {
    static long (*real)(long, ...);
    va_list more;
    long with[6];
    if (!real) real = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
    va_start(more, number);
    for (int i = 0; i < 6; i++) with[i] = va_arg(more, long);
    va_end(more);
    if (number == SYS_pidfd_open) FAIL_IF(visit("pidfd_open", "", ERRORS(EMFILE)));
    if (number == SYS_pidfd_send_signal) (void)visit("pidfd_send_signal", "", NONE);
    return real(number, with[0], with[1], with[2], with[3], with[4], with[5]);
}
