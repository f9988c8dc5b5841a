// What a test on a GPU has at hand, and how a kernel is held against the reference: the same call on the same operands,
// here and there.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/models/ops/kernels.hpp>

#include "../unit/ops_support.hpp"
#include "core/device/device.hpp"
#include "sync/update/update_kernels.hpp"

namespace lockstep::test {

using ops::filled;
using ops::generate;
using ops::Kernels;
using ops::noise;
using ops::not_a_number;
using Activation = Kernels::Activation;
using Transpose = Kernels::Transpose;

struct Gpu {
  Device& device;
  Stream& stream;
  const ops::Kernels& kernels;                    ///< of the GPU, on `stream`
  const ops::Kernels& reference;                  ///< of the host
  const detail::UpdateKernels& update;            ///< of the GPU, on `stream`
  const detail::UpdateKernels& update_reference;  ///< of the host
};

/// What the test program's main made. Tests that launch thousands of kernels, or large ones, have the tag [large]:
/// under compute-sanitizer, where each takes many times as long, the others run without them.
Gpu& gpu();

/// The kernels of optimizers on the device of `kernels`.
inline const detail::UpdateKernels& update_of(const ops::Kernels& kernels) {
  return &kernels == &gpu().kernels ? gpu().update : gpu().update_reference;
}

/// Whether the grids of a simulated GPU are limited, so that tests get by with less work. tests/cusim/real-size runs
/// them at the size that they have on a GPU.
inline bool grids_are_limited() {
  return std::getenv("CUSIM_MOST_BLOCKS") != nullptr;
}

/// Of a grid, in each dimension: as core/device/cuda/geometry.hpp says, or as a simulated GPU is told, which reaches
/// the strides of a grid with less work.
inline std::int64_t most_blocks() {
  const char* const simulated = std::getenv("CUSIM_MOST_BLOCKS");
  return simulated ? std::atoll(simulated) : 4096;
}

/// Two roundings of the type.
inline double epsilon(DType dtype) {
  if (dtype == DType::bf16) return 0x1p-7;
  return dtype == DType::f32 ? std::numeric_limits<float>::epsilon() : std::numeric_limits<double>::epsilon();
}

/// The most by which two sums of the same terms, in any order, may be apart: each addition rounds a partial sum, by at
/// most half an epsilon of `magnitude`, which is what the sizes of the terms add up to. `additions` is how many a term
/// goes through in both orders together: in one, as many as there are terms, and in a tree its depth.
inline double rounding_of_sums(DType dtype, double additions, double magnitude) {
  return additions / 2 * epsilon(dtype) * magnitude;
}

/// The same of sums of `terms` products of random numbers below 1. Their rounding errors add up like the steps of a
/// drunkard, on partial sums that grow alike: `terms` / 3 times half an epsilon is one standard deviation. Six are
/// allowed. Numbers cut to TF32 would be off by a hundred times as much.
inline double rounding_of_products(DType dtype, std::int64_t terms) {
  return (static_cast<double>(terms) + 8) * epsilon(dtype);
}

/// And of sums of a row, by a warp and on the host, which has eight partial sums: how many additions a term goes
/// through.
inline double additions_of_row(std::int64_t width) {
  return static_cast<double>(width) / 32 + 5 + static_cast<double>(width) / 8 + 3;
}

/// None, one, the sides of a warp and of a block, and more than a grid takes in one stride.
inline std::vector<std::int64_t> element_counts() {
  return {0, 1, 31, 32, 33, 255, 256, 257, 1000, most_blocks() * 256 + 77};
}

inline constexpr DType float_types[] = {DType::f32, DType::f64};

/// An operand on the GPU, `skip` elements behind an aligned address, between guards that no kernel may touch.
class OnGpu {
 public:
  explicit OnGpu(const Tensor& values, std::int64_t skip = 0)
      : before_{guard + skip}, framed_{frame(values, before_)}, memory_{Tensor::copy_of(framed_.view(), gpu().stream)} {
    view_ = memory_.view().slice(before_, values.count()).reshaped(values.shape());
  }

  const TensorView& view() const { return view_; }
  Tensor back() const { return Tensor::on_host(view_); }

  bool guards_hold() const {
    const Tensor now = Tensor::on_host(memory_.view());
    const std::int64_t end = before_ + view_.count();
    return ops::same_bits(now.view().slice(0, before_), framed_.view().slice(0, before_)) &&
           ops::same_bits(now.view().slice(end, guard), framed_.view().slice(end, guard));
  }

 private:
  static constexpr std::int64_t guard = 64;  // elements: as many bytes as keep what follows aligned

  static Tensor frame(const Tensor& values, std::int64_t before) {
    Tensor framed = Tensor::zeros(values.dtype(), {before + values.count() + guard});
    std::memset(framed.view().data(), 0x5a, framed.view().bytes());
    copy(values.view(), framed.view().slice(before, values.count()).reshaped(values.shape()));
    return framed;
  }

  std::int64_t before_;
  Tensor framed_;
  Tensor memory_;
  TensorView view_;
};

using Operands = std::vector<Tensor>;
using Views = std::vector<TensorView>;

/// What the operands hold after `call(kernels, views)` on the host.
template <class Call>
Operands after_reference(const Operands& operands, Call&& call) {
  Operands copies;
  Views views;
  for (const Tensor& operand : operands) views.push_back(copies.emplace_back(Tensor::copy_of(operand.view())).view());
  call(gpu().reference, views);
  return copies;
}

/// What they hold after it on the GPU, each `skip` elements behind an aligned address.
template <class Call>
Operands after_cuda(const Operands& operands, Call&& call, std::int64_t skip = 0) {
  std::vector<OnGpu> uploaded;
  Views views;
  for (const Tensor& operand : operands) views.push_back(uploaded.emplace_back(operand, skip).view());
  call(gpu().kernels, views);
  Operands after;
  for (const OnGpu& operand : uploaded) {
    after.push_back(operand.back());
    CHECK(operand.guards_hold());
  }
  return after;
}

/// NaNs are like NaNs, and infinitely far from anything else.
inline double largest_difference(const Tensor& a, const Tensor& b) {
  const auto x = ops::in_double(a);
  const auto y = ops::in_double(b);
  double largest = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (x[i] == y[i] || (std::isnan(x[i]) && std::isnan(y[i]))) continue;
    const double difference = std::abs(x[i] - y[i]);
    largest = std::isnan(difference) ? ops::infinity : std::max(largest, difference);
  }
  return largest;
}

/// The tolerance of results that agree to the bit.
inline constexpr double exactly = 0;

/// The same bits, but for those of a NaN of bf16, of which CUDA makes only one.
inline bool agree(const Tensor& a, const Tensor& b) {
  if (a.dtype() != DType::bf16) return ops::same_bits(a.view(), b.view());
  return std::ranges::equal(a.view().elements<BFloat16>(), b.view().elements<BFloat16>(), [](BFloat16 x, BFloat16 y) {
    return x.bits == y.bits || (std::isnan(float{x}) && std::isnan(float{y}));
  });
}

inline void check_close(const Tensor& expected, const Tensor& got, double tolerance) {
  REQUIRE(expected.shape() == got.shape());
  if (tolerance == exactly || expected.dtype() == DType::i32) {
    CHECK(agree(expected, got));
  } else {
    CHECK(largest_difference(expected, got) <= tolerance);
  }
}

/// Runs `call` on copies of the operands on the host and on the GPU, then passes each operand, read-only ones too, to
/// `check(index, expected, got)`. On the GPU they are aligned the first time, and only as their element type asks the
/// second.
template <class Call, class Check>
void compare_with_reference(const Operands& operands, Call&& call, Check&& check) {
  const Operands expected = after_reference(operands, call);
  for (const std::int64_t skip : {0, 1}) {
    const Operands got = after_cuda(operands, call, skip);
    for (std::size_t i = 0; i < operands.size(); ++i) {
      CAPTURE(skip, i, describe(operands[i].view()));
      check(i, expected[i], got[i]);
    }
  }
}

/// After `call` all operands hold what they hold after it on the host.
template <class Call>
void check_like_reference(const Operands& operands, double tolerance, Call&& call) {
  compare_with_reference(operands, call, [&](std::size_t, const Tensor& expected, const Tensor& got) {
    check_close(expected, got, tolerance);
  });
}

/// Again and again, at every alignment, `call` leaves the same bits.
template <class Call>
void check_repeats(const Operands& operands, Call&& call) {
  const Operands first = after_cuda(operands, call);
  for (int again = 0; again < 20; ++again) {
    const Operands next = after_cuda(operands, call, again % 4);
    for (std::size_t i = 0; i < operands.size(); ++i) CHECK(ops::same_bits(first[i].view(), next[i].view()));
  }
}

/// Whole numbers other than zero, of at most 8: their sums are exact, and no zero has a sign to lose.
inline Tensor whole_numbers(DType dtype, Shape shape, std::uint64_t seed) {
  const RandomStream random{seed, RandomStream::Purpose::initial_value, 1};
  return ops::generate(dtype, std::move(shape), [&](std::int64_t i) {
    const auto number = static_cast<double>(random.below(16, static_cast<std::uint64_t>(i))) - 8;
    return number < 0 ? number : number + 1;
  });
}

}  // namespace lockstep::test
