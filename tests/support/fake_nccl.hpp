// NCCL, its streams and its time as a script: what was called is written down in order, and what is answered is what
// the test says. Memory is the host's.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/comm/backends.hpp"
#include "core/comm/communicator.hpp"
#include "core/comm/nccl/nccl_communicator.hpp"
#include "core/device/device.hpp"
#include "core/device/devices.hpp"
#include "support/done_communicator.hpp"

namespace lockstep::test {

/// A call that stays inside until release(), for FakeNccl's in_abort and in_destroy.
class StuckCall {
 public:
  std::function<void()> body() {
    return [this, end = end_] {
      end.wait();
      left_ = true;
    };
  }
  bool has_returned() const { return left_; }
  /// Waits until it has returned.
  void release() {
    promise_.set_value();
    while (!left_) std::this_thread::yield();
  }

 private:
  std::promise<void> promise_;
  std::shared_future<void> end_ = promise_.get_future().share();
  std::atomic<bool> left_{false};
};

/// What happened, in order. Threads may write.
class Journal {
 public:
  void note(std::string line) {
    const std::lock_guard lock{mutex_};
    lines_.push_back(std::move(line));
  }
  std::vector<std::string> lines() const {
    const std::lock_guard lock{mutex_};
    return lines_;
  }
  std::size_t count(const std::string& line) const {
    const auto all = lines();
    return static_cast<std::size_t>(std::count(all.begin(), all.end(), line));
  }
  void clear() {
    const std::lock_guard lock{mutex_};
    lines_.clear();
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> lines_;
};

/// A tenth of a second passes with each pause.
class FakeClock final : public PollClock {
 public:
  Seconds now() override { return Seconds{0.1 * pauses}; }
  void pause(Seconds) override {
    ++pauses;
    if (at_pause) at_pause();
  }

  int pauses = 0;
  std::function<void()> at_pause;
};

/// Beats when the test says so, and says when the watching thread has done what it does in one.
class FakeTicker final : public Ticker {
 public:
  explicit FakeTicker(Journal& journal) : journal_{journal} {}

  bool wait() override {
    std::unique_lock lock{mutex_};
    ++waits_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return stopped_ || beats_ >= waits_; });
    return !stopped_;
  }
  void stop() override {
    const std::lock_guard lock{mutex_};
    if (!stopped_) journal_.note("the watch ends");
    stopped_ = true;
    changed_.notify_all();
  }

  /// One beat, and the thread is back to wait for the next.
  void beat() {
    std::unique_lock lock{mutex_};
    changed_.wait(lock, [this] { return waits_ > beats_; });
    ++beats_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return waits_ > beats_; });
  }
  /// One beat that the thread does not come back from.
  void last_beat() {
    std::unique_lock lock{mutex_};
    changed_.wait(lock, [this] { return waits_ > beats_; });
    ++beats_;
    changed_.notify_all();
  }

 private:
  Journal& journal_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int waits_ = 0;
  int beats_ = 0;
  bool stopped_ = false;
};

class FakeEvent final : public Event {
 public:
  FakeEvent(std::string what, int looks_until_done) : name{std::move(what)}, looks_{looks_until_done} {}

  bool done() const override { return looks_ == 0 || --looks_ == 0; }

  std::string name;

 private:
  mutable int looks_;
};

class FakeStream final : public Stream {
 public:
  FakeStream(std::string what, Journal& journal) : name{std::move(what)}, journal_{journal} {}
  ~FakeStream() override { journal_.note(name + " goes"); }

  DeviceKind kind() const override { return DeviceKind::cpu; }
  Buffer allocate(std::size_t bytes) override { return allocate_host(bytes); }
  Buffer allocate_pinned(std::size_t bytes) override { return allocate_host(bytes); }
  void copy(void* to, const void* from, std::size_t bytes) override {
    journal_.note(name + " copies " + std::to_string(bytes));
    std::memcpy(to, from, bytes);
  }
  void fill_zero(void*, std::size_t) override {}
  std::unique_ptr<Event> record() override {
    const std::string event = name + "@" + std::to_string(++events_);
    journal_.note("record " + event);
    return std::make_unique<FakeEvent>(event, looks_until_done);
  }
  void wait(const Event& event) override {
    journal_.note(name + " waits for " + dynamic_cast<const FakeEvent&>(event).name);
  }
  void synchronize() override { journal_.note(name + " blocks the host"); }
  std::unique_ptr<Stream> make_sibling() override { return std::make_unique<FakeStream>(name, journal_); }
  bool is_capturing() const override { return false; }

  std::string name;
  int looks_until_done = 1;  ///< of the events recorded from here on; -1 for never

 private:
  Journal& journal_;
  int events_ = 0;
};

class FakeDevice final : public Device {
 public:
  explicit FakeDevice(Journal& journal) : journal_{journal} {}

  DeviceKind kind() const override { return DeviceKind::cpu; }
  std::string name() const override { return "gpu:7"; }
  std::unique_ptr<Stream> make_stream() override {
    if (!failure.empty()) throw DeviceError{failure};
    auto stream = std::make_unique<FakeStream>("nccl", journal_);
    stream->looks_until_done = looks_until_done;
    return stream;
  }

  std::string failure;  ///< of make_stream
  int looks_until_done = 1;

 private:
  Journal& journal_;
};

/// Answers with the next result of a call's script, or success. A look at the asynchronous state answers with the next
/// of `states`, and stays at the last.
class FakeNccl final : public NcclApi {
 public:
  explicit FakeNccl(Journal& journal) : journal_{journal} {}

  int version() override { return 0; }

  ncclResult_t get_unique_id(ncclUniqueId* id) override {
    for (std::size_t i = 0; i < sizeof id->internal; ++i) id->internal[i] = static_cast<char>(i + 1);
    return answer("get_unique_id");
  }
  ncclResult_t comm_init(ncclComm_t* comm, int size, const ncclUniqueId& id, int rank) override {
    *comm = reinterpret_cast<ncclComm_t>(this);
    seen_id = id;
    size_ = size;
    if (in_init) in_init();
    return answer("comm_init " + std::to_string(rank) + " of " + std::to_string(size), "comm_init");
  }
  ncclResult_t comm_get_async_error(ncclComm_t, ncclResult_t* state) override {
    journal_.note("look");
    const std::lock_guard lock{mutex_};
    *state = states_.front();
    if (states_.size() > 1) states_.pop_front();
    return ncclSuccess;
  }
  ncclResult_t comm_finalize(ncclComm_t) override { return answer("comm_finalize"); }
  ncclResult_t comm_destroy(ncclComm_t) override {
    const ncclResult_t result = answer("comm_destroy");
    if (in_destroy) in_destroy();
    return result;
  }
  ncclResult_t comm_abort(ncclComm_t) override {
    const ncclResult_t result = answer("comm_abort");
    if (in_abort) in_abort();
    return result;
  }
  ncclResult_t group_start() override { return answer("group_start"); }
  ncclResult_t group_end() override { return answer("group_end"); }

  ncclResult_t send(const void* from, std::size_t count, ncclDataType_t type, int peer, ncclComm_t,
                    Stream& stream) override {
    return answer(line("send", count, type, stream) + " to " + std::to_string(peer) + place(from), "send");
  }
  ncclResult_t recv(void* to, std::size_t count, ncclDataType_t type, int peer, ncclComm_t, Stream& stream) override {
    return answer(line("recv", count, type, stream) + " from " + std::to_string(peer) + place(to), "recv");
  }
  ncclResult_t broadcast(const void* from, void* to, std::size_t count, ncclDataType_t type, int root, ncclComm_t,
                         Stream& stream) override {
    return answer(line("broadcast", count, type, stream) + " from " + std::to_string(root) + in_place(from, to),
                  "broadcast");
  }
  ncclResult_t all_reduce(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                          ncclComm_t, Stream& stream) override {
    // What the warm-up adds up: 1, 2, … on the ranks.
    const std::int32_t sum = size_ * (size_ + 1) / 2 + sum_is_off_by;
    if (count == 1 && type == ncclInt32) std::memcpy(to, &sum, sizeof sum);
    if (in_all_reduce) in_all_reduce();
    return answer(line("all_reduce", count, type, stream) + sum_only(op) + in_place(from, to), "all_reduce");
  }
  ncclResult_t reduce(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t op, int root,
                      ncclComm_t, Stream& stream) override {
    return answer(
        line("reduce", count, type, stream) + " to " + std::to_string(root) + sum_only(op) + in_place(from, to),
        "reduce");
  }
  void check_device(const char*) override {
    if (!failed_work.empty()) throw DeviceError{failed_work};
  }
  std::string error_text(ncclResult_t result) override { return "text " + std::to_string(result); }

  void script(const std::string& call, std::deque<ncclResult_t> results) {
    const std::lock_guard lock{mutex_};
    results_[call] = std::move(results);
  }
  void states(std::deque<ncclResult_t> states) {
    const std::lock_guard lock{mutex_};
    states_ = std::move(states);
  }

  ncclUniqueId seen_id{};
  int sum_is_off_by = 0;
  std::string failed_work;  ///< what check_device throws
  std::function<void()> in_init;
  std::function<void()> in_destroy;
  std::function<void()> in_abort;
  std::function<void()> in_all_reduce;
  const std::byte* origin = nullptr;  ///< places of sends and receives are written as bytes from here

 private:
  ncclResult_t answer(const std::string& line, const std::string& call) {
    journal_.note(line);
    const std::lock_guard lock{mutex_};
    std::deque<ncclResult_t>& left = results_[call];
    if (left.empty()) return ncclSuccess;
    const ncclResult_t result = left.front();
    left.pop_front();
    return result;
  }
  ncclResult_t answer(const std::string& call) { return answer(call, call); }

  static std::string line(const char* call, std::size_t count, ncclDataType_t type, Stream& stream) {
    return std::string{call} + " " + std::to_string(count) + " of type " + std::to_string(type) + " on " +
           dynamic_cast<FakeStream&>(stream).name;
  }
  std::string place(const void* data) const {
    return origin ? " at " + std::to_string(static_cast<const std::byte*>(data) - origin) : "";
  }
  static std::string in_place(const void* from, const void* to) { return from == to ? "" : " not in place"; }
  static std::string sum_only(ncclRedOp_t op) { return op == ncclSum ? "" : " not a sum"; }

  Journal& journal_;
  std::mutex mutex_;
  int size_ = 0;
  std::map<std::string, std::deque<ncclResult_t>> results_;
  std::deque<ncclResult_t> states_{ncclSuccess};
};

/// All that one rank's communicator over NCCL meets.
struct FakeWorld {
  Journal journal;
  std::shared_ptr<FakeNccl> nccl = std::make_shared<FakeNccl>(journal);
  std::shared_ptr<FakeClock> clock = std::make_shared<FakeClock>();
  std::shared_ptr<FakeTicker> ticker = std::make_shared<FakeTicker>(journal);
  NcclLimits limits{.enqueue = Seconds{5}, .finalize = Seconds{5}, .abort = Seconds{60}};
  FakeDevice device{journal};
  FakeStream compute{"compute", journal};

  NcclTools tools() const { return {nccl, clock, ticker, limits}; }

  /// A communicator that has started; the journal begins after that.
  std::unique_ptr<Communicator> communicator(int rank, int size,
                                             std::function<void(std::exception_ptr)> on_failure = nullptr) {
    DoneCommunicator host{rank, size};
    auto made = make_nccl_communicator(host, device, compute, {.on_failure = std::move(on_failure)}, tools());
    journal.clear();
    return made;
  }
};

}  // namespace lockstep::test
