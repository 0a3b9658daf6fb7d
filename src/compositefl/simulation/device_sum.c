/* The sum of a small array over the devices of one process, without putting a core to sleep.
 *
 * Every device has a rank in a shared buffer: a count of the sums it has taken part in, and two
 * slots. For the k-th sum it writes its numbers into slot k mod 2, raises its count to k, waits
 * until all counts are at least k, and adds the slots in the order of the ranks: every device gets
 * the same bits. Two slots are enough. Whoever writes for sum k + 2 has seen all counts at k + 1,
 * and nobody raises his count to k + 1 before he has read all slots of sum k.
 *
 * The buffer starts with the number of ranks and the limit of a wait in nanoseconds, then come the
 * counts, then the slots, all on cache lines of their own. Counts and slots are zero at first.
 *
 * Called by XLA through its foreign function interface: operands (numbers, where), result (sum),
 * where = (low and high half of the buffer's address, rank). A device that fails leaves the others
 * waiting; after the limit each of them returns an error.
 */

#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include "xla/ffi/api/c_api.h"

/* LINE, bytes of a cache line, and SLOT, bytes of a slot: device_sum.py gives them to the compiler. */
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

/* Whether the count reached k within the limit. */
static int wait_for(_Atomic uint64_t* count, uint64_t k, uint64_t limit) {
  uint64_t began = 0;
  for (unsigned looks = 1; atomic_load_explicit(count, memory_order_acquire) < k; ++looks) {
    if (looks % 64) {
      relax();
    } else if (began == 0) {
      began = nanoseconds();
    } else if (nanoseconds() - began < SPIN) {
      sched_yield(); /* to whoever else wants this core, perhaps the one we wait for */
    } else if (nanoseconds() - began > limit) {
      return 0;
    } else {
      nanosleep(&(struct timespec){0, SLEEP}, NULL);
    }
  }
  return 1;
}

static _Atomic uint64_t* count_of(char* buffer, uint64_t rank) {
  return (_Atomic uint64_t*)(buffer + LINE * (1 + rank));
}

static char* slot_of(char* buffer, uint64_t ranks, uint64_t rank, uint64_t k) {
  return buffer + LINE * (1 + ranks) + (2 * rank + k % 2) * SLOT;
}

typedef void add(void* out, const void* slot, uint64_t bytes);

static void add_floats(void* out, const void* slot, uint64_t bytes) {
  for (uint64_t i = 0; i < bytes / sizeof(float); ++i) ((float*)out)[i] += ((const float*)slot)[i];
}

static void add_doubles(void* out, const void* slot, uint64_t bytes) {
  for (uint64_t i = 0; i < bytes / sizeof(double); ++i)
    ((double*)out)[i] += ((const double*)slot)[i];
}

static int sum(char* buffer, uint64_t rank, const char* x, char* out, uint64_t bytes, add* add_to) {
  uint64_t ranks = ((uint64_t*)buffer)[0], limit = ((uint64_t*)buffer)[1];
  _Atomic uint64_t* own = count_of(buffer, rank);
  uint64_t k = atomic_load_explicit(own, memory_order_relaxed) + 1;
  memcpy(slot_of(buffer, ranks, rank, k), x, bytes);
  atomic_store_explicit(own, k, memory_order_release);
  memset(out, 0, bytes);
  for (uint64_t other = 0; other < ranks; ++other) {
    if (!wait_for(count_of(buffer, other), k, limit)) return 0;
    add_to(out, slot_of(buffer, ranks, other, k), bytes);
  }
  return 1;
}

static XLA_FFI_Error* error(XLA_FFI_CallFrame* call, XLA_FFI_Error_Code code, const char* text) {
  XLA_FFI_Error_Create_Args args = {XLA_FFI_Error_Create_Args_STRUCT_SIZE, NULL, text, code};
  return call->api->XLA_FFI_Error_Create(&args);
}

XLA_FFI_Error* compositefl_device_sum(XLA_FFI_CallFrame* call) {
  XLA_FFI_Extension_Base* extension = call->extension_start;
  if (extension != NULL && extension->type == XLA_FFI_Extension_Metadata) {
    XLA_FFI_Metadata* about = ((XLA_FFI_Metadata_Extension*)extension)->metadata;
    about->api_version.major_version = XLA_FFI_API_MAJOR;
    about->api_version.minor_version = XLA_FFI_API_MINOR;
    about->traits = 0;
    about->state_type_id.type_id = 0; /* no state */
    return NULL;
  }
  if (call->args.size != 2 || call->rets.size != 1)
    return error(call, XLA_FFI_Error_Code_INVALID_ARGUMENT, "device sum: two operands, one result");
  const XLA_FFI_Buffer* numbers = call->args.args[0];
  const XLA_FFI_Buffer* where = call->args.args[1];
  if (where->dtype != XLA_FFI_DataType_U32)
    return error(call, XLA_FFI_Error_Code_INVALID_ARGUMENT, "device sum: the rank is not uint32");
  int is_double = numbers->dtype == XLA_FFI_DataType_F64;
  if (!is_double && numbers->dtype != XLA_FFI_DataType_F32)
    return error(call, XLA_FFI_Error_Code_INVALID_ARGUMENT, "device sum: float32 or float64 only");
  const uint32_t* rank = where->data;
  char* buffer = (char*)(uintptr_t)((uint64_t)rank[1] << 32 | rank[0]);
  const char* x = numbers->data;
  char* out = ((XLA_FFI_Buffer*)call->rets.rets[0])->data;

  uint64_t bytes = is_double ? sizeof(double) : sizeof(float);
  for (int64_t i = 0; i < numbers->rank; ++i) bytes *= (uint64_t)numbers->dims[i];
  for (uint64_t at = 0; at < bytes; at += SLOT) {
    uint64_t piece = bytes - at < SLOT ? bytes - at : SLOT;
    if (!sum(buffer, rank[2], x + at, out + at, piece, is_double ? add_doubles : add_floats))
      return error(call, XLA_FFI_Error_Code_DEADLINE_EXCEEDED,
                   "device sum: another device did not come within wait_limit");
  }
  return NULL;
}
