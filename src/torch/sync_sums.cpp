#include "torch/sync_sums.hpp"

#include <algorithm>
#include <array>
#include <exception>

#include <fmt/format.h>

#include <lockstep/base/error.hpp>
#include <lockstep/base/hex.hpp>
#include <lockstep/strategy/strategy.hpp>

#include "base/digest.hpp"
#include "control/meeting_point.hpp"
#include "control/tag.hpp"
#include "group/replica_group.hpp"
#include "reduce/cross_device_ops.hpp"
#include "reduce/declared_sums.hpp"
#include "strategy/context_stack.hpp"
#include "torch/replica.hpp"

namespace lockstep::libtorch {

SyncSums::~SyncSums() {
  for (const auto& point : points_) point->open = nullptr;
}

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
  device_->stream_follows();
  sums_->all_reduce(view_of(own, stream_->kind()));
  device_->torch_follows();
  return own;
}

void SyncSums::make_the_rest() {
  make_zeros(list_.counts.size());
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
  Strategy& strategy = context->strategy();
  Stream& stream = store.stream();
  std::exception_ptr failure;
  std::vector<std::int64_t> failures{0};
  const auto run = [&](CrossDeviceOps& reductions, Covered& covered) {
    DeclaredSums declared{reductions, sums.list(), stream, {}, &covered};
    try {
      sums.open(declared, device, stream);
      pass();
      sums.make_the_rest();
      covered.require_no_agreement();
    } catch (...) {
      failure = std::current_exception();
      failures = {1};
      strategy.group().job().see_through([&] { declared.make_the_rest(); });
    }
    strategy.group().job().see_through([&] { stream.synchronize(); });
    const TensorView number{reinterpret_cast<std::byte*>(failures.data()), {1}, DType::i64};
    covered.wait_in([&] { reductions.all_reduce(ReduceOp::sum, {&number, 1}); });
  };
  context->declared_step(fmt::format("{}{}, with {}", text, sums.text(), describe(sums.list())), run, here);
  if (failures.front() == 0) return;
  // Every rank is here, so those that did not fail hear of it before their programs go on.
  if (failure) strategy.group().meeting().fail(failure);
  strategy.agree(TagKind::merge, here, "the end of an accumulated pass");
}

}  // namespace lockstep::libtorch
