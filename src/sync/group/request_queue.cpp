#include "sync/group/request_queue.hpp"

#include <utility>
#include <variant>

#include "core/comm/messenger.hpp"
#include "core/comm/shm/node_memory.hpp"
#include "core/control/busy_clock.hpp"
#include "core/control/meeting_point.hpp"

namespace lockstep {

RequestQueue::RequestQueue(Job& job, MeetingPoint& meeting, Communicator& data)
    : job_{job}, meeting_{meeting}, data_{data}, added_{job.progress(), *this} {}

RequestQueue::~RequestQueue() = default;

auto RequestQueue::submit(const detail::GroupCall& call, std::function<bool()> is_ready, Start start)
    -> std::shared_ptr<Request> {
  job_.progress().require_callable(call.here);
  job_.progress().prepare();
  const auto request = std::make_shared<Request>();
  request->is_ready_ = std::move(is_ready);
  request->start_ = std::move(start);
  const std::scoped_lock lock{mutex_};
  to_begin_.push_back(request);
  try {
    request->agreement_ = meeting_.start(call.here, call.text, call.site);
  } catch (...) {
    to_begin_.pop_back();
    throw;
  }
  job_.progress().begin();
  return request;
}

bool RequestQueue::test(const Request& request) {
  if (!request.is_done()) (void)job_.progress().advance();
  if (!request.is_done()) return false;
  if (request.verdict_) std::rethrow_exception(request.verdict_);
  return true;
}

void RequestQueue::wait(const Request& request, const std::function<void()>& meanwhile) {
  const BusyClock::Waiting waiting;
  const Agreement& agreement = *request.agreement_;
  const auto wait_at = [&](std::uint64_t number, const auto& done) {
    const MeetingPoint::ShownWait wait{meeting_, number, agreement.tag()};
    job_.progress().wait_until([&] {
      if (done()) return true;
      wait.show();
      if (meanwhile) meanwhile();
      return false;
    });
  };
  // Who has not come to the agreement is late for it; then, who does not move it on.
  wait_at(agreement.number(), [&] { return agreement.is_settled(); });
  wait_at(agreement.number() + 1, [&] { return request.is_done(); });
  if (request.verdict_) std::rethrow_exception(request.verdict_);
}

bool RequestQueue::advance() {
  if (is_abandoned_) return false;
  bool moved = false;
  job_.complete_or_abort([&] {
    try {
      moved = move_on();
    } catch (...) {
      abandon();  // in the middle of something
      throw;
    }
  });
  return moved;
}

bool RequestQueue::move_on() {
  bool moved = meeting_.advance_started();
  while (begin_next()) moved = true;
  if (under_way_.empty()) return moved;
  moved |= std::visit([](auto& sums) { return sums.advance(); }, plane_->sums);
  moved |= plane_->exchanges.advance();
  moved |= end_moved();
  return moved;
}

/// In order, so that the data of all ranks meet.
bool RequestQueue::begin_next() {
  std::shared_ptr<Request> next;
  {
    const std::scoped_lock lock{mutex_};
    if (to_begin_.empty()) return false;
    const Request& first = *to_begin_.front();
    if (!first.agreement_->is_settled() || (!first.agreement_->verdict() && !first.is_ready_())) return false;
    next = std::move(to_begin_.front());
    to_begin_.pop_front();
  }
  next->verdict_ = next->agreement_->verdict();
  if (!next->verdict_ && data_.size() == 1) (void)next->start_(nullptr);
  if (next->verdict_ || data_.size() == 1) {
    end(*next);
    return true;
  }
  if (!plane_) plane_.emplace(make_plane());
  next->is_moved_ = std::exchange(next->start_, nullptr)(&*plane_);
  under_way_.push_back(std::move(next));
  return true;
}

auto RequestQueue::make_plane() -> Plane {
  using Lane = Messenger::Lane;
  Messenger& messenger = *data_.messenger();
  ExchangeQueue exchanges{messenger, Lane::fifth, data_.size()};
  if (NodeMemory* const memory = data_.node_memory())
    return {detail::SharedSumsUnderWay{*memory}, std::move(exchanges)};
  using detail::Looks;
  const Looks looks = job_.progress().goes_on_by_itself() ? Looks::while_waiting : Looks::between_computations;
  return {detail::SumsUnderWay{data_, messenger, {Lane::third, Lane::fourth}, looks}, std::move(exchanges)};
}

bool RequestQueue::end_moved() {
  return std::erase_if(under_way_, [this](const std::shared_ptr<Request>& request) {
           if (!request->is_moved_()) return false;
           end(*request);
           return true;
         }) > 0;
}

void RequestQueue::end(Request& request) {
  request.is_ready_ = nullptr;
  request.start_ = nullptr;
  request.is_moved_ = nullptr;
  meeting_.end_started(*request.agreement_);
  request.done_.store(true, std::memory_order_release);
  job_.progress().end();
}

}  // namespace lockstep
