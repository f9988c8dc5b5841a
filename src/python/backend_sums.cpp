// The collectives of the backend that combine elements: sums of a group, or else everybody's elements, combined here.
#include <memory>
#include <utility>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>

#include "python/backend.hpp"
#include "python/elements.hpp"
#include "python/place.hpp"
#include "python/sparse_sums.hpp"
#include "python/text.hpp"

namespace lockstep::python {

using c10d::OpType;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

void AgreedBackend::add_allreduce(Collective& collective, const std::string& name, const at::Tensor& tensor,
                                  const c10d::ReduceOp& op) {
  const std::string text = fmt::format("{}: {} of {}", name, name_of(op), text_of(tensor));
  if (is_sum(op, tensor)) {
    // Before what to_change may add, which puts the memory back.
    const std::size_t before = collective.finish.size();
    const at::Tensor memory = to_change(collective, tensor);
    collective.finish.insert(collective.finish.begin() + static_cast<std::ptrdiff_t>(before),
                             [op, memory, ranks = size_] { finish_sum(op, memory, ranks); });
    add(collective, text,
        [=](Group& group, const Here& here) { return group.submit_all_reduce(*numbers_of(memory), {}, here); });
    return;
  }
  const at::Tensor mine = to_send(collective, tensor), all = stacked_like(tensor, size_);
  collective.kept.push_back(all);
  collective.result.push_back(tensor);
  collective.finish.push_back([op, all, tensor] { python::reduce(op, all, tensor.detach()); });
  add(collective, text,
      [=](Group& group, const Here& here) { return group.submit_all_gather(bytes_of(mine), bytes_of(all), here); });
}

void AgreedBackend::add_sparse_allreduce(Collective& collective, const at::Tensor& tensor, const c10d::ReduceOp& op) {
  if (!is_sum(op, tensor))
    throw InvalidArgument{fmt::format("{} of {}{}: expected SUM or AVG of a type that is added up", name_of(op),
                                      text_of(tensor), bracketed(collective.here))};
  const auto rows = std::make_shared<Tensor>(rows_of(tensor));
  add(collective,
      fmt::format("all_reduce: {} of {} in {} sparse dimensions", name_of(op), text_of(tensor), tensor.sparse_dim()),
      [=](Group& group, const Here& here) { return group.submit_all_gather(*rows, here); });
  collective.result.push_back(tensor);
  collective.finish.push_back([op, rows, tensor, ranks = size_] {
    const at::NoGradGuard no_grad;
    const at::Tensor sum = sum_of_rows(*rows, tensor);
    finish_sum(op, sum._values(), ranks);
    at::Tensor{tensor}.copy_(sum);
  });
}

WorkPtr AgreedBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  Collective collective = begin(OpType::ALLREDUCE, options.timeout);
  if (tensors.size() == 1 && tensors.front().layout() == at::kSparse && tensors.front().is_cpu()) {
    add_sparse_allreduce(collective, tensors.front(), options.reduceOp);
    return end(std::move(collective));
  }
  const at::Tensor& tensor = only(tensors, collective.here);
  require_reducible(options.reduceOp, tensor.scalar_type(), collective.here);
  add_allreduce(collective, "all_reduce", tensor, options.reduceOp);
  return end(std::move(collective));
}

WorkPtr AgreedBackend::allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) {
  Collective collective = begin(OpType::ALLREDUCE_COALESCED, options.timeout);
  // All are checked before the first is submitted: a request cannot be taken back.
  for (const at::Tensor& each : tensors) {
    require_on_host(each, collective.here);
    require_reducible(options.reduceOp, each.scalar_type(), collective.here);
  }
  for (std::size_t i = 0; i < tensors.size(); ++i)
    add_allreduce(collective, fmt::format("all_reduce_coalesced: {} of {}", i + 1, tensors.size()), tensors[i],
                  options.reduceOp);
  return end(std::move(collective));
}

WorkPtr AgreedBackend::sum_over_shards(const std::string& call, Tensors tensors, int shards) {
  Collective collective = begin(OpType::ALLREDUCE_COALESCED, {});
  for (const at::Tensor& each : tensors) require_on_host(each, collective.here);
  for (const at::Tensor& each : tensors) {
    const at::Tensor memory = to_change(collective, each);
    const Group::SumOptions options{.shards = memory.is_floating_point() ? shards : 0};
    add(collective, fmt::format("{}, {}", call, text_of(each)),
        [=](Group& group, const Here& here) { return group.submit_all_reduce(*numbers_of(memory), options, here); });
  }
  return end(std::move(collective));
}

WorkPtr AgreedBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  Collective collective = begin(OpType::REDUCE, options.timeout);
  const at::Tensor& tensor = only(tensors, collective.here);
  const c10d::ReduceOp& op = options.reduceOp;
  require_rank(options.rootRank, "root", collective.here);
  require_reducible(op, tensor.scalar_type(), collective.here);
  const int root = static_cast<int>(options.rootRank);
  const std::string text = fmt::format("reduce: {} of {} on rank {}", name_of(op), text_of(tensor), root);
  collective.result.push_back(tensor);
  // What c10d documents: only the root's tensor changes.
  if (is_sum(op, tensor)) {
    const at::Tensor memory =
        collective.kept.emplace_back(tensor.detach().resolve_conj().resolve_neg().clone(at::MemoryFormat::Contiguous));
    if (rank_ == root)
      collective.finish.push_back([op, memory, tensor, ranks = size_] {
        finish_sum(op, memory, ranks);
        tensor.detach().copy_(memory);
      });
    add(collective, text,
        [=](Group& group, const Here& here) { return group.submit_reduce(*numbers_of(memory), root, {}, here); });
    return end(std::move(collective));
  }
  const at::Tensor mine = to_send(collective, tensor);
  const at::Tensor all = rank_ == root ? stacked_like(tensor, size_) : at::empty({0}, tensor.options());
  collective.kept.push_back(all);
  if (rank_ == root) collective.finish.push_back([op, all, tensor] { python::reduce(op, all, tensor.detach()); });
  add(collective, text,
      [=](Group& group, const Here& here) { return group.submit_gather(bytes_of(mine), bytes_of(all), root, here); });
  return end(std::move(collective));
}

void AgreedBackend::add_reduce_scatter(Collective& collective, const std::string& name, const at::Tensor& sent,
                                       const at::Tensor& output, const c10d::ReduceOp& op) {
  const std::string text = fmt::format("{}: {} of {}", name, name_of(op), text_of(output));
  const std::size_t before = collective.finish.size();
  const at::Tensor mine = to_fill(collective, output);
  const auto finish_first = [&](std::function<void()> finish) {
    collective.finish.insert(collective.finish.begin() + static_cast<std::ptrdiff_t>(before), std::move(finish));
  };
  if (is_sum(op, output)) {
    finish_first([op, mine, ranks = size_] { finish_sum(op, mine, ranks); });
    add(collective, text, [=](Group& group, const Here& here) {
      return group.submit_reduce_scatter(*numbers_of(sent), *numbers_of(mine), {}, here);
    });
    return;
  }
  const at::Tensor parts = collective.kept.emplace_back(stacked_like(mine, size_));
  finish_first([op, parts, mine] { python::reduce(op, parts, mine); });
  add(collective, text,
      [=](Group& group, const Here& here) { return group.submit_all_to_all(bytes_of(sent), bytes_of(parts), here); });
}

WorkPtr AgreedBackend::reduce_scatter(Tensors& outputs, Lists& inputs, const c10d::ReduceScatterOptions& options) {
  Collective collective = begin(OpType::REDUCE_SCATTER, options.timeout);
  const at::Tensor& output = only(outputs, collective.here);
  require_lists(inputs, {}, output, collective.here);
  require_reducible(options.reduceOp, output.scalar_type(), collective.here);
  add_reduce_scatter(collective, "reduce_scatter", to_send(collective, inputs.front()), output, options.reduceOp);
  return end(std::move(collective));
}

WorkPtr AgreedBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                            const c10d::ReduceScatterOptions& options) {
  Collective collective = begin(OpType::_REDUCE_SCATTER_BASE, options.timeout);
  require_blocks(input, output, collective.here);
  require_reducible(options.reduceOp, output.scalar_type(), collective.here);
  add_reduce_scatter(collective, "reduce_scatter", to_send(collective, input), output, options.reduceOp);
  return end(std::move(collective));
}

WorkPtr AgreedBackend::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                       const c10d::ReduceScatterOptions& options) {
  Collective collective = begin(OpType::COALESCED, options.timeout);
  require_pairs(inputs, outputs, collective.here);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    require_blocks(inputs[i], outputs[i], collective.here);
    require_reducible(options.reduceOp, outputs[i].scalar_type(), collective.here);
  }
  for (std::size_t i = 0; i < inputs.size(); ++i)
    add_reduce_scatter(collective, fmt::format("reduce_scatter_coalesced: {} of {}", i + 1, inputs.size()),
                       to_send(collective, inputs[i]), outputs[i], options.reduceOp);
  return end(std::move(collective));
}

}  // namespace lockstep::python
