#include "python/inner_calls.hpp"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <utility>

#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>

#include "core/base/start_thread.hpp"
#include "python/completions.hpp"
#include "python/process.hpp"

namespace lockstep::python {

using WorkPtr = c10::intrusive_ptr<c10d::Work>;

/// A thread that waits for works on the host, one after the other: some backends end a work only where it is waited
/// for.
class InnerCalls::Waiter : public std::enable_shared_from_this<Waiter> {
 public:
  void add(std::shared_ptr<InnerCall> call, WorkPtr work) {
    const std::scoped_lock lock{mutex_};
    works_.emplace_back(std::move(call), std::move(work));
    if (!std::exchange(is_started_, true))
      start_thread("for calls of another backend", [self = shared_from_this()] { self->go_on(); }).detach();
    changed_.notify_one();
  }

  void stop() {
    const std::scoped_lock lock{mutex_};
    is_stopped_ = true;
    changed_.notify_one();
  }

 private:
  void go_on();

  std::mutex mutex_;
  std::condition_variable changed_;
  // All under `mutex_`.
  std::deque<std::pair<std::shared_ptr<InnerCall>, WorkPtr>> works_;
  bool is_started_ = false, is_stopped_ = false;
};

class InnerCalls::InnerCall final : public Task, public std::enable_shared_from_this<InnerCall> {
 public:
  InnerCall(std::shared_ptr<InnerCalls> calls, Parts parts) : calls_{std::move(calls)}, parts_{std::move(parts)} {}

  bool has_ended() noexcept override {
    calls_->begin_agreed();
    const std::scoped_lock lock{mutex_};
    return has_ended_;
  }

  bool has_met() const override {
    return std::ranges::all_of(parts_.agreements,
                               [](const auto& each) { return each->has_met() || each->has_ended(); });
  }

  void wait(const std::function<void()>& meanwhile) override {
    for (const auto& each : parts_.agreements) each->wait(meanwhile);
    constexpr std::chrono::microseconds until_others_begin{20}, between_looks{500};
    while (!has_ended()) {
      if (meanwhile) meanwhile();
      std::unique_lock lock{mutex_};
      changed_.wait_for(lock, until_others_begin, [this] { return has_begun_; });
      if (has_begun_) changed_.wait_for(lock, between_looks, [this] { return has_ended_; });
    }
    if (failure_) std::rethrow_exception(failure_);
  }

  bool is_agreed() noexcept {
    return std::ranges::all_of(parts_.agreements, [](const auto& each) { return each->has_ended(); });
  }

  void begin() noexcept {
    WorkPtr work;
    std::exception_ptr failure;
    try {
      for (const auto& each : parts_.agreements) each->wait({});  // throws what it failed with
      const c10::OptionalStreamGuard of_device{parts_.stream};
      work = parts_.begin();
      if (parts_.stream && work) leave_to_stream(*work);
    } catch (...) {
      failure = std::current_exception();
    }
    parts_.begin = nullptr;
    parts_.tensors.clear();
    if (failure || parts_.stream || !work) {
      end(failure);
      return;
    }
    {
      const std::scoped_lock lock{mutex_};
      has_begun_ = true;
    }
    changed_.notify_all();
    calls_->waiter_->add(shared_from_this(), std::move(work));
  }

  void end(std::exception_ptr failure) noexcept {
    {
      const std::scoped_lock lock{mutex_};
      failure_ = std::move(failure);
      has_begun_ = has_ended_ = true;
    }
    changed_.notify_all();
    Process::current()->completions().look();
  }

 private:
  /// The stream waits for the work, and the memory, once it is free, for the stream.
  void leave_to_stream(c10d::Work& work) {
    work.wait();
    const c10::impl::VirtualGuardImpl of_type{parts_.stream->device_type()};
    for (const at::Tensor& each : parts_.tensors)
      if (each.layout() == at::kStrided) of_type.recordDataPtrOnStream(each.storage().data_ptr(), *parts_.stream);
  }

  std::shared_ptr<InnerCalls> calls_;
  Parts parts_;
  std::mutex mutex_;
  std::condition_variable changed_;
  // All under `mutex_`.
  bool has_begun_ = false, has_ended_ = false;
  std::exception_ptr failure_;  ///< set before `has_ended_`
};

void InnerCalls::Waiter::go_on() {
  std::unique_lock lock{mutex_};
  for (;;) {
    changed_.wait(lock, [this] { return is_stopped_ || !works_.empty(); });
    if (works_.empty()) return;
    auto [call, work] = std::move(works_.front());
    works_.pop_front();
    lock.unlock();
    std::exception_ptr failure;
    try {
      work->wait();
    } catch (...) {
      failure = std::current_exception();
    }
    work.reset();
    call->end(std::move(failure));
    call.reset();
    lock.lock();
  }
}

InnerCalls::InnerCalls() : waiter_{std::make_shared<Waiter>()} {}

InnerCalls::~InnerCalls() {
  waiter_->stop();
}

std::shared_ptr<Task> InnerCalls::add(Parts parts) {
  auto call = std::make_shared<InnerCall>(shared_from_this(), std::move(parts));
  const std::scoped_lock lock{mutex_};
  waiting_.push_back(call);
  return call;
}

void InnerCalls::begin_agreed() {
  std::unique_lock lock{mutex_};
  if (std::exchange(is_beginning_, true)) return;  // another thread does
  while (!waiting_.empty() && waiting_.front()->is_agreed()) {
    std::shared_ptr<InnerCall> first = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();  // another backend may take its time
    first->begin();
    first.reset();
    lock.lock();
  }
  is_beginning_ = false;
}

std::optional<c10::Stream> stream_after_current(c10::Device device) {
  if (device.is_cpu() || device.is_meta()) return {};
  const c10::impl::VirtualGuardImpl of_type{device.type()};
  const c10::Stream stream = of_type.getStreamFromGlobalPool(device);
  c10::Event reached{device.type()};
  reached.record(of_type.getStream(device));
  reached.block(stream);
  return stream;
}

}  // namespace lockstep::python
