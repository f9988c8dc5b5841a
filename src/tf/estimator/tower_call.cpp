#include "tf/estimator/tower_call.hpp"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>

#include "core/base/digest.hpp"
#include "core/control/channel.hpp"
#include "core/control/meeting_point.hpp"
#include "core/control/tag.hpp"
#include "core/control/verdict.hpp"
#include "core/tensor/shared_parts.hpp"
#include "sync/reduce/arithmetic.hpp"
#include "sync/reduce/reductions.hpp"
#include "sync/strategy/inside.hpp"
#include "sync/strategy/reduced_leaves.hpp"
#include "tf/estimator/gathered_outputs.hpp"

namespace lockstep::detail {
namespace {

/// The entry of that name, or null.
template <class V>
const V* find(const std::vector<std::pair<std::string, V>>& made, std::string_view name) {
  const auto found = std::ranges::find(made, name, &std::pair<std::string, V>::first);
  return found == made.end() ? nullptr : &found->second;
}

/// A text that ranks compare, of which messages show as much as fits.
struct ComparedText {
  std::uint64_t digest = 0;
  char shown[200] = {};

  void set(const std::string& text) {
    digest = digest_of(text);
    text.copy(shown, sizeof shown - 1);
    if (text.size() >= sizeof shown) std::memcpy(shown + sizeof shown - 4, "...", 3);
  }
};

std::string list_of(std::span<const Tower::Gradient> gradients) {
  std::string list;
  for (const Tower::Gradient& each : gradients)
    list += fmt::format("{}{} {}{}", list.empty() ? "" : ", ", each.variable.label(),
                        lockstep::name_of(each.variable.dtype()), lockstep::describe(each.variable.shape()));
  return list.empty() ? "no variables" : list;
}

std::string list_of(const EstimatorSpec::EvalMetric& metric) {
  std::string list;
  for (const SyncOnReadVariable& each : metric.accumulators)
    list += fmt::format("{}{} {}{}", list.empty() ? "" : ", ", each.label(), lockstep::name_of(each.dtype()),
                        lockstep::describe(each.shape()));
  return list;
}

/// Slices without rows. InvalidArgument for a variable that has none.
IndexedSlices no_rows_of(const Variable& variable) {
  Shape shape = variable.shape();
  if (shape.empty()) throw InvalidArgument{fmt::format("variable {} has no rows for slices", variable.label())};
  shape.front() = 0;
  return {Tensor::zeros(variable.dtype(), std::move(shape)), Tensor::zeros(DType::i64, {0}), variable.shape()};
}

void require_metric(const std::string& name, const EstimatorSpec::EvalMetric& metric, const VariableStore& store) {
  if (!metric.value) throw InvalidArgument{fmt::format("metric '{}' has no function for its value", name)};
  for (const SyncOnReadVariable& each : metric.accumulators) {
    if (inside(each).state().owner != &store)
      throw InvalidArgument{fmt::format("metric '{}': variable {} is another strategy's", name, each.label())};
    if (each.aggregation() != Variable::Aggregation::sum)
      throw InvalidArgument{fmt::format("metric '{}': variable {} has the aggregation {}; expected sum", name,
                                        each.label(), lockstep::name_of(each.aggregation()))};
  }
}

void require_loss(const Tensor& loss) {
  if (loss.count() != 1)
    throw InvalidArgument{fmt::format("the loss is {}; expected one number", describe(loss.view()))};
  require_reducible(ReduceOp::mean, loss.dtype());
}

}  // namespace

std::string_view name_of(EstimatorSpec::Mode mode) {
  switch (mode) {
    case EstimatorSpec::Mode::train: return "Mode::train";
    case EstimatorSpec::Mode::evaluate: return "Mode::evaluate";
    case EstimatorSpec::Mode::predict: return "Mode::predict";
  }
  throw InvalidArgument{fmt::format("mode {} is none of train, evaluate, predict", static_cast<int>(mode))};
}

/// Where in its call a tower is, and with what: what must be the same on every rank. The agreements are numbered, so
/// ranks in a call of an optimizer are in the call of the same number.
struct TowerCall::Stage {
  std::int64_t at_end = 0;  ///< 1 after the model function, 0 in a call of an optimizer
  std::int64_t accumulators = 0;
  ComparedText variables, loss, metrics;
};

namespace {

/// What the first rank that differs from rank 0 does otherwise.
template <class Stage>
Verdict judge_stages(std::span<const Stage> stages, std::span<const std::string> names) {
  const Stage& first = stages.front();
  const auto differs = [&](const Stage& each) { return std::memcmp(&each, &first, sizeof first) != 0; };
  const auto found = std::ranges::find_if(stages, differs);
  const Stage& other = *found;
  const auto rank = static_cast<std::size_t>(found - stages.begin());
  const auto same_calls = "Each replica's model_fn was supposed to make the same optimizer calls.";
  const auto verdict = [&](std::string sentence) {
    return Verdict{static_cast<int>(rank), Error::ExitCode::mismatch, false, std::move(sentence)};
  };
  if (first.at_end != other.at_end)
    return verdict(fmt::format("{} Here {} {}; {} {}", same_calls, names[rank],
                               other.at_end ? "returned from its own" : "called an optimizer", names[0],
                               other.at_end ? "called an optimizer" : "returned from its own"));
  if (first.variables.digest != other.variables.digest)
    return verdict(fmt::format("{} Here {} has gradients of {}; {} of {}", same_calls, names[rank],
                               other.variables.shown, names[0], first.variables.shown));
  if (first.loss.digest != other.loss.digest)
    return verdict(fmt::format("{} returned {}; {} {}", names[rank], other.loss.shown, names[0], first.loss.shown));
  const auto what = [&](const Stage& stage) {
    return first.accumulators == other.accumulators ? std::string{stage.metrics.shown}
                                                    : fmt::format("{}", stage.accumulators);
  };
  return verdict(fmt::format("Different eval_metrics across model_fn calls. Expected {}{}, but got {} instead.",
                             what(first), first.accumulators == other.accumulators ? "" : " accumulators",
                             what(other)));
}

}  // namespace

TowerCall::TowerCall(ReplicatedTowers::State& model, ReplicaContext& context, EstimatorSpec::Mode mode,
                     const Here& here)
    : model_{model}, context_{context}, mode_{mode}, here_{here}, guard_{context} {}

bool TowerCall::divides() const {
  return replicas() > 1 && model_.options.reduction != ReplicateOptions::Reduction::sum;
}

/// The rank that alone updates the variable of that number; none if every rank does.
std::optional<int> TowerCall::holder_of(std::int64_t number) const {
  if (replicas() == 1) return std::nullopt;
  switch (model_.options.placement) {
    case ReplicateOptions::Placement::mirrored: break;
    case ReplicateOptions::Placement::chief: return 0;
    case ReplicateOptions::Placement::round_robin: return static_cast<int>(number % replicas());
  }
  return std::nullopt;
}

MirroredVariable TowerCall::variable(Variable::Options options, const std::function<Tensor()>& initial,
                                     const Here& here) {
  const std::string name = options.name;
  if (name.empty())
    throw InvalidArgument{"Tower::variable: expected a name, under which later calls find the variable"};
  if (find(model_.accumulators, name))
    throw InvalidArgument{fmt::format("Tower::variable: '{}' is the name of an accumulator", name)};
  if (const auto* const made = find(model_.variables, name)) return *made;
  const MirroredVariable variable = context_.strategy().create_variable(std::move(options), initial, here);
  // Before it has memory, which is laid out by holder.
  inside(variable).state().holder = holder_of(std::ssize(model_.variables));
  model_.variables.emplace_back(name, variable);
  context_.merge_call([&](Strategy& strategy) { strategy.seal(here); }, {}, here);
  return variable;
}

SyncOnReadVariable TowerCall::accumulator(const std::string& name, const Shape& shape, DType dtype, const Here& here) {
  if (find(model_.variables, name))
    throw InvalidArgument{fmt::format("Tower::accumulator: '{}' is the name of a variable", name)};
  if (const auto* const made = find(model_.accumulators, name)) {
    if (made->shape() != shape || made->dtype() != dtype)
      throw InvalidArgument{fmt::format("Tower::accumulator: '{}' is {}{}; asked for {}{}", name,
                                        lockstep::name_of(made->dtype()), lockstep::describe(made->shape()),
                                        lockstep::name_of(dtype), lockstep::describe(shape))};
    return *made;
  }
  const SyncOnReadVariable accumulator = context_.strategy().create_sync_on_read(
      {.name = name, .aggregation = Variable::Aggregation::sum}, [&] { return Tensor::zeros(dtype, shape); }, here);
  inside(accumulator).state().saved = false;
  model_.accumulators.emplace_back(name, accumulator);
  context_.merge_call([&](Strategy& strategy) { strategy.seal(here); }, {}, here);
  return accumulator;
}

/// The place and the text are the same in all stages, so that ranks in different ones get the verdict of this file.
void TowerCall::agree(const Stage& stage) {
  const auto diagnose = [&](ControlChannel& channel, std::span<const std::string> names) {
    std::vector<Stage> all(static_cast<std::size_t>(channel.size()));
    channel.all_gather(std::as_bytes(std::span{&stage, 1}), std::as_writable_bytes(std::span{all}));
    return judge_stages(std::span<const Stage>{all}, names);
  };
  inside(context_.strategy())
      .agree(TagKind::merge, here_, "a tower", {digest_of(std::as_bytes(std::span{&stage, 1})) | 1, diagnose});
}

/// For each variable the number of ranks with a dense gradient, and the number of those with slices.
std::vector<std::int64_t> TowerCall::sum_kinds(std::span<const Tower::Gradient> gradients) {
  std::vector<std::int64_t> kinds;
  for (const Tower::Gradient& each : gradients) {
    const bool sparse = each.value && each.value->slices();
    kinds.insert(kinds.end(), {each.value && !sparse, sparse});
  }
  if (kinds.empty()) return kinds;
  const TensorView view{reinterpret_cast<std::byte*>(kinds.data()), {std::ssize(kinds)}, DType::i64};
  inside(context_.strategy()).reductions().all_reduce(ReduceOp::sum, {&view, 1});
  return kinds;
}

std::vector<Optimizer::Gradient> TowerCall::complete(std::span<const Tower::Gradient> gradients,
                                                     const std::optional<Variable>& global_step) {
  Stage stage;
  stage.variables.set(list_of(gradients) + (global_step ? " and the global step " + global_step->label() : ""));
  agree(stage);
  const std::vector<std::int64_t> kinds = sum_kinds(gradients);
  std::vector<Optimizer::Gradient> complete;
  Strategy& strategy = context_.strategy();
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    const auto& [value, variable] = gradients[i];
    const std::int64_t dense = kinds[2 * i], sparse = kinds[2 * i + 1];
    if (dense > 0 && sparse > 0)
      throw MismatchError{fmt::format("the gradients of variable {} are dense on {} of {} replicas and slices on {}",
                                      variable.label(), dense, replicas(), sparse)};
    if (value) {
      complete.push_back({*value, variable});
    } else if (dense > 0) {
      complete.push_back(Optimizer::gradients_in_store(strategy.store(), {variable}).front());
      complete.back().value.view().fill_zero(strategy.stream());
    } else if (sparse > 0) {
      complete.push_back({no_rows_of(variable), variable});
    }
  }
  return complete;
}

EstimatorSpec TowerCall::finish(const std::function<EstimatorSpec(Tower&)>& model_fn) {
  Tower tower{*this};
  EstimatorSpec spec = model_fn(tower);
  if (spec.loss) require_loss(*spec.loss);
  if (mode_ == EstimatorSpec::Mode::evaluate) {
    if (!spec.predictions.empty()) throw InvalidArgument{"predictions are not supported for Mode::evaluate"};
    for (const auto& [name, metric] : spec.eval_metrics) require_metric(name, metric, context_.strategy().store());
  }
  if (mode_ == EstimatorSpec::Mode::predict) require_rows(spec);
  agree(end_of(spec));
  reduce(spec);
  if (mode_ == EstimatorSpec::Mode::predict && replicas() > 1) gather_outputs(spec, context_, here_);
  return spec;
}

TowerCall::Stage TowerCall::end_of(const EstimatorSpec& spec) const {
  Stage stage{.at_end = 1};
  stage.loss.set(spec.loss ? fmt::format("a loss {}{}", describe(spec.loss->view()),
                                         spec.loss->device() == DeviceKind::cpu ? "" : " on a GPU")
                           : "no loss");
  if (mode_ != EstimatorSpec::Mode::evaluate) return stage;
  std::string metrics;
  for (const auto& [name, metric] : spec.eval_metrics) {
    stage.accumulators += std::ssize(metric.accumulators);
    metrics += fmt::format("{}'{}' of {}", metrics.empty() ? "" : ", ", name, list_of(metric));
  }
  stage.metrics.set(metrics);
  return stage;
}

/// One message: the losses, and the sums that metrics are computed from. What the tower returned, and the accumulators,
/// stay as they are.
void TowerCall::reduce(EstimatorSpec& spec) {
  Strategy& strategy = context_.strategy();
  std::vector<TensorView> sums;
  const auto add_copy = [&](const TensorView& view, Stream& stream) {
    Tensor copy = Tensor::copy_of(view, stream);
    sums.push_back(copy.view());
    return copy;
  };
  if (spec.loss && replicas() > 1) {
    Stream& stream = stream_for(*spec.loss, strategy.stream());
    if (mode_ != EstimatorSpec::Mode::predict) {
      spec.loss = add_copy(spec.loss->view(), stream);
    } else if (divides()) {
      spec.loss = Tensor::copy_of(spec.loss->view(), stream);
    }
  }
  std::map<std::string, std::vector<Tensor>> totals;
  if (mode_ == EstimatorSpec::Mode::evaluate)
    for (const auto& [name, metric] : spec.eval_metrics)
      for (const SyncOnReadVariable& each : metric.accumulators)
        totals[name].push_back(add_copy(each.local(), strategy.stream()));
  if (!sums.empty()) inside(strategy).reductions().all_reduce(ReduceOp::sum, sums);
  if (spec.loss && divides()) divide(spec.loss->view(), replicas(), stream_for(*spec.loss, strategy.stream()));
  spec.metrics.clear();
  if (mode_ != EstimatorSpec::Mode::evaluate) return;
  for (const auto& [name, metric] : spec.eval_metrics) {
    for (Tensor& total : totals[name]) total = on_host(total);
    spec.metrics[name] = metric.value(totals[name]);
  }
}

}  // namespace lockstep::detail
