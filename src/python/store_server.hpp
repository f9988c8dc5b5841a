// The keys and values of torch.distributed's store: rank 0 has them, the others ask it.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "python/desk.hpp"
#include "python/packed.hpp"

namespace lockstep::python {

/// One for the job. Every rank has one; that of rank 0 holds the values.
class StoreServer {
 public:
  enum class Ask : std::int64_t {
    set,          ///< key, value
    get,          ///< key; the value, once there is one
    add,          ///< key, number; the sum
    check,        ///< keys; 1 if all are there
    wait,         ///< keys; nothing, once all are there
    compare_set,  ///< key, expected, wanted; the value afterwards
    remove,       ///< key; 1 if it was there
    count,        ///< the number of keys
    list,         ///< the keys
  };

  /// LOCAL, before the desk opens. Both outlive the desk's thread.
  void open_at(Desk& desk);

  /// Blocking, without Python's lock, from any thread. The answer; empty after `timeout`. `question` is an Ask and what
  /// it needs. Throws what Python does at a signal.
  std::optional<Bytes> ask(Bytes question, std::chrono::milliseconds timeout);

 private:
  struct Pending {
    std::mutex mutex;
    std::condition_variable answered;
    std::optional<Bytes> answer;
  };

  struct Question {
    int from;
    std::int64_t number;
    Bytes text;
  };

  // On the desk's thread.
  void handle(Question question);
  std::optional<Bytes> answer_to(const Bytes& question);
  std::optional<Bytes> answer_about(const std::string& key, Ask ask, Unpacker rest);
  void answer_waiting();
  void deliver(const Question& question, Bytes answer);
  void hand_over(std::int64_t number, Bytes answer);

  // Of the desk's thread, on rank 0.
  Desk* desk_ = nullptr;
  std::map<std::string, Bytes> values_;
  std::list<Question> waiting_;

  std::mutex mutex_;
  std::int64_t asked_ = 0;                                    ///< under `mutex_`
  std::map<std::int64_t, std::shared_ptr<Pending>> pending_;  ///< under `mutex_`
};

}  // namespace lockstep::python
