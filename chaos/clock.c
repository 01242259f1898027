/* A clock of its own for a process and its children, by LD_PRELOAD: so many seconds ahead as the file CHAOS_CLOCK says.

   The file holds one 64-bit number in the machine's order. It is mapped, so a change takes effect at once everywhere.
   Only the wall clock is moved, as when somebody sets it; the monotonic clock goes on. Deadlines by the wall clock are
   translated for the kernel, which knows nothing of this. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

#define WALL_MIN_S 1000000000 /* no monotonic clock is so late, no wall clock so early */

static volatile int64_t *ahead_s;

__attribute__((constructor)) static void open_clock(void) {
  const char *path = getenv("CHAOS_CLOCK");
  int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  if (file < 0) return;
  void *mapped = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
  if (mapped != MAP_FAILED) ahead_s = mapped;
  close(file);
}

static int64_t ahead(void) { return ahead_s ? *ahead_s : 0; }

int clock_gettime(clockid_t which, struct timespec *now) {
  long result = syscall(SYS_clock_gettime, which, now);
  if (result == 0 && (which == CLOCK_REALTIME || which == CLOCK_REALTIME_COARSE)) now->tv_sec += ahead();
  return (int)result;
}

int timespec_get(struct timespec *now, int base) {
  return base == TIME_UTC && clock_gettime(CLOCK_REALTIME, now) == 0 ? base : 0;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
  struct timespec exact;
  (void)zone;
  if (clock_gettime(CLOCK_REALTIME, &exact) != 0) return -1;
  now->tv_sec = exact.tv_sec;
  now->tv_usec = exact.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *now) {
  struct timespec exact;
  clock_gettime(CLOCK_REALTIME, &exact);
  if (now) *now = exact.tv_sec;
  return exact.tv_sec;
}

static struct timespec of_kernel(const struct timespec *deadline) {
  struct timespec translated = *deadline;
  if (translated.tv_sec > WALL_MIN_S) translated.tv_sec -= ahead();
  return translated;
}

int pthread_cond_timedwait(pthread_cond_t *restrict changed, pthread_mutex_t *restrict lock,
                           const struct timespec *restrict deadline) {
  static int (*real)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
  if (!real) real = dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2");
  if (!real) real = dlsym(RTLD_NEXT, "pthread_cond_timedwait");
  struct timespec translated = of_kernel(deadline);
  return real(changed, lock, &translated);
}

/* The C library's own way into the same, which librdkafka takes. */
int cnd_timedwait(cnd_t *restrict changed, mtx_t *restrict lock, const struct timespec *restrict deadline) {
  static int (*real)(cnd_t *, mtx_t *, const struct timespec *);
  if (!real) real = dlsym(RTLD_NEXT, "cnd_timedwait");
  struct timespec translated = of_kernel(deadline);
  return real(changed, lock, &translated);
}

int sem_timedwait(sem_t *restrict free, const struct timespec *restrict deadline) {
  static int (*real)(sem_t *, const struct timespec *);
  if (!real) real = dlsym(RTLD_NEXT, "sem_timedwait");
  struct timespec translated = of_kernel(deadline);
  return real(free, &translated);
}
