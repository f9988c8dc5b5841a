#include "models/nn/dropout.hpp"

#include <algorithm>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/core/base/philox.hpp>

#include "models/ops/image_kernels.hpp"

namespace lockstep::nn {
namespace {

// The layers of a model share a stream. Each has 2^48 of its indices, for the elements of a global batch.
constexpr int layer_shift = 48;
constexpr int most_layers = 1 << 15;

const DropoutOptions& checked(const DropoutOptions& options) {
  if (!(options.rate >= 0 && options.rate < 1))
    throw InvalidArgument{fmt::format("a dropout rate of {}; expected 0 or more and less than 1", options.rate)};
  if (options.ordinal < 0 || options.ordinal >= most_layers)
    throw InvalidArgument{
        fmt::format("dropout layer {} of a model; expected 0 to {}", options.ordinal, most_layers - 1)};
  return options;
}

}  // namespace

Dropout::Dropout(const DropoutOptions& options) : options_{checked(options)} {}

void Dropout::forward(const ops::Kernels& kernels, const Model::ShardPlace& place, const TensorView& x,
                      const TensorView& mask, const TensorView& y) const {
  if (place.step < 0 || place.first_sample < 0)
    throw InvalidArgument{
        fmt::format("dropout for sample {} of step {}; expected 0 or more of both", place.first_sample, place.step)};
  const std::int64_t rows = mask.shape().empty() ? 1 : mask.shape().front();
  const auto features = static_cast<std::uint64_t>(mask.count() / std::max<std::int64_t>(rows, 1));
  const RandomStream random{options_.seed, RandomStream::Purpose::dropout, static_cast<std::uint64_t>(place.step)};
  const std::uint64_t first = (static_cast<std::uint64_t>(options_.ordinal) << layer_shift) +
                              static_cast<std::uint64_t>(place.first_sample) * features;
  kernels.image().dropout_mask(random, first, options_.rate, mask);
  kernels.image().multiply(x, mask, y);
}

void Dropout::backward(const ops::Kernels& kernels, const TensorView& mask, const TensorView& dy,
                       const TensorView& dx) const {
  kernels.image().multiply(dy, mask, dx);
}

}  // namespace lockstep::nn
