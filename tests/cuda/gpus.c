/* The machine, as its state file tells it now, and an account of what each process holds of each GPU.
 *
 * The accounts lie in a file beside the state (`….accounts`), mapped by every process: tests/nvml/standin.c adds them to
 * what the driver library shows. An account of a process that is gone counts no more. */
#include "standin.h"
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_ACCOUNTS 256
typedef struct { int pid; size_t held[MAX_GPUS]; } account_t; /* the same in tests/nvml/standin.c */

pthread_mutex_t standin_lock = PTHREAD_MUTEX_INITIALIZER;
__thread int current_gpu;

static gpu_t seen[MAX_GPUS];
static int seen_count = -1, cuda_version;
static struct timespec state_as_of;
static account_t *accounts, *own;
static FILE *log_file;

void note(const char *form, ...) {
    if (!log_file)
        return;
    va_list words;
    va_start(words, form);
    vfprintf(log_file, form, words);
    va_end(words);
    fputc('\n', log_file);
    fflush(log_file);
}
EXPORT void standin_note(const char *words) { note("%s", words); } /* the other libraries' */

/* ---- the state file ---- */

static int read_machine(const char *path, gpu_t *all) {
    FILE *file = fopen(path, "re");
    if (!file)
        return 0;
    char line[640], word[64];
    int count = 0, of_slice = 0, sliced = 0;
    while (fgets(line, sizeof line, file)) {
        int used = 0;
        line[strcspn(line, "\n")] = 0;
        if (sscanf(line, "%63s %n", word, &used) != 1)
            continue;
        const char *rest = line + used;
        if (!strcmp(word, "gpu") && count < MAX_GPUS) {
            memset(&all[count], 0, sizeof *all);
            all[count].place = count;
            all[count].multiprocessors = 40;
            count++;
            of_slice = sliced = 0;
            continue;
        }
        if (!count) {
            if (!strcmp(word, "cuda"))
                cuda_version = atoi(rest);
            continue;
        }
        gpu_t *now = &all[count - 1];
        /* A process sees one slice of a GPU that is sliced: the one that it named, or the first. */
        if (!strcmp(word, "slice")) {
            of_slice++;
            continue;
        }
        if (!strcmp(word, "mig"))
            sliced = atoi(rest);
        if (of_slice > (sliced ? 1 : 0))
            continue;
        size_t total, reserved, held;
        if (!strcmp(word, "name")) snprintf(now->name, sizeof now->name, "%s", rest);
        else if (!strcmp(word, "uuid")) snprintf(now->uuid, sizeof now->uuid, "%s", rest);
        else if (!strcmp(word, "capability")) sscanf(rest, "%d %d", &now->major, &now->minor);
        else if (!strcmp(word, "multiprocessors")) now->multiprocessors = atoi(rest);
        else if (!strcmp(word, "context")) now->context = strtoull(rest, NULL, 10);
        else if (!strcmp(word, "lost")) now->lost = atoi(rest);
        else if (!strcmp(word, "memory") && sscanf(rest, "%zu %zu %zu", &total, &reserved, &held) == 3) {
            now->total = total - reserved;
            now->elsewhere = held;
        }
    }
    fclose(file);
    return count;
}

static const char *state_path(void) {
    const char *path = getenv("KGOPS_NVML_STANDIN");
    return path && *path ? path : NULL;
}

static int find_named(const gpu_t *all, int count, const char *name) {
    char *end;
    long place = strtol(name, &end, 10);
    if (end != name && !*end)
        return place >= 0 && place < count ? (int)place : -1;
    for (int i = 0; i < count; i++)
        if (*name && !strncmp(all[i].uuid, name, strlen(name)))
            return i;
    return -1;
}

static void open_accounts(const char *state) {
    char path[4096];
    snprintf(path, sizeof path, "%s.accounts", state);
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0)
        return;
    void *at = MAP_FAILED;
    if (ftruncate(file, sizeof(account_t) * MAX_ACCOUNTS) == 0)
        at = mmap(NULL, sizeof(account_t) * MAX_ACCOUNTS, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    accounts = at == MAP_FAILED ? NULL : at;
}

static void set_up(void) {
    if (seen_count >= 0)
        return;
    LOCKED(
        if (seen_count < 0) {
            const char *state = state_path(), *visible = getenv("CUDA_VISIBLE_DEVICES"), *log = getenv("KGOPS_CUDA_LOG");
            static gpu_t all[MAX_GPUS];
            int count = state ? read_machine(state, all) : 0, shown = 0;
            if (log && *log)
                log_file = fopen(log, "ae");
            if (!visible) {
                memcpy(seen, all, sizeof all);
                shown = count;
            } else {
                char *copy = strdup(visible), *rest = copy, *name;
                while ((name = strsep(&rest, ",")) && shown < MAX_GPUS) {
                    int found = find_named(all, count, name);
                    if (found < 0)
                        break; /* as CUDA: what stands behind an unknown name is not seen */
                    seen[shown++] = all[found];
                }
                free(copy);
            }
            if (state)
                open_accounts(state);
            seen_count = shown;
        });
}

/* What another user holds, and whether a GPU is lost, may change at any moment. */
static void look_again(void) {
    struct stat about;
    const char *state = state_path();
    if (!state || stat(state, &about) || !memcmp(&about.st_mtim, &state_as_of, sizeof state_as_of))
        return;
    state_as_of = about.st_mtim;
    gpu_t now[MAX_GPUS];
    int count = read_machine(state, now);
    for (int i = 0; i < seen_count; i++)
        if (seen[i].place < count) {
            seen[i].elsewhere = now[seen[i].place].elsewhere;
            seen[i].lost = now[seen[i].place].lost;
        }
}

int gpu_count(void) { set_up(); return seen_count; }
gpu_t *gpu(int device) { set_up(); return device >= 0 && device < seen_count ? &seen[device] : NULL; }
int driver_version(void) { set_up(); return cuda_version; }
int is_lost(int device) { LOCKED(look_again()); return seen[device].lost; }

/* ---- accounts ---- */

static size_t held_by_all(int device) {
    const gpu_t *now = &seen[device];
    if (!accounts)
        return now->elsewhere + now->held;
    size_t sum = now->elsewhere;
    for (int i = 0; i < MAX_ACCOUNTS; i++) {
        int pid = accounts[i].pid;
        if (pid && pid != getpid() && kill(pid, 0) != 0)
            memset(&accounts[i], 0, sizeof accounts[i]);
        else if (pid)
            sum += accounts[i].held[now->place];
    }
    return sum;
}

static account_t *own_account(void) {
    for (int i = 0; accounts && !own && i < MAX_ACCOUNTS; i++) {
        int nobody = 0;
        if (__atomic_compare_exchange_n(&accounts[i].pid, &nobody, getpid(), 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
            own = &accounts[i];
    }
    return own;
}

static int charge_locked(int device, size_t bytes) {
    gpu_t *now = &seen[device];
    if (!now->has_context) {
        now->has_context = 1;
        if (now->context && charge_locked(device, now->context))
            return -1;
    }
    if (held_by_all(device) + bytes > now->total)
        return -1;
    now->held += bytes;
    if (now->held > now->peak)
        now->peak = now->held;
    if (own_account())
        own->held[now->place] += bytes;
    return 0;
}

int charge(int device, size_t bytes) {
    int answer;
    LOCKED(look_again(); answer = charge_locked(device, bytes));
    return answer;
}

void uncharge(int device, size_t bytes) {
    LOCKED(seen[device].held -= bytes; if (own) own->held[seen[device].place] -= bytes);
}

size_t free_bytes(int device) {
    size_t held;
    LOCKED(look_again(); charge_locked(device, 0); held = held_by_all(device));
    return held > seen[device].total ? 0 : seen[device].total - held;
}

static void in_child(void) {
    own = NULL; /* the parent's */
    pthread_mutex_init(&standin_lock, NULL);
}
__attribute__((constructor)) static void at_load(void) {
    pthread_atfork(NULL, NULL, in_child);
    setenv("TORCH_CUDNN_V8_API_DISABLED", "1", 0); /* cuDNN's older calls are few, and say plainly what they want; for bf16, cuda_values.py */
}
__attribute__((destructor)) static void at_end(void) {
    if (own && own->pid == getpid())
        memset(own, 0, sizeof *own);
}
