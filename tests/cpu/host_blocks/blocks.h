// A block of threads on the host: each is a fiber of its own that runs to the next barrier, then the next one does.
#pragma once
#include <ucontext.h>
#include <vector>
#define __global__
#define __shared__
#define __align__(n) __attribute__((aligned(n)))
#define __launch_bounds__(...)
#define __grid_constant__

namespace gett {
alignas(128) char smem[1 << 18];

namespace blocks {
static const int kStack = 1 << 18;
static ucontext_t scheduler;
static std::vector<ucontext_t> threads;
static std::vector<char> done;
static int current;
static void (*kernel)();
static std::vector<unsigned> exchanged;

inline void wait() { swapcontext(&threads[current], &scheduler); }
static void begin() {
  kernel();
  done[current] = 1;
  wait();
}
// Runs block number `block` of `count` threads.
inline void run(int block, int count, void (*run)()) {
  // Pages that no fiber touches cost nothing.
  static char* const stacks = static_cast<char*>(malloc(size_t(1024) * kStack));
  kernel = run;
  threads.assign(count, ucontext_t());
  done.assign(count, 0);
  exchanged.assign(count, 0);
  blockIdx.x = block;
  memset(smem, 0xff, sizeof smem);
  for (int i = 0; i < count; ++i) {
    getcontext(&threads[i]);
    threads[i].uc_stack.ss_sp = stacks + size_t(i) * kStack;
    threads[i].uc_stack.ss_size = kStack;
    threads[i].uc_link = &scheduler;
    makecontext(&threads[i], begin, 0);
  }
  for (int left = count; left;) {
    left = 0;
    for (current = 0; current < count; ++current) {
      if (done[current]) continue;
      threadIdx.x = current;
      swapcontext(&scheduler, &threads[current]);
      left += !done[current];
    }
  }
}
}  // namespace blocks
}  // namespace gett

inline void __syncthreads() { gett::blocks::wait(); }
// All threads of a block take part in the kernels that are run here.
inline unsigned __shfl_xor_sync(unsigned, unsigned x, int lanes) {
  const int own = gett::blocks::current;
  gett::blocks::exchanged[own] = x;
  gett::blocks::wait();
  const unsigned found = gett::blocks::exchanged[own ^ lanes];
  gett::blocks::wait();
  return found;
}
namespace gett {
namespace blocks {
// The value that thread `from` has, after all threads have told theirs.
inline int told(int x, int from) {
  exchanged[current] = unsigned(x);
  wait();
  const unsigned found = exchanged[from];
  wait();
  return int(found);
}
}  // namespace blocks
}  // namespace gett

inline int __shfl_sync(unsigned, int x, int lane) { return gett::blocks::told(x, gett::blocks::current / 32 * 32 + lane); }
inline int __shfl_up_sync(unsigned, int x, int lanes) {
  const int own = gett::blocks::current;
  return gett::blocks::told(x, own % 32 >= lanes ? own - lanes : own);
}
inline unsigned __ballot_sync(unsigned, bool x) {
  unsigned found = 0;
  gett::blocks::exchanged[gett::blocks::current] = x;
  gett::blocks::wait();
  for (int lane = 0; lane < 32; ++lane) found |= gett::blocks::exchanged[gett::blocks::current / 32 * 32 + lane] << lane;
  gett::blocks::wait();
  return found;
}
