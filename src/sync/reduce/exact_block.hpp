// The arithmetic of ReduceOp::exact_sum: each element is the correctly rounded sum of those of all pieces.
//
// For n pieces, of an element:
//   1. n = 2: one addition, which is rounded correctly.
//   2. f32: in doubles. Each addition also gives what it has lost (TwoSum, Knuth). If that is 0 each time, the sum is
//      exact, and is rounded once.
//   3. f64: what was lost is added up in the same way, to a rest (Ogita, Rump, Oishi, 2005). If nothing is lost there,
//      the sum and the rest are exact together, and one addition rounds them.
//   4. Else the magnitudes of what was lost in the end have a sum L, which may have been rounded itself. The exact sum
//      or rest is within L (1 + n 2^-53) of the computed one, x. Let b be 2 L + 2^-51 |x|: so much more that x - b and
//      x + b enclose the exact one however they are rounded. If both lead to the same result, so does all between them,
//      since rounding is monotonic.
//   5. Any doubt (the results differ, or are no numbers; the processor does not round to nearest, or takes denormal
//      numbers for zeros): the superaccumulator of ExactSum.
// Steps 1 to 4 take up to 15 operations for each number, for several elements at a time. Step 5 takes far longer. It is
// for sums near the middle of two numbers, for those that all but cancel, and for infinities and NaNs.
#pragma once

#include <cstdint>

namespace lockstep::detail {

/// The most elements of a block, so that all that belongs to it stays in the L1 cache.
constexpr std::int64_t exact_block = 512;

/// How the processor adds: a program may have it round otherwise than to nearest, or take denormal numbers for zeros.
enum class Arithmetic : std::uint8_t { as_ieee_says, otherwise };
Arithmetic arithmetic_now();

/// Element i of `sum` becomes the exact sum, rounded once, of pieces[i], pieces[stride + i], … for `count` elements, at
/// most exact_block. `sum` overlaps no piece. float or double.
template <class T>
void exact_sum_of_block(const T* pieces, std::int64_t stride, int parts, std::int64_t count, Arithmetic arithmetic,
                        T* sum);

}  // namespace lockstep::detail
