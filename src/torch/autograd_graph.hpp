// The internals of autograd that the bridge stands on: the nodes that add up the gradients of leaves, and the graph
// behind a loss. Another version of LibTorch may change them; then this file changes.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

namespace lockstep::libtorch {

using GraphNode = ::torch::autograd::Node;
using GraphNodePointer = decltype(::torch::autograd::Edge::function);  ///< owns a node; depends on the version
using GraphNodes = std::vector<GraphNodePointer>;

/// Another owner of `node`, which has one.
template <class Node, class Pointer = GraphNodePointer>
Pointer pointer_to(Node& node) {
  if constexpr (requires { node.shared_from_this(); }) {
    return node.shared_from_this();
  } else {
    return Pointer::reclaim_copy(&node);
  }
}

/// Calls a function each time that autograd has added to a leaf's `.grad`, on any thread. Graphs keep it.
class GradientHook {
 public:
  GradientHook() = default;

  /// `leaf` needs a gradient.
  GradientHook(const at::Tensor& leaf, std::function<void()> call);

  bool is_set() const { return accumulator_ != nullptr; }

  /// Whether autograd still has the node for `leaf`. It makes another if the leaf's type or device changes.
  bool is_heard_by(const at::Tensor& leaf) const {
    return ::torch::autograd::impl::try_get_grad_accumulator(leaf) == accumulator_;
  }

  /// Whether it waits for what `node` adds up.
  bool is_at(const GraphNode& node) const { return accumulator_.get() == &node; }

 private:
  /// Autograd itself refers to it weakly. The type depends on the version.
  decltype(::torch::autograd::impl::grad_accumulator(at::Tensor{})) accumulator_ = {};
};

/// Every node of the graphs of `value`, which has one if it needs a gradient, and then of `others`, once.
void visit_graph(const at::Tensor& value, const GraphNodes& others, const std::function<void(GraphNode&)>& visit);

/// A backward pass from `value`, if defined, whose gradient is `factor` (undefined: 1), and from `others`, with zeros.
void run_autograd(const at::Tensor& value, const at::Tensor& factor, const GraphNodes& others, bool retains_graph);

/// Says that the tensor's elements have changed. Graphs that need the old ones throw in their backward pass.
inline void note_change(const at::Tensor& tensor) {
  ::torch::autograd::impl::bump_version(tensor);
}

/// The leaf whose gradient `node` adds up; undefined for other nodes.
at::Tensor leaf_of(const GraphNode& node);

/// From here on, backward passes of this thread compute on it, on a GPU too. InvalidArgument if LibTorch cannot do it.
void run_backward_on_this_thread();

}  // namespace lockstep::libtorch
