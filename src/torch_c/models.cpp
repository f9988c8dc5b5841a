// Models: how they begin and end, and what each rank knows of them by itself.
#include <cmath>
#include <memory>
#include <optional>
#include <sstream>
#include <string>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/sync/checkpoint/weights.hpp>
#include <lockstep/torch.h>

#include "core/base/file_io.hpp"
#include "torch_c/calls.hpp"

// The functions themselves, which take a place.
#undef lockstep_model_load
#undef lockstep_model_set_learning_rate
#undef lockstep_model_free

namespace lockstep::in_c {
namespace {

std::string read_script(const std::string& file) {
  const std::string name = "model " + file;
  constexpr std::size_t most = std::size_t{1} << 40;
  return with_memory(name, [&] { return read_text(open_to_read(file, name), most, name); });
}

torch::jit::Module script_of(const std::string& text, const std::string& file) {
  try {
    std::istringstream stream{text};
    return torch::jit::load(stream);
  } catch (const std::exception&) {
    const std::exception_ptr why = std::current_exception();
    try {
      rethrow_in_line(why);
    } catch (const Error& error) {
      throw CheckpointError{
          fmt::format("model {}: {}; expected a file of torch.jit.save or `save`", file, error.what())};
    }
  }
}

}  // namespace
}  // namespace lockstep::in_c

using namespace lockstep;
using namespace lockstep::in_c;

int lockstep_model_load(lockstep_group* group, const char* file, const lockstep_model_options* options,
                        lockstep_model** model, const char* at) {
  constexpr const char* call = "lockstep_model_load";
  return code_of([&] {
    const KeptPlace place{at};
    const Here& here = place.here();
    if (model) *model = nullptr;
    lockstep_group& live = in_call(call, here, [&]() -> lockstep_group& { return live_group(group); });
    Group ranks = place.on(live.ranks);
    std::optional<Training> training;
    prepare_in(ranks, call, here, [&] {
      require(model, "the place for the model is NULL; expected the address of a handle");
      require_path(file, "the file");
      training.emplace(options, ranks.size());
      require<ContextError>(live.runtime.device_name() == "cpu",
                            "the job computes on {}; expected one on CPUs for models in C", live.runtime.device_name());
    });
    const PhaseAgain phase;
    ranks.agree(fmt::format("model {}", file), here);
    ranks.agree(training->text(), here);
    Strategy strategy = live.runtime.make_strategy(here);
    const std::string text = strategy.broadcast_object([&] { return read_script(file); }, here).value();
    std::optional<torch::jit::Module> module;
    prepare_in(ranks, call, here, [&] { module = script_of(text, file); });
    *model = in_line([&] {
      return add_live_model(
          std::make_unique<lockstep_model>(live, std::move(strategy), std::move(*module), std::move(*training), here));
    });
  });
}

int lockstep_model_set_learning_rate(lockstep_model* model, double rate, const char* at) {
  return in_model(
      "lockstep_model_set_learning_rate", model, at,
      [&](lockstep_model&) {
        require(rate > 0 && rate < HUGE_VAL, "learning rate {}; expected a positive number", rate);
      },
      [&](lockstep_model& live, Group& ranks, const Here& here) {
        ranks.agree(fmt::format("learning rate {}", rate), here);
        for (auto& each : live.optimizer->param_groups()) each.options().set_lr(rate);
      });
}

int lockstep_model_shards(const lockstep_model* model, int* first, int* last) {
  return code_of([&] {
    lockstep_model& live = live_model(model);
    require(first && last, "the place for the shards is NULL; expected the addresses of two numbers");
    require(live.training.options.shards != 0, "a model without shards; expected options.shards");
    const Range own = shards_of(live);
    *first = static_cast<int>(own.first);
    *last = static_cast<int>(own.last);
  });
}

int64_t lockstep_model_steps(const lockstep_model* model) {
  std::int64_t steps = -1;
  (void)code_of([&] { steps = live_model(model).steps; });
  return steps;
}

int lockstep_model_digest(const lockstep_model* model, uint64_t* digest) {
  return code_of([&] {
    const lockstep_model& live = live_model(model);
    require(digest, "the place for the digest is NULL; expected the address of a number");
    *digest = weights_digest(live.net.variables());
  });
}

int lockstep_model_free(lockstep_model** model, const char* at) {
  return code_of([&] {
    const KeptPlace place{at};
    int ended = 0;
    MPI_Finalized(&ended);
    in_call("lockstep_model_free", place.here(), [&] {
      require(model, "the place of the model is NULL; expected the address of a handle");
      if (!*model) return;
      lockstep_model& live = live_model(*model);
      if (!ended) place.on(live.strategy.ranks()).agree("the end of the model", place.here());
      (void)take_live_model(*model);
      *model = nullptr;
    });
  });
}
