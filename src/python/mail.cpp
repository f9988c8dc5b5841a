#include "python/mail.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>

#include "python/place.hpp"

namespace lockstep::python {
namespace {

enum class Says : std::int64_t { offer, take, refuse, question, answer };

}  // namespace

bool Mail::Message::has_ended() noexcept {
  const std::scoped_lock lock{mutex_};
  return has_ended_;
}

void Mail::Message::wait(const std::function<void()>& meanwhile) {
  constexpr std::chrono::milliseconds between{10};
  std::unique_lock lock{mutex_};
  while (!changed_.wait_for(lock, between, [this] { return has_ended_; })) {
    lock.unlock();
    if (meanwhile) meanwhile();
    lock.lock();
  }
  if (failure_) std::rethrow_exception(failure_);
}

void Mail::Message::end(std::exception_ptr failure) {
  {
    const std::scoped_lock lock{mutex_};
    has_ended_ = true;
    failure_ = std::move(failure);
  }
  changed_.notify_all();
}

void Mail::open_at(Desk& desk) {
  desk_ = &desk;
  desk.set_receiver(Desk::About::mail, [this](int from, const Bytes& message) { handle(from, message); });
}

std::shared_ptr<Mail::Message> Mail::send(Side side) {
  const auto message = std::make_shared<Message>();
  message->side_ = std::move(side);
  desk_->post([this, message] {
    const Side& mine = message->side_;
    const std::int64_t number = sent_++;
    sends_.emplace_back(number, message);
    Packer offer;
    offer.number(static_cast<std::int64_t>(Says::offer)).number(number).text(mine.group).number(mine.tag);
    offer.text(mine.what).text(bracketed(mine.here));
    desk_->send(mine.rank, Desk::About::mail, offer.take(), [this, number](const std::exception_ptr& failure) {
      if (const auto sent = failure ? take_sent(number) : nullptr) sent->end(failure);
    });
  });
  return message;
}

std::shared_ptr<Mail::Message> Mail::receive(Side side) {
  const auto message = std::make_shared<Message>();
  message->side_ = std::move(side);
  desk_->post([this, message] {
    const auto found = std::ranges::find_if(offers_, [&](const Offer& offer) { return fit(offer, message->side_); });
    if (found == offers_.end()) {
      receives_.push_back(message);
      return;
    }
    const Offer offer = std::move(*found);
    offers_.erase(found);
    answer(offer, message);
  });
  return message;
}

bool Mail::fit(const Offer& offer, const Side& side) {
  return offer.group == side.group && offer.tag == side.tag && (side.rank == any_rank || side.rank == offer.from);
}

void Mail::handle(int from, const Bytes& message) {
  Unpacker rest{message};
  const auto says = static_cast<Says>(rest.number());
  const std::int64_t number = rest.number();
  if (says == Says::offer) {
    Offer offer{.group = rest.text(), .tag = rest.number(), .number = number, .from = from};
    offer.what = rest.text();
    offer.place = rest.text();
    const auto found = std::ranges::find_if(receives_, [&](const auto& receive) { return fit(offer, receive->side_); });
    if (found == receives_.end()) {
      offers_.push_back(std::move(offer));
      return;
    }
    const std::shared_ptr<Message> receive = *found;
    receives_.erase(found);
    answer(offer, receive);
    return;
  }
  if (says == Says::question) return handle_question(from, number, std::chrono::seconds{rest.number()});
  if (says == Says::answer) return handle_answer(number, rest);
  const std::shared_ptr<Message> sent = take_sent(number);
  if (!sent) return;
  if (says == Says::refuse) {
    sent->end(std::make_exception_ptr(MismatchError{rest.text()}));
    return;
  }
  sent->has_met_ = true;
  desk_->send_memory(from, sent->side_.memory, [sent](const std::exception_ptr& failure) { sent->end(failure); });
}

void Mail::ask(int rank, std::chrono::seconds ago, std::function<void(const FoundWait&)> answered) {
  desk_->post([this, rank, ago, answered = std::move(answered)] {
    const std::int64_t number = sent_++;
    questions_.emplace(number, answered);
    desk_->send(rank, Desk::About::mail,
                Packer{}.number(static_cast<std::int64_t>(Says::question)).number(number).number(ago.count()).take());
  });
}

void Mail::handle_question(int from, std::int64_t number, std::chrono::seconds ago) {
  const FoundWait found = first_wait(ago).value_or(FoundWait{});
  Packer answer;
  answer.number(static_cast<std::int64_t>(Says::answer)).number(number).number(found.other).number(found.number);
  desk_->send(from, Desk::About::mail, answer.text(found.group).text(found.text).take());
}

void Mail::handle_answer(std::int64_t number, Unpacker& rest) {
  const FoundWait found{static_cast<int>(rest.number()), rest.number(), rest.text(), rest.text()};
  if (const auto question = questions_.extract(number); !question.empty() && !found.text.empty())
    question.mapped()(found);
}

/// Null if it has ended.
std::shared_ptr<Mail::Message> Mail::take_sent(std::int64_t number) {
  const auto found = std::ranges::find(sends_, number, [](const auto& each) { return each.first; });
  if (found == sends_.end()) return nullptr;
  std::shared_ptr<Message> sent = std::move(found->second);
  sends_.erase(found);
  return sent;
}

void Mail::answer(const Offer& offer, const std::shared_ptr<Message>& receive) {
  const Side& mine = receive->side_;
  receive->source_ = offer.from;
  receive->has_met_ = true;
  if (offer.what == mine.what) {
    desk_->send(offer.from, Desk::About::mail,
                Packer{}.number(static_cast<std::int64_t>(Says::take)).number(offer.number).take());
    desk_->receive_memory(offer.from, mine.memory,
                          [receive](const std::exception_ptr& failure) { receive->end(failure); });
    return;
  }
  const std::string sentence = fmt::format("replica {} sends {}{}; replica {} receives {}{}", offer.from, offer.what,
                                           offer.place, desk_->rank(), mine.what, bracketed(mine.here));
  desk_->send(offer.from, Desk::About::mail,
              Packer{}.number(static_cast<std::int64_t>(Says::refuse)).number(offer.number).text(sentence).take());
  receive->end(std::make_exception_ptr(MismatchError{sentence}));
}

}  // namespace lockstep::python
