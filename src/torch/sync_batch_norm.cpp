#include <algorithm>
#include <atomic>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/functional/batchnorm.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/torch/sync_batch_norm.hpp>

#include "core/base/digest.hpp"
#include "core/base/element_type.hpp"
#include "core/control/meeting_point.hpp"
#include "core/control/tag.hpp"
#include "sync/group/replica_group.hpp"
#include "sync/reduce/reductions.hpp"
#include "sync/strategy/context_stack.hpp"
#include "sync/strategy/inside.hpp"
#include "torch/autograd_graph.hpp"
#include "torch/joint_shards.hpp"
#include "torch/replica.hpp"
#include "torch/sync_sums.hpp"

namespace lockstep::libtorch {
namespace {

namespace autograd = ::torch::autograd;

/// Most programs have no layer that adds up over ranks, and their graphs need not be searched.
std::atomic<bool> has_shared = false;

/// All dimensions but the channels.
std::vector<std::int64_t> all_but_channels(const at::Tensor& x) {
  std::vector<std::int64_t> dimensions{0};
  for (std::int64_t i = 2; i < x.dim(); ++i) dimensions.push_back(i);
  return dimensions;
}

/// In which x is normalised: 16 bits would round mean, deviation and weights before they are used.
at::ScalarType compute_type_of(const at::Tensor& x) {
  return x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

/// [channels], for arithmetic with x.
at::Tensor along(const at::Tensor& values, const at::Tensor& x) {
  std::vector<std::int64_t> shape(static_cast<std::size_t>(x.dim()), 1);
  shape[1] = values.numel();
  return values.view(shape).to(x.scalar_type());
}

/// Normalises x by mean and inverse deviation of all ranks, which x contributes to, in compute_type_of(x).
class Normalise final : public autograd::Function<Normalise> {
 public:
  static at::Tensor forward(autograd::AutogradContext* context, const at::Tensor& x, const at::Tensor& mean,
                            const at::Tensor& inverse, double count, const c10::intrusive_ptr<SumPoint>& point) {
    const at::Tensor wide = x.to(compute_type_of(x)), normal = (wide - along(mean, wide)) * along(inverse, wide);
    context->save_for_backward({normal, inverse});
    context->saved_data["count"] = count;
    context->saved_data["type"] = x.scalar_type();
    if (point) context->saved_data["sum"] = at::IValue::make_capsule(point);
    return normal;
  }

  static autograd::variable_list backward(autograd::AutogradContext* context, autograd::variable_list gradients) {
    // Autograd would differentiate what is computed here, where the sums over the ranks and the mean are constants.
    if (at::GradMode::is_enabled())
      throw InvalidArgument{
          "create_graph through a SyncBatchNorm in training, whose gradient cannot be differentiated again: expected "
          "create_graph=false, or another layer in its place, such as a LayerNorm, for a penalty on gradients"};
    const auto saved = context->get_saved_variables();
    const at::Tensor &normal = saved[0], &inverse = saved[1], &gradient = gradients[0];
    const auto others = all_but_channels(normal);
    at::Tensor sums = at::cat({gradient.to(at::kDouble).sum(others), (gradient * normal).to(at::kDouble).sum(others)});
    if (const auto point = point_of(*context)) {
      if (!point->open)
        throw ContextError{
            "the backward pass of a SyncBatchNorm adds up over all ranks: expected net.backward(context, "
            "loss), backward_shards or accumulate of its DataParallel"};
      sums = point->open->sum_up(*point, sums);
    }
    const auto means = (sums / std::max(context->saved_data["count"].toDouble(), 1.0)).chunk(2);
    const at::Tensor result =
        (gradient - along(means[0], gradient) - normal * along(means[1], gradient)) * along(inverse, gradient);
    return {result.to(context->saved_data["type"].toScalarType()), {}, {}, {}, {}};
  }

  /// Null if the mean was that of one rank.
  static c10::intrusive_ptr<SumPoint> point_of(const autograd::AutogradContext& context) {
    const auto found = context.saved_data.find("sum");
    if (found == context.saved_data.end()) return {};
    return c10::static_intrusive_pointer_cast<SumPoint>(found->second.toCapsule());
  }
};

/// For messages, and for the ranks to compare.
std::string name_of(const SyncBatchNorm::Impl& layer) {
  const auto owner = owner_of(layer.weight.defined() ? layer.weight : layer.running_mean);
  return owner ? fmt::format("SyncBatchNorm of {}", owner->label)
               : fmt::format("SyncBatchNorm of {} features", layer.options.num_features());
}

/// COLL. Of f64, in place.
void sum_over_ranks(ReplicaContext& replica, const std::string& layer, const at::Tensor& own) {
  Stream& stream = replica.strategy().stream();
  const auto device = make_torch_device(stream);
  if (own.device() != device->device())
    throw InvalidArgument{fmt::format("a SyncBatchNorm for a tensor on {}; expected one on {}, as the strategy is",
                                      own.device().str(), device->device().str())};
  const TensorView view = view_of(own, stream.kind());
  const auto add = [&](Reductions& reductions) { reductions.all_reduce(ReduceOp::sum, {&view, 1}); };
  device->on_stream([&] { inside(replica).declared_merge(fmt::format("{} f64 of a {}", view.count(), layer), add); });
}

}  // namespace

SyncSums::SyncSums(const at::Tensor& loss) {
  if (!has_shared) return;
  GraphNodes found;
  visit_graph(loss, {}, [&](GraphNode& node) {
    if (dynamic_cast<autograd::CppNode<Normalise>*>(&node)) found.push_back(pointer_to(node));
  });
  // Autograd runs what was computed last first.
  std::ranges::sort(found, std::ranges::greater{}, [](const GraphNodePointer& node) { return node->sequence_nr(); });
  for (const GraphNodePointer& node : found)
    if (auto point = Normalise::point_of(static_cast<autograd::CppNode<Normalise>*>(node.get())->ctx_)) {
      list_.counts.push_back(point->count);
      if (point->has_rows) shared_.push_back(node);
      points_.push_back(std::move(point));
    }
}

void SyncBatchNorm::Impl::_check_input_dim(const at::Tensor& x) {
  if (!x.is_floating_point())
    throw InvalidArgument{
        fmt::format("a SyncBatchNorm for a tensor of {}; expected one of floats", c10::toString(x.scalar_type()))};
  if (x.dim() < 2 || x.size(1) != options.num_features())
    throw InvalidArgument{fmt::format("a SyncBatchNorm of {} features for a tensor of {} dimensions{}",
                                      options.num_features(), x.dim(),
                                      x.dim() < 2 ? "" : fmt::format(" and {} features", x.size(1)))};
}

void SyncBatchNorm::Impl::pretty_print(std::ostream& stream) const {
  stream << fmt::format("lockstep::libtorch::SyncBatchNorm({}, eps={}, affine={})", options.num_features(),
                        options.eps(), options.affine());
}

at::Tensor SyncBatchNorm::Impl::forward(const at::Tensor& x) {
  _check_input_dim(x);
  if (!is_training())
    return ::torch::batch_norm(x, weight, bias, running_mean, running_var, !running_mean.defined(), 0, options.eps(),
                               false);
  JointShard* const shard = JointShard::current();
  if (!shard) LoneShard::require_none();
  const lockstep::detail::Frame* const frame = lockstep::detail::current_frame();
  const std::optional<TensorOwner> owner =
      frame ? std::nullopt : owner_of(running_mean.defined() ? running_mean : weight);
  const bool shared = frame ? frame->strategy().num_replicas_in_sync() > 1 : owner && owner->module->replicas > 1;
  // The first sum pushes a frame, which may move this one.
  ReplicaContext* const replica = shared && frame ? frame->replica : nullptr;
  if (shared && !replica) throw ContextError{"the training of a SyncBatchNorm outside Strategy::run"};

  const auto others = all_but_channels(x);
  const std::int64_t channels = x.size(1);
  const std::string layer = shared ? name_of(*this) : "";
  if (shared) has_shared = true;
  const auto device = make_torch_device(frame ? frame->strategy().stream() : Stream::host());
  double count = 0;
  at::Tensor mean, variance;
  {
    const at::NoGradGuard plain;
    const at::Tensor wide = x.to(at::kDouble);
    // Two passes: squares around a mean that is far from 0 would lose its digits.
    const auto all_ranks = [&](const at::Tensor& sums) {
      if (shard) return shard->sum_up(*this, sums);
      if (shared) sum_over_ranks(*replica, layer, sums);
      return sums;
    };
    const at::Tensor own =
        at::full({1}, static_cast<double>(x.numel() / std::max<std::int64_t>(channels, 1)), wide.options());
    const at::Tensor sums = all_ranks(at::cat({wide.sum(others), own}));
    count = device->number<double>(sums[channels]);
    mean = sums.slice(0, 0, channels) / std::max(count, 1.0);
    variance = all_ranks((wide - along(mean, wide)).square().sum(others)) / std::max(count, 1.0);
    if (running_mean.defined() && count > 0) {
      num_batches_tracked.add_(1);
      const double share = options.momentum() ? *options.momentum() : 1 / device->number<double>(num_batches_tracked);
      running_mean.mul_(1 - share).add_(mean.to(running_mean.scalar_type()), share);
      const double unbiased = count / std::max(count - 1, 1.0);
      running_var.mul_(1 - share).add_((variance * unbiased).to(running_var.scalar_type()), share);
    }
  }
  const bool has_graph = at::GradMode::is_enabled() && x.requires_grad();
  c10::intrusive_ptr<SumPoint> point;
  if (shard || shared) point = c10::make_intrusive<SumPoint>(2 * channels, x.size(0) > 0);
  if (shared && !shard) {
    const Tag& last = inside(replica->strategy()).group().meeting().last();
    point->layer = layer;
    point->pass = digest_of(fmt::format("{} {}", last.run, last.sequence));
  }
  const at::Tensor normal = Normalise::apply(x, mean, (variance + options.eps()).rsqrt(), count, point);
  if (shard) has_graph ? shard->add_point(point, normal.grad_fn()) : shard->add_point({}, {});
  return (weight.defined() ? normal * along(weight, normal) + along(bias, normal) : normal).to(x.scalar_type());
}

}  // namespace lockstep::libtorch
