/* The sum of a small array over the devices of one process, without putting a core to sleep.
 *
 * Every device has a seat at a table: a count of the sums it has taken part in, and two slots. For
 * the k-th sum it writes its numbers into slot k mod 2, raises its count to k, waits until all
 * counts are at least k, and adds the slots in the order of the seats: every device gets the same
 * bits. Two slots are enough. Whoever writes for sum k + 2 has seen all counts at k + 1, and nobody
 * raises his count to k + 1 before he has read all slots of sum k.
 *
 * The table starts with the number of seats, then come the counts, then the slots, all on cache
 * lines of their own. It is zero at first.
 *
 * Called by XLA through its foreign function interface: operands (numbers, seat), result (sum),
 * seat = (low and high half of the table's address, number of the seat).
 */

#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include "xla/ffi/api/c_api.h"

/* LINE, bytes of a cache line, and SLOT, bytes of a slot: exchange.py gives them to the compiler. */
#if !defined(LINE) || !defined(SLOT) || SLOT % LINE
#error "LINE and SLOT must be set, SLOT to a multiple of LINE"
#endif
#define SPIN 200000  /* nanoseconds to wait awake: several times what waking up takes */
#define SLEEP 50000  /* nanoseconds to sleep between two looks after that */

static uint64_t nanoseconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

static void wait_for(_Atomic uint64_t* count, uint64_t k) {
  uint64_t began = 0;
  for (unsigned looks = 1; atomic_load_explicit(count, memory_order_acquire) < k; ++looks) {
    if (looks % 64) {
      relax();
    } else if (began == 0) {
      began = nanoseconds();
    } else if (nanoseconds() - began < SPIN) {
      sched_yield(); /* to whoever else wants this core, perhaps the one we wait for */
    } else {
      nanosleep(&(struct timespec){0, SLEEP}, NULL);
    }
  }
}

static _Atomic uint64_t* count_of(char* table, uint64_t seat) {
  return (_Atomic uint64_t*)(table + LINE * (1 + seat));
}

static char* slot_of(char* table, uint64_t seats, uint64_t seat, uint64_t k) {
  return table + LINE * (1 + seats) + (2 * seat + k % 2) * SLOT;
}

typedef void add(void* out, const void* slot, uint64_t bytes);

static void add_floats(void* out, const void* slot, uint64_t bytes) {
  for (uint64_t i = 0; i < bytes / sizeof(float); ++i) ((float*)out)[i] += ((const float*)slot)[i];
}

static void add_doubles(void* out, const void* slot, uint64_t bytes) {
  for (uint64_t i = 0; i < bytes / sizeof(double); ++i)
    ((double*)out)[i] += ((const double*)slot)[i];
}

static void sum(char* table, uint64_t seat, const char* x, char* out, uint64_t bytes, add* add_to) {
  uint64_t seats = *(uint64_t*)table;
  _Atomic uint64_t* own = count_of(table, seat);
  uint64_t k = atomic_load_explicit(own, memory_order_relaxed) + 1;
  memcpy(slot_of(table, seats, seat, k), x, bytes);
  atomic_store_explicit(own, k, memory_order_release);
  memset(out, 0, bytes);
  for (uint64_t other = 0; other < seats; ++other) {
    wait_for(count_of(table, other), k);
    add_to(out, slot_of(table, seats, other, k), bytes);
  }
}

XLA_FFI_Error* compositefl_exchange(XLA_FFI_CallFrame* call) {
  XLA_FFI_Extension_Base* extension = call->extension_start;
  if (extension != NULL && extension->type == XLA_FFI_Extension_Metadata) {
    XLA_FFI_Metadata* about = ((XLA_FFI_Metadata_Extension*)extension)->metadata;
    about->api_version.major_version = XLA_FFI_API_MAJOR;
    about->api_version.minor_version = XLA_FFI_API_MINOR;
    about->traits = 0;
    about->state_type_id.type_id = 0; /* no state */
    return NULL;
  }
  const XLA_FFI_Buffer* numbers = call->args.args[0];
  const uint32_t* seat = ((const XLA_FFI_Buffer*)call->args.args[1])->data;
  char* table = (char*)(uintptr_t)((uint64_t)seat[1] << 32 | seat[0]);
  const char* x = numbers->data;
  char* out = ((XLA_FFI_Buffer*)call->rets.rets[0])->data;

  int is_double = numbers->dtype == XLA_FFI_DataType_F64;
  uint64_t bytes = is_double ? sizeof(double) : sizeof(float);
  for (int64_t i = 0; i < numbers->rank; ++i) bytes *= (uint64_t)numbers->dims[i];
  for (uint64_t at = 0; at < bytes; at += SLOT) {
    uint64_t piece = bytes - at < SLOT ? bytes - at : SLOT;
    sum(table, seat[2], x + at, out + at, piece, is_double ? add_doubles : add_floats);
  }
  return NULL;
}
