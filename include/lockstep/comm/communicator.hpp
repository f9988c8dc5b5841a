// The data plane: collectives on tensors among the ranks of a group. What is combined with what, and in which order, is
// the reduce layer's; a communicator moves bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include <lockstep/tensor/tensor.hpp>

namespace lockstep {

enum class ReduceOp : std::uint8_t { sum, mean };

/// "sum", "mean".
std::string_view name_of(ReduceOp op);

/// A collective that was started. Its tensors must stay alive, and unread, until `wait` returns.
class [[nodiscard]] Work {
 public:
  /// What a backend keeps of a collective under way.
  class Pending {
   public:
    virtual ~Pending() = default;
    virtual void wait() = 0;
  };

  explicit Work(std::unique_ptr<Pending> pending) : pending_{std::move(pending)} {}

  /// The work of a backend that was done when the call returned.
  static Work done() { return Work{nullptr}; }

  /// Blocks the host until the collective is done on this rank. CommError if it failed. At most once.
  void wait() {
    if (const auto pending = std::move(pending_)) pending->wait();
  }

 private:
  std::unique_ptr<Pending> pending_;
};

/// How a flat tensor is cut into one slice a rank: slice r is [bounds[r], bounds[r + 1]). size() + 1 numbers, the first
/// 0, the last the tensor's element count, none smaller than the one before. The same on every rank.
using SliceBounds = std::span<const std::int64_t>;

/// Slices of about equal length, each a multiple of `granule` elements but the last.
std::vector<std::int64_t> even_slices(std::int64_t count, int slices, std::int64_t granule = 64);

/// A group of ranks that move tensors. Every method but rank, size, backend and allocate is collective: each rank of
/// the group calls it, in the same order, with tensors of the same shape and type. No method checks that the ranks
/// agree: the control plane has done so before. Not thread-safe.
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  /// "local", "mpi".
  virtual std::string_view backend() const = 0;

  /// Memory that this backend moves best. Uninitialised.
  virtual Buffer allocate(std::size_t bytes) = 0;

  /// `tensor` of `root` overwrites everyone's.
  virtual Work broadcast(const TensorView& tensor, int root) = 0;

  /// Rank r gets slice r of everyone's `mine`: `received` holds size() pieces of that slice's length, in rank order.
  virtual Work all_to_all(const TensorView& mine, SliceBounds bounds, const TensorView& received) = 0;

  /// In place: rank r brings slice r of `whole`, and gets all others.
  virtual Work all_gather(const TensorView& whole, SliceBounds bounds) = 0;

  /// In place: rank r brings slice r of `whole`; only `root` gets the others. Elsewhere `whole` keeps what it held.
  virtual Work gather(const TensorView& whole, SliceBounds bounds, int root) = 0;
};

/// A group of one.
std::unique_ptr<Communicator> make_local_communicator();

/// All ranks of the job, over MPI on host memory. Collective over the job. MPI must run for as long as it lives.
std::unique_ptr<Communicator> make_mpi_communicator();

}  // namespace lockstep
