#include "sync/checkpoint/strategy_values.hpp"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <memory>
#include <string>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>

#include "core/base/digest.hpp"
#include "core/control/announced_failure.hpp"
#include "core/control/busy_clock.hpp"
#include "core/control/meeting_point.hpp"
#include "core/control/tag.hpp"
#include "core/device/devices.hpp"
#include "core/tensor/digest.hpp"
#include "core/values/walks.hpp"
#include "sync/group/replica_group.hpp"
#include "sync/reduce/reductions.hpp"
#include "sync/reduce/slice_map.hpp"
#include "sync/strategy/held_slices.hpp"
#include "sync/strategy/inside.hpp"
#include "sync/strategy/reduced_leaves.hpp"
#include "sync/strategy/variable_reads.hpp"

namespace lockstep {
namespace {

bool is_sync_on_read(const Variable& variable) {
  return inside(variable).state().synchronization == Variable::Synchronization::on_read;
}

bool is_mean(const Variable& variable) {
  return inside(variable).state().aggregation == Variable::Aggregation::mean;
}

/// A piece of a slot of which every rank has slices.
struct Piece {
  std::int64_t first;  ///< in the segment
  Sliced sliced;       ///< in memory of the segment's device
};

template <class Body>
void for_each_piece(const detail::StoreSegment& segment, Body&& body) {
  const detail::SliceMap& map = segment.slices->map();
  for (std::size_t i = 0; i < map.pieces(); ++i) {
    const SliceBounds bounds = map.bounds(i);
    const Tensor memory = Tensor::zeros(segment.dtype, {bounds.back() - bounds.front()}, *segment.stream);
    const auto slices = std::make_shared<const detail::SliceMap>(detail::from_zero(bounds), map.owners());
    body(Piece{bounds.front(), {memory.view(), slices}});
  }
}

/// Calls `body(kept, sent)` for this rank's slices of the piece: in the slot `name`, and in the piece's memory.
template <class Body>
void for_own_slices(detail::StoreSegment& segment, const std::string& name, const Piece& piece, Body&& body) {
  const TensorView slot = segment.slots.at(name).view();
  for (const detail::SliceMap::Slice& own : segment.slices->own_in(piece.first, piece.sliced.memory.count()))
    body(slot.slice(segment.slices->position_of(own.first, own.count), own.count),
         piece.sliced.memory.slice(own.first - piece.first, own.count));
}

/// What all ranks are about to send each other of `held`.
std::string names_of(const std::vector<detail::OptimizerState>& held) {
  std::string names;
  for (const detail::OptimizerState& state : held) names += state.name + ", ";
  return names;
}

}  // namespace

StrategyValues::StrategyValues(Strategy& strategy, const Here& here) : strategy_{strategy} {
  for (const auto& state : inside(strategy.store()).variables()) {
    if (!state->saved) continue;
    variables_.push_back(handle_of<MirroredVariable>(state));
    (void)variables_.back().for_reading(state->dtype, here);
  }
  detail::announcing_failure(inside(strategy).group().meeting(), here, [&] { inside(strategy.store()).bring_home(); });
  std::ranges::copy_if(variables_, std::back_inserter(sync_on_read_), is_sync_on_read);
  for (const Variable& variable : sync_on_read_) combined_.push_back(Tensor::zeros(variable.dtype(), variable.shape()));
  for (detail::OptimizerState& state : inside(strategy.store()).optimizer_state()) {
    if (const auto& part = state.in_slices) {
      const auto same = [&](const SlicedSlot& each) {
        return each.segment == part->segment && each.name == part->slot;
      };
      if (std::ranges::any_of(sliced_, same)) continue;
      sliced_.push_back({part->segment, part->slot, state.name, {}});
      if (strategy.rank() == 0) sliced_.back().whole = Tensor::zeros(part->segment->dtype, {part->segment->count});
    }
    if (state.holder.value_or(0) == 0) continue;
    of_held_.push_back(Tensor::zeros(state.value.dtype(), state.value.shape()));
    held_.push_back(std::move(state));
  }
}

void StrategyValues::combine(const Here& here) {
  combine_sync_on_read(here);
  gather_held(here);
  gather_slices(here);
}

void StrategyValues::combine_sync_on_read(const Here& here) {
  std::vector<std::uint64_t> digests;
  for (const Variable& variable : sync_on_read_)
    if (is_mean(variable)) digests.push_back(detail::digest_of_elements(variable.local(here)));
  const bool alike =
      digests.empty() || inside(strategy_).group().meeting().all_equal(digest_of(std::as_bytes(std::span{digests})));
  combined_ = detail::read_variables(strategy_, {"read_vars", here}, sync_on_read_);
  if (!alike) return;
  for (std::size_t i = 0; i < sync_on_read_.size(); ++i)
    if (is_mean(sync_on_read_[i])) combined_[i] = Tensor::on_host(sync_on_read_[i].local(here));
}

void StrategyValues::gather_held(const Here& here) {
  if (held_.empty()) return;
  inside(strategy_).agree(TagKind::broadcast, here, names_of(held_));
  for (std::size_t i = 0; i < held_.size(); ++i) {
    if (held_[i].holder == strategy_.rank()) of_held_[i] = Tensor::on_host(held_[i].value);
    const TensorView value = of_held_[i].view();
    inside(strategy_).reductions().broadcast({&value, 1}, *held_[i].holder);
  }
}

/// From the chief to the ranks that hold it, and the values of the variables that ranks other than the chief update.
void StrategyValues::spread_held(const Here& here) {
  const bool was_set = strategy_.broadcast_object(held_was_set_, here).value();
  inside(strategy_).agree(TagKind::broadcast, here, names_of(held_));
  for (const auto& [holder, values] : inside(strategy_.store()).held_values())
    inside(strategy_).reductions().broadcast(values, 0);
  strategy_.stream().synchronize();  // the host's plane and a GPU's never move tensors at the same time
  for (std::size_t i = 0; was_set && i < held_.size(); ++i) {
    const TensorView value = of_held_[i].view();
    inside(strategy_).reductions().broadcast({&value, 1}, 0);
    if (held_[i].holder == strategy_.rank()) copy(value, held_[i].value, strategy_.stream());
  }
}

std::string StrategyValues::names_of_sliced() const {
  std::string names = fmt::format("{} slots in slices: ", sliced_.size());
  for (const SlicedSlot& slot : sliced_) names += slot.state + ", ";
  return names;
}

/// To the chief, a piece at a time, so that no other rank needs memory for all.
void StrategyValues::gather_slices(const Here& here) {
  if (sliced_.empty()) return;
  inside(strategy_).agree(TagKind::broadcast, here, names_of_sliced());
  for (const SlicedSlot& slot : sliced_)
    for_each_piece(*slot.segment, [&](const Piece& piece) {
      for_own_slices(*slot.segment, slot.name, piece,
                     [&](const TensorView& kept, const TensorView& sent) { copy(kept, sent, strategy_.stream()); });
      inside(strategy_).reductions().gather_slices({&piece.sliced, 1});
      if (strategy_.rank() == 0)
        copy(Tensor::on_host(piece.sliced.memory).view(),
             slot.whole.view().slice(piece.first, piece.sliced.memory.count()), Stream::host());
    });
  strategy_.stream().synchronize();
}

/// From the chief to the ranks that keep them.
void StrategyValues::spread_slices(const Here& here) {
  if (!strategy_.broadcast_object(sliced_was_set_, here).value()) return;
  inside(strategy_).agree(TagKind::broadcast, here, names_of_sliced());
  for (const SlicedSlot& slot : sliced_)
    for_each_piece(*slot.segment, [&](const Piece& piece) {
      const TensorView& memory = piece.sliced.memory;
      if (strategy_.rank() == 0) copy(slot.whole.view().slice(piece.first, memory.count()), memory, strategy_.stream());
      inside(strategy_).reductions().broadcast({&memory, 1}, 0);
      for_own_slices(*slot.segment, slot.name, piece,
                     [&](const TensorView& kept, const TensorView& sent) { copy(sent, kept, strategy_.stream()); });
    });
  strategy_.stream().synchronize();
}

const StrategyValues::SlicedSlot& StrategyValues::slot_of(const detail::OptimizerState::InSlices& state) const {
  return *std::ranges::find_if(
      sliced_, [&](const SlicedSlot& each) { return each.segment == state.segment && each.name == state.slot; });
}

std::vector<NamedTensor> StrategyValues::variables() const {
  std::vector<NamedTensor> tensors;
  auto next = combined_.begin();
  // For reading: to restore them, `set` writes them and `spread` broadcasts them, which makes copies stale.
  for (const Variable& variable : variables_)
    tensors.push_back({std::string{variable.name()},
                       is_sync_on_read(variable) ? (next++)->view() : variable.for_reading(variable.dtype())});
  return tensors;
}

std::vector<NamedTensor> StrategyValues::optimizer_state() const {
  std::vector<NamedTensor> tensors;
  auto next = of_held_.begin();
  for (detail::OptimizerState& state : inside(strategy_.store()).optimizer_state())
    if (state.in_slices) {
      const TensorView whole = slot_of(*state.in_slices).whole.view();
      const TensorView value = whole.slice(state.in_slices->first, state.value.count()).reshaped(state.value.shape());
      tensors.push_back({std::move(state.name), value});
    } else {
      tensors.push_back({std::move(state.name), state.holder.value_or(0) == 0 ? state.value : (next++)->view()});
    }
  return tensors;
}

void StrategyValues::set(std::span<const NamedTensor> homes, std::span<const Tensor> values) {
  synchronize_device(strategy_.stream().kind());  // other libraries may read variables on streams of their own
  std::unordered_set<const std::byte*> held_homes;
  for (const Tensor& held : of_held_) held_homes.insert(held.view().data());
  for (std::size_t i = 0; i < values.size(); ++i) {
    const TensorView& home = homes[i].value;
    copy(values[i].view(), home, home.device() == DeviceKind::cpu ? Stream::host() : strategy_.stream());
    held_was_set_ |= held_homes.contains(home.data());
    sliced_was_set_ |= std::ranges::any_of(sliced_, [&](const SlicedSlot& slot) {
      const TensorView whole = slot.whole.view();
      return whole.data() <= home.data() && home.data() < whole.data() + whole.bytes();
    });
  }
  inside(strategy_.store()).written();
}

void StrategyValues::spread(const Here& here) {
  if (!inside(strategy_.store()).held_values().empty()) spread_held(here);
  if (!sliced_.empty()) spread_slices(here);
  strategy_.rebroadcast(here);
  if (combined_.empty()) return;
  std::vector<detail::Leaf> values = detail::leaves_in(combined_);
  detail::broadcast_leaves(strategy_, {"broadcast_to", here}, values, detail::structure_of(combined_));
  detail::set_leaves(combined_, values);
  for (std::size_t i = 0; i < sync_on_read_.size(); ++i) sync_on_read_[i].assign(combined_[i], here);
}

void on_chief(Strategy& strategy, const Here& here, const std::function<void()>& work) {
  const BusyClock::During working{BusyClock::Part::checkpoint};
  if (strategy.rank() != 0) return inside(strategy).agree(TagKind::chief, here, {});
  MeetingPoint& meeting = inside(strategy).group().meeting();
  const auto alone = meeting.working_alone();
  detail::announcing_failure(meeting, work);
  inside(strategy).agree(TagKind::chief, here, {});
}

}  // namespace lockstep
