/* Faults under system calls that change files: loaded before libc (LD_PRELOAD), armed from Python by ctypes.

   Once armed, every call that changes something under one folder is counted and written to a trace; at the n-th one the
   process is killed (SIGKILL), or the call fails with an error, or a write is cut in half before the kill. The calls
   themselves are made by syscall(2), so no function of libc is called on their behalf. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum { COUNT = 0, KILL = 1, FAIL = 2, TEAR = 3 };

#define LONGEST 4096

static char armed_folder[LONGEST];
static int armed_action, armed_error, without_exchange, trace = -1;
static long armed_at;
static atomic_long calls;

/* Arm: `folder` ends without a slash; `at` counts from 1; `no_exchange` refuses renameat2 with flags, as NFS does. */
void faults_arm(const char *folder, long at, int action, int error, int no_exchange, const char *trace_path) {
  armed_at = at, armed_action = action, armed_error = error, without_exchange = no_exchange;
  atomic_store(&calls, 0);
  trace = (int)syscall(SYS_openat, AT_FDCWD, trace_path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);
  snprintf(armed_folder, sizeof armed_folder, "%s", folder);
}

long faults_counted(void) { return atomic_load(&calls); }

static int under_folder(const char *path) {
  size_t length = strlen(armed_folder);
  return length && !strncmp(path, armed_folder, length) && (path[length] == '/' || !path[length]);
}

static void path_of_descriptor(int descriptor, char *path) {
  char link[64];
  snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
  ssize_t length = syscall(SYS_readlinkat, AT_FDCWD, link, path, LONGEST - 1);
  path[length < 0 ? 0 : length] = 0;
}

static void path_at(int folder, const char *name, char *path) {
  int of_descriptor;
  if (sscanf(name, "/proc/self/fd/%d", &of_descriptor) == 1) return path_of_descriptor(of_descriptor, path);
  if (name[0] == '/') { snprintf(path, LONGEST, "%s", name); return; }
  char parent[LONGEST];
  if (folder == AT_FDCWD) {
    if (!getcwd(parent, sizeof parent)) parent[0] = 0;
  } else
    path_of_descriptor(folder, parent);
  if (snprintf(path, LONGEST, "%s/%s", parent, name) >= LONGEST) path[0] = 0;
}

static void die(void) {
  syscall(SYS_kill, syscall(SYS_getpid), SIGKILL);
  for (;;) pause();
}

/* Counts a call on these paths. Returns 1 when it is to fail, 2 when it is a write to be torn; 0 when it is to be made. */
static int reached(const char *what, const char *path, const char *other) {
  if (!armed_folder[0] || !(under_folder(path) || (other[0] && under_folder(other)))) return 0;
  long number = atomic_fetch_add(&calls, 1) + 1;
  int here = number == armed_at;
  if (here && armed_action == KILL) die();
  if (here && armed_action == FAIL) { errno = armed_error; return 1; }
  char line[2 * LONGEST + 64];
  int length = snprintf(line, sizeof line, "%s\t%s\t%s\n", what, path, other);
  syscall(SYS_write, trace, line, (size_t)length);
  return here && armed_action == TEAR ? 2 : 0;
}

static int on_path(const char *what, int folder, const char *name) {
  char path[LONGEST];
  if (!armed_folder[0]) return 0;
  path_at(folder, name, path);
  int fate = reached(what, path, "");
  if (fate == 2) die();
  return fate;
}

static int on_descriptor(const char *what, int descriptor) {
  char path[LONGEST];
  if (!armed_folder[0] || descriptor == trace) return 0;
  path_of_descriptor(descriptor, path);
  return reached(what, path, "");
}

/* The same for calls that are made or not, and have no half: 1 when the call is to fail. */
static int fails_on(const char *what, int descriptor) {
  int fate = on_descriptor(what, descriptor);
  if (fate == 2) die();
  return fate;
}

static int opened(int folder, const char *name, int flags, mode_t mode) {
  int changes = (flags & (O_CREAT | O_TRUNC)) || (flags & O_TMPFILE) == O_TMPFILE;
  if (changes && on_path((flags & O_TMPFILE) == O_TMPFILE ? "open-unnamed" : "create", folder, name)) return -1;
  return (int)syscall(SYS_openat, folder, name, flags, mode);
}

#define MODE_OF(flags)                                          \
  mode_t mode = 0;                                              \
  if ((flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE) {  \
    va_list more;                                               \
    va_start(more, flags);                                      \
    mode = va_arg(more, mode_t);                                \
    va_end(more);                                               \
  }

int open(const char *name, int flags, ...) { MODE_OF(flags) return opened(AT_FDCWD, name, flags, mode); }
int open64(const char *name, int flags, ...) { MODE_OF(flags) return opened(AT_FDCWD, name, flags, mode); }
int openat(int folder, const char *name, int flags, ...) { MODE_OF(flags) return opened(folder, name, flags, mode); }
int openat64(int folder, const char *name, int flags, ...) { MODE_OF(flags) return opened(folder, name, flags, mode); }

#define WRITTEN(half, whole)                 \
  int fate = on_descriptor("write", file);   \
  if (fate == 1) return -1;                  \
  if (fate == 2) { half; die(); }            \
  return whole;

ssize_t write(int file, const void *data, size_t size) {
  WRITTEN(syscall(SYS_write, file, data, size / 2), syscall(SYS_write, file, data, size))
}
ssize_t pwrite(int file, const void *data, size_t size, off_t at) {
  WRITTEN(syscall(SYS_pwrite64, file, data, size / 2, at), syscall(SYS_pwrite64, file, data, size, at))
}
ssize_t pwrite64(int file, const void *data, size_t size, off64_t at) { return pwrite(file, data, size, at); }
ssize_t writev(int file, const struct iovec *parts, int count) {
  WRITTEN(syscall(SYS_writev, file, parts, count / 2), syscall(SYS_writev, file, parts, count))
}

int fsync(int file) { return fails_on("fsync", file) ? -1 : (int)syscall(SYS_fsync, file); }
int fdatasync(int file) { return fails_on("fsync", file) ? -1 : (int)syscall(SYS_fdatasync, file); }
int ftruncate(int file, off_t size) {
  return fails_on("truncate", file) ? -1 : (int)syscall(SYS_ftruncate, file, size);
}
int ftruncate64(int file, off64_t size) { return ftruncate(file, size); }
int posix_fallocate(int file, off_t at, off_t size) {
  if (fails_on("allocate", file)) return errno;
  return syscall(SYS_fallocate, file, 0, at, size) ? errno : 0;
}
int posix_fallocate64(int file, off64_t at, off64_t size) { return posix_fallocate(file, at, size); }

int mkdirat(int folder, const char *name, mode_t mode) {
  return on_path("mkdir", folder, name) ? -1 : (int)syscall(SYS_mkdirat, folder, name, mode);
}
int mkdir(const char *name, mode_t mode) { return mkdirat(AT_FDCWD, name, mode); }
int unlinkat(int folder, const char *name, int flags) {
  return on_path("remove", folder, name) ? -1 : (int)syscall(SYS_unlinkat, folder, name, flags);
}
int unlink(const char *name) { return unlinkat(AT_FDCWD, name, 0); }
int rmdir(const char *name) { return unlinkat(AT_FDCWD, name, AT_REMOVEDIR); }

static int two_paths(const char *what, int old_folder, const char *old, int new_folder, const char *new) {
  char path[LONGEST], other[LONGEST];
  if (!armed_folder[0]) return 0;
  path_at(old_folder, old, path), path_at(new_folder, new, other);
  int fate = reached(what, path, other);
  if (fate == 2) die();
  return fate;
}

int renameat2(int old_folder, const char *old, int new_folder, const char *new, unsigned flags) {
  struct stat found;
  if (flags && without_exchange) { errno = EINVAL; return -1; }
  const char *what = flags & 2 ? "exchange" : fstatat(new_folder, new, &found, AT_SYMLINK_NOFOLLOW) ? "rename" : "replace";
  if (two_paths(what, old_folder, old, new_folder, new)) return -1;
  return (int)syscall(SYS_renameat2, old_folder, old, new_folder, new, flags);
}
int renameat(int old_folder, const char *old, int new_folder, const char *new) {
  return renameat2(old_folder, old, new_folder, new, 0);
}
int rename(const char *old, const char *new) { return renameat2(AT_FDCWD, old, AT_FDCWD, new, 0); }

int linkat(int old_folder, const char *old, int new_folder, const char *new, int flags) {
  if (two_paths("link", old_folder, old, new_folder, new)) return -1;
  return (int)syscall(SYS_linkat, old_folder, old, new_folder, new, flags);
}
int link(const char *old, const char *new) { return linkat(AT_FDCWD, old, AT_FDCWD, new, 0); }
