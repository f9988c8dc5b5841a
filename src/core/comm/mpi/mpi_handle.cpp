#include "core/comm/mpi/mpi_handle.hpp"

#include <atomic>
#include <exception>
#include <string>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/core/base/log.hpp>

namespace lockstep {
namespace {

std::atomic<bool> ranks_leave = false;

std::string error_text(int code) {
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) return fmt::format("MPI error {}", code);
  return {text, static_cast<std::size_t>(length)};
}

}  // namespace

void check_mpi(int code, const char* call) {
  if (code != MPI_SUCCESS) throw CommError{fmt::format("{}: {}", call, error_text(code))};
}

bool has_mpi_ended() {
  int is_over = 0;
  return MPI_Finalized(&is_over) != MPI_SUCCESS || is_over != 0;
}

/// The default handler aborts, so no return code could ever be checked.
MpiComm::MpiComm(MPI_Comm handle) : handle_{handle} {
  check_mpi(MPI_Comm_set_errhandler(handle_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
}

MpiComm MpiComm::duplicate(MPI_Comm parent) {
  MPI_Comm made = MPI_COMM_NULL;
  check_mpi(MPI_Comm_dup(parent, &made), "MPI_Comm_dup");
  return MpiComm{made};
}

MpiComm MpiComm::of_runtime(std::optional<int> guest) {
  if (!guest) return duplicate(MPI_COMM_WORLD);
  MPI_Comm made = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split(MPI_Comm_f2c(*guest), 0, 0, &made), "MPI_Comm_split");
  return MpiComm{made};
}

MpiComm MpiComm::split_by_node(MPI_Comm parent) {
  MPI_Comm made = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split_type(parent, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &made), "MPI_Comm_split_type");
  return MpiComm{made};
}

MpiComm MpiComm::subset(MPI_Comm parent, std::span<const int> members, std::uint64_t key) {
  struct Group {
    MPI_Group handle = MPI_GROUP_NULL;
    ~Group() {
      if (handle != MPI_GROUP_NULL) MPI_Group_free(&handle);
    }
  } all, some;
  check_mpi(MPI_Comm_group(parent, &all.handle), "MPI_Comm_group");
  check_mpi(MPI_Group_incl(all.handle, static_cast<int>(members.size()), members.data(), &some.handle),
            "MPI_Group_incl");
  constexpr std::uint64_t tags = 32767;      // that every MPI has
  constexpr std::uint64_t own_tags = 16384;  // of messages in `parent`, which may travel meanwhile
  MPI_Comm made = MPI_COMM_NULL;
  check_mpi(MPI_Comm_create_group(parent, some.handle, static_cast<int>(own_tags + key / 2 % (tags - own_tags)), &made),
            "MPI_Comm_create_group");
  return MpiComm{made};
}

void MpiComm::set_ranks_leave(bool leave) {
  ranks_leave = leave;
}

MpiComm::~MpiComm() {
  if (handle_ == MPI_COMM_NULL || (std::uncaught_exceptions() > 0 && !ranks_leave)) return;
  if (has_mpi_ended()) return;
  if (const int code = MPI_Comm_free(&handle_); code != MPI_SUCCESS) {
    try {
      log::warning(fmt::format("MPI_Comm_free: {}", error_text(code)));
    } catch (...) {  // A destructor has nobody left to tell.
    }
  }
}

int MpiComm::rank() const {
  int rank = 0;
  check_mpi(MPI_Comm_rank(handle_, &rank), "MPI_Comm_rank");
  return rank;
}

int MpiComm::size() const {
  int size = 0;
  check_mpi(MPI_Comm_size(handle_, &size), "MPI_Comm_size");
  return size;
}

}  // namespace lockstep
