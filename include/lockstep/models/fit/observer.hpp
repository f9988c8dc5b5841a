// What a training run reports to its observers.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/core/base/error.hpp>
#include <lockstep/core/base/export.hpp>
#include <lockstep/models/ops/kernels.hpp>

namespace lockstep {

/// Called on every rank, between steps, in the context in which `fit` was called, unless stated otherwise. So an
/// observer may call collectives, such as save_checkpoint, if it does so on every rank. What it does on the chief
/// alone, such as writing a line, must not be a collective. `wants_gradient_norm` must always return the same value.
/// on_drift and on_audit must neither call a collective nor throw, since their exception would hide what was found.
/// Exceptions from the other methods propagate out of `fit`.
class LOCKSTEP_API Observer {
 public:
  /// After a step. Everything except times is the same on every rank, and on the numbers of ranks that `fit` names.
  struct Step {
    std::int64_t step;     ///< steps done
    std::int64_t steps;    ///< steps in the whole run
    std::int64_t epoch;    ///< epoch of the step, from 1
    std::int64_t epochs;   ///< epochs that the whole run touches
    std::int64_t samples;  ///< samples seen so far
    std::int64_t batch;    ///< samples in the step's global batch
    double loss;           ///< mean per label, by weight, of the step's global batch, before its update
    double learning_rate;
    /// Optimizer::gradient_norm, if this rank's observer wants it.
    std::optional<double> gradient_norm;
    std::int64_t evaluations_left;    ///< evaluations to come, one after this step included
    std::int64_t evaluation_samples;  ///< samples of each
    double seconds;                   ///< training time so far, excluding evaluations
    double samples_per_second;
  };

  /// After an evaluation on the test set, or on its first samples (FitOptions::evaluation_samples).
  struct Evaluation {
    /// During an evaluation.
    struct Progress {
      std::int64_t step;     ///< Evaluation::step
      std::int64_t epoch;    ///< Evaluation::epoch
      std::int64_t done;     ///< samples so far
      std::int64_t samples;  ///< samples of the evaluation
      double seconds;        ///< since its start
    };

    std::int64_t step;   ///< 0 if the weights come from elsewhere
    std::int64_t epoch;  ///< 0 outside of a training
    std::int64_t samples;
    double loss;                          ///< mean per label, by weight
    std::optional<double> bits_per_byte;  ///< the loss in bits (text only)
    double accuracy;                      ///< correctly predicted labels, divided by the weight of all labels
    // Of a model that predicts numbers, instead of an accuracy.
    /// 1 - (sum of squared errors) / (sum of squared distances of the labels from their mean): 1 if every prediction is
    /// exact, 0 if predicting the mean would be as good. NaN if all labels are equal, or differ too little to show in
    /// the rounded sum of their squares.
    std::optional<double> r_squared;
    std::optional<double> mean_absolute_error;  ///< in the unit of the labels in the data
    double seconds;                             ///< duration of the evaluation
  };

  /// Where the time of the replicas went, and which of them the others waited for. The same on every rank.
  ///
  /// Agreements and sums over the ranks divide the time. After one, a replica is busy until it arrives at the next;
  /// then it waits until all have arrived. So `waiting` holds the time that it loses because of others, and the replica
  /// that is busy longest keeps the others waiting. Sums over the ranks are in `waiting` too. A delay that hits one
  /// replica now and another then makes all of them wait, and none of them late.
  ///
  /// Only a rank's main thread counts. What it waits for in its other threads, such as one that loads batches, counts
  /// as if it did that work itself. A GPU's passes count as backward, except the time in which they are launched.
  struct Parts {
    struct Replica {
      int replica;       ///< its number
      std::string name;  ///< its task: "worker:1"
      std::string host;
      // Seconds. These eight add up to the time that passed on this replica.
      double data;        ///< loading batches
      double forward;     ///< up to and including the loss
      double backward;    ///< with the sum over the replica's shards
      double optimizer;   ///< from the sums over the ranks to new weights
      double checkpoint;  ///< saving, as far as the training waits for it
      double evaluation;  ///< passes over the test set, with their data
      double other;       ///< the rest, such as observers
      double waiting;     ///< for the other replicas, with the sums over the ranks
      /// Of these seconds, those in which it was ready to run and had no processor, because other processes or threads
      /// had it (Linux's run delay). 0 where the kernel does not count that.
      double queued;
      /// How much longer it was busy than the least busy replica, as a fraction of the seconds that passed.
      double late;
      /// The part in which its excess over the least time of any replica is largest: "data". Empty if it is not late.
      std::string mostly;
    };

    std::int64_t step = 0;   ///< steps done
    std::int64_t steps = 0;  ///< how many of them this covers
    double seconds = 0;      ///< that passed since the last one of these, or since the start
    std::vector<Replica> replicas;
  };

  /// What a step came from and what it yielded, as digests of the bytes of each shard of its batch (xxHash64, and XXH3
  /// for gradients). Whoever computes the step again, on any number of ranks, gets the same.
  struct Digests {
    std::int64_t step;  ///< steps done
    double loss;        ///< as in Step
    /// What they are of: "samples", "gradient of 'w'" for each variable, "statistics" if the model has any,
    /// "loss".
    std::span<const std::string> values;
    std::span<const std::uint64_t> of_shards;  ///< of each of `values`, first of shard 0, then of shard 1, …
  };

  /// Progress of a training run. Together with the variables and the optimizer's state, it is all that `fit` needs to
  /// continue as if it had never stopped.
  struct State {
    std::int64_t steps = 0;  ///< made
    /// The losses of the last steps, added up over all labels: as many as an epoch has, the latest at the end.
    std::deque<ops::Kernels::BatchLoss::Weighed> recent;

    /// Converts to text and back without changing a number. `parse` throws Error for any other text.
    std::string to_text() const;
    static State parse(std::string_view text);
  };

  virtual ~Observer() = default;

  /// Whether `on_step` uses the norm of the gradient, which may cost a pass over all gradients.
  virtual bool wants_gradient_norm() const { return false; }
  virtual void on_step(const Step& /*report*/) {}
  /// After `on_step` of a step that is recorded (FitOptions::record_every).
  virtual void on_digests(const Digests& /*digests*/) {}
  /// After each batch of an evaluation, inside replica code: must not communicate.
  virtual void on_evaluating(const Evaluation::Progress& /*progress*/) {}
  virtual void on_evaluation(const Evaluation& /*report*/) {}

  /// After an evaluation or an attestation, and last of all at the end of the run, unless it ends early.
  virtual void on_parts(const Parts& /*report*/) {}

  /// At the end of a step, after its evaluation, if there is one.
  virtual void on_step_end(const State& /*state*/) {}

  /// After the last `on_step_end` of a run that ends early because a rank asked for it.
  virtual void on_stop(const State& /*state*/) {}

  /// The replicas were found to differ at the end of `step` (from 1); the run ends.
  virtual void on_drift(std::int64_t /*step*/, const DriftError& /*found*/) {}

  /// An audit found a wrong result; the step was not applied, and the run ends.
  virtual void on_audit(const AuditError& /*found*/) {}
};

}  // namespace lockstep
