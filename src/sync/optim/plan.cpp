#include "sync/optim/plan.hpp"

#include <algorithm>
#include <functional>
#include <iterator>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/core/base/hex.hpp>

#include "core/base/digest.hpp"
#include "core/tensor/overlap.hpp"
#include "core/tensor/shared_parts.hpp"
#include "sync/strategy/held_slices.hpp"
#include "sync/strategy/inside.hpp"
#include "sync/update/square_blocks.hpp"
#include "sync/update/update_kernels.hpp"

namespace lockstep {
namespace {

/// Up to this size, a message of its own costs more than the two copies of traveling with others.
constexpr std::size_t small_range_bytes = 64 << 10;

/// "'w' f32[2, 3], 'table' f32[9, 3] by slices": what the ranks compare.
std::string list_of(std::span<const Optimizer::Gradient> gradients) {
  if (gradients.empty()) return "no variables";
  std::string list;
  for (const auto& [value, variable] : gradients)
    list += fmt::format("{}{} {}{}{}", list.empty() ? "" : ", ", variable.label(), name_of(variable.dtype()),
                        describe(variable.shape()), value.slices() ? " by slices" : "");
  return list;
}

/// "f32[2, 3]", "slices f32[1, 3] of [9, 3]".
std::string describe(const Optimizer::Gradient::Value& gradient) {
  const IndexedSlices* const slices = gradient.slices();
  if (!slices) return describe(gradient.view());
  return fmt::format("slices {} of {}", describe(slices->values.view()), lockstep::describe(slices->dense_shape));
}

void require_no_duplicates(const detail::Call& call, std::span<const Variable> variables) {
  std::vector<const Variable*> order;
  for (const Variable& variable : variables) order.push_back(&variable);
  const auto state = [](const Variable* variable) { return &inside(*variable).state(); };
  std::ranges::sort(order, std::less{}, state);
  if (const auto twice = std::ranges::adjacent_find(order, {}, state); twice != order.end())
    throw InvalidArgument{
        fmt::format("{}variable {} is given twice; add its gradients up", call.text(), (*twice)->label())};
}

static_assert(detail::slice_granule % detail::square_block == 0);

/// Matrices, filters and embeddings decay; biases, and what norms scale and shift by, do not.
bool is_decayed(const Variable& variable) {
  return variable.shape().size() >= 2;
}

bool is_small(const VariableStore::FlatRange& range) {
  return range.gradients.bytes() <= small_range_bytes;
}

bool holds(const TensorView& range, const TensorView& part) {
  return range.data() <= part.data() && part.data() < range.data() + range.bytes();
}

}  // namespace

VariableStore::FlatRange detail::part_of(const VariableStore::FlatRange& range, std::int64_t first,
                                         std::int64_t count) {
  return {range.values.slice(first, count), range.gradients.slice(first, count), range.segment, range.first + first};
}

const Tensor& Optimizer::Gradient::Value::dense() const {
  if (const auto* const tensor = std::get_if<Tensor>(&value_)) return *tensor;
  throw InvalidArgument{fmt::format("a gradient of {} is not dense", describe(*this))};
}

void detail::require_applicable(const Call& call, Strategy& strategy, const Variable& variable) {
  if (!inside(strategy).created(variable))
    throw InvalidArgument{
        fmt::format("{}variable {} was not created by {}", call.text(), variable.label(), strategy.name())};
  if (!variable.trainable())
    throw InvalidArgument{fmt::format("{}variable {} is not trainable", call.text(), variable.label())};
  if (variable.dtype() != DType::f32 && variable.dtype() != DType::f64)
    throw InvalidArgument{fmt::format("{}variable {} is {}{}; expected f32 or f64", call.text(), variable.label(),
                                      name_of(variable.dtype()), describe(variable.shape()))};
}

void detail::require_applicable(const Call& call, Strategy& strategy, std::span<const Variable> variables) {
  for (const Variable& variable : variables) require_applicable(call, strategy, variable);
  require_no_duplicates(call, variables);
}

Optimizer::Plan::Plan(const Optimizer& optimizer, Strategy& strategy, std::span<const Gradient> gradients,
                      const Here& here)
    : store_{&strategy.store()}, rank_{strategy.rank()}, ranks_{strategy.num_replicas_in_sync()} {
  for (const Optimizer::Gradient& gradient : gradients) {
    variables_.push_back(gradient.variable);
    (gradient.value.slices() ? sparse_ : dense_).push_back(variables_.size() - 1);
  }
  detail::require_applicable({detail::apply_call, here}, strategy, variables_);
  for (const Variable& variable : variables_) homes_.push_back(store_->gradient(variable, here));
  ranges_ = store_->ranges(variables_, here);
  pieces_ = detail::GradientPieces{*store_, those(dense_), here};
  for (const VariableStore::FlatRange& range : ranges_)
    if (range.segment->holder) held_values_[*range.segment->holder].push_back(range.values);
  list_ = list_of(gradients);
  marked_list_ = fmt::format("{} variables (digest {}) {}", variables_.size(), to_hex(digest_of(list_)), list_);
  buckets_ = pieces_.buckets(inside(strategy).reductions());
  plan_sums();
  plan_updates(optimizer);
  if (is_shared()) plan_blocks();
}

bool Optimizer::Plan::is_for(Strategy& strategy, std::span<const Optimizer::Gradient> gradients) const {
  return store_ == &strategy.store() &&
         std::ranges::equal(
             gradients, variables_, {},
             [](const Optimizer::Gradient& gradient) { return &inside(gradient.variable).state(); },
             [](const Variable& variable) { return &inside(variable).state(); }) &&
         std::ranges::all_of(sparse_, [&](std::size_t i) { return gradients[i].value.slices(); }) &&
         std::ranges::none_of(dense_, [&](std::size_t i) { return gradients[i].value.slices(); });
}

void Optimizer::Plan::require_fit(const detail::Call& call, std::span<const Optimizer::Gradient> gradients) const {
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    const Optimizer::Gradient::Value& gradient = gradients[i].value;
    const IndexedSlices* const slices = gradient.slices();
    const TensorView& home = homes_[i];
    if (gradient.shape() != home.shape() || gradient.dtype() != home.dtype())
      throw InvalidArgument{fmt::format("{}variable {} is {}; its gradient is {}", call.text(), variables_[i].label(),
                                        describe(home), describe(gradient))};
    // Copying in the order of the list would read what an earlier copy overwrote.
    const TensorView value = slices ? slices->values.view() : gradient.view();
    if ((slices || value.data() != home.data()) &&
        std::ranges::any_of(ranges_,
                            [&](const VariableStore::FlatRange& range) { return overlap(value, range.gradients); }))
      throw InvalidArgument{
          fmt::format("{}the gradient of variable {} lies in the store, but where {} gradient belongs", call.text(),
                      variables_[i].label(), slices ? "a dense" : "another variable's")};
  }
}

std::vector<IndexedSlices> Optimizer::Plan::slices_on_host(const detail::Call& call,
                                                           std::span<const Optimizer::Gradient> gradients) const {
  std::vector<IndexedSlices> all;
  for (const std::size_t i : sparse_) all.push_back(slices_on_host(call, i, *gradients[i].value.slices()));
  return all;
}

IndexedSlices Optimizer::Plan::slices_on_host(const detail::Call& call, std::size_t number,
                                              const IndexedSlices& slices) const {
  IndexedSlices here{detail::on_host(slices.values), detail::on_host(slices.indices), slices.dense_shape};
  try {
    require_reducible(ReduceOp::sum, here);
  } catch (const InvalidArgument& error) {
    throw InvalidArgument{
        fmt::format("{}the gradient of variable {}: {}", call.text(), variables_[number].label(), error.what())};
  }
  return here;
}

void Optimizer::Plan::bring_home(std::span<const Optimizer::Gradient> gradients) const {
  for (const std::size_t i : dense_) copy(gradients[i].value.view(), homes_[i], store_->stream());
}

void Optimizer::Plan::bring_home(std::span<const IndexedSlices> sums) const {
  for (std::size_t i = 0; i < sums.size(); ++i) write_rows(sums[i], homes_[sparse_[i]], store_->stream());
}

std::size_t Optimizer::Plan::number_of(const Variable& variable) const {
  const auto found = std::ranges::find(variables_, &inside(variable).state(),
                                       [](const Variable& each) { return &inside(each).state(); });
  if (found == variables_.end())
    throw InvalidArgument{fmt::format("the gradient of variable {} is no part of this step", variable.label())};
  return static_cast<std::size_t>(found - variables_.begin());
}

std::size_t Optimizer::Plan::piece_of(std::size_t number) const {
  return pieces_.piece_of(static_cast<std::size_t>(std::ranges::lower_bound(dense_, number) - dense_.begin()));
}

std::size_t Optimizer::Plan::slices_of(std::size_t number) const {
  const auto found = std::ranges::find(sparse_, number);
  if (found == sparse_.end())
    throw InvalidArgument{
        fmt::format("slices for variable {}, whose gradient is a tensor in this step", variables_[number].label())};
  return static_cast<std::size_t>(found - sparse_.begin());
}

const Variable& Optimizer::Plan::variable_of(std::size_t piece) const {
  return variables_[dense_[pieces_.variable_of(piece)]];
}

std::vector<Variable> Optimizer::Plan::those(std::span<const std::size_t> numbers) const {
  std::vector<Variable> some;
  for (const std::size_t i : numbers) some.push_back(variables_[i]);
  return some;
}

/// Variables that were sealed one by one, such as those of towers, are as many ranges. Several small ones are summed
/// together and whole, also if they are in slices: what is compressed depends on their sizes alone.
void Optimizer::Plan::plan_sums() {
  const bool several_small = std::ranges::count_if(pieces_.ranges(), is_small) > 1;
  for (const VariableStore::FlatRange& range : pieces_.ranges()) {
    if (range.segment->slices) share(range);
    if (several_small && is_small(range)) {
      small_ranges_.push_back(range.gradients);
    } else {
      const auto inside = [&](const GradientBucket& bucket) { return holds(range.gradients, bucket.memory); };
      std::ranges::copy_if(buckets_, std::back_inserter(large_buckets_), inside);
    }
  }
}

/// The ranks share the update of `range`, whose gradients nobody needs after it.
void Optimizer::Plan::share(const VariableStore::FlatRange& range) {
  shared_.push_back(range);
  auto slices = range.segment->slices->map().within(range.first, range.values.count());
  gathers_.push_back({range.values, std::make_shared<const detail::SliceMap>(std::move(slices)), range.gradients});
}

/// Of this rank's slices, if the ranks share it.
void Optimizer::Plan::add_update(const VariableStore::FlatRange& range, bool decayed) {
  if (!range.segment->slices) {
    updates_.push_back({range, decayed});
    return;
  }
  for (const detail::SliceMap::Slice& own : range.segment->slices->own_in(range.first, range.values.count()))
    updates_.push_back({detail::part_of(range, own.first - range.first, own.count), decayed});
}

/// Variables that decay are updated separately from the others.
void Optimizer::Plan::plan_updates(const Optimizer& optimizer) {
  const bool decays = optimizer.rules_.weight_decay > 0, has_slots = !optimizer.slots().empty();
  const auto add = [&](std::span<const Variable> variables, bool decayed) {
    for (const VariableStore::FlatRange& range : store_->ranges(variables)) add_update(range, decayed);
  };
  for (std::size_t i = 0; i < sparse_.size(); ++i) {
    const Variable& variable = variables_[sparse_[i]];
    const bool decayed = decays && is_decayed(variable);
    for (const VariableStore::FlatRange& range : store_->ranges({&variable, 1})) {
      // Every rank has all rows, but not all state.
      const bool lacks_state = range.segment->slices && has_slots;
      if (!decayed && optimizer.keeps_zero_gradients() && !lacks_state) {
        updates_.push_back({range, decayed, i});
      } else {
        if (range.segment->slices) share(range);
        add_update(range, decayed);
      }
    }
  }
  std::vector<Variable> some = those(dense_);
  if (!decays) return add(some, false);
  const auto others = std::ranges::stable_partition(some, is_decayed);
  const auto decayed = static_cast<std::size_t>(others.begin() - some.begin());
  add(std::span{some}.first(decayed), true);
  add(std::span{some}.subspan(decayed), false);
}

void Optimizer::Plan::plan_blocks() {
  for (std::size_t i = 0; i < variables_.size(); ++i) {
    const detail::VariableState& variable = inside(variables_[i]).state();
    const TensorView flat = homes_[i].reshaped({homes_[i].count()});
    if (!variable.segment->slices) {
      if (rank_ == 0 && flat.count() > 0) own_blocks_.push_back({flat, blocks_});
    } else {
      for (const detail::SliceMap::Slice& own : variable.segment->slices->own_in(variable.offset, flat.count())) {
        const std::int64_t first = own.first - variable.offset;
        own_blocks_.push_back({flat.slice(first, own.count), blocks_ + first / detail::square_block});
      }
    }
    blocks_ += detail::square_blocks(flat.count());
  }
  std::int64_t own = 0;
  for (const detail::OwnBlocks& each : own_blocks_) own += detail::square_blocks(each.part.count());
  own_squares_ = Tensor::zeros(DType::f64, {own}, store_->stream());
  squares_on_host_ = Tensor::pinned(DType::f64, {own}, store_->stream());
}

void Optimizer::Plan::sum_own_blocks(const detail::UpdateKernels& kernels) const {
  std::int64_t next = 0;
  for (const detail::OwnBlocks& each : own_blocks_) {
    const std::int64_t blocks = detail::square_blocks(each.part.count());
    kernels.block_squares(each.part, own_squares_.view().slice(std::exchange(next, next + blocks), blocks));
  }
  copy(own_squares_.view(), squares_on_host_.view(), store_->stream());
}

std::vector<double> Optimizer::Plan::own_among_all() const {
  const std::span<const double> sums = squares_on_host_.view().elements<double>();
  std::vector<double> all(static_cast<std::size_t>(blocks_));
  auto next = sums.begin();
  for (const detail::OwnBlocks& each : own_blocks_) {
    const auto end = next + detail::square_blocks(each.part.count());
    std::copy(next, end, all.begin() + each.first);
    next = end;
  }
  return all;
}

}  // namespace lockstep
