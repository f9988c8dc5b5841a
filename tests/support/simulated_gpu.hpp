// What a test may do to a simulated GPU that no program does to a real one by lockstep, and what its parts share.
#pragma once

#include <memory>

#include <lockstep/core/device/stream.hpp>
#include <lockstep/core/tensor/tensor.hpp>

#include "core/comm/backends.hpp"

namespace lockstep::test {

/// The same memory as the host's, for the kernels of the host. Refuses what a GPU could not reach.
TensorView for_host(const TensorView& view);

/// NCCL among simulated GPUs: make_nccl_communicator and allow_shared_gpu.
std::unique_ptr<Communicator> make_simulated_nccl(Communicator& host, Device& device, Stream& compute, NcclOptions);
void allow_shared_simulated_gpu();

/// While it lives, `stream` of a simulated GPU is being captured, as far as that can be asked; its work is still done.
class Capture {
 public:
  explicit Capture(Stream& stream);
  Capture(const Capture&) = delete;
  ~Capture();

 private:
  Stream& stream_;
};

}  // namespace lockstep::test
