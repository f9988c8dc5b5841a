// Any torch::nn::Module as a replicated model: one replica on each rank, with equal parameters, whose gradients are
// reduced during the backward pass. Needs the library lockstep-torch.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <torch/nn/module.h>
#include <torch/types.h>

#include <lockstep/core/base/export.hpp>
#include <lockstep/core/order/range.hpp>
#include <lockstep/sync/optim/adamw.hpp>
#include <lockstep/sync/optim/optimizer.hpp>
#include <lockstep/sync/optim/sgd.hpp>
#include <lockstep/sync/strategy/strategy.hpp>
#include <lockstep/torch/loss.hpp>

namespace lockstep {
namespace detail {

template <class T>
struct ModuleType {
  using type = T;
};
template <class M>
struct ModuleType<std::shared_ptr<M>> {
  using type = M;
};
template <class Holder>
  requires requires { typename Holder::ContainedType; }
struct ModuleType<Holder> {
  using type = typename Holder::ContainedType;
};

/// Modules other than a torch::nn::Module: those of TorchScript, where script.hpp is included.
template <class M>
inline constexpr bool is_script = false;

/// A module, a shared_ptr to one, or a holder as TORCH_MODULE makes it.
template <class T>
concept TorchModule = std::derived_from<typename ModuleType<T>::type, ::torch::nn::Module>;

}  // namespace detail

namespace libtorch {

/// DataParallel without the module's own type.
///
/// Parameters are variables of the strategy, named as in Module::named_parameters, as they are in Python:
/// "conv1.weight". They are views of the strategy's memory, and so are their gradients. So checkpoints, `save_weights`,
/// `load_weights`, `attest` and `rebroadcast` work as for all variables. Parameters stay the same objects: a torch
/// optimizer that was made before still updates them. A parameter that a module shares with another one (a tied one) is
/// one variable, under its first name. Buffers are variables too. Register all parameters and buffers before: one that
/// is registered later is an InvalidArgument in the next `backward`. A strategy may have several modules; a name that
/// is taken gets a number, as every variable's does, unless Options::name tells the modules apart. No parameter may
/// belong to two of them.
///
/// Gradients come from `backward`, `backward_shards` and `accumulate` alone: a plain `loss.backward()` through the
/// module would make the replicas differ, so it throws ContextError. `torch::autograd::grad` remains free. A backward
/// pass may run others inside, as activation checkpointing does: each adds its part. On GPUs, a gradient whose parts
/// come in two of them can be sent too early in the step that first does so; that step throws InvalidArgument, and
/// later ones wait for all parts. Whatever else the loss depends on and needs a gradient, such as a tensor outside of
/// the module or a parameter of another DataParallel, is an InvalidArgument that names it, unless Loss::ignoring does.
/// Tensors that such an inner pass reads are not checked. A graph that is older than a step of the optimizer throws, in
/// torch's words.
///
/// On GPUs, torch computes on the calling thread's current stream, as always. The methods here start after the work
/// that torch has enqueued, and the work that torch enqueues next starts after theirs. So do `attest`, `rebroadcast`,
/// checkpoints and files of weights; after `Variable::assign`, call `strategy.stream().synchronize()`.
///
/// Not thread-safe. Must not outlive the strategy; the module may, as a plain one.
class LOCKSTEP_API ReplicatedModule {
 public:
  /// The loss of a batch that all ranks share.
  struct MeanLoss {
    double mean = 0;     ///< over the samples of all ranks; 0 if there are none
    double samples = 0;  ///< of all ranks: the sum of Loss::samples
  };

  class Optimizer;

  struct Options {
    /// Goes before the names of parameters and buffers: with "critic", `fc.weight` is the variable "critic.fc.weight".
    std::string name = {};
    /// Every so many steps in shards are audited (backward_shards): 1 or more; if empty, none. The same on every rank.
    std::optional<std::int64_t> audit_every = {};
    std::uint64_t audit_seed = 0;  ///< decides which shards are audited, and by whom
  };

  /// COLL, agreed, blocking. Creates the variables, seals the strategy, and gives every rank the parameters and buffers
  /// of replica 0. The module may be on the CPU or on the rank's device already. Convert the module first
  /// (`to(torch::kFloat64)`). Later, `torch::load`, `to` and `set_data` may replace the memory of a parameter or a
  /// buffer: whatever uses it next, such as `backward`, `attest`, `save_weights` or a checkpoint, first copies it to
  /// the strategy's memory and points it there again. A tensor that the program has kept of the memory before, such as
  /// to put it back after an evaluation of averaged weights, keeps its values. InvalidArgument there if shape or type
  /// have changed, or if two of them now lie in the same memory. Every rank loads the same, or rank 0 alone and then
  /// all call `rebroadcast`; otherwise the next attestation says who differs.
  ///
  /// InvalidArgument for a parameter that is not f32, f64, f16 or bf16, such as a complex one, for a buffer of a type
  /// that variables cannot have, and for two tensors in the same memory, such as a buffer that is a view of a
  /// parameter: each gets memory of its own, so one would no longer follow the other. Also, with several ranks, for an
  /// Embedding or EmbeddingBag with a `max_norm`, by which a forward pass changes the weights of one rank,
  /// and for `audit_every` below 1. MismatchError for modules that differ in names, shapes or types.
  ///
  /// The module moves to the strategy's device, `device()`; its inputs must be there. InvalidArgument on a GPU if
  /// LibTorch was built without CUDA.
  ReplicatedModule(Strategy& strategy, std::shared_ptr<::torch::nn::Module> module, const Options& options, Here here);
  ReplicatedModule(ReplicatedModule&&) noexcept;
  ~ReplicatedModule();

  /// COLL, blocking, one agreement, in replica context. The backward pass of this rank's loss. Gradients are reduced in
  /// an order that does not depend on autograd's: on the host once all of them are there, on a GPU while autograd
  /// computes the others. A rank without samples passes `{}`. Includes what was accumulated. Returns the loss over all
  /// ranks, which costs no further message. If no rank has samples, no parameter gets a gradient.
  ///
  /// InvalidArgument, before the agreement, for a negative or infinite number of samples, for a loss that is not a real
  /// scalar, and for one that depends on what nobody would train. MismatchError if the ranks have frozen different
  /// parameters.
  ///
  /// Leaves in `.grad` the mean gradient over the samples of all ranks. Every rank says how many samples its loss has,
  /// so batches may be uneven, or empty on some ranks. As in torch, the gradient is added to what `.grad` held, and
  /// `zero_grad` begins afresh, with or without `set_to_none`. A program may keep the tensor of `.grad`: after a
  /// `zero_grad` to none, the next step leaves it unchanged. Gradients that are not zeroed must be the same on every
  /// rank when the next step begins; otherwise it throws InvalidArgument on all ranks. A parameter that only some ranks
  /// have used counts as zeros on the others. One that no rank has used, or that is frozen (requires_grad(false)), has
  /// no gradient from this step, so that torch's optimizers skip it. All ranks freeze the same ones; otherwise they
  /// throw MismatchError.
  ///
  /// The weights of an Embedding or EmbeddingBag with `sparse(true)` have a sparse gradient. Each rank sends only the
  /// rows that its samples have touched. Rows with the same index are added up in rank order or, in `backward_shards`,
  /// in its tree over the shards. `.grad` is a new, coalesced tensor with the rows of all ranks. So SGD and Adagrad of
  /// torch update these rows alone, and its Adam refuses the gradient, as ever; for AdamW, see Optimizer. All ranks
  /// have the same sparse ones; otherwise they throw MismatchError. Tied weights, which more than one module has
  /// registered, have a dense gradient. If a table is tied in another way, so that a rank finds a dense gradient in a
  /// step, the table's gradient is dense on all ranks from that step on. Other sparse gradients become dense, such as
  /// one of `torch::embedding` of a parameter of the module's own.
  ///
  /// The forward passes of a step change each rank's own buffers. This then makes those that changed on any rank equal:
  /// floating-point buffers, such as running statistics, become the mean over the ranks, weighted by their samples;
  /// others, such as counters, those of the first rank that has samples. The buffers of the strategy's other modules
  /// are made equal, too, since the loss may have gone through one that this step does not train.
  ///
  /// It is agreed first. If a rank throws before it, in `forward`, or inside it, in autograd or in a hook, the
  /// exception is rethrown there, and the others throw PeerError. No rank has changed a parameter, and a `backward`
  /// that throws leaves no gradients: what was accumulated is forgotten. A rank that failed outside of it may still
  /// have some; call `zero_grad` everywhere. A pass within another is a ContextError.
  MeanLoss backward(ReplicaContext& context, const Loss& loss, Here here = Here::current());

  /// COLL, blocking, one agreement, in replica context. A step whose bits do not depend on the number of ranks. The
  /// batch is cut into `shards`; each rank computes its share, side by side (`shards_of_rank`). `compute(shard)` makes
  /// the forward pass of one and returns its loss; the backward pass follows. Gradients, losses and buffers are added
  /// up in one binary tree over all shards. Otherwise as `backward`.
  ///
  /// A step takes as long as the largest share, so a rank on the host may bring sums of up to three subtrees of the
  /// tree, if that makes the largest share smaller: of 8 shards, 3 ranks have 2, 3 and 3. With k subtrees, a rank sends
  /// (k + 1) / 2 times the bytes for gradients. Every rank keeps as many copies of these as the rank with most has
  /// subtrees. Powers of two of shards on powers of two of ranks have one each.
  ///
  /// Each shard begins with the same buffers: those that the last step has left, or what every rank has made of them
  /// since then. MismatchError, which names them, if a rank has others, as after a forward pass in training of one rank
  /// alone: evaluate in eval(), or `rebroadcast`. A step that throws leaves the buffers unchanged.
  ///
  /// With reductions in the fixed order, the result is the same bytes on any number of ranks, if `compute` is a
  /// function of the shard alone. For that, let every rank compute on one thread (torch::set_num_threads(1)), and seed
  /// torch (torch::manual_seed) from the number of the shard if the module draws random numbers, as dropout does. A
  /// bf16 or f16 parameter is an InvalidArgument, since its partial sums would be rounded; so are fewer shards than
  /// ranks, and a pass that was accumulated before.
  ///
  /// `compute` is called after the agreement, so it makes no agreement of its own (ContextError).
  ///
  /// With Options::audit_every K, each K-th such step is audited: `compute` is also called for one shard of another
  /// rank, whose samples this rank must be able to read, and the ranks compare digests of the number of samples, of the
  /// gradient of each parameter, of the buffers and of the loss. They travel with the step's other sums, and the step
  /// has the same bits as without. If a rank has got something else than the others get for the same shard, every rank
  /// throws AuditError, which names it, or DriftError if the replicas had become different before, and the step leaves
  /// no gradients. A shard that draws random numbers without seeding torch from its number is an InvalidArgument in the
  /// first step that is audited. So are, in every step, `backward`, which has no shards, and a SyncBatchNorm, whose
  /// shards are computed together. In a step of several modules, the options of the first that has audits hold.
  ///
  /// If a module holds a SyncBatchNorm, its mean and variance are those of all shards of all ranks. So the graphs and
  /// gradients of all of a rank's shards are in memory at a time. Each shard has its own thread, but only one runs at a
  /// time: up to such a layer, then the next shard's. Each finds the module's buffers and torch's random state as it
  /// left them; a random state that it does not seed depends on the shard's number and on the caller's random state.
  /// The other shards see everything else that a shard changes, so `train()` and `eval()` are an InvalidArgument. So
  /// are shards that reach different layers; between ranks, that is a MismatchError. A shard without samples passes an
  /// empty batch. Each such layer costs two agreements in the forward pass.
  MeanLoss backward_shards(ReplicaContext& context, int shards, const std::function<Loss(int shard)>& compute,
                           Here here = Here::current());

  /// LOCAL, the same at any time. The shards that this rank computes in a `backward_shards` of so many, such as to load
  /// their samples before. InvalidArgument for fewer than there are ranks.
  static Range shards_of_rank(Strategy& strategy, int shards);

  /// LOCAL. A backward pass whose gradients and samples stay on this rank, for the next `backward`, which adds its own.
  /// Ranks may differ in how often they accumulate. Afterwards every parameter that is not frozen has a gradient, if
  /// only of zeros. Zeroing the gradients forgets the pass, parameter by parameter: after the `zero_grad` of one of two
  /// optimizers, the mean gradients of its parameters are over the samples since, and those of the others over all. A
  /// program may also scale a gradient between passes; one that a scale makes zero everywhere counts as zeroed. If a
  /// gradient was zero before and after, what was done to it on other ranks decides, or else what was done to the
  /// module's other gradients. If that does not decide either, `backward` throws InvalidArgument on all ranks. It also
  /// throws it for a gradient of an earlier step that was scaled, or zeroed on some ranks alone. A step of an optimizer
  /// on gradients that were only accumulated makes the replicas differ: attestations find it (Strategy::attest_first).
  ///
  /// If the loss went through a SyncBatchNorm in training on several ranks, it is COLL instead, with one agreement: in
  /// Strategy::run, and as often on every rank.
  void accumulate(const Loss& loss, Here here = Here::current());

  /// LOCAL. Makes the gradients undefined, and forgets what was accumulated. Costs nothing.
  void zero_grad();

  /// LOCAL, the same on every rank, after `backward`. Scales the gradients down to this global norm if theirs is
  /// larger. Returns the norm before. The bits do not depend on ranks or threads. A norm that is not finite scales
  /// nothing. InvalidArgument for a norm that is not positive.
  double clip_norm(double largest);

  /// LOCAL; call it on every rank. AdamW or Sgd for this module's parameters, with its state and its name. Errors as
  /// lockstep::Optimizer::prepare: destroy one before you make another with the same slots.
  Optimizer optimizer(const AdamW::Options& options, Here here = Here::current());
  Optimizer optimizer(const Sgd::Options& options, Here here = Here::current());

  /// Where the module is: the CPU, or the rank's GPU.
  at::Device device() const;

  /// The parameters, each once even if it is tied.
  std::vector<::torch::Tensor> parameters() const;

  /// The variables of the parameters, in the same order.
  std::vector<Variable> variables() const;

  struct Impl;

 protected:
  friend struct lockstep::detail::Inside<ReplicatedModule>;
  explicit ReplicatedModule(std::shared_ptr<Impl> impl) : impl_{std::move(impl)} {}

 private:
  template <class Rules>
  Optimizer make_optimizer(const typename Rules::Options& options, const Here& here);

  std::shared_ptr<Impl> impl_;  ///< optimizers refer to it
};

/// An optimizer of this library for the parameters of a module (ReplicatedModule::optimizer), which updates all of them
/// in one pass. Its state lives in the strategy's store, so checkpoints hold it, attestation compares it, and
/// `Strategy::rebroadcast` restores it. Must not outlive the module's strategy.
class ReplicatedModule::Optimizer {
 public:
  Optimizer(Optimizer&&) noexcept;
  ~Optimizer();

  /// COLL, blocking, one agreement. Sends nothing, unless the ranks share the update
  /// (ReductionOptions::shard_optimizer): then each rank updates its slices of the parameters, keeps their state alone,
  /// and gets the others' new values; gradients stay whole. Call it in replica context after `backward`. Updates the
  /// parameters that have a gradient. The others do not change, and neither does their state. A sparse gradient leads
  /// to the step of the same gradient as a dense one: AdamW and a momentum move, and weight decay shrinks, also the
  /// rows that it does not name; Sgd without these visits the named rows alone. Errors as
  /// lockstep::Optimizer::apply_gradients.
  void step(ReplicaContext& context, Here here = Here::current());

  /// As ReplicatedModule::zero_grad.
  void zero_grad();

  /// Its learning rate, its steps, the norm of its last gradient.
  lockstep::Optimizer& rules();

 private:
  friend class ReplicatedModule;
  struct Impl;
  explicit Optimizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// One loss over several modules of a strategy, such as an encoder and a decoder: as the methods of ReplicatedModule,
/// for the gradients and buffers of all of them, with one agreement. Samples count once. Every rank names the same
/// modules in the same order; InvalidArgument for none, for one that is named twice, and for one of another strategy.
///
///     backward(context, {&encoder, &decoder}, Loss::mean(loss, images.size(0)));
LOCKSTEP_API ReplicatedModule::MeanLoss backward(ReplicaContext& context, const std::vector<ReplicatedModule*>& modules,
                                                 const Loss& loss, Here here = Here::current());
LOCKSTEP_API ReplicatedModule::MeanLoss backward_shards(ReplicaContext& context,
                                                        const std::vector<ReplicatedModule*>& modules, int shards,
                                                        const std::function<Loss(int shard)>& compute,
                                                        Here here = Here::current());
LOCKSTEP_API void accumulate(const std::vector<ReplicatedModule*>& modules, const Loss& loss,
                             Here here = Here::current());

/// A module of type M, replicated. `net->` is the module itself:
///
///     auto net = lockstep::libtorch::DataParallel{strategy, Net{}};
///     torch::optim::AdamW adamw{net.parameters()};
///     strategy.run([&](ReplicaContext& context) {
///       adamw.zero_grad();
///       const auto loss = torch::cross_entropy_loss(net->forward(images), labels);
///       net.backward(context, lockstep::libtorch::Loss::mean(loss, labels.size(0)));
///       adamw.step();
///     });
template <class M>
  requires std::derived_from<M, ::torch::nn::Module> || lockstep::detail::is_script<M>
class DataParallel : public ReplicatedModule {
 public:
  /// COLL, as ReplicatedModule.
  template <lockstep::detail::TorchModule T>
  DataParallel(Strategy& strategy, T module, const ReplicatedModule::Options& options = {}, Here here = Here::current())
      : DataParallel{options, strategy, pointer_to(std::move(module)), here} {}

  const std::shared_ptr<M>& module() const { return module_; }
  M* operator->() const { return module_.get(); }
  M& operator*() const { return *module_; }

 private:
  static std::shared_ptr<M> pointer_to(std::shared_ptr<M> module) { return module; }
  static std::shared_ptr<M> pointer_to(M module) { return std::make_shared<M>(std::move(module)); }
  template <class Holder>
    requires requires { typename Holder::ContainedType; }
  static std::shared_ptr<M> pointer_to(const Holder& holder) {
    return holder.ptr();
  }

  DataParallel(const ReplicatedModule::Options& options, Strategy& strategy, std::shared_ptr<M> module, Here here)
      : ReplicatedModule{strategy, module, options, here}, module_{std::move(module)} {}

  std::shared_ptr<M> module_;
};

template <class T>
DataParallel(Strategy&, T) -> DataParallel<typename lockstep::detail::ModuleType<T>::type>;
template <class T>
DataParallel(Strategy&, T, const ReplicatedModule::Options&)
    -> DataParallel<typename lockstep::detail::ModuleType<T>::type>;

}  // namespace libtorch
}  // namespace lockstep
