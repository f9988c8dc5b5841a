// What two ranks do: send and receive; what rank 0 asks each other rank; and calls that are one Work together.
#include <algorithm>
#include <span>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <lockstep/core/base/error.hpp>

#include "python/backend.hpp"
#include "python/completions.hpp"
#include "python/elements.hpp"
#include "python/mail.hpp"
#include "python/place.hpp"
#include "python/process.hpp"
#include "python/python_lock.hpp"
#include "python/text.hpp"

namespace lockstep::python {

using c10d::OpType;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

namespace {

std::span<std::byte> memory_of(const at::Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.data_ptr()), tensor.nbytes()};
}

/// A receive that knows where its message came from.
class ReceiveWork final : public CallWork {
 public:
  ReceiveWork(const CallWork& work, std::shared_ptr<Mail::Message> message, std::vector<int> ranks)
      : CallWork{work.call(), -1, OpType::RECVANYSOURCE, work.turns()},
        message_{std::move(message)},
        ranks_{std::move(ranks)} {}

  int sourceRank() const override {
    return static_cast<int>(std::ranges::find(ranks_, message_->source()) - ranks_.begin());
  }

 private:
  std::shared_ptr<Mail::Message> message_;
  std::vector<int> ranks_;
};

/// Calls that are tasks of another.
class CallTask final : public Task {
 public:
  explicit CallTask(std::shared_ptr<Call> call) : call_{std::move(call)} {}

  bool has_ended() noexcept override { return call_->is_finished(); }
  void wait(const std::function<void()>& meanwhile) override {
    if (!call_->is_finished()) call_->show_wait(meanwhile);
    call_->wait({});
  }
  bool is_held() const override { return call_->is_held(); }

 private:
  std::shared_ptr<Call> call_;
};

}  // namespace

void AgreedBackend::startCoalescing() {
  coalesced_.clear();  // torch does not end it if one of the calls throws
  coalesces_ = true;
}

WorkPtr AgreedBackend::endCoalescing() {
  coalesces_ = false;
  Collective collective = begin(OpType::COALESCED, {});
  collective.text = fmt::format("{} calls together", coalesced_.size());
  for (std::shared_ptr<Call>& each : std::exchange(coalesced_, {})) {
    collective.of = std::max(collective.of, each->of());  // the watchdog must be able to judge each of them
    collective.tasks.push_back(std::make_shared<CallTask>(std::move(each)));
  }
  return end(std::move(collective));
}

Mail::Side AgreedBackend::side_of(int rank, std::int64_t tag, std::string what, const Here& here,
                                  std::span<std::byte> memory) const {
  return {name_, ranks_[static_cast<std::size_t>(rank)], tag, std::move(what), here, memory};
}

WorkPtr AgreedBackend::send(Tensors& tensors, int to, int tag) {
  Collective collective = begin(OpType::SEND, {});
  const at::Tensor& tensor = only(tensors, collective.here);
  require_rank(to, "rank", collective.here);
  if (to == rank_)
    throw InvalidArgument{fmt::format("send to rank {} itself{}: expected another", to, bracketed(collective.here))};
  collective.of = Call::Of::two_ranks;
  collective.other = ranks_[static_cast<std::size_t>(to)];
  collective.text = fmt::format("send of {} to {}", text_of(tensor), name_of_rank(to, ranks_));
  const at::Tensor memory = to_send(collective, tensor);
  collective.tasks.push_back(
      Process::current()->mail().send(side_of(to, tag, text_of(tensor), collective.here, memory_of(memory))));
  return end(std::move(collective));
}

WorkPtr AgreedBackend::recv(Tensors& tensors, int from, int tag) {
  Collective collective = begin(OpType::RECV, {});
  const at::Tensor& tensor = only(tensors, collective.here);
  require_rank(from, "rank", collective.here);
  if (from == rank_)
    throw InvalidArgument{
        fmt::format("recv from rank {} itself{}: expected another", from, bracketed(collective.here))};
  collective.of = Call::Of::two_ranks;
  collective.other = ranks_[static_cast<std::size_t>(from)];
  collective.text = fmt::format("recv of {} from {}", text_of(tensor), name_of_rank(from, ranks_));
  const at::Tensor memory = to_fill(collective, tensor);
  collective.tasks.push_back(
      Process::current()->mail().receive(side_of(from, tag, text_of(tensor), collective.here, memory_of(memory))));
  return end(std::move(collective));
}

WorkPtr AgreedBackend::recvAnysource(Tensors& tensors, int tag) {
  Collective collective = begin(OpType::RECVANYSOURCE, {});
  const at::Tensor& tensor = only(tensors, collective.here);
  collective.of = Call::Of::two_ranks;
  collective.text = fmt::format("recv of {} from any rank", text_of(tensor));
  const at::Tensor memory = to_fill(collective, tensor);
  const auto message = Process::current()->mail().receive(
      {name_, Mail::any_rank, tag, text_of(tensor), collective.here, memory_of(memory)});
  collective.tasks.push_back(message);
  const auto work = c10::static_intrusive_pointer_cast<CallWork>(end(std::move(collective)));
  return c10::make_intrusive<ReceiveWork>(*work, message, ranks_);
}

// Rank 0 hears from each other rank, and then tells each that all have come. The tags number the barriers, so what is
// left of a late one meets nothing of the next.
void AgreedBackend::monitoredBarrier(const c10d::BarrierOptions& options, bool waits_for_all) {
  Process::require_own();
  const Here here = place_of_call();
  const auto timeout = options.timeout.count() > 0 ? options.timeout : options_->timeout;
  const std::string group = name_ + " monitored_barrier", what = "monitored_barrier";
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  Mail& mail = Process::current()->mail();
  const auto side = [&](int rank, std::int64_t tag) -> Mail::Side {
    return {group, ranks_[static_cast<std::size_t>(rank)], tag, what, here, {}};
  };
  Interrupts interrupts;
  struct Late {};
  const auto has_come = [&](const std::shared_ptr<Mail::Message>& message) {
    try {
      message->wait([&] {
        interrupts.look();
        if (std::chrono::steady_clock::now() > deadline) throw Late{};
      });
      return true;
    } catch (const Late&) {
      return false;
    }
  };
  const std::int64_t arrived = 2 * monitored_barriers_++, released = arrived + 1;
  if (rank_ != 0) {
    (void)mail.send(side(0, arrived));
    if (!has_come(mail.receive(side(0, released))))
      throw StallError{fmt::format("monitored_barrier{}: {} has not released this rank within {} s", bracketed(here),
                                   name_of_rank(0, ranks_), timeout.count() / 1000.)};
    return;
  }
  std::vector<std::shared_ptr<Mail::Message>> arrivals;
  for (int rank = 1; rank < size_; ++rank) arrivals.push_back(mail.receive(side(rank, arrived)));
  std::vector<std::string> missing;
  for (int rank = 1; rank < size_ && (waits_for_all || missing.empty()); ++rank)
    if (!has_come(arrivals[static_cast<std::size_t>(rank - 1)])) missing.push_back(name_of_rank(rank, ranks_));
  if (!missing.empty())
    throw StallError{fmt::format("monitored_barrier{}: {} did not come within {} s", bracketed(here),
                                 fmt::join(missing, ", "), timeout.count() / 1000.)};
  for (int rank = 1; rank < size_; ++rank) (void)mail.send(side(rank, released));
}

}  // namespace lockstep::python
