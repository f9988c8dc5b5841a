// The control plane over MPI.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <lockstep/core/base/error.hpp>

#include "core/comm/mpi/mpi_handle.hpp"
#include "core/control/channel.hpp"
#include "core/control/rounds.hpp"

namespace lockstep {
namespace {

using Words = Rounds::Words;

/// Requests of MPI. Only a job that ends because of a failure leaves some under way: nobody will answer them.
class Requests {
 public:
  explicit Requests(std::size_t count) : all_(count, MPI_REQUEST_NULL) {}
  Requests(const Requests&) = delete;
  Requests& operator=(const Requests&) = delete;
  ~Requests() {
    if (has_mpi_ended()) return;
    for (MPI_Request& request : all_) {
      if (request == MPI_REQUEST_NULL) continue;
      (void)MPI_Cancel(&request);
      (void)MPI_Request_free(&request);
    }
  }

  MPI_Request& operator[](std::size_t i) { return all_[i]; }
  bool are_done() {
    int done = 0;
    check_mpi(MPI_Testall(static_cast<int>(all_.size()), all_.data(), &done, MPI_STATUSES_IGNORE), "MPI_Testall");
    return done != 0;
  }

 private:
  std::vector<MPI_Request> all_;
};

/// Several maxima may be under way, of which a later one may be ahead: each has a tag of its own.
class TaggedRounds : public Rounds {
 public:
  TaggedRounds(MPI_Comm comm, int rank, int size, std::uint64_t number)
      : Rounds{rank, size}, comm_{comm}, tag_{static_cast<int>(number % tags)} {}

  MPI_Comm comm() const { return comm_; }
  int tag() const { return tag_; }

 private:
  static constexpr std::uint64_t tags = 16384;  // those above are for the making of groups (mpi_handle.cpp)

  MPI_Comm comm_;
  int tag_;
};

constexpr int words_in_message = 2;

class Maximum final : public ControlChannel::Exchange {
 public:
  Maximum(const TaggedRounds& rounds, Words& words)
      : rounds_{rounds},
        words_{words},
        sent_(static_cast<std::size_t>(rounds.count())),
        received_(sent_.size()),
        sends_{sent_.size()},
        receives_{sent_.size()} {
    for (int round = 0; round < rounds_.count(); ++round) {
      const auto i = static_cast<std::size_t>(round);
      check_mpi(MPI_Irecv(received_[i].data(), words_in_message, MPI_UINT64_T, rounds_.from(round), rounds_.tag(),
                          rounds_.comm(), &receives_[i]),
                "MPI_Irecv");
    }
    if (!sent_.empty()) send();
  }

  bool advance() override {
    while (round_ < rounds_.count()) {
      int done = 0;
      check_mpi(MPI_Test(&receives_[at()], &done, MPI_STATUS_IGNORE), "MPI_Test");
      if (!done) return false;
      Rounds::raise(words_, received_[at()]);
      if (++round_ < rounds_.count()) send();
    }
    return sends_.are_done();
  }

 private:
  std::size_t at() const { return static_cast<std::size_t>(round_); }

  void send() {
    sent_[at()] = words_;
    check_mpi(MPI_Isend(sent_[at()].data(), words_in_message, MPI_UINT64_T, rounds_.to(round_), rounds_.tag(),
                        rounds_.comm(), &sends_[at()]),
              "MPI_Isend");
  }

  TaggedRounds rounds_;
  Words& words_;
  int round_ = 0;
  std::vector<Words> sent_, received_;  ///< by round
  Requests sends_, receives_;
};

/// One of MPI's own collectives.
class Collective final : public ControlChannel::Exchange {
 public:
  template <class Start>
  explicit Collective(Start&& start) {
    start(&requests_[0]);
  }
  bool advance() override { return requests_.are_done(); }
  void wait() { check_mpi(MPI_Wait(&requests_[0], MPI_STATUS_IGNORE), "MPI_Wait"); }

 private:
  Requests requests_{1};
};

class MpiChannel final : public ControlChannel {
 public:
  explicit MpiChannel(MpiComm comm) : comm_{std::move(comm)}, rank_{comm_.rank()}, size_{comm_.size()} {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  Words max(Words words) override {
    require_running();
    const TaggedRounds rounds = next_rounds();
    for (int round = 0; round < rounds.count(); ++round) {
      Words others{};
      check_mpi(MPI_Sendrecv(words.data(), words_in_message, MPI_UINT64_T, rounds.to(round), rounds.tag(),
                             others.data(), words_in_message, MPI_UINT64_T, rounds.from(round), rounds.tag(),
                             comm_.get(), MPI_STATUS_IGNORE),
                "MPI_Sendrecv");
      Rounds::raise(words, others);
    }
    return words;
  }
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override { gather(mine, all)->wait(); }
  void broadcast(std::span<std::byte> bytes, int root) override { spread(bytes, root)->wait(); }

  std::unique_ptr<Exchange> start_max(Words& words) override {
    require_running();
    return std::make_unique<Maximum>(next_rounds(), words);
  }
  std::unique_ptr<Exchange> start_all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    return gather(mine, all);
  }
  std::unique_ptr<Exchange> start_broadcast(std::span<std::byte> bytes, int root) override {
    return spread(bytes, root);
  }

  std::unique_ptr<ControlChannel> subset(std::span<const int> members, std::uint64_t key) override {
    return std::make_unique<MpiChannel>(MpiComm::subset(comm_.get(), members, key));
  }

 private:
  /// Every agreement begins with this. MPI itself would end the job with words of its own.
  static void require_running() {
    if (has_mpi_ended()) throw ContextError{"an agreement after MPI_Finalize; expected the Runtime to end before"};
  }

  TaggedRounds next_rounds() { return {comm_.get(), rank_, size_, maxima_++}; }

  // MPI's blocking collectives and its others do not meet.
  std::unique_ptr<Collective> gather(std::span<const std::byte> mine, std::span<std::byte> all) {
    return std::make_unique<Collective>([&](MPI_Request* request) {
      const int bytes = static_cast<int>(mine.size());
      check_mpi(MPI_Iallgather(mine.data(), bytes, MPI_BYTE, all.data(), bytes, MPI_BYTE, comm_.get(), request),
                "MPI_Iallgather");
    });
  }
  std::unique_ptr<Collective> spread(std::span<std::byte> bytes, int root) {
    return std::make_unique<Collective>([&](MPI_Request* request) {
      check_mpi(MPI_Ibcast(bytes.data(), static_cast<int>(bytes.size()), MPI_BYTE, root, comm_.get(), request),
                "MPI_Ibcast");
    });
  }

  MpiComm comm_;
  int rank_;
  int size_;
  std::atomic<std::uint64_t> maxima_ = 0;
};

}  // namespace

std::unique_ptr<ControlChannel> make_mpi_channel(std::optional<int> guest) {
  return std::make_unique<MpiChannel>(MpiComm::of_runtime(guest));
}

}  // namespace lockstep
