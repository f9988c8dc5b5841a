#include <algorithm>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/models/nn/gradient_buffer.hpp>

#include "core/base/element_count.hpp"
#include "models/nn/shard_sums.hpp"
#include "sync/strategy/inside.hpp"

namespace lockstep::nn {
namespace {

std::int64_t offset_of(const Variable& variable) {
  return inside(variable).state().offset;
}

VariableStore::FlatRange single_range(const VariableStore& store, std::span<const Variable> variables) {
  if (variables.empty()) throw InvalidArgument{"a gradient buffer for no variables"};
  for (const Variable& variable : variables) (void)store.gradient(variable);  // trainable and sealed
  const auto ranges = store.ranges(variables);
  if (ranges.size() != 1)
    throw InvalidArgument{
        fmt::format("the variables from {} to {} are {} pieces of the store; expected one: variables of one dtype that "
                    "are created without others in between and sealed at once",
                    variables.front().label(), variables.back().label(), ranges.size())};
  return ranges.front();
}

}  // namespace

GradientBuffer::GradientBuffer(const VariableStore& store, std::span<const Variable> variables)
    : stream_{&store.stream()} {
  const VariableStore::FlatRange range = single_range(store, variables);
  Layout layout{{variables.begin(), variables.end()}, range.first};
  std::ranges::sort(layout.variables, {}, offset_of);
  flat_ = range.gradients;
  layout_ = std::make_shared<const Layout>(std::move(layout));
}

GradientBuffer::GradientBuffer(TensorView flat, std::shared_ptr<const Layout> layout, Stream& stream)
    : stream_{&stream}, flat_{std::move(flat)}, layout_{std::move(layout)} {}

GradientBuffer GradientBuffer::at(const TensorView& flat) const {
  if (flat.dtype() != dtype() || flat.count() != count())
    throw InvalidArgument{fmt::format("{} cannot hold the gradients laid out in {}", describe(flat), describe(flat_))};
  GradientBuffer other{flat.reshaped({flat.count()}), layout_, *stream_};
  other.zero_padding();
  return other;
}

GradientBuffer GradientBuffer::with_statistics(const TensorView& statistics) const {
  if (statistics.dtype() != dtype())
    throw InvalidArgument{fmt::format("statistics {} beside gradients of {}; expected the same type",
                                      describe(statistics), name_of(dtype()))};
  GradientBuffer other = *this;
  other.statistics_ = statistics;
  return other;
}

std::size_t GradientBuffer::position_of(const Variable& variable) const {
  const auto found = std::ranges::find(layout_->variables, &inside(variable).state(),
                                       [](const Variable& v) { return &inside(v).state(); });
  if (found == layout_->variables.end())
    throw InvalidArgument{fmt::format("variable {} has no place in this gradient buffer", variable.label())};
  return static_cast<std::size_t>(found - layout_->variables.begin());
}

void GradientBuffer::ready(const Variable& variable) const {
  const std::size_t position = position_of(variable);
  if (listener_) listener_->on_ready(position);
}

GradientBuffer GradientBuffer::reporting_to(ReadyListener& listener) const {
  GradientBuffer other = *this;
  other.listener_ = &listener;
  return other;
}

TensorView GradientBuffer::of(const Variable& variable) const {
  (void)position_of(variable);
  return flat_.slice(offset_of(variable) - layout_->first, element_count(variable.shape())).reshaped(variable.shape());
}

void GradientBuffer::zero_padding() const {
  const auto& variables = layout_->variables;
  for (std::size_t i = 0; i < variables.size(); ++i) {
    const std::int64_t begin = offset_of(variables[i]) - layout_->first + element_count(variables[i].shape());
    const std::int64_t end = i + 1 < variables.size() ? offset_of(variables[i + 1]) - layout_->first : count();
    flat_.slice(begin, end - begin).fill_zero(*stream_);
  }
}

}  // namespace lockstep::nn
