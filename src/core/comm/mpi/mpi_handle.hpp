// MPI's handles, owned, and its errors, checked. Private to the folders that may include mpi.h.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include <mpi.h>

namespace lockstep {

/// Throws CommError with MPI's own text unless `code` is MPI_SUCCESS. `call` names the MPI function.
void check_mpi(int code, const char* call);

/// Whether MPI_Finalize was called.
bool has_mpi_ended();

/// An MPI communicator of our own. Its errors are returned, not fatal. It is freed with the object, unless MPI has
/// ended, or an exception destroys it that other ranks may not know of: freeing it would wait for them.
class MpiComm {
 public:
  MpiComm() = default;

  /// LOCAL. Whether all ranks have agreed to leave, so that they free their communicators together, whatever exception
  /// is under way.
  static void set_ranks_leave(bool leave);

  /// COLL over `parent`. A duplicate, whose messages never meet those of another communicator.
  static MpiComm duplicate(MPI_Comm parent);

  /// COLL over `guest`, or over the job if that is empty. The ranks there. `guest` is MPI_Comm_c2f of a communicator of
  /// the program's: what the program has attached to that does not come along.
  static MpiComm of_runtime(std::optional<int> guest);

  /// COLL over `parent`. The ranks that share this node's memory, ordered as in `parent`.
  static MpiComm split_by_node(MPI_Comm parent);

  /// COLL over `members`, which are ranks of `parent`. Those, in that order. `key` is the same on all of them: what
  /// ranks make with other keys at the same time is not mixed up.
  static MpiComm subset(MPI_Comm parent, std::span<const int> members, std::uint64_t key);

  MpiComm(MpiComm&& other) noexcept : handle_{std::exchange(other.handle_, MPI_COMM_NULL)} {}
  MpiComm& operator=(MpiComm&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~MpiComm();

  MPI_Comm get() const { return handle_; }
  int rank() const;
  int size() const;

 private:
  explicit MpiComm(MPI_Comm handle);

  MPI_Comm handle_ = MPI_COMM_NULL;
};

}  // namespace lockstep
