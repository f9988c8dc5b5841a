#include "python/turns.hpp"

#include <atomic>
#include <chrono>
#include <exception>
#include <optional>
#include <thread>
#include <utility>

namespace py = pybind11;

namespace lockstep::python {

/// A call that waits for turns before it.
class Turns::HeldTask final : public Task {
 public:
  explicit HeldTask(Submit submit) : submit_{std::move(submit)} {}

  void submit() {
    try {
      request_.emplace(submit_());
    } catch (...) {
      failure_ = std::current_exception();
    }
    submit_ = nullptr;
    is_submitted_ = true;
  }

  bool is_held() const override { return !is_submitted_; }

  bool has_ended() noexcept override { return is_submitted_ && (failure_ || request_->has_ended()); }

  void wait(const std::function<void()>& meanwhile) override {
    while (!is_submitted_) {
      meanwhile();
      std::this_thread::sleep_for(std::chrono::microseconds{50});
    }
    if (failure_) std::rethrow_exception(failure_);
    request_->wait(meanwhile);
  }

 private:
  Submit submit_;
  std::optional<RequestTask> request_;
  std::exception_ptr failure_;
  std::atomic<bool> is_submitted_ = false;  ///< set after those above
};

/// Of a callback. Ends when it has returned, or can no longer be called.
class Turns::Turn {
 public:
  explicit Turn(std::shared_ptr<Turns> turns) : turns_{std::move(turns)}, place_{turns_->begin()} {}
  Turn(const Turn&) = delete;
  ~Turn() { end(); }

  py::object run(const py::function& callback, const py::object& future) {
    struct Running {
      explicit Running(Turn* turn) : turn{turn}, outer{std::exchange(running, turn)} {}
      Running(const Running&) = delete;
      ~Running() {
        running = outer;
        turn->end();
      }
      Turn *turn, *outer;
    };
    const Running here{this};
    return callback(future);
  }

 private:
  friend Turns;

  void end() {
    if (!std::exchange(has_ended_, true)) turns_->end(place_);
  }

  static thread_local Turn* running;

  std::shared_ptr<Turns> turns_;
  Entries::iterator place_;
  bool has_ended_ = false;
};

thread_local Turns::Turn* Turns::Turn::running = nullptr;

std::shared_ptr<Task> Turns::add(Submit submit) {
  const std::scoped_lock lock{mutex_};
  const auto next = place();
  if (next == entries_.begin()) return std::make_shared<RequestTask>(submit());
  const auto held = std::make_shared<HeldTask>(std::move(submit));
  entries_.insert(next, held);
  return held;
}

py::function Turns::in_turn(py::function callback) {
  const auto turn = std::make_shared<Turn>(shared_from_this());
  return py::cpp_function(
      [turn, callback = std::move(callback)](const py::object& future) { return turn->run(callback, future); });
}

Turns::Entries::iterator Turns::begin() {
  const std::scoped_lock lock{mutex_};
  return entries_.insert(place(), nullptr);
}

void Turns::end(Entries::iterator turn) {
  const std::scoped_lock lock{mutex_};
  entries_.erase(turn);
  for (; !entries_.empty() && entries_.front(); entries_.pop_front()) entries_.front()->submit();
}

Turns::Entries::iterator Turns::place() {
  const Turn* const turn = Turn::running;
  return turn && turn->turns_.get() == this && !turn->has_ended_ ? turn->place_ : entries_.end();
}

}  // namespace lockstep::python
