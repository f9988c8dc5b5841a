// What a runtime is made of: the job, and this rank's part in the work of it.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <lockstep/job/runtime/runtime.hpp>
#include <lockstep/sync/strategy/strategy.hpp>

#include "core/cluster/device_binding.hpp"
#include "core/comm/backends.hpp"
#include "core/device/device.hpp"
#include "job/runtime/mpi_job.hpp"
#include "sync/group/replica_group.hpp"

namespace lockstep {

/// What NCCL must find in the environment. The environment may be written only before there are other threads.
struct NcclEnvironment {
  explicit NcclEnvironment(const RuntimeOptions& options);
};

/// Members in order of acquisition; they are destroyed in reverse.
struct Runtime::Impl {
  NcclEnvironment nccl_environment;  ///< before MPI, which starts threads
  MpiJob mpi;
  std::unique_ptr<Device> device;
  std::unique_ptr<ReplicaGroup> group;
  std::optional<Strategy> strategy;
  bool has_runtime = false;  ///< others share the job with that one

  static std::weak_ptr<Impl> of_process;

  /// Starts MPI. The rest is `start`'s.
  Impl(int& argc, char**& argv, const RuntimeOptions& given);
  Impl(const Impl&) = delete;
  ~Impl();

  /// The same in a program that has started MPI, or that of this process, if it has one. InvalidArgument in another
  /// program.
  static std::shared_ptr<Impl> without_arguments(const RuntimeOptions& given);

  /// COLL. From MPI to a strategy.
  void start(const std::function<RuntimeOptions()>& make_options);

  /// LOCAL. The job's numbers of the ranks of a communicator of the program's. InvalidArgument as Runtime::group.
  std::vector<int> ranks_of_job(int communicator) const;

 private:
  /// COLL. Binds a device on each rank, of one kind on all of them, and adds the plane for its memory.
  void bind();
  DeviceRequest settle(DeviceRequest requested, std::span<const VisibleGpus> gpus,
                       std::span<const std::string> why_none);
  void add_device_plane(const NodePlace& place);
  NcclOptions nccl_options();
  std::unique_ptr<Communicator> start_nccl(Communicator& host, Stream& compute, const NcclOptions& nccl);
};

}  // namespace lockstep
