// The internals of autograd that the bridge stands on: the nodes that add up the gradients of leaves, and the graph
// behind a loss. Another version of LibTorch may change them; then this file changes.
#pragma once

#include <functional>
#include <vector>

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

namespace lockstep::libtorch {

using GraphNode = ::torch::autograd::Node;
/// Its type depends on the version.
using GraphNodePointer = decltype(::torch::autograd::Edge::function);
using GraphNodes = std::vector<GraphNodePointer>;

/// Calls a function each time that autograd has added to the `.grad` of a leaf, on whichever thread that is. After its
/// end, graphs that it was part of still do.
class GradientHook {
 public:
  GradientHook() = default;

  /// `leaf` needs a gradient.
  GradientHook(const at::Tensor& leaf, std::function<void()> call);

  bool is_set() const { return accumulator_ != nullptr; }

  /// Whether autograd still has the node for `leaf`. It makes another one once the leaf was of another type, or on
  /// another device.
  bool is_heard_by(const at::Tensor& leaf) const;

 private:
  /// Autograd itself refers to it weakly. The type depends on the version.
  decltype(::torch::autograd::impl::grad_accumulator(at::Tensor{})) accumulator_ = {};
};

/// Every node of the graph of `value`, and then of the graphs of `others`, once. A value that needs no gradient has
/// none.
void visit_graph(const at::Tensor& value, const GraphNodes& others,
                 const std::function<void(const GraphNodePointer&)>& visit);

/// A backward pass from `value`, whose gradient is `factor` (1 if that is undefined), and from `others`, whose
/// gradients are zeros. There may be no value.
void run_autograd(const at::Tensor& value, const at::Tensor& factor, const GraphNodes& others, bool retains_graph);

/// Says that the tensor's elements have changed. Graphs that need the old ones throw in their backward pass.
void note_change(const at::Tensor& tensor);

/// The leaf whose gradient `node` adds up; undefined for other nodes.
at::Tensor leaf_of(const GraphNode& node);

/// From here on, a backward pass that this thread begins computes on it, on a GPU too. InvalidArgument if this LibTorch
/// cannot do that.
void run_backward_on_this_thread();

}  // namespace lockstep::libtorch
