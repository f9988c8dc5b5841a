#include "python/around_backend.hpp"

#include <algorithm>
#include <utility>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>

#include "python/mail.hpp"
#include "python/place.hpp"
#include "python/process.hpp"
#include "python/text.hpp"

namespace lockstep::python {

using c10d::Backend;
using c10d::OpType;
using std::chrono::milliseconds;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

namespace {

std::vector<at::Tensor> joined(const std::vector<std::vector<at::Tensor>>& lists) {
  std::vector<at::Tensor> tensors;
  for (const auto& list : lists) tensors.insert(tensors.end(), list.begin(), list.end());
  return tensors;
}

std::vector<at::Tensor> all_of(const at::Tensor& tensor) {
  return {tensor};
}

std::vector<at::Tensor> all_of(const std::vector<at::Tensor>& tensors) {
  return tensors;
}

std::vector<at::Tensor> all_of(const std::vector<std::vector<at::Tensor>>& lists) {
  return joined(lists);
}

// What the other backend gets: tensors that Python does not know, since its threads may drop them when Python is gone.

at::Tensor aliases_of(const at::Tensor& tensor) {
  return tensor.detach();
}

std::vector<at::Tensor> aliases_of(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> aliases;
  for (const at::Tensor& each : tensors) aliases.push_back(each.detach());
  return aliases;
}

std::vector<std::vector<at::Tensor>> aliases_of(const std::vector<std::vector<at::Tensor>>& lists) {
  std::vector<std::vector<at::Tensor>> aliases;
  for (const auto& each : lists) aliases.push_back(aliases_of(each));
  return aliases;
}

/// What gives sparse tensors the elements that aliases of them have got: these have other memory then.
std::function<void()> copies_of_sparse(const std::vector<at::Tensor>& aliases, const std::vector<at::Tensor>& tensors) {
  if (std::ranges::all_of(tensors, [](const at::Tensor& each) { return each.layout() == at::kStrided; })) return {};
  return [aliases, tensors] {
    const at::NoGradGuard no_grad;
    for (std::size_t i = 0; i < tensors.size(); ++i)
      if (tensors[i].layout() != at::kStrided) at::Tensor{tensors[i]}.copy_(aliases[i]);
  };
}

/// "float32[3]" if each of a list is like this tensor, otherwise the shapes of all: those of a list may differ.
std::string text_of_parts(const std::vector<std::vector<at::Tensor>>& lists, const at::Tensor& like) {
  const std::vector<at::Tensor> all = joined(lists);
  const auto is_usual = [&](const at::Tensor& each) { return is_like(each, like); };
  return std::ranges::all_of(all, is_usual) ? text_of(like) : text_of(all);
}

std::vector<std::int64_t> elements_of(const std::vector<at::Tensor>& tensors) {
  std::vector<std::int64_t> elements;
  for (const at::Tensor& each : tensors) elements.push_back(each.numel());
  return elements;
}

}  // namespace

AroundBackend::AroundBackend(std::string name, std::vector<int> ranks, milliseconds timeout, Inner inner)
    : AgreedBackend{std::move(name), std::move(ranks), timeout}, inner_{std::move(inner)} {
  call_back_at_once();
}

void AroundBackend::setTimeout(milliseconds timeout) {
  AgreedBackend::setTimeout(timeout);
  LOCKSTEP_SINCE_2_9(inner_->setTimeout(timeout));
}

// How a call is made.

WorkPtr AroundBackend::make(Agreed call) {
  Collective collective = begin(call.type, call.timeout);
  collective.text = call.text;
  const std::scoped_lock lock{mutex_};
  Group told = group().anywhere(call.text);
  const auto agreement = std::make_shared<RequestTask>(call.submit ? call.submit(told, collective.here)
                                                                   : told.submit_barrier(collective.here));
  const auto check = [check = std::move(call.check), here = collective.here] {
    if (check) check(here);
  };
  if (coalesced_) {
    coalesced_->checks.push_back(check);
    coalesced_->begins.push_back(std::move(call.begin));
    coalesced_->tensors.insert(coalesced_->tensors.end(), call.tensors.begin(), call.tensors.end());
    coalesced_->result.insert(coalesced_->result.end(), call.result.begin(), call.result.end());
    if (call.finish) coalesced_->finish.push_back(std::move(call.finish));
    coalesced_->agreements.push_back(agreement);
    return nullptr;  // torch asks for that of endCoalescing
  }
  collective.result = std::move(call.result);
  if (call.finish) collective.finish.push_back(std::move(call.finish));
  return end_at(*collectives_, std::move(collective), call.tensors, {agreement},
                [inner = inner_, check, begin = std::move(call.begin)] {
                  check();
                  return begin(*inner);
                });
}

WorkPtr AroundBackend::end_at(InnerCalls& calls, Collective collective, const Tensors& tensors,
                              std::vector<std::shared_ptr<Task>> agreements, std::function<WorkPtr()> begin) {
  if (!tensors.empty()) collective.stream = stream_after_current(tensors.front().device());
  collective.tasks.push_back(calls.add({.begin = std::move(begin),
                                        .stream = collective.stream,
                                        .tensors = collective.stream ? aliases_of(tensors) : Tensors{},
                                        .agreements = std::move(agreements)}));
  return end(std::move(collective));
}

void AroundBackend::startCoalescing() {
  coalesced_.emplace();
}

WorkPtr AroundBackend::endCoalescing() {
  Coalesced calls = *std::exchange(coalesced_, {});
  Collective collective = begin(OpType::COALESCED, {});
  collective.text = fmt::format("{} calls together", calls.begins.size());
  collective.result = std::move(calls.result);
  collective.finish = std::move(calls.finish);
  if (calls.has_messages) collective.of = Call::Of::two_ranks;  // which the job's watchdog does not follow
  const std::scoped_lock lock{mutex_};
  return end_at(*collectives_, std::move(collective), calls.tensors, std::move(calls.agreements),
                [inner = inner_, checks = std::move(calls.checks), begins = std::move(calls.begins)] {
                  for (const auto& each : checks) each();
                  inner->startCoalescing();
                  for (const Begin& each : begins) each(*inner);
                  return inner->endCoalescing();
                });
}

template <class How>
auto AroundBackend::agreed(OpType type, std::string text, Tensors& tensors, const How& options,
                           Method<Tensors&, const How&> method) -> Agreed {
  Tensors aliases = aliases_of(tensors);
  auto finish = copies_of_sparse(aliases, tensors);
  return {.type = type,
          .timeout = options.timeout,
          .text = std::move(text),
          .tensors = tensors,
          .result = tensors,
          .begin = [method, aliases = std::move(aliases),
                    options](Backend& inner) mutable { return (inner.*method)(aliases, options); },
          .finish = std::move(finish)};
}

template <class Out, class In, class How>
auto AroundBackend::agreed(OpType type, std::string text, Out& outputs, In& inputs, const How& options,
                           Method<Out&, In&, const How&> method) -> Agreed {
  return {.type = type,
          .timeout = options.timeout,
          .text = std::move(text),
          .tensors = joined({all_of(outputs), all_of(inputs)}),
          .result = all_of(outputs),
          .begin = [method, outputs = aliases_of(outputs), inputs = aliases_of(inputs),
                    options](Backend& inner) mutable { return (inner.*method)(outputs, inputs, options); }};
}

// Sums.

WorkPtr AroundBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  return make(agreed(OpType::ALLREDUCE,
                     fmt::format("all_reduce: {} of {}", name_of(options.reduceOp), text_of(tensors)), tensors, options,
                     &Backend::allreduce));
}

WorkPtr AroundBackend::allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) {
  return make(agreed(OpType::_ALLREDUCE_SPARSE,
                     fmt::format("all_reduce: {} of {}", name_of(options.reduceOp), text_of(tensors)), tensors, options,
                     &Backend::allreduce_sparse));
}

WorkPtr AroundBackend::allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) {
  return make(agreed(OpType::ALLREDUCE_COALESCED,
                     fmt::format("all_reduce_coalesced: {} of {}", name_of(options.reduceOp), text_of(tensors)),
                     tensors, options, &Backend::allreduce_coalesced));
}

WorkPtr AroundBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  return make(
      agreed(OpType::REDUCE,
             fmt::format("reduce: {} of {} on rank {}", name_of(options.reduceOp), text_of(tensors), options.rootRank),
             tensors, options, &Backend::reduce));
}

WorkPtr AroundBackend::reduce_scatter(Tensors& outputs, Lists& inputs, const c10d::ReduceScatterOptions& options) {
  const std::string text = outputs.empty() ? text_of(joined(inputs)) : text_of_parts(inputs, outputs.front());
  return make(agreed(OpType::REDUCE_SCATTER, fmt::format("reduce_scatter: {} of {}", name_of(options.reduceOp), text),
                     outputs, inputs, options, &Backend::reduce_scatter));
}

WorkPtr AroundBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                            const c10d::ReduceScatterOptions& options) {
  return make(
      agreed(OpType::_REDUCE_SCATTER_BASE,
             fmt::format("reduce_scatter: {} of {} to {}", name_of(options.reduceOp), text_of(input), text_of(output)),
             output, input, options, &Backend::_reduce_scatter_base));
}

WorkPtr AroundBackend::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                       const c10d::ReduceScatterOptions& options) {
  return make(agreed(OpType::COALESCED,
                     fmt::format("reduce_scatter_coalesced: {} of {} to {}", name_of(options.reduceOp), text_of(inputs),
                                 text_of(outputs)),
                     outputs, inputs, options, &Backend::reduce_scatter_tensor_coalesced));
}

// What moves.

WorkPtr AroundBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  return make(agreed(OpType::BROADCAST, fmt::format("broadcast: {} from rank {}", text_of(tensors), options.rootRank),
                     tensors, options, &Backend::broadcast));
}

WorkPtr AroundBackend::allgather(Lists& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) {
  const std::string text = inputs.empty() ? text_of(joined(outputs)) : text_of_parts(outputs, inputs.front());
  return make(agreed(OpType::ALLGATHER, "all_gather: " + text, outputs, inputs, options, &Backend::allgather));
}

WorkPtr AroundBackend::_allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) {
  return make(agreed(OpType::_ALLGATHER_BASE, fmt::format("all_gather: {} to {}", text_of(input), text_of(output)),
                     output, input, options, &Backend::_allgather_base));
}

WorkPtr AroundBackend::allgather_coalesced(Lists& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) {
  return make(agreed(OpType::ALLGATHER_COALESCED, "all_gather_coalesced: " + text_of(inputs), outputs, inputs, options,
                     &Backend::allgather_coalesced));
}

WorkPtr AroundBackend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                       const c10d::AllgatherOptions& options) {
  return make(agreed(OpType::COALESCED,
                     fmt::format("all_gather_coalesced: {} to {}", text_of(inputs), text_of(outputs)), outputs, inputs,
                     options, &Backend::allgather_into_tensor_coalesced));
}

WorkPtr AroundBackend::gather(Lists& outputs, Tensors& inputs, const c10d::GatherOptions& options) {
  return make(agreed(OpType::GATHER, fmt::format("gather: {} on rank {}", text_of(inputs), options.rootRank), outputs,
                     inputs, options, &Backend::gather));
}

WorkPtr AroundBackend::scatter(Tensors& outputs, Lists& inputs, const c10d::ScatterOptions& options) {
  return make(agreed(OpType::SCATTER, fmt::format("scatter: {} from rank {}", text_of(outputs), options.rootRank),
                     outputs, inputs, options, &Backend::scatter));
}

// The other backend would wait for what never comes, so all ranks compare the numbers of all, and end alike.
void AroundBackend::compare_parts(Agreed& call, std::vector<std::int64_t> sent,
                                  const std::vector<std::int64_t>& expected) const {
  struct Numbers {
    std::vector<std::int64_t> mine, all;
  };
  const auto numbers = std::make_shared<Numbers>();
  const auto size = static_cast<std::size_t>(size_);
  numbers->mine = std::move(sent);
  numbers->mine.resize(size, -1);
  numbers->mine.insert(numbers->mine.end(), expected.begin(), expected.end());
  numbers->mine.resize(2 * size, -1);
  numbers->all.resize(2 * size * size);
  call.submit = [numbers](Group& group, const Here& here) {
    return group.submit_all_gather(std::span{numbers->mine}, std::span{numbers->all}, here);
  };
  call.check = [numbers, size, ranks = ranks()](const Here& here) {
    for (std::size_t from = 0; from < size; ++from) {
      for (std::size_t to = 0; to < size; ++to) {
        const std::int64_t sends = numbers->all[2 * size * from + to];
        const std::int64_t expects = numbers->all[2 * size * to + size + from];
        if (sends != expects)
          throw MismatchError{fmt::format("all_to_all{}: {} has {} elements for {}, which expects {}", bracketed(here),
                                          name_of_rank(static_cast<int>(from), ranks), sends,
                                          name_of_rank(static_cast<int>(to), ranks), expects)};
      }
    }
  };
}

WorkPtr AroundBackend::alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) {
  Agreed call = agreed(OpType::ALLTOALL,
                       fmt::format("all_to_all: {} to {} tensors of {}", inputs.size(), outputs.size(),
                                   inputs.empty() ? "no type" : name_of(inputs.front().scalar_type())),
                       outputs, inputs, options, &Backend::alltoall);
  compare_parts(call, elements_of(inputs), elements_of(outputs));
  return make(std::move(call));
}

WorkPtr AroundBackend::alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<std::int64_t>& output_sizes,
                                     std::vector<std::int64_t>& input_sizes, const c10d::AllToAllOptions& options) {
  Agreed call{.type = OpType::ALLTOALL_BASE,
              .timeout = options.timeout,
              .text = {},
              .tensors = {output, input},
              .result = {output},
              .begin = [output = output.detach(), input = input.detach(), output_sizes, input_sizes,
                        options](Backend& inner) mutable {
                return inner.alltoall_base(output, input, output_sizes, input_sizes, options);
              }};
  if (input_sizes.empty() && output_sizes.empty()) {
    call.text = fmt::format("all_to_all: {} to {}", text_of(input), text_of(output));
    return make(std::move(call));
  }
  call.text = fmt::format("all_to_all: parts of {}", name_of(input.scalar_type()));
  const auto parts_of = [&](const at::Tensor& tensor, std::vector<std::int64_t> rows) {
    const std::int64_t length = tensor.dim() == 0 ? 0 : tensor.size(0);
    if (rows.empty()) rows.assign(static_cast<std::size_t>(size_), length / size_);
    for (std::int64_t& each : rows) each *= length == 0 ? 0 : tensor.numel() / length;
    return rows;
  };
  compare_parts(call, parts_of(input, input_sizes), parts_of(output, output_sizes));
  return make(std::move(call));
}

WorkPtr AroundBackend::barrier(const c10d::BarrierOptions& options) {
  return make({.type = OpType::BARRIER,
               .timeout = options.timeout,
               .text = "barrier",
               .tensors = {},
               .result = {},
               .begin = [options](Backend& inner) { return inner.barrier(options); }});
}

// Messages of two ranks.

WorkPtr AroundBackend::make_message(Collective collective, int peer, std::shared_ptr<Task> agreement,
                                    const at::Tensor& tensor, const Begin& begin) {
  collective.of = Call::Of::two_ranks;
  collective.other = ranks()[static_cast<std::size_t>(peer)];
  collective.result = {tensor};
  const std::scoped_lock lock{mutex_};
  if (coalesced_) {
    coalesced_->begins.push_back(begin);
    coalesced_->tensors.push_back(tensor);
    coalesced_->result.push_back(tensor);
    coalesced_->has_messages = true;
    coalesced_->agreements.push_back(std::move(agreement));
    return nullptr;
  }
  std::shared_ptr<InnerCalls>& messages = messages_[peer];
  if (!messages) messages = std::make_shared<InnerCalls>();
  return end_at(*messages, std::move(collective), {tensor}, {std::move(agreement)},
                [inner = inner_, begin] { return begin(*inner); });
}

WorkPtr AroundBackend::send(Tensors& tensors, int to, int tag) {
  if (tensors.empty() || tensors.front().is_cpu()) return AgreedBackend::send(tensors, to, tag);
  Collective collective = begin(OpType::SEND, {});
  require_rank(to, "rank", collective.here);
  collective.text = fmt::format("send of {} to {}", text_of(tensors), name_of_rank(to, ranks()));
  const auto agreement = Process::current()->mail().send(side_of(to, tag, text_of(tensors), collective.here));
  return make_message(
      std::move(collective), to, agreement, tensors.front(),
      [tensors = aliases_of(tensors), to, tag](Backend& inner) mutable { return inner.send(tensors, to, tag); });
}

WorkPtr AroundBackend::recv(Tensors& tensors, int from, int tag) {
  if (tensors.empty() || tensors.front().is_cpu()) return AgreedBackend::recv(tensors, from, tag);
  Collective collective = begin(OpType::RECV, {});
  require_rank(from, "rank", collective.here);
  collective.text = fmt::format("recv of {} from {}", text_of(tensors), name_of_rank(from, ranks()));
  const auto agreement = Process::current()->mail().receive(side_of(from, tag, text_of(tensors), collective.here));
  return make_message(
      std::move(collective), from, agreement, tensors.front(),
      [tensors = aliases_of(tensors), from, tag](Backend& inner) mutable { return inner.recv(tensors, from, tag); });
}

WorkPtr AroundBackend::recvAnysource(Tensors& tensors, int tag) {
  if (tensors.empty() || tensors.front().is_cpu()) return AgreedBackend::recvAnysource(tensors, tag);
  throw InvalidArgument{fmt::format("recv from any rank of {} on a device{}: expected a rank, or a tensor on the host",
                                    text_of(tensors), bracketed(place_of_call()))};
}

}  // namespace lockstep::python
