// Replaces gett/ptx/warpgroup.cuh where whole blocks run on the host: what multistage kernels use of it.
#pragma once
#include "gett/core/types.cuh"

namespace gett {

inline void griddepcontrol_launch_dependents() {}
inline void griddepcontrol_wait() {}

}  // namespace gett
