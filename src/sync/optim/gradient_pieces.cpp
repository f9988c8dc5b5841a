#include "sync/optim/gradient_pieces.hpp"

#include <limits>
#include <memory>

#include <lockstep/sync/strategy/variable_store.hpp>

#include "core/base/element_type.hpp"
#include "sync/reduce/messages.hpp"
#include "sync/strategy/held_slices.hpp"
#include "sync/strategy/variable_state.hpp"

namespace lockstep::detail {
namespace {

/// The piece of a variable without elements, which may lie in no range.
constexpr std::size_t none = std::numeric_limits<std::size_t>::max();

}  // namespace

GradientPieces::GradientPieces(const VariableStore& store, std::span<const Variable> variables, const Here& here)
    : ranges_{store.ranges(variables, here)}, pieces_(variables.size(), none) {
  std::vector<std::byte*> begins;
  for (const Variable& variable : variables) begins.push_back(store.gradient(variable, here).data());
  std::size_t number = 0;
  for (const VariableStore::FlatRange& range : ranges_) {
    const std::byte* const end = range.gradients.data() + range.gradients.bytes();
    std::vector<std::size_t> inside;
    for (std::size_t i = 0; i < begins.size(); ++i)
      if (range.gradients.data() <= begins[i] && begins[i] < end) inside.push_back(i);
    std::ranges::sort(inside, {}, [&](std::size_t i) { return begins[i]; });
    auto& counts = counts_.emplace_back();
    for (std::size_t i = 0; i < inside.size(); ++i) {
      pieces_[inside[i]] = number++;
      const std::byte* const next = i + 1 < inside.size() ? begins[inside[i + 1]] : end;
      counts.push_back((next - begins[inside[i]]) / static_cast<std::int64_t>(size_of(range.gradients.dtype())));
    }
  }
}

std::vector<GradientBucket> GradientPieces::buckets(const Packing& packing, std::int64_t enough_bytes) const {
  std::vector<GradientBucket> buckets;
  std::size_t pieces = 0;
  for (std::size_t range = 0; range < ranges_.size(); ++range) {
    const TensorView& memory = ranges_[range].gradients;
    const auto slices = ranges_[range].segment->slices;
    for (const Bucket& each : plan_buckets(packing, counts_[range], size_of(memory.dtype()), enough_bytes)) {
      GradientBucket& bucket =
          buckets.emplace_back(GradientBucket{memory.slice(each.first, each.count), pieces + each.tensors});
      if (slices)
        bucket.slices =
            std::make_shared<const SliceMap>(slices->map().within(ranges_[range].first + each.first, each.count));
    }
    pieces += counts_[range].size();
  }
  return buckets;
}

std::size_t GradientPieces::count() const {
  std::size_t pieces = 0;
  for (const auto& each : counts_) pieces += each.size();
  return pieces;
}

}  // namespace lockstep::detail
