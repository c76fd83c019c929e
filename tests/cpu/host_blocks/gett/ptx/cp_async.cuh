// Replaces gett/ptx/cp_async.cuh where whole blocks run on the host: copies are done at once.
#pragma once
#include "gett/ptx/shared.cuh"

namespace gett {

template <int Bytes, bool kCached = false> void cp_async(uint32 to, const void* from, bool ok = true) {
  if ((to | uint64(ok ? from : nullptr)) % Bytes) { printf("a copy of %d bytes from %p to %u\n", Bytes, from, to); exit(1); }
  if (ok) memcpy(smem + to, from, Bytes); else memset(smem + to, 0, Bytes);
}
template <int Bytes, bool kCached = false> void cp_async_if(bool ok, uint32 to, const void* from) {
  if (ok) cp_async<Bytes>(to, from);
}
inline void cp_async_commit() {}
template <int Pending> void cp_async_wait() {}

}  // namespace gett
