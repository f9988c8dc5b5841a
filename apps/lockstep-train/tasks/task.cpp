#include "apps/lockstep-train/tasks/task.hpp"

#include <cmath>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/core/base/log.hpp>

#include "core/control/meeting_point.hpp"
#include "sync/group/replica_group.hpp"
#include "sync/strategy/inside.hpp"

namespace lockstep {

std::unique_ptr<TrainingTask> load_task(TrainingOptions& options, const DataRequest& request) {
  switch (*options.model) {
    case ModelKind::mlp:
    case ModelKind::convnet: return load_image_task(options, request);
    case ModelKind::gpt: return load_text_task(options, request);
  }
  throw InvalidArgument{fmt::format("{} is no kind of model", static_cast<int>(*options.model))};
}

std::string write_sample(Strategy& strategy, TrainingTask& task, std::int64_t step, double loss) {
  const MeetingPoint::NamedSteps named = inside(strategy).group().meeting().keep_named_steps();
  strategy.set_step(step, Strategy::RunKind::sample);
  std::string text;
  if (strategy.rank() != 0) {
    strategy.run([](ReplicaContext&) {});
    return text;
  }
  const auto alone = inside(strategy).group().meeting().working_alone();
  strategy.run([&](ReplicaContext&) {
    if (std::isfinite(loss))
      text = task.write_sample();
    else
      log::warning("there is no sample of a model whose loss is not a finite number");
  });
  return text;
}

}  // namespace lockstep
