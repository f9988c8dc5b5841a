// The control plane over MPI.

#include <utility>

#include <lockstep/base/error.hpp>

#include "comm/mpi/mpi_handle.hpp"
#include "control/channel.hpp"

namespace lockstep {
namespace {

class MpiChannel final : public ControlChannel {
 public:
  explicit MpiChannel(MpiComm comm) : comm_{std::move(comm)}, rank_{comm_.rank()}, size_{comm_.size()} {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  std::array<std::uint64_t, 2> max(std::array<std::uint64_t, 2> words) override {
    // Every agreement begins here. MPI itself would end the job with words of its own.
    int is_over = 0;
    MPI_Finalized(&is_over);
    if (is_over) throw ContextError{"an agreement after MPI_Finalize; expected the Runtime to end before"};
    check_mpi(MPI_Allreduce(MPI_IN_PLACE, words.data(), 2, MPI_UINT64_T, MPI_MAX, comm_.get()), "MPI_Allreduce");
    return words;
  }
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    const int bytes = static_cast<int>(mine.size());
    check_mpi(MPI_Allgather(mine.data(), bytes, MPI_BYTE, all.data(), bytes, MPI_BYTE, comm_.get()), "MPI_Allgather");
  }
  void broadcast(std::span<std::byte> bytes, int root) override {
    check_mpi(MPI_Bcast(bytes.data(), static_cast<int>(bytes.size()), MPI_BYTE, root, comm_.get()), "MPI_Bcast");
  }
  std::unique_ptr<ControlChannel> subset(std::span<const int> members, std::uint64_t key) override {
    return std::make_unique<MpiChannel>(MpiComm::subset(comm_.get(), members, key));
  }

 private:
  MpiComm comm_;
  int rank_;
  int size_;
};

}  // namespace

std::unique_ptr<ControlChannel> make_mpi_channel(std::optional<int> guest) {
  return std::make_unique<MpiChannel>(MpiComm::of_runtime(guest));
}

}  // namespace lockstep
