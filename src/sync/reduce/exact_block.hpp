// The arithmetic of ReduceOp::exact_sum: each element is the correctly rounded sum of those of all pieces.
//
// For n pieces, of an element:
//   1. n = 2: one addition, which is rounded correctly.
//   2. f32: in doubles. Each addition also gives what it has lost (TwoSum, Knuth). If that is 0 each time, the sum is
//      exact, and is rounded once.
//   3. f64: what was lost is added up in the same way (Ogita, Rump, Oishi, 2005). If nothing is lost there, the sum and
//      the sum of what it has lost are exact together, and one addition rounds them.
//   4. Any doubt (something was lost after all, a result is no number, the processor does not round to nearest): the
//      superaccumulator of ExactSum.
// Steps 1 to 3 take up to 14 operations for each number, for several elements at a time. Step 4 takes
// far longer. f32 needs it when exponents differ by about 29 - log2(n) or more; f64 rarely does.
#pragma once

#include <cstdint>

namespace lockstep::detail {

/// The most elements of a block, so that all that belongs to it stays in the L1 cache.
constexpr std::int64_t exact_block = 512;

/// Element i of `sum` becomes the exact sum, rounded once, of pieces[i], pieces[stride + i], … for `count` elements, at
/// most exact_block. `sum` overlaps no piece. float or double.
template <class T>
void exact_sum_of_block(const T* pieces, std::int64_t stride, int parts, std::int64_t count, T* sum);

}  // namespace lockstep::detail
