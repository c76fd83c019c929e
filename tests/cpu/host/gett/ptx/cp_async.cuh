// Replaces gett/ptx/cp_async.cuh on the host: copies are done at once. Counts those that ask where the tensor ends.
#pragma once
#include "gett/ptx/shared.cuh"

namespace gett {

static int careful_copies = 0;
inline bool cp_async_chunk(uint32 to, const char* from, const char* end) {
  const long long left = end - from;
  ++careful_copies;
  if (left > 0 && left < 16) { memset(shared_memory + to, 0x7b, 16); return true; }
  if (left > 0) memcpy(shared_memory + to, from, 16); else memset(shared_memory + to, 0, 16);
  return false;
}
inline void cp_async_chunk(uint32 to, const char* from) { memcpy(shared_memory + to, from, 16); }

template <int Bytes> void cp_async(uint32 to, const void* from, bool ok) {
  if (ok) memcpy(shared_memory + to, from, Bytes); else memset(shared_memory + to, 0, Bytes);
}
template <int Bytes> void cp_async(uint32 to, const void* from) { cp_async<Bytes>(to, from, true); }
template <int Bytes> void cp_async_if(bool ok, uint32 to, const void* from) { if (ok) cp_async<Bytes>(to, from); }
inline void cp_async_mbarrier_arrive(uint32) {}

template <int Pending> void cp_async_wait() {}

}  // namespace gett
