// Which communicators there are, and who is in a call of one.
#pragma once

#include <memory>
#include <string>

#include <nccl.h>

#include "communicator.hpp"

namespace cusim {

/// Gives the program its handle.
ncclComm_t publish(std::shared_ptr<Comm> comm);

/// The communicator of a handle. Ends the process (`found`) if there is none: it was destroyed, aborted or never made.
std::shared_ptr<Comm> find(ncclComm_t handle, const char* call);

/// From now on nobody may use the handle.
void withdraw(ncclComm_t handle);

enum class During { nothing, progress };

/// A thread's stay in a call. Ends the process (`found`) if another is in one, or has the communicator in a group, or,
/// unless it may be called `During::progress`, if an earlier call is in progress.
class [[nodiscard]] Use {
 public:
  Use(ncclComm_t handle, const char* call, During allowed = During::nothing);
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;
  ~Use();

  Comm* operator->() const { return comm_.get(); }
  const std::shared_ptr<Comm>& comm() const { return comm_; }

 private:
  std::shared_ptr<Comm> comm_;
};

/// Remembers words for ncclGetLastError, and returns `result`.
ncclResult_t complain(ncclResult_t result, const std::string& problem);

}  // namespace cusim
