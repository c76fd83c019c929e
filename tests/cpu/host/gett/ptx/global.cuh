// Stands in for gett/kernels/ptx/global.cuh: a store is an assignment.
#pragma once
#include "gett/core/types.cuh"

namespace gett {

template <class R> GETT_DEVICE void st_global(R* p, R x) { *p = x; }

}  // namespace gett
