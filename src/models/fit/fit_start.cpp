#include "models/fit/fit_start.hpp"

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <lockstep/core/base/error.hpp>

#include "models/fit/frozen_variables.hpp"
#include "models/nn/joint_model.hpp"
#include "sync/strategy/fit_progress.hpp"

namespace lockstep::detail {
namespace {

Observer::State state_in(const FitProgress::Restored& restored, const FitOptions& options) {
  const auto fail = [&](std::string_view what) {
    throw CheckpointError{fmt::format("checkpoint {}: its state of fit {}", restored.checkpoint, what)};
  };
  try {
    Observer::State state = Observer::State::parse(*restored.state);
    if (const std::string fault = fault_in(state, options.on_divergence); !fault.empty()) fail(fault);
    return state;
  } catch (const CheckpointError&) {
    throw;
  } catch (const Error& error) {
    fail(fmt::format("is {}", error.what()));
  }
  return {};
}

/// The number of steps that the text says; nothing if it is no state of a run.
std::optional<std::int64_t> steps_in(const std::string& text) {
  try {
    return Observer::State::parse(text).steps;
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace

void require_valid(const FitOptions& options, nn::Model& model, const FitOptions::Samples& data) {
  if (options.steps < 1) throw InvalidArgument{fmt::format("steps: {}, expected at least 1", options.steps)};
  if (options.evaluate_every && *options.evaluate_every < 1)
    throw InvalidArgument{fmt::format("steps between evaluations: {}, expected at least 1", *options.evaluate_every)};
  if (options.evaluation_samples && *options.evaluation_samples < 1)
    throw InvalidArgument{
        fmt::format("samples of an evaluation: {}, expected at least 1", *options.evaluation_samples)};
  if (options.attest_every && *options.attest_every < 1)
    throw InvalidArgument{fmt::format("steps between attestations: {}, expected at least 1", *options.attest_every)};
  if (options.attest_first < 0)
    throw InvalidArgument{fmt::format("first steps that attest: {}, expected 0 or more", options.attest_first)};
  if (options.audit_every && *options.audit_every < 1)
    throw InvalidArgument{fmt::format("steps between audits: {}, expected at least 1", *options.audit_every)};
  if (options.record_every && *options.record_every < 1)
    throw InvalidArgument{fmt::format("steps between recorded ones: {}, expected at least 1", *options.record_every)};
  if (options.audit_every && inside(model).joint())
    throw InvalidArgument{fmt::format(
        "steps between audits: {}, and a model '{}' that computes all shards of a step together; expected one that "
        "computes each by itself",
        *options.audit_every, model.name())};
  if (options.accumulate < 1)
    throw InvalidArgument{fmt::format("micro-batches of a shard: {}, expected at least 1", options.accumulate)};
  if (options.threads < 1)
    throw InvalidArgument{fmt::format("threads of a rank: {}, expected at least 1", options.threads)};
  if (options.prefetch < 0)
    throw InvalidArgument{fmt::format("batches to prefetch: {}, expected 0 or more", options.prefetch)};
  if (options.start.value().steps > options.steps)
    throw InvalidArgument{
        fmt::format("steps: {}, of which {} are made; expected at least as many", options.steps, options.start->steps)};
  if (model.variables().empty())
    throw InvalidArgument{fmt::format("model '{}' has no variables; expected one or more to train", model.name())};
  if (data.test.count() < 1) throw InvalidArgument{"the test set has 0 samples; expected 1 or more"};
  (void)updated_variables(model.variables(), options.frozen);
}

std::string text_of(const FitOptions::Samples& data, const FitOptions& options) {
  const auto or_none = [](const std::optional<std::int64_t>& value) {
    return value ? fmt::format("{}", *value) : std::string{"none"};
  };
  const auto every = [](std::string_view what, const std::optional<std::int64_t>& steps) {
    return steps ? fmt::format(", {} every {}", what, *steps) : std::string{};
  };
  return fmt::format(
      "fit on {} samples: seed {}, batch {}, {} steps{}, {} shards, {} micro-batches{}, {} test samples, "
      "evaluation every {} of {}, attestation every {}, {} on divergence{}",
      data.train.count(), options.seed, options.global_batch, options.steps,
      options.start->steps > 0 ? fmt::format(" after {}", options.start->steps) : "", options.shards,
      options.accumulate,
      every("audit", options.audit_every) + every("record", options.record_every) +
          (options.attest_first != FitOptions{}.attest_first ? fmt::format(", {} first attested", options.attest_first)
                                                             : ""),
      data.test.count(), or_none(options.evaluate_every), or_none(options.evaluation_samples),
      or_none(options.attest_every), options.on_divergence == FitOptions::OnDivergence::stop ? "stop" : "proceed",
      options.frozen.empty() ? "" : fmt::format(", frozen {}", fmt::join(options.frozen, " ")));
}

std::string fault_in(const Observer::State& state, FitOptions::OnDivergence on_divergence) {
  if (state.steps < 0) return fmt::format("has made {} steps", state.steps);
  for (const ops::Kernels::BatchLoss::Weighed& step : state.recent) {
    if (!std::isfinite(step.weight) || step.weight < 0)
      return fmt::format("has a step whose labels weigh {}", step.weight);
    if (!std::isfinite(step.loss) && on_divergence == FitOptions::OnDivergence::stop)
      return fmt::format("has a step with the loss {}", step.loss);
  }
  return {};
}

Observer::State start_of(VariableStore& store, const FitOptions& options) {
  if (options.start)
    if (const std::string fault = fault_in(*options.start, options.on_divergence); !fault.empty())
      throw InvalidArgument{fmt::format("FitOptions::start {}; expected the state of a run", fault)};
  FitProgress& progress = FitProgress::of(store);
  const std::optional<FitProgress::Restored>& restored = progress.restored(store);
  if (!restored) return options.start.value_or(Observer::State{});

  const bool is_its_fit = restored->fits_before == progress.fits();
  if (options.start) {
    const auto steps = restored->state && is_its_fit ? steps_in(*restored->state) : std::nullopt;
    if (steps && *steps != options.start->steps)
      throw InvalidArgument{
          fmt::format("FitOptions::start has made {} steps, but the restored checkpoint {} has made {}; expected the "
                      "same number, or no start",
                      options.start->steps, restored->checkpoint, *steps)};
    return *options.start;
  }
  if (restored->state && is_its_fit) return state_in(*restored, options);
  if (restored->state)
    throw InvalidArgument{fmt::format(
        "the restored checkpoint {} was saved in call {} of fit, and this is call {}; expected FitOptions::start, "
        "which says how many steps this call has made",
        restored->checkpoint, restored->fits_before + 1, progress.fits() + 1)};
  if (restored->step == 0) return {};
  throw InvalidArgument{
      fmt::format("the restored checkpoint {} is of step {} and does not say where fit continues; expected "
                  "FitOptions::start, or load_weights for a new training that begins with its weights",
                  restored->checkpoint, restored->step)};
}

}  // namespace lockstep::detail
