// Batch norm over the samples of all ranks.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/pimpl.h>

#include <lockstep/core/base/export.hpp>
#include <lockstep/torch/data_parallel.hpp>

namespace lockstep::libtorch {

namespace detail {

class LOCKSTEP_API SyncBatchNormImpl  ///< the module that a SyncBatchNorm holds
    : public ::torch::nn::NormImplBase<2, SyncBatchNormImpl, ::torch::nn::BatchNormOptions> {
 public:
  explicit SyncBatchNormImpl(const ::torch::nn::BatchNormOptions& chosen) : NormImplBase{chosen} {}

  at::Tensor forward(const at::Tensor& x);
  void pretty_print(std::ostream& stream) const override;

 protected:
  void _check_input_dim(const at::Tensor& x) override;
};

}  // namespace detail

/// As torch::nn::BatchNorm1d, 2d and 3d, for x of any number of dimensions from 2 on, but in training mean and variance
/// are those of the samples of all ranks. Parameters, buffers and options are the same, so weights fit both. Ranks may
/// have different numbers of samples. One without any runs `forward` on an empty batch, and hands that loss to
/// `backward` with 0 samples, since the sums need all ranks. If its batch is not empty, and only counts nothing in the
/// loss, its part of the statistics has gradients as in a whole batch. x of 16 bits is normalised in f32, and the
/// result is rounded once.
///
/// In training on several ranks, `forward` is COLL: two all_reduces, in `Strategy::run` (ContextError elsewhere), and
/// in the same order on all ranks: MismatchError, which names the layers, if they come to different ones, also behind
/// their losses. Its backward pass adds up, too, as a part of ReplicatedModule::backward or
/// `accumulate`, which then is COLL as well. In `backward_shards` the samples are those of all shards of all ranks, and
/// the layer must be a part of the module. In evaluation, `forward` is LOCAL and as in torch.
///
/// A gradient that went through it in training has no derivative: `create_graph` is an InvalidArgument, on one rank
/// too.
///
/// A holder, as torch's modules have one: `SyncBatchNorm norm{64};`.
class LOCKSTEP_API SyncBatchNorm : public ::torch::nn::ModuleHolder<detail::SyncBatchNormImpl> {
 public:
  using ::torch::nn::ModuleHolder<detail::SyncBatchNormImpl>::ModuleHolder;
  using Impl = detail::SyncBatchNormImpl;

  /// LOCAL. Replaces every BatchNorm1d, 2d and 3d in `module` by a SyncBatchNorm, which takes over its parameters and
  /// buffers, what is frozen, and its mode, but no hooks. They must be layers of a Sequential, or entries of a
  /// ModuleList or ModuleDict, at any depth. The program casts such entries itself:
  /// `as<lockstep::libtorch::SyncBatchNorm>()` from then on. A module of another kind calls its parts by their types,
  /// so it has to be written with a SyncBatchNorm. InvalidArgument, which names those that can't be replaced, before
  /// anything changes; so are classes that derive from a batch norm. Call it before DataParallel and optimizers.
  static void convert(::torch::nn::Module& module);
};

}  // namespace lockstep::libtorch
