// A program of another project: it sees nothing but what `meson install` puts down. Exact, on any number of ranks.
#include <cstdio>

#include <lockstep/training.hpp>

using namespace lockstep;

/// An optimizer of the program's own: descent by the sign of the gradient.
class SignDescent final : public Optimizer {
 public:
  explicit SignDescent(double learning_rate) : Optimizer{{.learning_rate = learning_rate}, nullptr} {}

 protected:
  std::vector<std::string_view> slots() const override { return {}; }
  void update(const Kernels&, const VariableStore::FlatRange& range, const UpdateStep& step) override {
    const std::span<float> values = range.values.elements<float>(), gradients = range.gradients.elements<float>();
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double gradient = gradients[i] / step.divisor * step.factor;
      values[i] -= static_cast<float>(step.learning_rate * ((gradient > 0) - (gradient < 0)));
    }
  }
};

void train(Runtime& runtime) {
  Strategy& strategy = runtime.strategy();
  const Scope scope = strategy.scope();
  const auto weights = strategy.create_variable({.name = "weights"}, [] { return Tensor::zeros(DType::f32, {2}); });
  strategy.seal();
  const std::vector<Optimizer::Gradient> gradients = Optimizer::gradients_in_store(strategy.store(), {weights});
  Sgd sgd{{.learning_rate = 0.5}};
  const PerReplica<double> total = strategy.run([&](ReplicaContext& context) {
    const int mine = context.replica_id_in_sync_group() + 1;
    gradients[0].value.view().elements<float>()[0] = static_cast<float>(mine);
    gradients[0].value.view().elements<float>()[1] = static_cast<float>(10 * mine);
    sgd.apply_gradients(context, gradients, 4);
    gradients[0].value.view().elements<float>()[0] = 1;
    SignDescent{0.25}.apply_gradients(context, gradients, 4);
    return context.all_reduce(ReduceOp::sum, static_cast<double>(mine));
  });
  const std::span<const float> trained = weights.local().elements<float>();
  if (runtime.is_chief()) std::puts(version().c_str());
  std::printf("rank %d of %d: total %g, weights %g %g\n", runtime.rank(), runtime.size(), total.local(), trained[0],
              trained[1]);
}

int main(int argc, char** argv) {
  return run_program(
      argc, argv, [] { return RuntimeOptions{}; }, train);
}
