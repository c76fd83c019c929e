// op
#pragma once
#include "gett/core/numeric.cuh"

namespace gett {

template <class Traits> GETT_DEVICE typename Traits::Acc scaled(const typename Traits::Params& p, typename Traits::Acc x) {
  return is_one(p.alpha) ? x : multiply(p.alpha, x);
}

// One element of D from a finished product or sum; C is read only where beta asks for it.
template <class Traits> GETT_DEVICE typename Traits::ElementD
finish(const typename Traits::Params& p, typename Traits::Acc x, const typename Traits::ElementC* c) {
  typedef typename Traits::Acc Acc;
  x = scaled<Traits>(p, x);
  if constexpr (Traits::kSourceC == kSourceVector) {
    if (!is_zero(p.beta)) x = add(x, multiply(p.beta, convert<Acc>(*c)));
  }
  return convert<typename Traits::ElementD>(x);
}

}  // namespace gett
