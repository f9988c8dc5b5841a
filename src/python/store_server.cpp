#include "python/store_server.hpp"

#include <algorithm>
#include <charconv>
#include <utility>

#include "python/python_lock.hpp"

namespace lockstep::python {
namespace {

Bytes packed(std::int64_t number) {
  return Packer{}.number(number).take();
}

std::vector<std::string> texts(Unpacker& rest) {
  std::vector<std::string> all(static_cast<std::size_t>(rest.number()));
  for (std::string& each : all) each = rest.text();
  return all;
}

}  // namespace

void StoreServer::open_at(Desk& desk) {
  desk_ = &desk;
  desk.set_receiver(Desk::About::store, [this](int from, const Bytes& message) {
    Unpacker rest{message};
    const std::int64_t number = rest.number();
    handle({from, number, rest.bytes()});
  });
  desk.set_receiver(Desk::About::store_answer, [this](int, const Bytes& message) {
    Unpacker rest{message};
    const std::int64_t number = rest.number();
    hand_over(number, rest.bytes());
  });
}

std::optional<Bytes> StoreServer::ask(Bytes question, std::chrono::milliseconds timeout) {
  constexpr std::chrono::milliseconds between{20};
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  const auto pending = std::make_shared<Pending>();
  std::int64_t number = 0;
  {
    const std::scoped_lock lock{mutex_};
    number = asked_++;
    pending_.emplace(number, pending);
  }
  desk_->post([this, number, question = std::move(question)] {
    if (desk_->rank() == 0) return handle({0, number, question});
    desk_->send(0, Desk::About::store, Packer{}.number(number).bytes(question).take());
  });
  const auto forget = [&] {
    const std::scoped_lock lock{mutex_};
    pending_.erase(number);
  };
  Interrupts interrupts;
  std::unique_lock lock{pending->mutex};
  while (!pending->answered.wait_for(lock, between, [&] { return pending->answer.has_value(); })) {
    if (std::chrono::steady_clock::now() > deadline) break;
    try {
      interrupts.look();
    } catch (...) {
      forget();
      throw;
    }
  }
  forget();
  return std::move(pending->answer);
}

void StoreServer::hand_over(std::int64_t number, Bytes answer) {
  std::shared_ptr<Pending> pending;
  {
    const std::scoped_lock lock{mutex_};
    const auto found = pending_.find(number);
    if (found == pending_.end()) return;  // nobody waits for it any more
    pending = found->second;
  }
  {
    const std::scoped_lock lock{pending->mutex};
    pending->answer = std::move(answer);
  }
  pending->answered.notify_all();
}

void StoreServer::deliver(const Question& question, Bytes answer) {
  if (question.from == desk_->rank()) return hand_over(question.number, std::move(answer));
  desk_->send(question.from, Desk::About::store_answer, Packer{}.number(question.number).bytes(answer).take());
}

void StoreServer::handle(Question question) {
  auto answer = answer_to(question.text);
  if (!answer) return waiting_.push_back(std::move(question));
  deliver(question, std::move(*answer));
  answer_waiting();
}

void StoreServer::answer_waiting() {
  for (auto each = waiting_.begin(); each != waiting_.end();) {
    auto answer = answer_to(each->text);
    if (answer) deliver(*each, std::move(*answer));
    each = answer ? waiting_.erase(each) : std::next(each);
  }
}

/// Empty as long as the rank that asks must wait.
std::optional<Bytes> StoreServer::answer_to(const Bytes& question) {
  Unpacker rest{question};
  const auto ask = static_cast<Ask>(rest.number());
  const auto all_there = [&] {
    return std::ranges::all_of(texts(rest), [this](const std::string& key) { return values_.contains(key); });
  };
  switch (ask) {
    case Ask::check: return packed(all_there());
    case Ask::wait: return all_there() ? std::optional{Bytes{}} : std::nullopt;
    case Ask::count: return packed(static_cast<std::int64_t>(values_.size()));
    case Ask::list: {
      Packer keys;
      keys.number(static_cast<std::int64_t>(values_.size()));
      for (const auto& [key, value] : values_) keys.text(key);
      return keys.take();
    }
    case Ask::set:
    case Ask::get:
    case Ask::add:
    case Ask::compare_set:
    case Ask::remove: break;
  }
  const std::string key = rest.text();
  return answer_about(key, ask, rest);
}

std::optional<Bytes> StoreServer::answer_about(const std::string& key, Ask ask, Unpacker rest) {
  const auto found = values_.find(key);
  const bool is_there = found != values_.end();
  switch (ask) {
    case Ask::set: values_[key] = rest.bytes(); return Bytes{};
    case Ask::get: return is_there ? std::optional{found->second} : std::nullopt;
    case Ask::add: {
      // As text, which `get` returns, as other stores have it.
      const std::string text = is_there ? std::string{found->second.begin(), found->second.end()} : "0";
      std::int64_t number = 0;
      std::from_chars(text.data(), text.data() + text.size(), number);
      number += rest.number();
      const std::string sum = std::to_string(number);
      values_[key] = {sum.begin(), sum.end()};
      return packed(number);
    }
    case Ask::compare_set: {
      const Bytes expected = rest.bytes(), wanted = rest.bytes();
      if (!is_there && !expected.empty()) return expected;
      if (!is_there || found->second == expected) values_[key] = wanted;
      return values_[key];
    }
    case Ask::remove: return packed(static_cast<std::int64_t>(values_.erase(key)));
    case Ask::check:
    case Ask::wait:
    case Ask::count:
    case Ask::list: break;
  }
  return Bytes{};
}

}  // namespace lockstep::python
