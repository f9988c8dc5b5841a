// lockstep-train's run once more, through the library: writes the weights themselves, variable after variable, to the
// file that LOCKSTEP_DUMP names, and "name elements" of each to stdout.
#include <cstdio>
#include <cstdlib>
#include <fstream>

#include <lockstep/models.hpp>

int main(int argc, char** argv) {
  using namespace lockstep;
  return run_program(
      argc, argv, [] { return RuntimeOptions{.device = "cpu"}; },
      [](Runtime& runtime) {
        const LabelledData data = LabelledData::load(std::getenv("LOCKSTEP_SMALL_DATA"), {});
        const std::shared_ptr<const ops::Kernels> kernels = ops::make_kernels(ops::Kernels::Choice::automatic, {1});
        const auto model =
            nn::make_mlp(runtime.strategy(), {.inputs = 784, .hidden = {30, 20}, .classes = 10, .seed = 3}, kernels);
        Sgd optimizer{{.learning_rate = 0.05, .momentum = 0.8}};
        Observer observer;
        fit(runtime.strategy(), *model, optimizer, {*data.train, *data.test},
            {.global_batch = 100, .steps = 7, .seed = 3, .shards = 4}, observer);
        if (!runtime.is_chief()) return;
        std::ofstream dump{std::getenv("LOCKSTEP_DUMP"), std::ios::binary};
        for (const Variable& variable : model->variables()) {
          const std::vector<float> values = variable.local().to_vector<float>();
          dump.write(reinterpret_cast<const char*>(values.data()), static_cast<std::streamsize>(4 * values.size()));
          std::printf("%s %zu\n", std::string{variable.name()}.c_str(), values.size());
        }
      });
}
