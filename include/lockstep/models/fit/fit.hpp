// The training loop: sharded steps and evaluations. Nothing in it depends on the number of ranks.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/core/base/export.hpp>
#include <lockstep/models/fit/observer.hpp>
#include <lockstep/models/input/sample_source.hpp>
#include <lockstep/models/nn/model.hpp>
#include <lockstep/sync/optim/optimizer.hpp>
#include <lockstep/sync/strategy/strategy.hpp>

namespace lockstep {

struct FitOptions {
  /// What `fit` takes beside its options: the same samples on every rank. Both sources must outlive whatever receives
  /// this struct.
  struct Samples {
    const SampleSource& train;
    const SampleSource& test;
  };

  /// What to do when a loss is not finite.
  enum class OnDivergence : std::uint8_t { stop, proceed };

  std::int64_t global_batch = 256;
  std::int64_t steps = 1;
  std::uint64_t seed = 1;  ///< seeds the order of the samples
  int shards = 8;          ///< one for each rank or more
  int accumulate = 1;      ///< micro-batches per shard
  /// Threads of each rank that compute whole shards, an equal number each, with kernels that use one thread themselves.
  /// They also share the update of an optimizer that updates by element, and fill their own batches from a source that
  /// allows it (SampleSource::fills_at_once). They change no bits. If a rank has a power-of-two number of shards, it
  /// uses the largest power of two up to this number of threads; otherwise one. It also uses one for a model without
  /// workers (nn::Model::make_worker), for training with micro-batches, on a GPU, and in sim::run. Replica 0 logs one
  /// warning if others are idle.
  int threads = 1;
  /// How many steps ahead a thread of each rank loads batches. It changes no bits. If 0, each step loads its own.
  /// Otherwise that thread reads Samples::train, while the program's own reads `test` and, for an audit, `train` too,
  /// but never at the same time.
  int prefetch = 0;
  /// Steps between evaluations. If empty, evaluates after each epoch. The last step always evaluates.
  std::optional<std::int64_t> evaluate_every = {};
  /// Samples of an evaluation, the first ones of the test set. If empty, or if there are fewer, all of them.
  std::optional<std::int64_t> evaluation_samples = {};
  /// Steps between attestations, in which the replicas prove that they still hold the same values. If empty, never;
  /// otherwise the last step attests too.
  std::optional<std::int64_t> attest_every = {};
  /// How many of the first steps, from `start` on, attest as well. This detects at once any gradients that are not
  /// summed over the ranks. If 0, none.
  int attest_first = 2;
  /// Steps between audits, in which each rank also computes one shard of another rank, and the ranks compare what they
  /// got. If empty, never.
  std::optional<std::int64_t> audit_every = {};
  /// Steps between calls of Observer::on_digests; the last step calls it too. If empty, never called.
  std::optional<std::int64_t> record_every = {};
  OnDivergence on_divergence = OnDivergence::stop;
  /// LOCAL. Returns a hint for the end of the line about a divergence. If empty, there is none.
  std::function<std::string()> divergence_hint = {};
  /// Names of variables that no step updates, as if they were not trainable: neither a gradient nor weight decay
  /// changes them, and they have no share in the gradient's norm. Moving averages still change.
  std::vector<std::string> frozen = {};
  /// Where to continue (Observer::on_step_end). The variables and the optimizer's state must be those of that step. If
  /// empty, continues where the checkpoint that was restored last was saved, or begins at step 0 if none was.
  std::optional<Observer::State> start = {};
};

struct FitResult {
  std::int64_t steps = 0;  ///< with those before FitOptions::start, as samples
  std::int64_t samples = 0;
  double seconds = 0;  ///< training time since the start, excluding evaluations
  double samples_per_second = 0;
  double train_loss = 0;  ///< mean per label, by weight, over the last epoch's worth of steps
  Observer::Evaluation last_evaluation{};
  /// Where the time since the start went, until the last Observer::on_parts. Without replicas if there was none.
  Observer::Parts parts{};
  bool stopped = false;  ///< early, as a rank asked (Strategy::request_stop)
};

/// COLL, blocking. Trains `model` on `data`.
///
/// Every mean, of gradients and of losses, is a sum over labels divided by what these labels weigh: 1 each, unless the
/// model says otherwise (ops::Kernels::BatchLoss::weight). Weights are summed over all shards and ranks, in the tree
/// that sums the losses, before the gradient is divided. A step whose labels weigh 0 changes nothing and reports a loss
/// of 0.
///
/// A step is one Strategy::run. The ranks agree on it first. Then each computes the gradients of its shards of the
/// global batch and adds them up in the fixed order, and the ranks' sums are added up in the same tree
/// (Optimizer::apply_gradients). A shard is computed in `accumulate` micro-batches, one after the other, whose
/// gradients are added up. Activations take the memory of one micro-batch; gradients need one more copy. Another number
/// of micro-batches sums in another order and so gives different low-order bits. The samples of a step are a function
/// of (seed, step, global batch) alone, and its sums are one tree over the shards if the strategy reduces in the fixed
/// order (ReductionOptions). With that and the same number of shards, the weights, the losses and everything reported
/// to `observer` except times are the same bytes on any number of ranks.
///
/// The shards of a joint model (nn::Model::joint) are computed together, with sums over the ranks on the way. With
/// `accumulate`, each micro-batch is computed together with those of the same number in all other shards, so the result
/// for a sample depends on them. A rank then needs memory for the activations and gradients of all its shards at once.
///
/// An attestation covers weights, optimizer state and moving averages, and is part of the agreement that ends its step.
/// If they differ, calls Observer::on_drift, and every rank throws DriftError. The first steps attest too
/// (FitOptions::attest_first, which replaces the number given to Strategy::attest_first).
///
/// An audit finds a rank that reads or computes something else than others would: wrong data, or a processor that errs.
/// Replicas stay equal then, as the wrong gradient is summed into all of them. In an audited step, each rank computes
/// one shard of another rank too, and digests of both results meet in the step's last sum: of samples, gradients,
/// statistics and loss. If they differ, the step is not applied. Every rank recomputes the shards in question, calls
/// Observer::on_audit, and throws AuditError, which names the replica whose result differs from the majority's, or none
/// if two ranks differ and each reproduces its result. Whose shard a rank computes, and which, follows from seed and
/// step: each shard has its turn once, at least, in as many audits as the rank that has most has shards. A single rank
/// computes its own shard twice. An audit costs the time of one shard, computed by one thread, and memory for a copy of
/// the gradients; it changes no bits. A joint model (nn::Model::joint) is refused.
///
/// The digests of a recorded step (Observer::Digests) travel in its last sum too. The rank then looks at each of its
/// shards, which may take longer than all at once, but has the same bits.
///
/// If the loss of a step or of an evaluation is not finite, the run ends: after `observer` has seen the loss,
/// every rank throws DivergenceError, which names the step, its learning rate and its gradient norm. All ranks decide
/// alike, from the reduced loss. With OnDivergence::proceed, replica 0 logs one warning and the run continues.
///
/// A run that continues from `start` makes the steps that are left. Except for times, everything is as if it had made
/// the earlier steps too. If no step is left, it only evaluates, and does not call `observer`.
///
/// A checkpoint that a CheckpointManager saves during a run, or after it, holds the run's Observer::State under the
/// name "fit", unless the program gives a state of that name. After a restore, a run without `start` continues from
/// there, if it is the same run: the first `fit` of the program continues what its first `fit` saved, and so on.
/// InvalidArgument, which names the checkpoint, if a run would not continue with the weights of its step:
///   - if the checkpoint was saved after steps and has no such state (save_checkpoint, or a loop of your own);
///   - if it was saved in a later run than this one;
///   - if `start` differs from its state.
/// CheckpointError if the state cannot be that of a run. None of this applies if weights alone were restored
/// (load_weights, CheckpointManager::Options::weights_only), since a new training begins with them, or if the program
/// has made steps of its own since the restore.
///
/// If a rank asks for an early end (Strategy::request_stop), all ranks stop after the step under way and the evaluation
/// that is due after it, and Observer::on_stop is called. Resuming from the state that was reported
/// last repeats no step and skips none. If the ranks know of the request before the first step, none is made. After
/// the last step there is nothing to stop.
///
/// Messages name the place of this call, and its runs by their step or evaluation. Later runs are named as before the
/// call.
///
/// Seals the variables first if they are not sealed. InvalidArgument for options below 1, for fewer steps than `start`
/// has made, for fewer `shards` than ranks, for audits of a joint model, for a model without variables, for a frozen
/// variable that it does not have, if all are frozen, and for no samples to train or test on. MismatchError if the
/// ranks differ in their options or in the number of samples.
LOCKSTEP_API FitResult fit(Strategy& strategy, nn::Model& model, Optimizer& optimizer, const FitOptions::Samples& data,
                           const FitOptions& options, Observer& observer, Here here = Here::current());

}  // namespace lockstep
