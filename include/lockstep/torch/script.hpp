// TorchScript modules as replicated models: programs that Python has written, trained without it.
#pragma once

#include <torch/script.h>

#include <lockstep/core/base/export.hpp>
#include <lockstep/torch/data_parallel.hpp>

namespace lockstep {
namespace detail {

template <>
inline constexpr bool is_script<::torch::jit::Module> = true;

}  // namespace detail

namespace libtorch {

/// A module that torch.jit.script or torch.jit.trace has made, as a ReplicatedModule. `net->` is the module itself:
///
///     libtorch::DataParallel net{strategy, torch::jit::load("net.pt")};
///     torch::optim::AdamW adamw{net.parameters()};
///     strategy.run([&](ReplicaContext& context) {
///       adamw.zero_grad();
///       const auto scores = net->forward({images}).toTensor();
///       net.backward(context, libtorch::Loss::mean(torch::cross_entropy_loss(scores, labels), labels.size(0)));
///       adamw.step();
///     });
///     if (runtime.is_chief()) net->save("trained.pt");  // Python loads it with torch.jit.load
///
/// Variables have the names of the module's state_dict in Python. A buffer that Python does not keep there
/// (persistent=False) is one too, since TorchScript cannot tell it. A script may put a new tensor in a buffer's place
/// (`self.average = …`): its value is copied to the buffer in `backward`, so its shape and type must stay; a buffer of
/// two names cannot be replaced (InvalidArgument). A script that changes a parameter in its forward pass, as a traced
/// embedding with a max_norm does, makes the replicas differ, as the next attestation says.
///
/// LibTorch optimizes a script after its first calls in a process, which changes low-order bits. A training that goes
/// on after a restart has the bits of one that was not interrupted only without that, as with
/// `torch::jit::GraphOptimizerEnabledGuard guard{false}`.
template <>
class LOCKSTEP_API DataParallel<::torch::jit::Module> : public ReplicatedModule {
 public:
  /// COLL, as ReplicatedModule. Shares `module`. InvalidArgument without parameters, as after torch.jit.freeze.
  DataParallel(Strategy& strategy, ::torch::jit::Module module, const ReplicatedModule::Options& options = {},
               Here here = Here::current());

  ::torch::jit::Module& module() { return module_; }
  ::torch::jit::Module* operator->() { return &module_; }
  ::torch::jit::Module& operator*() { return module_; }

 private:
  ::torch::jit::Module module_;
};

}  // namespace libtorch
}  // namespace lockstep
