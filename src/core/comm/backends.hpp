// The communicators, by what carries the bytes.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <lockstep/core/base/error.hpp>

#include "core/comm/communicator.hpp"
#include "core/device/device.hpp"

namespace lockstep {

/// A group of one, on memory of the stream's device. `stream` must outlive it.
std::unique_ptr<Communicator> make_local_communicator(Stream& stream = Stream::host());

/// COLL over `guest`, which is MPI_Comm_c2f of a communicator, or over the job if that is empty. Its ranks, over MPI on
/// host memory. MPI must run for as long as the communicator lives.
std::unique_ptr<Communicator> make_mpi_communicator(std::optional<int> guest = {});

struct NcclOptions {
  /// How long the start may take. A rank that has not arrived by then is an error on all ranks.
  std::chrono::duration<double> init_timeout{60};
  /// How long a collective may take until it is enqueued. The first between two ranks waits for both.
  std::chrono::duration<double> enqueue_timeout{600};
  /// What has changed when a rank with long work of its own, for which another one waits there, gets on: the limit then
  /// begins again.
  std::function<std::uint64_t()> progress;
  /// Called on another thread: with a CommError, when NCCL reports that a started collective failed and no method has
  /// thrown that failure; or with a StallError, if a call of the start has not returned after `init_timeout`, or a
  /// second later where the stage waits for other ranks. It may call `abort` and end the process. If it returns, it may
  /// be called again. It must neither throw nor destroy the communicator. If empty, nothing watches, and the failure
  /// surfaces in the next call.
  std::function<void(std::exception_ptr)> on_failure;
  /// The stream of the collectives, which the first communicator makes; null: each has its own. Communicators that
  /// share one make their collectives one after the other, in the order of the calls. NCCL asks for that where a GPU is
  /// in several ("Using multiple NCCL communicators concurrently"): they could otherwise wait for each other for ever.
  std::shared_ptr<std::unique_ptr<Stream>> stream;
};

/// NCCL did not start. Thrown on every rank with the same message.
class NcclStartError : public CommError {
 public:
  enum class How : std::uint8_t { failed, late };

  /// `words` are those of `rank`, which is to blame; -1 if every rank waited in vain.
  NcclStartError(int rank, How how, const std::string& words)
      : CommError{(rank < 0 ? "NCCL did not start on any rank: "
                            : "NCCL did not start because of rank " + std::to_string(rank) + ": ") +
                  words},
        rank_{rank},
        how_{how},
        words_{words} {}

  int rank() const { return rank_; }
  bool is_late() const { return how_ == How::late; }
  const std::string& words() const { return words_; }

 private:
  int rank_;
  How how_;
  std::string words_;
};

/// The ranks of `host`, over NCCL on memory of the GPU `device`. `compute` is one of its streams. The collectives run
/// on another one, so the compute stream continues until a Work is waited for.
///
/// COLL over `host`, which carries what must be exchanged to start and is not used afterwards. Blocks until a first
/// collective has completed. Ends within the timeout, or a few seconds after it. NcclStartError on every rank if one
/// failed, naming the lowest that did; a rank that only waited in vain is named only if no rank failed otherwise,
/// and no rank is named if all waited in vain.
/// DeviceError without a GPU backend (core/device/gpu_backend.hpp).
///
/// A method of the communicator returns when its collective is enqueued, not when it is done. The first collective
/// between two ranks also waits for the other's call, to connect them. The destructor is collective unless `abort` was
/// called: it waits for the other ranks to come to theirs, for some seconds at most. `device` and `compute` must
/// outlive the communicator.
std::unique_ptr<Communicator> make_nccl_communicator(Communicator& host, Device& device, Stream& compute,
                                                     NcclOptions options = {});

/// For tests in which ranks outnumber GPUs: lets several ranks of a node share one. Each poses as a host of its own, so
/// NCCL's traffic goes through sockets of this machine, or of the user's NCCL_SOCKET_IFNAME. Sets other variables of
/// the environment too, some over the user's. Call it before anything else of NCCL and before there are other threads.
/// CommError if a variable cannot be set. No effect without a GPU backend.
void allow_shared_gpu();

}  // namespace lockstep
