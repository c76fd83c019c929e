// Replaces gett/ptx/opaque.cuh on the host, where nothing depends on what the compiler sees.
#pragma once
#include "gett/core/types.cuh"

namespace gett {

template <class T> T opaque(T x) { return x; }
template <class T> const T& hidden(const T& x) { return x; }

}  // namespace gett
