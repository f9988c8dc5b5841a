#include "reduce/cross_device_ops.hpp"

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <lockstep/base/error.hpp>

#include "base/element_type.hpp"
#include "comm/communicator.hpp"
#include "reduce/dispatch.hpp"
#include "reduce/flat_ops.hpp"
#include "reduce/implementations.hpp"
#include "reduce/reduction_choice.hpp"

namespace lockstep {
namespace {

std::unique_ptr<CrossDeviceOps> make_ops(Communicator& communicator, ReductionOptions::Kind kind,
                                         const Packing& packing, const ReductionOptions& options,
                                         std::span<const int> node_of_rank, Travel travel) {
  const bool on_host = communicator.stream().kind() == DeviceKind::cpu;
  switch (kind) {
    case ReductionOptions::Kind::fixed_order: return make_fixed_order_ops(communicator, packing, travel);
    case ReductionOptions::Kind::to_one_rank: return make_to_one_rank_ops(communicator, options.accumulate, packing);
    case ReductionOptions::Kind::hierarchical:
      if (on_host) return make_hierarchical_ops(communicator, node_of_rank, packing, options.gradient_compression);
      break;
    case ReductionOptions::Kind::backend_order:
    case ReductionOptions::Kind::automatic: break;
  }
  return make_backend_order_ops(communicator, packing);
}

}  // namespace

void require_reducible(ReduceOp op, DType dtype) {
  if (op != ReduceOp::sum && op != ReduceOp::mean)
    throw InvalidArgument{
        fmt::format("`reduce_op` must be ReduceOp::sum or ReduceOp::mean, not {}", static_cast<int>(op))};
  with_element_type(dtype, []<class T>() {});
  if (op == ReduceOp::mean && !is_floating_point(dtype))
    throw InvalidArgument{fmt::format(
        "the mean of {} tensors is refused: it is not an integer; sum them, or convert them to f64", name_of(dtype))};
}

std::int64_t CrossDeviceOps::enough_bytes() const {
  return detail::bucket_bytes;
}

std::unique_ptr<CrossDeviceOps> make_cross_device_ops(Communicator& communicator, const ReductionOptions& options,
                                                      std::span<const int> node_of_rank) {
  require_valid(options);
  const DeviceKind device = communicator.stream().kind();
  if (options.gradient_compression && device != DeviceKind::cpu)
    throw ConfigError{"compression of gradients on GPUs, which NCCL sends as they are: expected ranks on the host"};
  const auto make = [&](ReductionOptions::Kind kind, const Packing& packing, Travel travel) {
    if (kind == ReductionOptions::Kind::automatic)
      kind =
          options.gradient_compression ? ReductionOptions::Kind::hierarchical : choose_reduction(device, node_of_rank);
    return make_ops(communicator, kind, packing, options, node_of_rank, travel);
  };
  const bool is_one_node = std::ranges::adjacent_find(node_of_rank, std::ranges::not_equal_to{}) == node_of_rank.end();
  std::vector<SizedOps> smaller;
  for (const ReductionOptions::ForSmall& some : options.smaller)
    // Hierarchical ones have communicators of their own, and may travel early.
    smaller.push_back({some.up_to_bytes, make(some.kind, some.packing, Travel::at_wait)});
  auto rest = make(options.kind, options.packing, is_one_node ? Travel::at_wait : Travel::early);
  return smaller.empty() ? std::move(rest) : make_ops_by_size(std::move(smaller), std::move(rest));
}

}  // namespace lockstep
