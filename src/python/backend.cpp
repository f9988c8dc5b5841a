#include "python/backend.hpp"

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>

#include "python/completions.hpp"
#include "python/elements.hpp"
#include "python/place.hpp"
#include "python/process.hpp"
#include "python/text.hpp"
#include "python/waits.hpp"

namespace lockstep::python {

using c10d::OpType;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

namespace {

int index_in(const std::vector<int>& ranks, int rank) {
  return static_cast<int>(std::ranges::find(ranks, rank) - ranks.begin());
}

at::Tensor contiguous_like(const at::Tensor& tensor) {
  return at::empty(tensor.sizes(), tensor.options().requires_grad(false).memory_format(at::MemoryFormat::Contiguous));
}

/// Memory for all of a list.
at::Tensor whole_of(const std::vector<at::Tensor>& list) {
  return stacked_like(list.front(), static_cast<std::int64_t>(list.size()));
}

}  // namespace

AgreedBackend::AgreedBackend(std::string name, std::vector<int> ranks, std::chrono::milliseconds timeout)
    : AgreedBackend{std::move(name), ranks.empty() ? Process::current()->all_ranks() : ranks,
                    Process::current()->make_group(ranks, place_of_call()), timeout} {}

AgreedBackend::AgreedBackend(std::string name, std::vector<int> ranks, MadeGroup made,
                             std::chrono::milliseconds timeout)
    : Backend{index_in(ranks, Process::current()->rank()), static_cast<int>(ranks.size())},
      name_{std::move(name)},
      ranks_{std::move(ranks)},
      group_{std::move(made.group)},
      of_all_ranks_{std::make_shared<CountedCalls>(name_)},
      all_ranks_{made.is_watched ? Call::Of::all_ranks : Call::Of::unwatched_ranks},
      options_{c10::make_intrusive<Options>("lockstep", timeout)} {
  LOCKSTEP_SINCE_2_9(options_->group_name = name_);
  LOCKSTEP_SINCE_2_9(options_->global_ranks_in_group.assign(ranks_.begin(), ranks_.end()));
}

// How a collective is made.

AgreedBackend::Collective AgreedBackend::begin(OpType type, std::chrono::milliseconds timeout) const {
  Process::require_own();
  const Place place = place_and_pass();
  return {.type = type,
          .here = place.here,
          .timeout = timeout.count() > 0 ? timeout : options_->timeout,
          .of = all_ranks_,
          .is_backward = place.is_backward};
}

void AgreedBackend::add(Collective& collective, const std::string& text, Submit submit) {
  if (collective.text.empty()) collective.text = text;
  collective.tasks.push_back(turns_->add([told = group_.anywhere(text), submit = std::move(submit),
                                          here = collective.here]() mutable { return submit(told, here); }));
}

WorkPtr AgreedBackend::end(Collective collective) {
  ++calls_;
  const bool is_message = collective.of == Call::Of::two_ranks;
  const bool sums_gradients = collective.is_backward && collective.type == OpType::ALLREDUCE;
  const auto call =
      std::make_shared<Call>(Call::Parts{.text = std::move(collective.text),
                                         .here = collective.here,
                                         .timeout = collective.timeout,
                                         .of = collective.of,
                                         .other = collective.other,
                                         .group = is_message ? nullptr : of_all_ranks_,
                                         .number = is_message ? 0 : of_all_ranks_->count(),
                                         .gradients = sums_gradients ? collective.result.front().numel() : 0,
                                         .kept = std::move(collective.kept),
                                         .finish =
                                             [finish = std::move(collective.finish)] {
                                               for (const auto& each : finish) each();
                                             },
                                         .result = std::move(collective.result),
                                         .stream = collective.stream,
                                         .tasks = std::move(collective.tasks)});
  Process::current()->completions().add(call);
  if (coalesces_) coalesced_.push_back(call);
  return c10::make_intrusive<CallWork>(call, rank_, collective.type, turns_of_futures_);
}

at::Tensor AgreedBackend::to_send(Collective& collective, const at::Tensor& tensor) {
  require_on_host(tensor, collective.here);
  return collective.kept.emplace_back(tensor.detach().resolve_conj().resolve_neg().contiguous());
}

at::Tensor AgreedBackend::to_fill(Collective& collective, const at::Tensor& tensor) {
  require_on_host(tensor, collective.here);
  collective.result.push_back(tensor);
  const bool is_its_own = tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg();
  if (is_its_own) return collective.kept.emplace_back(tensor.detach());
  const at::Tensor made = collective.kept.emplace_back(contiguous_like(tensor));
  collective.finish.push_back([to = tensor.detach(), made] { at::Tensor{to}.copy_(made); });
  return made;
}

at::Tensor AgreedBackend::to_change(Collective& collective, const at::Tensor& tensor) {
  at::Tensor memory = to_fill(collective, tensor);
  if (!memory.is_same(tensor) && memory.data_ptr() != tensor.data_ptr()) memory.copy_(tensor.detach());
  return memory;
}

at::Tensor AgreedBackend::to_send(Collective& collective, const Tensors& list) {
  const at::Tensor whole = collective.kept.emplace_back(whole_of(list));
  for (std::size_t i = 0; i < list.size(); ++i) whole.select(0, static_cast<std::int64_t>(i)).copy_(list[i].detach());
  return whole;
}

at::Tensor AgreedBackend::to_fill(Collective& collective, const Tensors& list) {
  const at::Tensor whole = collective.kept.emplace_back(whole_of(list));
  collective.result.insert(collective.result.end(), list.begin(), list.end());
  collective.finish.push_back([list, whole] {
    for (std::size_t i = 0; i < list.size(); ++i) list[i].detach().copy_(whole.select(0, static_cast<std::int64_t>(i)));
  });
  return whole;
}

// What is refused on this rank.

const at::Tensor& AgreedBackend::only(const Tensors& tensors, const Here& here) const {
  if (tensors.size() != 1)
    throw InvalidArgument{fmt::format("{} tensors{}: expected one", tensors.size(), bracketed(here))};
  require_on_host(tensors.front(), here);
  return tensors.front();
}

void AgreedBackend::require_one_for_each(std::size_t count, std::string_view what, const Here& here) const {
  if (count != static_cast<std::size_t>(size_))
    throw InvalidArgument{
        fmt::format("{} {}{}: expected one for each of {} ranks", count, what, bracketed(here), size_)};
}

void AgreedBackend::require_list(const Tensors& list, const at::Tensor& like, const Here& here) const {
  require_one_for_each(list.size(), "tensors in a list", here);
  for (const at::Tensor& each : list) {
    require_on_host(each, here);
    if (!is_like(each, like))
      throw InvalidArgument{
          fmt::format("{} in a list{}: expected {}, as the others", text_of(each), bracketed(here), text_of(like))};
  }
}

void AgreedBackend::require_lists(const Lists& lists, std::optional<int> root, const at::Tensor& like,
                                  const Here& here) const {
  const bool is_here = !root || *root == rank_;
  if (lists.size() != (is_here ? 1U : 0U))
    throw InvalidArgument{fmt::format("{} lists{}: expected one{}", lists.size(), bracketed(here),
                                      root ? fmt::format(" on rank {} alone", *root) : std::string{})};
  if (is_here) require_list(lists.front(), like, here);
}

void AgreedBackend::require_rank(std::int64_t rank, std::string_view role, const Here& here) const {
  if (rank < 0 || rank >= size_)
    throw InvalidArgument{fmt::format("{} {}{}: expected one of 0 to {}", role, rank, bracketed(here), size_ - 1)};
}

void AgreedBackend::require_pairs(const Tensors& inputs, const Tensors& outputs, const Here& here) {
  if (inputs.size() != outputs.size())
    throw InvalidArgument{
        fmt::format("{} inputs and {} outputs{}: expected as many", inputs.size(), outputs.size(), bracketed(here))};
}

void AgreedBackend::require_blocks(const at::Tensor& whole, const at::Tensor& block, const Here& here) const {
  require_on_host(whole, here);
  require_on_host(block, here);
  if (whole.scalar_type() != block.scalar_type() || whole.numel() != block.numel() * size_)
    throw InvalidArgument{fmt::format("{} and {}{}: expected one type, and {} times as many elements", text_of(whole),
                                      text_of(block), bracketed(here), size_)};
}

std::string AgreedBackend::name_of_rank(int rank, const std::vector<int>& ranks) {
  const int of_job = ranks[static_cast<std::size_t>(rank)];
  return rank == of_job ? fmt::format("rank {}", rank) : fmt::format("rank {} (replica {})", rank, of_job);
}

// The collectives that move elements as they are.

WorkPtr AgreedBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  Collective collective = begin(OpType::BROADCAST, options.timeout);
  const at::Tensor& tensor = only(tensors, collective.here);
  require_rank(options.rootRank, "root", collective.here);
  const int root = static_cast<int>(options.rootRank);
  const std::string text = fmt::format("broadcast: {} from rank {}", text_of(tensor), root);
  const bool is_root = root == rank_;
  const at::Tensor memory = is_root ? to_send(collective, tensor) : to_fill(collective, tensor);
  if (is_root) collective.result.push_back(tensor);
  add(collective, text,
      [=](Group& group, const Here& here) { return group.submit_broadcast(bytes_of(memory), root, here); });
  return end(std::move(collective));
}

void AgreedBackend::add_allgather(Collective& collective, const std::string& text, const at::Tensor& input,
                                  const at::Tensor& output) {
  add(collective, text,
      [=](Group& group, const Here& here) { return group.submit_all_gather(bytes_of(input), bytes_of(output), here); });
}

WorkPtr AgreedBackend::allgather(Lists& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) {
  Collective collective = begin(OpType::ALLGATHER, options.timeout);
  const at::Tensor& input = only(inputs, collective.here);
  require_lists(outputs, {}, input, collective.here);
  const at::Tensor sent = to_send(collective, input);
  add_allgather(collective, "all_gather: " + text_of(input), sent, to_fill(collective, outputs.front()));
  return end(std::move(collective));
}

WorkPtr AgreedBackend::_allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) {
  Collective collective = begin(OpType::_ALLGATHER_BASE, options.timeout);
  require_blocks(output, input, collective.here);
  const at::Tensor sent = to_send(collective, input);
  add_allgather(collective, "all_gather: " + text_of(input), sent, to_fill(collective, output));
  return end(std::move(collective));
}

WorkPtr AgreedBackend::allgather_coalesced(Lists& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) {
  Collective collective = begin(OpType::ALLGATHER_COALESCED, options.timeout);
  // All are checked before the first is submitted: a request cannot be taken back.
  require_one_for_each(outputs.size(), "lists", collective.here);
  for (const Tensors& of_rank : outputs) require_pairs(inputs, of_rank, collective.here);
  Lists of_inputs(inputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    for (const Tensors& of_rank : outputs) of_inputs[i].push_back(of_rank[i]);
    require_on_host(inputs[i], collective.here);
    require_list(of_inputs[i], inputs[i], collective.here);
  }
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const at::Tensor sent = to_send(collective, inputs[i]);
    add_allgather(collective,
                  fmt::format("all_gather_coalesced: {} of {}: {}", i + 1, inputs.size(), text_of(inputs[i])), sent,
                  to_fill(collective, of_inputs[i]));
  }
  return end(std::move(collective));
}

WorkPtr AgreedBackend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                       const c10d::AllgatherOptions& options) {
  Collective collective = begin(OpType::COALESCED, options.timeout);
  require_pairs(inputs, outputs, collective.here);
  for (std::size_t i = 0; i < inputs.size(); ++i) require_blocks(outputs[i], inputs[i], collective.here);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const at::Tensor sent = to_send(collective, inputs[i]);
    add_allgather(collective,
                  fmt::format("all_gather_coalesced: {} of {}: {}", i + 1, inputs.size(), text_of(inputs[i])), sent,
                  to_fill(collective, outputs[i]));
  }
  return end(std::move(collective));
}

WorkPtr AgreedBackend::gather(Lists& outputs, Tensors& inputs, const c10d::GatherOptions& options) {
  Collective collective = begin(OpType::GATHER, options.timeout);
  const at::Tensor& input = only(inputs, collective.here);
  require_rank(options.rootRank, "root", collective.here);
  const int root = static_cast<int>(options.rootRank);
  require_lists(outputs, root, input, collective.here);
  const at::Tensor sent = to_send(collective, input);
  const TensorView all = root == rank_ ? bytes_of(to_fill(collective, outputs.front())) : TensorView{};
  add(collective, fmt::format("gather: {} on rank {}", text_of(input), root),
      [=](Group& group, const Here& here) { return group.submit_gather(bytes_of(sent), all, root, here); });
  return end(std::move(collective));
}

WorkPtr AgreedBackend::scatter(Tensors& outputs, Lists& inputs, const c10d::ScatterOptions& options) {
  Collective collective = begin(OpType::SCATTER, options.timeout);
  const at::Tensor& output = only(outputs, collective.here);
  require_rank(options.rootRank, "root", collective.here);
  const int root = static_cast<int>(options.rootRank);
  require_lists(inputs, root, output, collective.here);
  const TensorView all = root == rank_ ? bytes_of(to_send(collective, inputs.front())) : TensorView{};
  const at::Tensor mine = to_fill(collective, output);
  add(collective, fmt::format("scatter: {} from rank {}", text_of(output), root),
      [=](Group& group, const Here& here) { return group.submit_scatter(all, bytes_of(mine), root, here); });
  return end(std::move(collective));
}

WorkPtr AgreedBackend::barrier(const c10d::BarrierOptions& options) {
  Collective collective = begin(OpType::BARRIER, options.timeout);
  add(collective, "barrier", [=](Group& group, const Here& here) { return group.submit_barrier(here); });
  return end(std::move(collective));
}

WorkPtr AgreedBackend::agree(const std::string& call) {
  Collective collective = begin(OpType::BARRIER, {});
  add(collective, call, [=](Group& group, const Here& here) { return group.submit_barrier(here); });
  return end(std::move(collective));
}

// Parts of any length.

WorkPtr AgreedBackend::swap(Collective collective, const Tensors& inputs, const Tensors& outputs) {
  struct Parts {
    Tensor rows;
    std::vector<std::int64_t> bytes, expected;
  };
  const auto parts = std::make_shared<Parts>();
  for (const at::Tensor& each : inputs) parts->bytes.push_back(static_cast<std::int64_t>(each.nbytes()));
  for (const at::Tensor& each : outputs) parts->expected.push_back(static_cast<std::int64_t>(each.nbytes()));
  parts->rows = Tensor::uninitialised(DType::u8, {std::reduce(parts->bytes.begin(), parts->bytes.end())});
  std::byte* to = parts->rows.view().data();
  for (const at::Tensor& each : inputs) {
    const at::Tensor sent = each.detach().resolve_conj().resolve_neg().contiguous();
    to = std::ranges::copy(std::span{static_cast<const std::byte*>(sent.data_ptr()), sent.nbytes()}, to).out;
  }
  add(collective, collective.text,
      [=](Group& group, const Here& here) { return group.submit_all_to_all(parts->rows, parts->bytes, here); });
  collective.result.insert(collective.result.end(), outputs.begin(), outputs.end());
  collective.finish.push_back([parts, outputs, here = collective.here, ranks = ranks_] {
    const auto [got, expected] = std::ranges::mismatch(parts->bytes, parts->expected);
    if (got != parts->bytes.end())
      throw MismatchError{fmt::format("all_to_all{}: {} has {} bytes for this rank, which expects {}", bracketed(here),
                                      name_of_rank(static_cast<int>(got - parts->bytes.begin()), ranks), *got,
                                      *expected)};
    std::byte* from = parts->rows.view().data();
    for (const at::Tensor& each : outputs) {
      const auto bytes = each.nbytes();
      if (bytes > 0) each.detach().copy_(at::from_blob(from, each.sizes(), each.options().requires_grad(false)));
      from += bytes;
    }
  });
  return end(std::move(collective));
}

WorkPtr AgreedBackend::alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) {
  Collective collective = begin(OpType::ALLTOALL, options.timeout);
  for (const Tensors* list : {&inputs, &outputs}) {
    require_one_for_each(list->size(), "tensors in a list", collective.here);
    for (const at::Tensor& each : *list) require_on_host(each, collective.here);
  }
  collective.text = fmt::format("all_to_all: a list of {}", name_of(inputs.front().scalar_type()));
  return swap(std::move(collective), inputs, outputs);
}

WorkPtr AgreedBackend::alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<std::int64_t>& output_sizes,
                                     std::vector<std::int64_t>& input_sizes, const c10d::AllToAllOptions& options) {
  Collective collective = begin(OpType::ALLTOALL_BASE, options.timeout);
  require_on_host(input, collective.here);
  require_on_host(output, collective.here);
  if (input_sizes.empty() && output_sizes.empty()) {
    if (input.numel() != output.numel() || input.scalar_type() != output.scalar_type() || input.dim() == 0 ||
        input.size(0) % size_ != 0)
      throw InvalidArgument{
          fmt::format("{} into {}{}: expected one type and size, whose first dimension {} ranks divide", text_of(input),
                      text_of(output), bracketed(collective.here), size_)};
    const at::Tensor sent = to_send(collective, input), received = to_fill(collective, output);
    add(collective, "all_to_all: " + text_of(input), [=](Group& group, const Here& here) {
      return group.submit_all_to_all(bytes_of(sent), bytes_of(received), here);
    });
    return end(std::move(collective));
  }
  const auto split = [&](const at::Tensor& tensor, std::vector<std::int64_t> sizes) {
    if (sizes.empty()) sizes.assign(static_cast<std::size_t>(size_), tensor.size(0) / size_);
    if (static_cast<int>(sizes.size()) != size_ || std::reduce(sizes.begin(), sizes.end()) != tensor.size(0))
      throw InvalidArgument{fmt::format("{} split into {} parts{}: expected a size for each of {} ranks, together {}",
                                        text_of(tensor), sizes.size(), bracketed(collective.here), size_,
                                        tensor.size(0))};
    return tensor.split_with_sizes(sizes);
  };
  collective.text = fmt::format("all_to_all: parts of {}", name_of(input.scalar_type()));
  return swap(std::move(collective), split(input, input_sizes), split(output, output_sizes));
}

}  // namespace lockstep::python
