// A data plane whose ranks are threads of one process: collectives of several ranks without MPI.
#pragma once

#include <algorithm>
#include <array>
#include <barrier>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/element_type.hpp"
#include "core/comm/communicator.hpp"
#include "core/comm/messenger.hpp"
#include "core/device/device.hpp"
#include "core/device/devices.hpp"

namespace lockstep::test {

/// What a rank asked of the communicator.
struct Call {
  std::string what;  ///< "all_gather 1200": the collective, and the bytes of its tensor
  const std::byte* data;
};

/// Where the threads lay down what the others may read.
class ThreadRanks {
 public:
  explicit ThreadRanks(int size)
      : size_{size}, barrier_{size}, shown_(static_cast<std::size_t>(size)), calls_(static_cast<std::size_t>(size)) {}

  int size() const { return size_; }

  /// Shows `mine` to all ranks while `read` runs, which may look at theirs.
  template <class Read>
  void exchange(int rank, const TensorView& mine, Read&& read) {
    shown_[static_cast<std::size_t>(rank)] = mine;
    barrier_.arrive_and_wait();
    read();
    barrier_.arrive_and_wait();
  }
  /// A rank that failed: the others go on without it, and what they get is of no use.
  void leave() { barrier_.arrive_and_drop(); }

  /// Those that `members` have made under the key.
  ThreadRanks& subset(std::span<const int> members, std::uint64_t key) {
    const std::lock_guard lock{mutex_};
    auto& ranks = subsets_[{key, {members.begin(), members.end()}}];
    if (!ranks) ranks = std::make_unique<ThreadRanks>(static_cast<int>(members.size()));
    return *ranks;
  }

  // Parcels, by the number of their exchange.

  using Bytes = std::vector<std::byte>;
  using Exchange = std::pair<Messenger::Lane, int>;

  /// `bytes` are by receiver.
  void post(const Exchange& exchange, int from, std::vector<Bytes> bytes) {
    const std::lock_guard lock{mutex_};
    posts_[exchange].emplace(from, std::move(bytes));
    posted_.notify_all();
  }
  bool has_all(const Exchange& exchange) {
    const std::lock_guard lock{mutex_};
    return posts_[exchange].size() == static_cast<std::size_t>(size_);
  }
  /// Blocks until all ranks have posted. What `to` gets, by sender.
  std::vector<Bytes> receive(const Exchange& exchange, int to) {
    std::unique_lock lock{mutex_};
    const auto& posts = posts_[exchange];
    posted_.wait(lock, [&] { return posts.size() == static_cast<std::size_t>(size_); });
    std::vector<Bytes> received;
    for (const auto& [from, bytes] : posts) received.push_back(bytes[static_cast<std::size_t>(to)]);
    return received;
  }

  const TensorView& shown_by(int rank) const { return shown_[static_cast<std::size_t>(rank)]; }

  /// What each rank called, in order.
  std::vector<Call>& calls(int rank) { return calls_[static_cast<std::size_t>(rank)]; }

 private:
  int size_;
  std::barrier<> barrier_;
  std::vector<TensorView> shown_;
  std::vector<std::vector<Call>> calls_;
  std::mutex mutex_;
  std::condition_variable posted_;
  std::map<Exchange, std::map<int, std::vector<Bytes>>> posts_;
  std::map<std::pair<std::uint64_t, std::vector<int>>, std::unique_ptr<ThreadRanks>> subsets_;  ///< by key and members
};

class ThreadMessenger final : public Messenger {
 public:
  ThreadMessenger(ThreadRanks& ranks, int rank) : ranks_{ranks}, rank_{rank} {}

  Work start(std::span<const Parcel> parcels, Lane lane) override {
    struct UnderWay final : Work::Pending {
      UnderWay(ThreadRanks& its_ranks, int its_rank, ThreadRanks::Exchange its_exchange)
          : ranks{its_ranks}, rank{its_rank}, exchange{its_exchange} {}
      bool advance() override { return ranks.has_all(exchange); }
      void wait() override {
        const auto bytes = ranks.receive(exchange, rank);
        for (std::size_t from = 0; from < places.size(); ++from)
          if (!places[from].empty()) std::ranges::copy(bytes[from], places[from].begin());
      }
      ThreadRanks& ranks;
      int rank;
      ThreadRanks::Exchange exchange;
      std::vector<std::span<std::byte>> places;
    };
    auto made = std::make_unique<UnderWay>(ranks_, rank_,
                                           ThreadRanks::Exchange{lane, started_[static_cast<std::size_t>(lane)]++});
    std::vector<ThreadRanks::Bytes> sent;
    for (const Parcel& parcel : parcels) {
      sent.emplace_back(parcel.sent.begin(), parcel.sent.end());
      made->places.push_back(parcel.received);
    }
    made->places[static_cast<std::size_t>(rank_)] = {};
    ranks_.post(made->exchange, rank_, std::move(sent));
    return Work{std::move(made)};
  }

 private:
  ThreadRanks& ranks_;
  int rank_;
  std::array<int, 2> started_{};  ///< in each lane
};

class ThreadCommunicator final : public Communicator {
 public:
  ThreadCommunicator(ThreadRanks& ranks, int rank) : ranks_{ranks}, rank_{rank}, messenger_{ranks, rank} {}

  int rank() const override { return rank_; }
  int size() const override { return ranks_.size(); }
  std::string_view backend() const override { return "threads"; }
  Stream& stream() override { return Stream::host(); }
  Buffer allocate(std::size_t bytes) override { return allocate_host(bytes); }
  Messenger* messenger() override { return &messenger_; }

  Work broadcast(const TensorView& tensor, int root) override {
    note("broadcast", tensor);
    ranks_.exchange(rank_, tensor, [&] {
      if (rank_ != root && tensor.bytes() > 0) std::memcpy(tensor.data(), ranks_.shown_by(root).data(), tensor.bytes());
    });
    return Work::done();
  }

  Work all_to_all(const TensorView& mine, SliceBounds bounds, const TensorView& received) override {
    note("all_to_all", mine);
    ranks_.exchange(rank_, mine, [&] {
      const std::int64_t count = length(bounds, rank_);
      for (int from = 0; from < size(); ++from)
        copy_elements(ranks_.shown_by(from), first(bounds, rank_), received, count * from, count);
    });
    return Work::done();
  }

  Work all_gather(const TensorView& whole, SliceBounds bounds) override {
    note("all_gather", whole);
    collect(whole, bounds);
    return Work::done();
  }

  Work gather(const TensorView& whole, SliceBounds bounds, int root) override {
    note("gather", whole);
    if (rank_ == root) {
      collect(whole, bounds);
    } else {
      ranks_.exchange(rank_, whole, [] {});
    }
    return Work::done();
  }

  /// Of f32, in the order of the ranks.
  Work all_reduce(const TensorView& tensor) override {
    note("all_reduce", tensor);
    const Tensor total = Tensor::zeros(tensor.dtype(), tensor.shape());
    const auto sums = total.view().elements<float>();
    ranks_.exchange(rank_, tensor, [&] {
      for (int from = 0; from < size(); ++from)
        for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += ranks_.shown_by(from).elements<float>()[i];
    });
    copy(total.view(), tensor);
    return Work::done();
  }
  Work reduce(const TensorView& tensor, int) override { return all_reduce(tensor); }
  std::unique_ptr<Communicator> subset(std::span<const int> members, std::uint64_t key) override {
    const auto place = std::ranges::find(members, rank_) - members.begin();
    return std::make_unique<ThreadCommunicator>(ranks_.subset(members, key), static_cast<int>(place));
  }
  void abort() noexcept override {}

 private:
  static std::int64_t first(SliceBounds bounds, int rank) { return bounds[static_cast<std::size_t>(rank)]; }
  static std::int64_t length(SliceBounds bounds, int rank) { return first(bounds, rank + 1) - first(bounds, rank); }

  static void copy_elements(const TensorView& from, std::int64_t from_first, const TensorView& to,
                            std::int64_t to_first, std::int64_t count) {
    const auto element = static_cast<std::int64_t>(size_of(to.dtype()));
    if (count > 0)
      std::memcpy(to.data() + to_first * element, from.data() + from_first * element,
                  static_cast<std::size_t>(count * element));
  }

  /// Copies the others' slices. Nobody writes a slice that another reads: each reads its owner's.
  void collect(const TensorView& whole, SliceBounds bounds) {
    ranks_.exchange(rank_, whole, [&] {
      for (int from = 0; from < size(); ++from)
        if (from != rank_)
          copy_elements(ranks_.shown_by(from), first(bounds, from), whole, first(bounds, from), length(bounds, from));
    });
  }

  void note(std::string_view call, const TensorView& tensor) {
    ranks_.calls(rank_).push_back({std::string{call} + " " + std::to_string(tensor.bytes()), tensor.data()});
  }

  ThreadRanks& ranks_;
  int rank_;
  ThreadMessenger messenger_;
};

/// Calls `body(communicator)` on `size` ranks at once, and throws what one of them threw once all have ended. No
/// assertions in `body`: the test framework's are for one thread.
inline void on_threads(int size, const std::function<void(ThreadCommunicator&)>& body,
                       std::vector<Call>* calls_of_rank_0 = nullptr) {
  ThreadRanks ranks{size};
  std::vector<std::thread> threads;
  std::exception_ptr failure;
  std::mutex mutex;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        ThreadCommunicator communicator{ranks, rank};
        body(communicator);
      } catch (...) {
        const std::lock_guard lock{mutex};
        failure = std::current_exception();
        ranks.leave();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (calls_of_rank_0) *calls_of_rank_0 = ranks.calls(0);
  if (failure) std::rethrow_exception(failure);
}

}  // namespace lockstep::test
