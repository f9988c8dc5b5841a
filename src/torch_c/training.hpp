// Options of a training by their names: what LibTorch makes of them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>
#include <torch/script.h>

#include <lockstep/torch.h>
#include <lockstep/torch/loss.hpp>

namespace lockstep::in_c {

/// Options that were checked, with texts of their own.
struct Training {
  /// `given` may be null. ConfigError for a value that is wrong, for a group of `ranks`; InvalidArgument for another
  /// size.
  Training(const lockstep_model_options* given, int ranks);

  /// All of them, as the ranks compare them.
  std::string text() const;

  /// Of these parameters.
  std::unique_ptr<::torch::optim::Optimizer> optimizer_of(const std::vector<at::Tensor>& parameters) const;

  /// The loss of so many rows. InvalidArgument for outputs that do not fit the targets.
  libtorch::Loss loss_of(const ::torch::jit::Module& module, const std::vector<at::Tensor>& outputs,
                         const std::vector<at::Tensor>& targets, std::int64_t rows) const;

  lockstep_model_options options;  ///< without optimizer and loss, which are NULL here
  std::string optimizer, loss;
};

}  // namespace lockstep::in_c
