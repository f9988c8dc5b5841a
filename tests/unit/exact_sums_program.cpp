// Adds up what exact-sums (a script) writes, in several ways, for it to compare. A line in is "f64" or "f32" and the
// bits of numbers, a line out the bits of their sum and its words, all in hexadecimal digits; or, in place of a line
// out, which way differs from adding one number after the other.
#include <algorithm>
#include <bit>
#include <cfenv>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <random>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <lockstep/sync/reduce/exact_sum.hpp>

namespace {

using namespace lockstep;

/// The sum of `numbers` in parts of random lengths, each of which is added in one of three ways.
template <class T>
ExactSum<T> in_parts(std::span<const T> numbers, std::mt19937_64& draw) {
  ExactSum<T> sum;
  while (!numbers.empty()) {
    const auto part = numbers.first(1 + draw() % numbers.size());
    numbers = numbers.subspan(part.size());
    switch (draw() % 3) {
      case 0: sum.add(part); break;
      case 1: std::ranges::for_each(part, [&](T number) { sum.add(number); }); break;
      case 2: sum.add(in_parts(part, draw)); break;
    }
  }
  return sum;
}

/// The same, as ranks do it: words are added up one by one.
template <class T>
ExactSum<T> by_words(std::span<const T> numbers, std::mt19937_64& draw) {
  typename ExactSum<T>::Words words{};
  while (!numbers.empty()) {
    const auto part = numbers.first(1 + draw() % numbers.size());
    numbers = numbers.subspan(part.size());
    const auto more = in_parts(part, draw).words();
    for (std::size_t i = 0; i < words.size(); ++i) words[i] += more[i];
  }
  return ExactSum<T>::of_words(words);
}

template <class T>
void answer(const char* text, std::mt19937_64& draw) {
  using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
  std::vector<T> numbers;
  for (char* end = nullptr; *text != '\0'; text = end)
    numbers.push_back(std::bit_cast<T>(static_cast<Bits>(std::strtoull(text, &end, 16))));

  ExactSum<T> sum;
  for (const T number : numbers) sum.add(number);
  ExactSum<T> at_once;
  at_once.add(std::span<const T>{numbers});
  if (at_once.words() != sum.words()) return (void)std::puts("differs: at once");
  for (const int mode : {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO}) {
    ExactSum<T> rounded_otherwise;
    std::fesetround(mode);
    rounded_otherwise.add(std::span<const T>{numbers});
    std::fesetround(FE_TONEAREST);
    if (rounded_otherwise.words() != sum.words()) return (void)std::puts("differs: with another rounding mode");
  }
  std::ranges::shuffle(numbers, draw);
  if (in_parts<T>(numbers, draw).words() != sum.words()) return (void)std::puts("differs: in parts");
  if (by_words<T>(numbers, draw).words() != sum.words()) return (void)std::puts("differs: by words");
  std::printf("%" PRIx64, std::uint64_t{std::bit_cast<Bits>(sum.value())});
  for (const std::int64_t word : sum.words()) std::printf(" %" PRIx64, static_cast<std::uint64_t>(word));
  std::puts("");
}

}  // namespace

int main() {
  std::mt19937_64 draw{60};
  for (std::string line; std::getline(std::cin, line);)
    line.starts_with("f32") ? answer<float>(line.c_str() + 3, draw) : answer<double>(line.c_str() + 3, draw);
}
