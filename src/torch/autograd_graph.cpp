#include "torch/autograd_graph.hpp"

#include <unordered_set>
#include <utility>

#include <c10/core/AutogradState.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include <lockstep/core/base/error.hpp>

namespace lockstep::libtorch {
namespace {

namespace autograd = ::torch::autograd;

class AfterGradient final : public autograd::FunctionPostHook {
 public:
  explicit AfterGradient(std::function<void()> call) : call_{std::move(call)} {}

  autograd::variable_list operator()(const autograd::variable_list& outputs,
                                     const autograd::variable_list& gradients) override {
    // A function may have had nothing for this leaf, such as one whose own backward pass has computed it.
    if (gradients.front().defined()) call_();
    return outputs;
  }

 private:
  std::function<void()> call_;
};

template <class State>
void end_threads_of(State& state) {
  if constexpr (requires { state.set_multithreading_enabled(false); }) {
    state.set_multithreading_enabled(false);
  } else {
    throw InvalidArgument{
        "SyncBatchNorm in backward_shards on a GPU with a LibTorch whose autograd computes there on another thread; "
        "expected LibTorch 2.0 or later"};
  }
}

}  // namespace

GradientHook::GradientHook(const at::Tensor& leaf, std::function<void()> call)
    : accumulator_{autograd::impl::grad_accumulator(leaf)} {
  accumulator_->add_post_hook(std::make_unique<AfterGradient>(std::move(call)));
}

void visit_graph(const at::Tensor& value, const GraphNodes& others, const std::function<void(GraphNode&)>& visit) {
  GraphNodes roots;
  // Also the node of a value that is a leaf itself.
  if (value.defined() && value.requires_grad()) roots.push_back(autograd::impl::gradient_edge(value).function);
  roots.insert(roots.end(), others.begin(), others.end());
  std::unordered_set<GraphNode*> seen;
  for (const auto& root : roots) {
    if (!seen.insert(root.get()).second) continue;
    std::vector<GraphNode*> left{root.get()};
    while (!left.empty()) {
      GraphNode* const node = left.back();
      left.pop_back();
      visit(*node);
      for (const autograd::Edge& edge : node->next_edges())
        if (edge.function && seen.insert(edge.function.get()).second) left.push_back(edge.function.get());
    }
  }
}

void run_autograd(const at::Tensor& value, const at::Tensor& factor, const GraphNodes& others, bool retains_graph) {
  if (others.empty()) return value.backward(factor, retains_graph);
  autograd::edge_list roots;
  autograd::variable_list gradients;
  if (value.defined()) {
    roots.push_back(autograd::impl::gradient_edge(value));
    gradients.push_back(factor.defined() ? factor : at::ones_like(value));
  }
  for (const auto& other : others) {
    roots.emplace_back(other, 0);
    gradients.push_back(other->input_metadata(0).zeros_like());
  }
  (void)autograd::Engine::get_default_engine().execute(roots, gradients, retains_graph, false, true);
}

at::Tensor leaf_of(const GraphNode& node) {
  const auto* const accumulator = dynamic_cast<const autograd::AccumulateGrad*>(&node);
  return accumulator ? accumulator->variable : at::Tensor{};
}

void run_backward_on_this_thread() {
  end_threads_of(c10::AutogradState::get_tls_state());
}

}  // namespace lockstep::libtorch
