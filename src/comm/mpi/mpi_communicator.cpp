// The collectives over MPI, on bytes in host memory.
#include <algorithm>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include <lockstep/base/error.hpp>

#include "base/element_type.hpp"
#include "comm/backends.hpp"
#include "comm/communicator.hpp"
#include "comm/mpi/mpi_handle.hpp"
#include "comm/mpi/share_memory.hpp"
#include "comm/shm/node_memory.hpp"
#include "device/device.hpp"

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

/// Uses MPI's blocking collectives: on one node, their measured latency was a sixth of the non-blocking ones'.
class MpiCommunicator final : public Communicator {
 public:
  explicit MpiCommunicator(MpiComm comm)
      : comm_{std::move(comm)}, rank_{comm_.rank()}, size_{comm_.size()}, node_memory_{make_node_memory(comm_)} {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string_view backend() const override { return "mpi"; }
  Stream& stream() override { return Stream::host(); }
  Buffer allocate(std::size_t bytes) override { return Stream::host().allocate(bytes); }
  NodeMemory* node_memory() override { return node_memory_.get(); }

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
    check_mpi(MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, whole.data(), slices.counts.data(),
                             slices.offsets.data(), MPI_BYTE, comm_.get()),
              "MPI_Allgatherv");
    return Work::done();
  }

  Work gather(const TensorView& whole, SliceBounds bounds, int root) override {
    const ByteSlices slices{bounds, size_of(whole.dtype())};
    const auto mine = static_cast<std::size_t>(rank_);
    if (rank_ == root) {
      check_mpi(MPI_Gatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, whole.data(), slices.counts.data(),
                            slices.offsets.data(), MPI_BYTE, root, comm_.get()),
                "MPI_Gatherv");
    } else {
      check_mpi(MPI_Gatherv(whole.data() + slices.offsets[mine], slices.counts[mine], MPI_BYTE, nullptr, nullptr,
                            nullptr, MPI_BYTE, root, comm_.get()),
                "MPI_Gatherv");
    }
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

  std::unique_ptr<Communicator> split(std::optional<int> group) override {
    MpiComm made = MpiComm::split(comm_.get(), group.value_or(MPI_UNDEFINED));
    return group ? std::make_unique<MpiCommunicator>(std::move(made)) : nullptr;
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
  std::unique_ptr<NodeMemory> node_memory_;
};

}  // namespace

std::unique_ptr<Communicator> make_mpi_communicator(std::optional<int> guest) {
  return std::make_unique<MpiCommunicator>(MpiComm::of_runtime(guest));
}

}  // namespace lockstep
