#include "sums.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>
#include <utility>

#include <cuda_bf16.h>

#include "../core.hpp"

namespace cusim {
namespace {

/// Elements that are reduced in one order.
constexpr std::size_t block_elements = 256;

/// A 16-bit float in memory, and its arithmetic, which rounds after each step as NCCL's kernels do.
struct Half {
  _Float16 bits;

  Half() = default;
  explicit Half(float value) : bits{static_cast<_Float16>(value)} {}
  explicit operator float() const { return static_cast<float>(bits); }
};

struct BFloat16 {
  __nv_bfloat16 bits;

  BFloat16() = default;
  explicit BFloat16(float value) : bits{__float2bfloat16_rn(value)} {}
  explicit operator float() const { return __bfloat162float(bits); }
};

template <class T>
constexpr bool is_narrow = std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>;

template <class T>
T combine(ncclRedOp_t op, T a, T b) {
  if constexpr (is_narrow<T>) {
    return T{combine(op, static_cast<float>(a), static_cast<float>(b))};
  } else if constexpr (std::is_integral_v<T>) {
    using Unsigned = std::make_unsigned_t<T>;  // wraps around
    if (op == ncclProd) return static_cast<T>(std::uint64_t{static_cast<Unsigned>(a)} * static_cast<Unsigned>(b));
    if (op == ncclMax) return std::max(a, b);
    if (op == ncclMin) return std::min(a, b);
    return static_cast<T>(static_cast<Unsigned>(a) + static_cast<Unsigned>(b));
  } else {
    if (op == ncclProd) return a * b;
    if (op == ncclMax) return std::fmax(a, b);
    if (op == ncclMin) return std::fmin(a, b);
    return a + b;
  }
}

template <class T>
T divided(T value, std::size_t ranks) {
  if constexpr (is_narrow<T>)
    return T{static_cast<float>(value) / static_cast<float>(ranks)};
  else
    return static_cast<T>(value / static_cast<T>(ranks));
}

/// A sequence of numbers that depends on nothing but its seed.
class Sequence {
 public:
  explicit Sequence(std::uint64_t seed) : seed_{seed} {}
  std::size_t below(std::size_t bound) { return static_cast<std::size_t>(mix(seed_, drawn_++) % bound); }

 private:
  std::uint64_t seed_;
  std::uint64_t drawn_ = 0;
};

/// Which partial results are combined, one pair after another: the first of a pair takes the result, the second is
/// gone. Covers every tree of sums.
using Steps = std::vector<std::pair<std::size_t, std::size_t>>;

Steps steps_by_rank(std::size_t ranks) {
  Steps steps;
  for (std::size_t rank = 1; rank < ranks; ++rank) steps.emplace_back(0, rank);
  return steps;
}

Steps drawn_steps(std::size_t ranks, Sequence& sequence) {
  std::vector<std::size_t> left(ranks);
  for (std::size_t rank = 0; rank < ranks; ++rank) left[rank] = rank;
  Steps steps;
  while (left.size() > 1) {
    const std::size_t gone = sequence.below(left.size());
    const std::size_t second = left[gone];
    left.erase(left.begin() + static_cast<std::ptrdiff_t>(gone));
    steps.emplace_back(left[sequence.below(left.size())], second);
  }
  // The result is taken from rank 0's place.
  if (const std::size_t last = left.front(); last != 0)
    for (auto& [first, second] : steps)
      for (std::size_t* const place : {&first, &second})
        if (*place == 0 || *place == last) *place = *place == 0 ? last : 0;
  return steps;
}

template <class T>
struct Reduction {
  ncclRedOp_t op;
  bool divides_first;
  bool divides_last;

  T element(const std::vector<const std::byte*>& from, const Steps& steps, std::size_t index,
            std::vector<T>& values) const {
    for (std::size_t rank = 0; rank < from.size(); ++rank) {
      std::memcpy(&values[rank], from[rank] + index * sizeof(T), sizeof(T));
      if (divides_first) values[rank] = divided(values[rank], from.size());
    }
    for (const auto& [first, second] : steps) values[first] = combine(op, values[first], values[second]);
    return divides_last ? divided(values[0], from.size()) : values[0];
  }
};

template <class T>
void reduce_as(ncclRedOp_t op, ReductionOrder order, const std::vector<const std::byte*>& from, std::byte* to,
               std::size_t count) {
  const std::size_t ranks = from.size();
  Sequence sequence{order.seed};
  const bool mean = op == ncclAvg;
  const bool first = mean && !std::is_integral_v<T> && !order.by_rank && sequence.below(2);
  const Reduction<T> reduction{op, first, mean && !first};
  std::vector<T> values(ranks);
  for (std::size_t begin = 0; begin < count; begin += block_elements) {
    const Steps steps = order.by_rank ? steps_by_rank(ranks) : drawn_steps(ranks, sequence);
    for (std::size_t i = begin; i < std::min(count, begin + block_elements); ++i) {
      const T value = reduction.element(from, steps, i, values);
      std::memcpy(to + i * sizeof(T), &value, sizeof(T));
    }
  }
}

struct Type {
  const char* name;
  std::size_t bytes;
};
constexpr Type types[] = {{"i8", 1},  {"u8", 1},  {"i32", 4}, {"u32", 4},  {"i64", 8},    {"u64", 8},
                          {"f16", 2}, {"f32", 4}, {"f64", 8}, {"bf16", 2}, {"f8e4m3", 1}, {"f8e5m2", 1}};

}  // namespace

std::size_t bytes_of(ncclDataType_t type) {
  return type >= 0 && type < ncclNumTypes ? types[type].bytes : 0;
}

bool can_reduce(ncclDataType_t type) {
  return type >= 0 && type <= ncclBfloat16;
}

const char* name_of(ncclDataType_t type) {
  return type >= 0 && type < ncclNumTypes ? types[type].name : "no type";
}

void reduce(ncclRedOp_t op, ncclDataType_t type, ReductionOrder order, const std::vector<const std::byte*>& from,
            std::byte* to, std::size_t count) {
  switch (type) {
    case ncclInt8: return reduce_as<std::int8_t>(op, order, from, to, count);
    case ncclUint8: return reduce_as<std::uint8_t>(op, order, from, to, count);
    case ncclInt32: return reduce_as<std::int32_t>(op, order, from, to, count);
    case ncclUint32: return reduce_as<std::uint32_t>(op, order, from, to, count);
    case ncclInt64: return reduce_as<std::int64_t>(op, order, from, to, count);
    case ncclUint64: return reduce_as<std::uint64_t>(op, order, from, to, count);
    case ncclFloat16: return reduce_as<Half>(op, order, from, to, count);
    case ncclFloat32: return reduce_as<float>(op, order, from, to, count);
    case ncclFloat64: return reduce_as<double>(op, order, from, to, count);
    case ncclBfloat16: return reduce_as<BFloat16>(op, order, from, to, count);
    case ncclFloat8e4m3:
    case ncclFloat8e5m2:
    case ncclNumTypes: return;
  }
}

}  // namespace cusim
