#include "tf/feed/draw_ahead.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <deque>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>

#include "core/control/meeting_point.hpp"
#include "core/device/device.hpp"
#include "core/device/pinned_pool.hpp"
#include "core/order/work_ahead.hpp"
#include "core/tensor/inside.hpp"
#include "sync/group/replica_group.hpp"
#include "sync/strategy/context_stack.hpp"
#include "sync/strategy/inside.hpp"
#include "tf/feed/batch_outline.hpp"

namespace lockstep::detail {
namespace {

/// How long the end of an iterator waits for a source that is reading.
constexpr std::chrono::seconds patience{10};

using Pinned = PinnedPool::Pinned;

/// Pinned memory, and the stream that copies from it.
class Staging {
 public:
  explicit Staging(Stream& compute) : copies_{compute.make_sibling()} {}

  Stream& copies() { return *copies_; }

  Pinned take(std::size_t bytes) { return pool_.take(bytes); }

  void give_back(std::vector<Pinned> pinned) {
    for (Pinned& each : pinned) pool_.give_back(std::move(each));
  }

 private:
  std::unique_ptr<Stream> copies_;
  PinnedPool pool_{*copies_};
};

struct Item {
  std::string what = {};
  std::shared_ptr<void> batch = nullptr;  ///< null at the end
  const Description* type;
  std::vector<Pinned> pinned = {};          ///< where its tensors are, or are copied from
  std::unique_ptr<Event> copied = nullptr;  ///< null until its tensors are on the device
};

void visit_tensors(const Item& item, const std::function<void(Tensor&)>& visit) {
  if (item.batch) detail::visit_tensors(*item.type, item.batch.get(), visit);
}

/// Moves the batch's tensors in plain memory of the host to pinned memory.
void pin(Item& item, Staging& staging) {
  visit_tensors(item, [&](Tensor& tensor) {
    if (tensor.device() != DeviceKind::cpu || tensor.count() == 0) return;
    const TensorView view = tensor.view();
    const Pinned pinned = staging.take(view.bytes());
    std::memcpy(pinned->data(), view.data(), view.bytes());
    item.pinned.push_back(pinned);
    tensor = tensor_in(pinned, {pinned->data(), view.shape(), view.dtype()});
  });
}

void wait_for(Stream& copies) noexcept {
  try {
    copies.synchronize();
  } catch (const Error&) {
    // The device has failed, and says so to whoever uses it next.
  }
}

/// Enqueues the copies to the device, in memory for work on `compute`.
void copy_to_device(Item& item, Stream& copies, Stream& compute) {
  std::vector<std::pair<Tensor, TensorView>> moves;
  visit_tensors(item, [&](Tensor& tensor) {
    if (tensor.device() != DeviceKind::cpu) return;
    const Tensor there = Tensor::uninitialised(tensor.dtype(), tensor.shape(), compute);
    moves.emplace_back(std::exchange(tensor, there), there.view());
  });
  inside(copies).wait(*inside(compute).record());  // the memory may still be in use by earlier work on `compute`
  try {
    for (const auto& [from, to] : moves) copy(from.view(), to, copies);
    item.copied = inside(copies).record();
  } catch (...) {
    wait_for(copies);  // they may read the pinned memory, which goes now
    throw;
  }
}

class DrawAhead {
 public:
  DrawAhead(const StrategyAddress& address, int batches, const Description& type, Draw draw)
      : compute_{address.strategy().stream()},
        staging_{compute_.kind() == DeviceKind::cpu ? nullptr : std::make_shared<Staging>(compute_)},
        work_{work_of(address, type, std::move(draw), staging_),
              {.pieces = batches,
               // Simulated ranks take turns, in an order that a seed decides. A thread beside them would break both.
               .where = inside(address.strategy()).group().job().may_start_threads() ? WorkAhead::Where::on_thread
                                                                                     : WorkAhead::Where::in_turn,
               .patience = patience}} {}

  ~DrawAhead() {
    if (staging_) wait_for(staging_->copies());
  }

  std::shared_ptr<void> next(std::string& what) {
    const auto item = std::static_pointer_cast<Item>(work_.next());
    what = std::move(item->what);
    if (!staging_) return std::move(item->batch);
    recycle();
    const auto to_device = [&](Item& each) {
      if (!each.copied) copy_to_device(each, staging_->copies(), compute_);
    };
    to_device(*item);
    // While this step computes, the batches of the next ones are copied.
    work_.visit_ready([&](void* piece) { to_device(*static_cast<Item*>(piece)); });
    inside(compute_).wait(*item->copied);
    copying_.emplace_back(std::move(item->pinned), std::move(item->copied));
    return std::move(item->batch);
  }

 private:
  static WorkAhead::Work work_of(const StrategyAddress& address, const Description& type, Draw draw,
                                 std::shared_ptr<Staging> staging) {
    const bool by_default = is_default(address.strategy());
    return [address, by_default, &type, draw = std::move(draw), staging = std::move(staging)] {
      // Each thread has a default strategy of its own.
      const StrategyAddress current = by_default ? StrategyAddress{default_strategy()} : address;
      const PushedFrame scope{{ContextMode::cross_replica, current}};
      const MeetingPoint::Apart apart{"in a source whose batches are prefetched"};
      const auto item = std::make_shared<Item>(Item{.type = &type});
      item->batch = draw(item->what);
      if (staging) pin(*item, *staging);
      return WorkAhead::Made{item, item->batch == nullptr};
    };
  }

  /// Gives back pinned memory that no copy reads any more.
  void recycle() {
    for (; !copying_.empty() && copying_.front().second->done(); copying_.pop_front())
      staging_->give_back(std::move(copying_.front().first));
  }

  Stream& compute_;
  std::shared_ptr<Staging> staging_;  ///< null on the host
  std::deque<std::pair<std::vector<Pinned>, std::unique_ptr<Event>>> copying_;
  WorkAhead work_;
};

}  // namespace

Draw draw_ahead(const StrategyAddress& address, int batches, const Description& type, Draw draw) {
  const auto ahead = std::make_shared<DrawAhead>(address, batches, type, std::move(draw));
  return [ahead](std::string& what) { return ahead->next(what); };
}

}  // namespace lockstep::detail
