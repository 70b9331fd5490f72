/* A wall clock that somebody sets while programs run: CLOCK_FILE holds by how many seconds. For tests/test_clock.py. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *shift_s;  /* mapped: every process sees a change at once */

__attribute__((constructor)) static void begin(void) {
    int fd = open(CLOCK_FILE, O_RDONLY | O_CLOEXEC);
    void *seen = fd < 0 ? MAP_FAILED : mmap(0, sizeof(int64_t), PROT_READ, MAP_SHARED, fd, 0);
    if (seen == MAP_FAILED) abort();
    shift_s = seen;
    close(fd);
}
int clock_gettime(clockid_t which, struct timespec *at) {
    int failed = syscall(SYS_clock_gettime, which, at);
    if (!failed && which == CLOCK_REALTIME && shift_s) at->tv_sec += *shift_s;
    return failed;
}
int gettimeofday(struct timeval *at, void *zone) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return 0;
}
time_t time(time_t *at) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at) *at = now.tv_sec;
    return now.tv_sec;
}
