// Work that is done ahead of its consumer, piece by piece and in order.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <thread>

#include "core/base/parts.hpp"

namespace lockstep {

/// Calls a function again and again on a thread of its own. The pieces that it makes wait until the consumer takes
/// them. For one consumer, whose methods are these.
class LOCKSTEP_PARTS_API WorkAhead {
 public:
  struct Made {
    std::shared_ptr<void> piece;
    bool last = false;  ///< whether there is no piece after this one
  };
  /// Makes the next piece. Not called again after the last one.
  using Work = std::function<Made()>;

  enum class Where : std::uint8_t {
    on_thread,
    in_turn  ///< on the consumer's thread, in `next`: as far ahead, but not beside it
  };
  struct Options {
    int pieces = 1;  ///< that are made ahead; 1 or more
    Where where = Where::on_thread;
    /// How long the destructor waits for the piece in progress. If empty, until it is done.
    std::optional<std::chrono::milliseconds> patience = {};
  };

  /// The thread starts with the first call of `next`.
  WorkAhead(Work work, Options options);
  WorkAhead(const WorkAhead&) = delete;
  WorkAhead& operator=(const WorkAhead&) = delete;

  /// Ends the thread. If its patience ends first, leaves the thread behind, which then owns the work, and ends when the
  /// piece in progress is done; the log gets a line.
  ~WorkAhead();

  /// Blocks until the next piece is there; not after the last one. Rethrows the exception of the work instead of the
  /// piece that it did not make. No further piece is made between that exception and the next call.
  std::shared_ptr<void> next();

  /// Calls `visit` with each piece that is there, in order.
  void visit_ready(const std::function<void(void* piece)>& visit);

 private:
  struct State;

  std::shared_ptr<State> state_;
  Options options_;
  std::thread thread_;
};

}  // namespace lockstep
