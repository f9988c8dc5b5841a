// Values whose sum depends on the order, and the documented order written down once more, as plainly as it can be.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include <lockstep/core/base/philox.hpp>
#include <lockstep/core/tensor/tensor.hpp>

namespace lockstep::test {

/// What sums of T are computed in.
template <class T>
using unrounded_t = std::conditional_t<std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>, float, T>;

/// parts[p] is what part p brings: in floating point of either sign and many magnitudes, in integers small.
template <class T>
std::vector<std::vector<T>> make_parts(int parts, std::int64_t count) {
  const RandomStream random{7, RandomStream::Purpose::initial_value, static_cast<std::uint64_t>(parts)};
  std::vector<std::vector<T>> made(static_cast<std::size_t>(parts));
  std::uint64_t index = 0;
  for (std::vector<T>& part : made) {
    for (std::int64_t i = 0; i < count; ++i, ++index) {
      if constexpr (!std::is_integral_v<T>) {
        const double scale = static_cast<double>(std::uint64_t{1} << random.below(sizeof(T) == 2 ? 12 : 30, index));
        part.push_back(static_cast<T>(static_cast<unrounded_t<T>>((random.uniform(index) - 0.5) * scale)));
      } else {
        part.push_back(static_cast<T>(random.below(20, index)));
      }
    }
  }
  return made;
}

/// tree(0, n) = tree(0, m) + tree(m, n), m the largest power of two below n.
template <class T>
unrounded_t<T> tree(const std::vector<std::vector<T>>& parts, std::size_t first, std::size_t last,
                    std::size_t element) {
  if (last - first == 1) return parts[first][element];
  std::size_t m = 1;
  while (2 * m < last - first) m *= 2;
  return static_cast<unrounded_t<T>>(tree(parts, first, first + m, element) + tree(parts, first + m, last, element));
}

/// Divided by `divisor`, as a mean is.
template <class T>
std::vector<T> tree(const std::vector<std::vector<T>>& parts, int divisor = 1) {
  std::vector<T> sum;
  for (std::size_t element = 0; element < parts.front().size(); ++element)
    sum.push_back(static_cast<T>(
        static_cast<unrounded_t<T>>(tree(parts, 0, parts.size(), element) / static_cast<unrounded_t<T>>(divisor))));
  return sum;
}

/// Sets bits of the processor's control register, where there is one: 0x40 takes denormal operands for zeros, 0x8000
/// has zeros in place of denormal results.
inline void zero_denormals(unsigned control) {
#if defined(__x86_64__)
  __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | control);
#else
  (void)control;
#endif
}

/// Not compared by an assertion, which would print all of them.
template <class A, class B>
bool same_bits(const A& a, const B& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(a[0])) == 0);
}

template <class T>
std::vector<T> concatenated(const std::vector<std::vector<T>>& parts) {
  std::vector<T> all;
  for (const auto& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

template <class T>
Tensor tensor_of(const std::vector<T>& values) {
  return Tensor::from(values, {static_cast<std::int64_t>(values.size())});
}

}  // namespace lockstep::test
