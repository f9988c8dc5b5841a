// The collectives over MPI, on bytes in host memory.
#include <algorithm>
#include <limits>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>

#include "core/base/element_type.hpp"
#include "core/comm/backends.hpp"
#include "core/comm/communicator.hpp"
#include "core/comm/messenger.hpp"
#include "core/comm/mpi/mpi_handle.hpp"
#include "core/comm/mpi/share_memory.hpp"
#include "core/comm/shm/node_memory.hpp"
#include "core/device/device.hpp"

namespace lockstep {
namespace {

int to_count(std::int64_t bytes) {
  if (bytes > std::numeric_limits<int>::max())
    throw CommError{fmt::format("a message of {} bytes is longer than MPI can count; cut it into buckets", bytes)};
  return static_cast<int>(bytes);
}

MPI_Datatype mpi_type(DType dtype) {
  switch (dtype) {
    case DType::f32: return MPI_FLOAT;
    case DType::f64: return MPI_DOUBLE;
    case DType::i32: return MPI_INT32_T;
    case DType::i64: return MPI_INT64_T;
    case DType::u8: return MPI_UINT8_T;
    case DType::f16:
    case DType::bf16: break;
  }
  throw InvalidArgument{fmt::format("MPI cannot add up tensors of {}", name_of(dtype))};
}

// Slices longer than Messenger::short_slice_bytes are cut into pieces, all of which are under way at a time. MPI's
// collectives for long slices wait for one rank after the other, so that a link between nodes idles. And the receiver
// of a long message asks for it first: between two ranks that send to each other, these few bytes may wait behind a
// whole slice that goes the other way, so that a link never carries both. Open MPI's TCP sends a piece without being
// asked, and it was the fastest size on links of 100 Mbit/s as on those of 20 Gbit/s.

/// The slices as MPI wants them: a byte count and an offset for each rank.
struct ByteSlices {
  std::vector<int> counts, offsets;

  ByteSlices(SliceBounds bounds, std::size_t element_bytes) {
    const auto size = static_cast<std::int64_t>(element_bytes);
    for (std::size_t r = 0; r + 1 < bounds.size(); ++r) {
      offsets.push_back(to_count(bounds[r] * size));
      counts.push_back(to_count((bounds[r + 1] - bounds[r]) * size));
    }
  }

  /// The same answer on every rank.
  bool are_long() const { return *std::ranges::max_element(counts) > Messenger::short_slice_bytes; }

  std::span<std::byte> of(const TensorView& whole, int rank) const {
    const auto r = static_cast<std::size_t>(rank);
    return {whole.data() + offsets[r], static_cast<std::size_t>(counts[r])};
  }
};

/// COLL over `group`. Null unless all its ranks share one node, and the system lets them share memory.
std::unique_ptr<NodeMemory> make_node_memory(const MpiComm& group) {
  const MpiComm node = MpiComm::split_by_node(group.get());
  const int ranks = group.size();
  if (ranks == 1 || node.size() < ranks) return nullptr;
  for (const auto create : {SharedMemory::create, SharedMemory::create_named})
    if (auto slots = share_memory(node, NodeMemory::bytes_for(ranks), create))
      return std::make_unique<NodeMemory>(*std::move(slots), group.rank(), ranks, create);
  return nullptr;
}

/// Parcels between this rank and all others, in pieces.
class MpiMessenger final : public Messenger {
 public:
  explicit MpiMessenger(const MpiComm& comm) : comm_{comm.get()}, rank_{comm.rank()}, size_{comm.size()} {}

  Work start(std::span<const Parcel> parcels, Lane lane) override {
    return Work{start_tagged(parcels, 1 + static_cast<int>(lane))};
  }

  /// COLL, blocking, in a lane of its own. `sent(rank)` is what goes to a rank and `received(rank)` where that from it
  /// comes to.
  template <class Sent, class Received>
  void exchange(Sent&& sent, Received&& received) {
    std::vector<Parcel> parcels;
    for (int other = 0; other < size_; ++other) parcels.push_back({sent(other), received(other)});
    start_tagged(parcels, 0)->wait();
  }

 private:
  /// Those of an exchange; the receives are the first.
  struct Requests {
    std::vector<MPI_Request> all;
    std::vector<MPI_Status> statuses;
    std::vector<int> to_receive;  ///< bytes, of receives that have not been checked
  };

  class UnderWay final : public Work::Pending {
   public:
    UnderWay(MpiMessenger& messenger, Requests requests) : messenger_{messenger}, requests_{std::move(requests)} {}
    UnderWay(const UnderWay&) = delete;
    UnderWay& operator=(const UnderWay&) = delete;

    /// Only a job that ends because of a failure leaves messages under way: nobody receives what they bring.
    ~UnderWay() override {
      if (has_mpi_ended()) return;
      for (MPI_Request& request : requests_.all) {
        if (request == MPI_REQUEST_NULL) continue;
        (void)MPI_Cancel(&request);
        (void)MPI_Request_free(&request);
      }
    }

    void wait() override {
      check_mpi(MPI_Waitall(count(), requests_.all.data(), statuses()), "MPI_Waitall");
      check_received();
      messenger_.keep(std::exchange(requests_, {}));
    }
    bool advance() override {
      int done = 0;
      check_mpi(MPI_Testall(count(), requests_.all.data(), &done, statuses()), "MPI_Testall");
      if (done) check_received();
      return done != 0;
    }
    MPI_Request* add() { return &requests_.all.emplace_back(MPI_REQUEST_NULL); }
    MPI_Request* add_receive(int bytes) {
      requests_.to_receive.push_back(bytes);
      return add();
    }

   private:
    int count() const { return static_cast<int>(requests_.all.size()); }
    MPI_Status* statuses() {
      requests_.statuses.resize(requests_.all.size());
      return requests_.statuses.data();
    }

    /// Of messages that are too long, MPI tells; not of those that are too short.
    void check_received() {
      for (std::size_t i = 0; i < requests_.to_receive.size(); ++i) {
        const MPI_Status& status = requests_.statuses[i];
        int bytes = 0;
        check_mpi(MPI_Get_count(&status, MPI_BYTE, &bytes), "MPI_Get_count");
        if (bytes != requests_.to_receive[i])
          throw CommError{fmt::format("rank {} of a group sent {} bytes to rank {}, which expected {}",
                                      status.MPI_SOURCE, bytes, messenger_.rank_, requests_.to_receive[i])};
      }
      requests_.to_receive.clear();
    }

    MpiMessenger& messenger_;
    Requests requests_;
  };

  std::unique_ptr<UnderWay> start_tagged(std::span<const Parcel> parcels, int tag) {
    auto made = std::make_unique<UnderWay>(*this, take());
    // Each rank begins with another one.
    for (int step = 1; step < size_; ++step) {
      const int from = (rank_ + size_ - step) % size_;
      for_each_piece(parcels[static_cast<std::size_t>(from)].received, [&](std::span<std::byte> piece) {
        const int bytes = static_cast<int>(piece.size());
        check_mpi(MPI_Irecv(piece.data(), bytes, MPI_BYTE, from, tag, comm_, made->add_receive(bytes)), "MPI_Irecv");
      });
    }
    for (int step = 1; step < size_; ++step) {
      const int to = (rank_ + step) % size_;
      for_each_piece(parcels[static_cast<std::size_t>(to)].sent, [&](std::span<const std::byte> piece) {
        check_mpi(MPI_Isend(piece.data(), static_cast<int>(piece.size()), MPI_BYTE, to, tag, comm_, made->add()),
                  "MPI_Isend");
      });
    }
    return made;
  }

  Requests take() {
    const std::scoped_lock lock{mutex_};
    if (spare_.empty()) return {};
    Requests requests = std::move(spare_.back());
    spare_.pop_back();
    requests.all.clear();
    return requests;
  }
  void keep(Requests requests) {
    const std::scoped_lock lock{mutex_};
    spare_.push_back(std::move(requests));
  }

  template <class Byte, class Body>
  static void for_each_piece(std::span<Byte> slice, Body&& body) {
    for (; !slice.empty(); slice = slice.subspan(std::min<std::size_t>(piece_bytes, slice.size())))
      body(slice.first(std::min<std::size_t>(piece_bytes, slice.size())));
  }

  MPI_Comm comm_;
  int rank_, size_;
  std::mutex mutex_;
  std::vector<Requests> spare_;  ///< kept for later calls, which need as many; under `mutex_`
};

/// For slices that are not long, uses MPI's blocking collectives: on one node, their measured latency was a sixth of
/// the non-blocking ones'.
class MpiCommunicator final : public Communicator {
 public:
  explicit MpiCommunicator(MpiComm comm)
      : comm_{std::move(comm)},
        rank_{comm_.rank()},
        size_{comm_.size()},
        messenger_{comm_},
        node_memory_{make_node_memory(comm_)} {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string_view backend() const override { return "mpi"; }
  Stream& stream() override { return Stream::host(); }
  Buffer allocate(std::size_t bytes) override { return inside(Stream::host()).allocate(bytes); }
  NodeMemory* node_memory() override { return node_memory_.get(); }
  Messenger* messenger() override { return &messenger_; }

  Work broadcast(const TensorView& tensor, int root) override {
    constexpr std::int64_t piece = 1 << 30;
    const auto bytes = static_cast<std::int64_t>(tensor.bytes());
    for (std::int64_t first = 0; first < bytes; first += piece)
      check_mpi(MPI_Bcast(tensor.data() + first, to_count(std::min(piece, bytes - first)), MPI_BYTE, root, comm_.get()),
                "MPI_Bcast");
    return Work::done();
  }

  Work all_to_all(const TensorView& mine, SliceBounds bounds, const TensorView& received) override {
    const std::size_t element = size_of(mine.dtype());
    const ByteSlices sent{bounds, element};
    const auto piece = (bounds[static_cast<std::size_t>(rank_) + 1] - bounds[static_cast<std::size_t>(rank_)]) *
                       static_cast<std::int64_t>(element);
    if (sent.are_long()) {
      const auto place_of = [&](int rank) { return received.data() + piece * rank; };
      const auto bytes = static_cast<std::size_t>(piece);
      messenger_.exchange([&](int to) { return sent.of(mine, to); },
                          [&](int from) {
                            return std::span{place_of(from), bytes};
                          });
      std::ranges::copy(sent.of(mine, rank_), place_of(rank_));
      return Work::done();
    }
    std::vector<int> counts(static_cast<std::size_t>(size_), to_count(piece));
    std::vector<int> offsets;
    for (int r = 0; r < size_; ++r) offsets.push_back(to_count(piece * r));
    check_mpi(MPI_Alltoallv(mine.data(), sent.counts.data(), sent.offsets.data(), MPI_BYTE, received.data(),
                            counts.data(), offsets.data(), MPI_BYTE, comm_.get()),
              "MPI_Alltoallv");
    return Work::done();
  }

  Work all_gather(const TensorView& whole, SliceBounds bounds) override {
    const ByteSlices slices{bounds, size_of(whole.dtype())};
    if (slices.are_long()) {
      messenger_.exchange([&](int) { return slices.of(whole, rank_); },
                          [&](int from) { return slices.of(whole, from); });
      return Work::done();
    }
    check_mpi(MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, whole.data(), slices.counts.data(),
                             slices.offsets.data(), MPI_BYTE, comm_.get()),
              "MPI_Allgatherv");
    return Work::done();
  }

  Work gather(const TensorView& whole, SliceBounds bounds, int root) override {
    const ByteSlices slices{bounds, size_of(whole.dtype())};
    const std::span<std::byte> mine = slices.of(whole, rank_);
    check_mpi(rank_ == root ? MPI_Gatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, whole.data(), slices.counts.data(),
                                          slices.offsets.data(), MPI_BYTE, root, comm_.get())
                            : MPI_Gatherv(mine.data(), static_cast<int>(mine.size()), MPI_BYTE, nullptr, nullptr,
                                          nullptr, MPI_BYTE, root, comm_.get()),
              "MPI_Gatherv");
    return Work::done();
  }

  Work all_reduce(const TensorView& tensor) override {
    for_each_message(tensor, [&](std::byte* data, int count, MPI_Datatype type) {
      check_mpi(MPI_Allreduce(MPI_IN_PLACE, data, count, type, MPI_SUM, comm_.get()), "MPI_Allreduce");
    });
    return Work::done();
  }

  Work reduce(const TensorView& tensor, int root) override {
    for_each_message(tensor, [&](std::byte* data, int count, MPI_Datatype type) {
      check_mpi(rank_ == root ? MPI_Reduce(MPI_IN_PLACE, data, count, type, MPI_SUM, root, comm_.get())
                              : MPI_Reduce(data, nullptr, count, type, MPI_SUM, root, comm_.get()),
                "MPI_Reduce");
    });
    return Work::done();
  }

  std::unique_ptr<Communicator> subset(std::span<const int> members, std::uint64_t key) override {
    return std::make_unique<MpiCommunicator>(MpiComm::subset(comm_.get(), members, key));
  }

  // MPI_Abort ends what MPI has in flight.
  void abort() noexcept override {}

 private:
  /// Calls `body(data, count, type)` for pieces no longer than MPI can count.
  template <class Body>
  static void for_each_message(const TensorView& tensor, Body&& body) {
    constexpr std::int64_t longest = 1 << 28;
    const MPI_Datatype type = mpi_type(tensor.dtype());
    for (std::int64_t first = 0; first < tensor.count(); first += longest) {
      const std::int64_t count = std::min(longest, tensor.count() - first);
      body(tensor.data() + static_cast<std::size_t>(first) * size_of(tensor.dtype()), static_cast<int>(count), type);
    }
  }

  MpiComm comm_;
  int rank_;
  int size_;
  MpiMessenger messenger_;
  std::unique_ptr<NodeMemory> node_memory_;
};

}  // namespace

std::unique_ptr<Communicator> make_mpi_communicator(std::optional<int> guest) {
  return std::make_unique<MpiCommunicator>(MpiComm::of_runtime(guest));
}

}  // namespace lockstep
