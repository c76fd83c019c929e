// What the epilogue computes: D = convert(f(alpha * X + beta * C)), where X is a finished sum of products. f is the
// function of the plan, if it has one (epilogue/epilogue_op.cuh). All elements of D go through this functor, in every
// kernel. It is one call where product, C and store meet. It is two calls where the products are scaled before they are
// staged in shared memory.
#pragma once
#include "gett/core/numeric.cuh"
#include "gett/core/vec.cuh"

namespace gett {

// The type of a staged element: D's where nothing is added after staging, else the accumulator's.
template <class Traits, bool kLater = Traits::kSourceC == kSourceVector> struct StagedElement {
  typedef typename Traits::Acc type;
};
template <class Traits> struct StagedElement<Traits, false> { typedef typename Traits::ElementD type; };

template <class Traits> struct LinearCombination {
  typedef typename Traits::Params Params;
  typedef typename Traits::Acc Acc;
  typedef typename Traits::ElementC ElementC;
  typedef typename Traits::ElementD ElementD;
  typedef typename StagedElement<Traits>::type Staged;
  const Params& p_;

  GETT_DEVICE explicit LinearCombination(const Params& p) : p_(p) {}

  // Whether C is read. With beta = 0 it is not, as in BLAS: C may hold anything then, also NaN.
  GETT_DEVICE bool reads_source() const {
    if constexpr (Traits::kSourceC == kSourceNone) return false;
    return !is_zero(p_.beta);
  }
  GETT_DEVICE bool is_scaled() const { return !is_one(p_.alpha); }

  // The first half, alpha * x, and the second half, x + beta * c.
  GETT_DEVICE Acc scale(Acc x) const { return is_scaled() ? multiply(p_.alpha, x) : x; }
  GETT_DEVICE Acc add_source(Acc x, ElementC c) const {
    mul_add(x, p_.beta, convert<Acc>(c));
    return x;
  }

  // A scaled product as it is staged.
  static GETT_DEVICE Staged staged(Acc x) { return convert<Staged>(x); }
  // An element of D, and two of them in one register, after both halves.
  static GETT_DEVICE ElementD result(Acc x) { return convert<ElementD>(x); }
  static GETT_DEVICE uint32 result_x2(Acc x, Acc y) { return cvt_x2(x, y, ElementD()); }

  // All at once; `c` is read only where it is needed, and `function` is applied to the sum.
  template <class Function> GETT_DEVICE ElementD operator()(Acc x, const ElementC* c, const Function& function) const {
    x = scale(x);
    if (reads_source()) x = add_source(x, *c);
    return result(function(x));
  }
};

}  // namespace gett
