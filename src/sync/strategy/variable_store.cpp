#include <algorithm>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/sync/strategy/variable_store.hpp>

#include "core/base/element_count.hpp"
#include "core/base/element_type.hpp"
#include "core/base/memory_use.hpp"
#include "core/base/site.hpp"
#include "core/device/device.hpp"
#include "core/tensor/convert.hpp"
#include "core/tensor/inside.hpp"
#include "sync/strategy/external_values.hpp"
#include "sync/strategy/held_slices.hpp"
#include "sync/strategy/inside.hpp"

namespace lockstep {
namespace {

using detail::StoreSegment;
using detail::VariableState;

/// Segments up to this size are updated by every rank: a message costs more.
constexpr std::int64_t whole_bytes = 64 << 10;
/// Initial values of which the memory is worth some milliseconds.
constexpr std::size_t large_bytes = 16 << 20;

std::int64_t padded(std::int64_t count, DType dtype) {
  const auto granule = static_cast<std::int64_t>(VariableStore::alignment_bytes / size_of(dtype));
  return (count + granule - 1) / granule * granule;
}

/// "trainer.cpp:40: ", or nothing for an unknown place.
std::string prefix_of(const Here& here) {
  const std::string site = site_of(here);
  return site.empty() ? site : site + ": ";
}

/// `here` is where the program asked for the memory.
void require_sealed(const VariableState& variable, const Here& here) {
  if (!variable.segment)
    throw ContextError{
        fmt::format("{}variable '{}' has no memory yet: call seal() after the last variable is created, or run() first",
                    prefix_of(here), variable.name)};
}

std::vector<std::shared_ptr<detail::ExternalValues>> living(const detail::AllExternalValues& values) {
  std::vector<std::shared_ptr<detail::ExternalValues>> all;
  for (const auto& external : values)
    if (auto alive = external.lock()) all.push_back(std::move(alive));
  return all;
}

/// What this rank holds of the slot `name`, made on first use.
TensorView slot_of(StoreSegment& segment, std::string_view name) {
  const auto found = segment.slots.find(std::string{name});  // several threads may look at once
  Tensor& slot = found != segment.slots.end() ? found->second : segment.slots[std::string{name}];
  const std::int64_t count = segment.slices ? segment.slices->count() : segment.count;
  if (slot.count() != count) slot = Tensor::zeros(segment.dtype, {count}, *segment.stream);
  return slot.view();
}

}  // namespace

TensorView detail::WorkingCopy::of(const TensorView& values, Stream& stream) {
  if (fresh_) return copy_.view();
  const std::lock_guard lock{mutex_};
  if (fresh_) return copy_.view();
  if (values.dtype() != DType::f32)
    throw InvalidArgument{fmt::format("{} cannot be read as bf16; expected f32", describe(values))};
  if (copy_.count() != values.count()) copy_ = Tensor::uninitialised(DType::bf16, values.shape(), stream);
  convert(values, copy_.view(), stream);
  fresh_ = true;
  return copy_.view();
}

void detail::WorkingCopy::refresh(const TensorView& values, std::int64_t first, Stream& stream) {
  if (fresh_) convert(values, copy_.view().slice(first, values.count()), stream);
}

void VariableStore::FlatRange::values_changed() const {
  segment->working_copy->refresh(values, first, *segment->stream);
}

Stream& VariableStore::FlatRange::stream() const {
  return *segment->stream;
}

bool VariableStore::FlatRange::is_held_by(int rank) const {
  return segment->holder.value_or(rank) == rank;
}

TensorView VariableStore::FlatRange::slot(std::string_view name) const {
  const std::int64_t at = segment->slices ? segment->slices->position_of(first, values.count()) : first;
  return slot_of(*segment, name).slice(at, values.count());
}

void VariableStore::FlatRange::make_slot(std::string_view name, int rank) const {
  if (is_held_by(rank)) {
    (void)slot_of(*segment, name);
  } else {
    segment->slots.try_emplace(std::string{name});
  }
}

std::string VariableStore::unique_name(const std::string& asked) const {
  std::string name = asked;
  for (int suffix = 1; names_.contains(name); ++suffix) name = fmt::format("{}_{}", asked, suffix);
  return name;
}

void VariableStore::add(std::shared_ptr<VariableState> variable) {
  names_.insert(variable->name);
  variable->external_values = external_values_;
  variables_.push_back(std::move(variable));
}

/// Where the unsealed variables will lie, in memory that is not there yet.
struct VariableStore::Layout {
  struct Place {
    std::shared_ptr<StoreSegment> segment;
    std::int64_t offset;
  };
  std::vector<std::shared_ptr<StoreSegment>> made;
  std::vector<Place> places;  ///< of the variables from the first unsealed one
};

/// Decides which rank updates which part of the segments.
void VariableStore::share_updates_of(const Layout& layout) const {
  for (const auto& segment : layout.made) {
    const bool is_small = segment->count * static_cast<std::int64_t>(size_of(segment->dtype)) <= whole_bytes;
    if (!segment->trainable || segment->holder || is_small ||
        segment->synchronization != Variable::Synchronization::on_write)
      continue;
    std::vector<std::int64_t> counts;  // in memory order
    for (std::size_t i = variables_.size(); i-- > sealed_;)
      if (layout.places[i - sealed_].segment == segment)
        counts.push_back(padded(variables_[i]->initial.count(), segment->dtype));
    segment->slices = std::make_shared<const detail::HeldSlices>(
        detail::SliceMap{sharding_->packing, counts, size_of(segment->dtype), sharding_->owners}, sharding_->rank);
  }
}

VariableStore::Layout VariableStore::layout() const {
  Layout layout;
  layout.places.resize(variables_.size() - sealed_);
  for (std::size_t i = variables_.size(); i-- > sealed_;) {
    const VariableState& variable = *variables_[i];
    auto found = std::find_if(layout.made.begin(), layout.made.end(), [&](const auto& segment) {
      return segment->dtype == variable.dtype && segment->trainable == variable.trainable &&
             segment->synchronization == variable.synchronization && segment->holder == variable.holder;
    });
    if (found == layout.made.end())
      found = layout.made.insert(
          found,
          std::make_shared<StoreSegment>(StoreSegment{
              stream_, variable.dtype, variable.trainable, variable.synchronization, 0, {}, {}, {}, variable.holder}));
    layout.places[i - sealed_] = {*found, (*found)->count};
    (*found)->count += padded(variable.initial.count(), variable.dtype);
  }
  return layout;
}

std::vector<std::size_t> VariableStore::gradient_bytes() const {
  std::vector<std::size_t> bytes;
  for (const auto& segment : layout().made)
    if (segment->trainable) bytes.push_back(static_cast<std::size_t>(segment->count) * size_of(segment->dtype));
  return bytes;
}

std::vector<TensorView> VariableStore::seal(std::vector<Buffer> gradients) {
  Layout layout = this->layout();
  std::vector<TensorView> values;
  auto given = gradients.begin();
  for (const auto& segment : layout.made) {
    segment->values = Tensor::zeros(segment->dtype, {segment->count}, *stream_);
    values.push_back(segment->values.view());
    if (!segment->trainable) continue;
    if (given != gradients.end() && given->data()) {
      const TensorView view{given->data(), {segment->count}, segment->dtype, given->kind()};
      segment->gradients = tensor_in(std::make_shared<const Buffer>(std::move(*given)), view);
    } else {
      segment->gradients = Tensor::zeros(segment->dtype, {segment->count}, *stream_);
    }
    if (given != gradients.end()) ++given;
  }
  if (sharding_) share_updates_of(layout);
  std::size_t freed = 0;
  for (Layout::Place& place : layout.places) {
    VariableState& variable = *variables_[sealed_++];
    variable.segment = std::move(place.segment);
    variable.offset = place.offset;
    const TensorView home = variable.segment->values.view().slice(variable.offset, variable.initial.count());
    copy(variable.initial.view(), home.reshaped(variable.shape), *stream_);
    freed += variable.initial.view().bytes();
    variable.initial = {};
  }
  if (freed >= large_bytes) return_freed_memory();
  sealed_segments_ = segments_.size();
  segments_.insert(segments_.end(), layout.made.begin(), layout.made.end());
  return values;
}

void VariableStore::share_updates(detail::Sharding sharding) {
  sharding_ = std::make_shared<const detail::Sharding>(std::move(sharding));
}

void VariableStore::reallocate_gradients() {
  for (std::size_t i = sealed_segments_; i < segments_.size(); ++i)
    if (segments_[i]->trainable)
      segments_[i]->gradients = Tensor::zeros(segments_[i]->dtype, {segments_[i]->count}, *stream_);
}

std::vector<TensorView> VariableStore::mirrored_values() const {
  std::vector<TensorView> all;
  for (const auto& segment : segments_)
    if (segment->synchronization == Variable::Synchronization::on_write && !segment->holder) {
      segment->working_copy->make_stale();
      all.push_back(segment->values.view());
    }
  return all;
}

std::map<int, std::vector<TensorView>> VariableStore::held_values() const {
  std::map<int, std::vector<TensorView>> by_holder;
  for (const auto& segment : segments_)
    if (segment->holder) {
      segment->working_copy->make_stale();
      by_holder[*segment->holder].push_back(segment->values.view());
    }
  return by_holder;
}

std::int64_t& VariableStore::counter(std::string_view name) {
  auto found = counters_.find(name);
  if (found == counters_.end()) found = counters_.emplace(name, Tensor::scalar(std::int64_t{0})).first;
  return found->second.view().elements<std::int64_t>()[0];
}

std::int64_t VariableStore::counted(std::string_view name) const {
  const auto found = counters_.find(name);
  return found == counters_.end() ? 0 : found->second.item<std::int64_t>();
}

void VariableStore::add_external_values(const std::shared_ptr<detail::ExternalValues>& values) {
  std::erase_if(*external_values_, [](const auto& each) { return each.expired(); });
  external_values_->push_back(values);
}

std::vector<std::shared_ptr<detail::ExternalValues>> VariableStore::external_values() const {
  return living(*external_values_);
}

void VariableStore::bring_values_home() const {
  for (const auto& external : external_values()) external->bring_values_home();
}

void VariableStore::bring_home() const {
  for (const auto& external : external_values()) {
    external->bring_values_home();
    external->bring_state_home();
  }
}

void VariableStore::written() const {
  for (const auto& external : external_values()) external->take_over();
}

std::vector<detail::OptimizerState> VariableStore::optimizer_state() const {
  std::vector<detail::OptimizerState> all;
  for (const auto& variable : variables_) {
    if (!variable->segment) continue;
    const std::int64_t count = element_count(variable->shape);
    for (const auto& [slot, values] : variable->segment->slots) {
      StoreSegment& segment = *variable->segment;
      const bool is_here = !segment.slices && values.count() == segment.count;
      const TensorView value = is_here ? values.view().slice(variable->offset, count).reshaped(variable->shape)
                                       : TensorView{nullptr, variable->shape, variable->dtype, segment.values.device()};
      detail::OptimizerState& state =
          all.emplace_back(detail::OptimizerState{fmt::format("{}@{}", variable->name, slot), value, variable->holder});
      if (segment.slices) state.in_slices = {&segment, slot, variable->offset};
    }
  }
  for (const auto& [name, value] : counters_) all.push_back({name, value.view()});
  for (const auto& external : external_values())
    for (detail::OptimizerState& state : external->state()) all.push_back(std::move(state));
  return all;
}

std::vector<TensorView> VariableStore::optimizer_values() const {
  std::vector<TensorView> all;
  for (const auto& segment : segments_)
    for (const auto& [slot, values] : segment->slots)
      if (!segment->holder && !segment->slices) all.push_back(values.view());
  for (const auto& [name, value] : counters_) all.push_back(value.view());
  for (const auto& external : external_values())
    for (detail::OptimizerState& state : external->state()) all.push_back(std::move(state.value));
  return all;
}

TensorView VariableStore::gradient(const Variable& variable, Here here) const {
  const VariableState& state = inside(variable).state();
  if (!state.trainable) throw InvalidArgument{fmt::format("variable '{}' is not trainable", state.name)};
  require_sealed(state, here);
  return state.segment->gradients.view().slice(state.offset, element_count(state.shape)).reshaped(state.shape);
}

std::vector<VariableStore::FlatRange> VariableStore::ranges(std::span<const Variable> variables, Here here) const {
  std::vector<const VariableState*> order;
  for (const Variable& variable : variables) {
    require_sealed(inside(variable).state(), here);
    order.push_back(&inside(variable).state());
  }
  const auto segment_index = [&](const VariableState* variable) {
    return std::find(segments_.begin(), segments_.end(), variable->segment) - segments_.begin();
  };
  // The count too: a variable without elements comes before the one that begins at the same offset.
  const auto place = [&](const VariableState* variable) {
    return std::tuple{segment_index(variable), variable->offset, element_count(variable->shape)};
  };
  std::ranges::sort(order, {}, place);

  std::vector<FlatRange> ranges;
  for (const VariableState* variable : order) {
    StoreSegment& segment = *variable->segment;
    std::int64_t first = variable->offset;
    const std::int64_t end = first + padded(element_count(variable->shape), variable->dtype);
    if (!ranges.empty() && ranges.back().segment == &segment &&
        ranges.back().first + ranges.back().values.count() == first) {
      first = ranges.back().first;
      ranges.pop_back();
    }
    ranges.push_back({segment.values.view().slice(first, end - first),
                      segment.trainable ? segment.gradients.view().slice(first, end - first) : TensorView{}, &segment,
                      first});
  }
  return ranges;
}

std::string_view Variable::name() const {
  return state_->name;
}
std::string Variable::label() const {
  return fmt::format("'{}'", state_->name);
}
const Shape& Variable::shape() const {
  return state_->shape;
}
DType Variable::dtype() const {
  return state_->dtype;
}
bool Variable::trainable() const {
  return state_->trainable;
}
Variable::Aggregation Variable::aggregation() const {
  return state_->aggregation;
}
std::optional<int> Variable::holder() const {
  return state_->holder;
}

bool Variable::is_initialized() const {
  return state_->segment != nullptr;
}

TensorView Variable::local(Here here) const {
  for (const auto& external : living(*state_->external_values)) external->bring_values_home();
  const TensorView elements = for_reading(dtype(), here);
  state_->segment->working_copy->make_stale();
  return elements;
}

TensorView Variable::for_reading(DType dtype, Here here) const {
  require_sealed(*state_, here);
  if (dtype != state_->dtype && dtype != DType::bf16)
    throw InvalidArgument{fmt::format("{}variable {} is {}; it cannot be read as {}", prefix_of(here), label(),
                                      name_of(state_->dtype), name_of(dtype))};
  const TensorView values = state_->segment->values.view();
  const TensorView flat =
      dtype == state_->dtype ? values : state_->segment->working_copy->of(values, *state_->segment->stream);
  return flat.slice(state_->offset, element_count(state_->shape)).reshaped(state_->shape);
}

}  // namespace lockstep
