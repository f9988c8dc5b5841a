// Sends and receives of two ranks: send, recv, recv from any rank, and the monitored barrier.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "python/call.hpp"
#include "python/desk.hpp"
#include "python/waits.hpp"

namespace lockstep::python {

/// A send and a receive meet if they name each other, a group and a tag, in the order in which each rank makes them.
/// The receiver compares what both say of the tensor, and only then the memory travels; if it differs, both fail with
/// one sentence. So a send ends when its receive has come.
class Mail {
 public:
  static constexpr int any_rank = -1;

  /// One side of a message.
  struct Side {
    std::string group;  ///< its name
    int rank;           ///< of the job: the other side; `any_rank` to receive from any
    std::int64_t tag;
    std::string what;  ///< "float32[3]", which must be the same, and gives the size of the memory
    Here here;
    std::span<std::byte> memory;  ///< until it has ended
  };

  class Message : public Task {
   public:
    bool has_ended() noexcept override;
    void wait(const std::function<void()>& meanwhile) override;

    bool has_met() const override { return has_met_; }

    /// Where it has come from, once it has ended.
    int source() const { return source_; }

   private:
    friend class Mail;
    void end(std::exception_ptr failure = nullptr);

    Side side_;
    int source_ = any_rank;
    std::atomic<bool> has_met_ = false;
    std::mutex mutex_;
    std::condition_variable changed_;
    bool has_ended_ = false;
    std::exception_ptr failure_;
  };

  /// Both outlive the desk's thread.
  void open_at(Desk& desk);

  // LOCAL, never block, from any thread.
  std::shared_ptr<Message> send(Side side);
  std::shared_ptr<Message> receive(Side side);

  /// Asks another rank of the job what it has waited for since at least `ago`. `answered` runs on the desk's thread, if
  /// there is such a wait.
  void ask(int rank, std::chrono::seconds ago, std::function<void(const FoundWait&)> answered);

 private:
  /// What a rank has said it would send.
  struct Offer {
    std::string group;
    std::int64_t tag, number;
    std::string what, place;
    int from;
  };

  void handle(int from, const Bytes& message);
  void handle_question(int from, std::int64_t number, std::chrono::seconds ago);
  void handle_answer(std::int64_t number, Unpacker& rest);
  std::shared_ptr<Message> take_sent(std::int64_t number);
  void answer(const Offer& offer, const std::shared_ptr<Message>& receive);
  static bool fit(const Offer& offer, const Side& side);

  // Of the desk's thread.
  Desk* desk_ = nullptr;
  std::int64_t sent_ = 0;
  std::list<std::pair<std::int64_t, std::shared_ptr<Message>>> sends_;
  std::list<std::shared_ptr<Message>> receives_;
  std::list<Offer> offers_;
  std::map<std::int64_t, std::function<void(const FoundWait&)>> questions_;  ///< by number
};

}  // namespace lockstep::python
