#include "torch/sync_sums.hpp"

#include <algorithm>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/core/base/hex.hpp>
#include <lockstep/sync/strategy/strategy.hpp>

#include "core/base/digest.hpp"
#include "sync/step/synchronous_step.hpp"
#include "sync/strategy/context_stack.hpp"
#include "torch/replica.hpp"

namespace lockstep::libtorch {

// Losses of two ranks may depend on passes through other layers of the same size: the sums would mix them up.
std::string text_of(const SumPoints& points) {
  if (points.empty()) return {};
  std::vector<std::string> layers;
  std::string passes;
  for (const auto& point : points) {
    layers.push_back(point->layer);
    passes += fmt::format("{} ", point->pass);
  }
  return fmt::format(" through {} (digest {})", first_names(layers), to_hex(digest_of(passes)));
}

void SyncSums::open(DeclaredSums& sums, TorchDevice& device, Stream& stream) {
  sums_ = &sums;
  device_ = &device;
  stream_ = &stream;
  for (const auto& point : points_) point->open = this;
}

at::Tensor SyncSums::sum_up(const SumPoint& point, const at::Tensor& own) {
  const auto found = std::ranges::find(points_.begin() + static_cast<std::ptrdiff_t>(made_), points_.end(), &point,
                                       [](const auto& each) { return each.get(); });
  if (found == points_.end())
    throw InvalidArgument{
        "the backward pass came to a SyncBatchNorm twice, or in another order than that of its graph"};
  make_zeros(static_cast<std::size_t>(found - points_.begin()));
  ++made_;
  device_->on_stream([&] { sums_->all_reduce(view_of(own, stream_->kind())); });
  return own;
}

void SyncSums::make_zeros(std::size_t end) {
  for (; made_ < end; ++made_) sums_->all_reduce(Tensor::zeros(list_.dtype, {list_.counts[made_]}, *stream_).view());
}

void run_pass_with_sums(SyncSums& sums, std::string_view text, VariableStore& store, TorchDevice& device,
                        const Here& here, const std::function<void()>& pass) {
  const lockstep::detail::Frame* const frame = lockstep::detail::current_frame();
  ReplicaContext* const context = frame ? frame->replica : nullptr;
  if (!context || &context->strategy().store() != &store)
    throw ContextError{fmt::format(
        "{}: the backward pass of a SyncBatchNorm adds up over all ranks: expected it inside Strategy::run", text)};
  SynchronousStep step{.agree = fmt::format("{}{}, with {}", text, sums.text(), describe(sums.list())),
                       .sums = sums.list(),
                       .close = "the end of an accumulated pass"};
  step.compute = [&](DeclaredSums& declared) {
    sums.open(declared, device, store.stream());
    pass();
    sums.make_the_rest();
  };
  make_step(*context, step, here);
}

}  // namespace lockstep::libtorch
