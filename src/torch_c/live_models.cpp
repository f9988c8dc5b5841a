#include "torch_c/live_models.hpp"

#include <algorithm>
#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "c/live_handles.hpp"

namespace lockstep::in_c {
namespace {

/// Never destroyed: a program may end without freeing its models.
struct LiveModels {
  std::mutex mutex;  ///< another thread may ask, to be refused
  LiveHandles<lockstep_model> models{"model", "load"};
  std::set<std::string, std::less<>> places;
};

LiveModels& live() {
  static LiveModels& all = *new LiveModels;
  return all;
}

const char* kept(const char* text) {
  LiveModels& all = live();
  const std::lock_guard lock{all.mutex};
  auto found = all.places.find(text);
  if (found == all.places.end()) found = all.places.emplace(text).first;
  return found->c_str();
}

at::ScalarType floats_of(const torch::jit::Module& module) {
  for (const at::Tensor& each : module.parameters())
    if (each.is_floating_point()) return each.scalar_type();
  return at::kFloat;
}

}  // namespace

KeptPlace::KeptPlace(const char* at)
    : place_{at}, here_{at ? Here{kept(place_.here().file_name()), place_.here().line()} : Here{}} {}

lockstep_model& live_model(const lockstep_model* handle) {
  LiveModels& all = live();
  const std::lock_guard lock{all.mutex};
  lockstep_model& found = all.models.at(handle);
  (void)live_group(&found.group);
  return found;
}

Range shards_of(lockstep_model& model) {
  return libtorch::ReplicatedModule::shards_of_rank(model.strategy, model.training.options.shards);
}

lockstep_model* add_live_model(std::unique_ptr<lockstep_model> model) {
  LiveModels& all = live();
  const std::lock_guard lock{all.mutex};
  return all.models.add(std::move(model));
}

std::unique_ptr<lockstep_model> take_live_model(const lockstep_model* handle) {
  LiveModels& all = live();
  const std::lock_guard lock{all.mutex};
  return all.models.take(handle);
}

bool another_writes(const std::filesystem::path& folder, const lockstep_model& model) {
  LiveModels& all = live();
  const std::lock_guard lock{all.mutex};
  return std::ranges::any_of(all.models, [&](const auto& each) {
    return each.second.get() != &model && each.second->writes && each.second->folder == folder;
  });
}

}  // namespace lockstep::in_c

lockstep_model::lockstep_model(lockstep_group& ranks, lockstep::Strategy own, torch::jit::Module module,
                               lockstep::in_c::Training how, lockstep::Here here)
    : group{ranks},
      strategy{std::move(own)},
      training{std::move(how)},
      net{strategy, std::move(module), {}, here},
      optimizer{training.optimizer_of(net.parameters())},
      optimizer_state{net, *optimizer, here},
      floats{lockstep::in_c::floats_of(*net)} {
  ++group.models;
}
