#include <algorithm>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/sync/reduce/reduction_options.hpp>

#include "sync/reduce/dispatch.hpp"
#include "sync/reduce/reduction_choice.hpp"
#include "sync/reduce/reductions.hpp"

namespace lockstep {
namespace {

void require_valid(ReductionOptions::Kind kind, const Packing& packing) {
  if (name_of(kind) == "?")  // a number that was cast to the type
    throw InvalidArgument{
        fmt::format("kind of reductions {}: expected one of ReductionOptions::Kind's", static_cast<int>(kind))};
  if (const auto* const packs = std::get_if<detail::IntoPacks>(&packing); packs && packs->num_packs <= 0)
    throw InvalidArgument{fmt::format("`num_packs` must be greater than zero, not {}", packs->num_packs)};
  if (const auto* const group = std::get_if<detail::GroupSmall>(&packing);
      group && (group->small_tensor_bytes <= 0 || group->max_group <= 0))
    throw InvalidArgument{
        fmt::format("`small_tensor_bytes` and `max_group` should both be greater than zero, not {} and {}",
                    group->small_tensor_bytes, group->max_group)};
}

std::string describe(const Packing& packing) {
  if (const auto* const group = std::get_if<detail::GroupSmall>(&packing))
    return fmt::format(" of tensors up to {} bytes in groups of up to {}", group->small_tensor_bytes, group->max_group);
  if (std::holds_alternative<detail::Unpacked>(packing)) return " of one tensor at a time";
  const int packs = std::get<detail::IntoPacks>(packing).num_packs;
  return packs == 1 ? std::string{} : fmt::format(" in {} packs", packs);
}

}  // namespace

std::string_view name_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum: return "sum";
    case ReduceOp::mean: return "mean";
    case ReduceOp::exact_sum: return "exact sum";
  }
  return "?";
}

std::string_view name_of(ReductionOptions::Kind kind) {
  switch (kind) {
    case ReductionOptions::Kind::automatic: return "automatic";
    case ReductionOptions::Kind::fixed_order: return "fixed-order";
    case ReductionOptions::Kind::backend_order: return "backend-order";
    case ReductionOptions::Kind::hierarchical: return "hierarchical";
    case ReductionOptions::Kind::to_one_rank: return "to-one-rank";
  }
  return "?";
}

void require_valid(const ReductionOptions& options) {
  require_valid(options.kind, options.packing);
  std::int64_t before = 0;
  for (const ReductionOptions::ForSmall& some : options.smaller) {
    require_valid(some.kind, some.packing);
    if (some.up_to_bytes <= before)
      throw InvalidArgument{
          fmt::format("reductions of tensors up to {} bytes, after those up to {}; expected sizes that rise",
                      some.up_to_bytes, before)};
    before = some.up_to_bytes;
  }
  const auto combines = [](const auto& each) { return each.kind == ReductionOptions::Kind::to_one_rank; };
  if (options.accumulate && !combines(options) && std::ranges::none_of(options.smaller, combines))
    throw InvalidArgument{
        fmt::format("{} reductions have an order of their own; a function that accumulates is for "
                    "ReductionOptions::Kind::to_one_rank",
                    name_of(options.kind))};
  if (options.accumulate && options.shard_optimizer)
    throw InvalidArgument{
        "an optimizer in slices, with a function that accumulates; expected reductions that sum, without a function"};
  if (!options.gradient_compression) return;
  if (!is_16_bit_float(*options.gradient_compression))
    throw InvalidArgument{
        fmt::format("gradients compressed to {}: expected f16 or bf16", name_of(*options.gradient_compression))};
  if (options.kind != ReductionOptions::Kind::automatic && options.kind != ReductionOptions::Kind::hierarchical)
    throw InvalidArgument{fmt::format(
        "gradients compressed between nodes, with {} reductions; expected hierarchical ones", name_of(options.kind))};
}

std::string describe(const ReductionOptions& options) {
  const auto told = [&](ReductionOptions::Kind kind, const Packing& packing) {
    return fmt::format(
        "{} reductions{}{}", name_of(kind), describe(packing),
        options.accumulate && kind == ReductionOptions::Kind::to_one_rank ? " by a function of the program's" : "");
  };
  std::string all = told(options.kind, options.packing);
  for (const ReductionOptions::ForSmall& some : options.smaller)
    all += fmt::format(", up to {} bytes {}", some.up_to_bytes, told(some.kind, some.packing));
  if (options.gradient_compression)
    all += fmt::format(", gradients in {} between nodes", name_of(*options.gradient_compression));
  if (options.shard_optimizer) all += ", optimizer in slices";
  return all;
}

}  // namespace lockstep
