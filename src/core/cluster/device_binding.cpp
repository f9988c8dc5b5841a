#include "core/cluster/device_binding.hpp"

#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>

#include "core/base/excerpt.hpp"
#include "core/base/foreign_json.hpp"
#include "core/cluster/counted.hpp"

namespace lockstep {

DeviceRequest parse_device_request(std::string_view text, std::string_view source) {
  for (const DeviceRequest request : {DeviceRequest{}, DeviceRequest{DeviceKind::cpu}, DeviceRequest{DeviceKind::cuda}})
    if (text == name_of(request)) return request;
  throw ConfigError{fmt::format("{}: expected auto, cpu or cuda, got {}", source, shown(text))};
}

std::string_view name_of(const DeviceRequest& request) {
  return request ? name_of(*request) : "auto";
}

DeviceRequest settle_request(DeviceRequest requested, std::span<const int> gpus) {
  if (requested) return requested;
  return std::ranges::find(gpus, 0) == gpus.end() ? requested : DeviceKind::cpu;
}

namespace {

/// Who has which GPU, as ranks come in and take one each.
class Owners {
 public:
  explicit Owners(const std::vector<VisibleGpus>& visible) : visible_{visible} {}

  /// Finds a GPU for `rank`: one that is free, else one whose owner can take another.
  bool add(std::size_t rank) {
    asked_.clear();
    return place(rank);
  }

  bool has(std::size_t rank, const std::string& gpu) const {
    const auto found = of_.find(gpu);
    return found != of_.end() && found->second == rank;
  }

 private:
  bool place(std::size_t rank) {
    for (const std::string& gpu : visible_[rank])
      if (of_.try_emplace(gpu, rank).second) return true;
    for (const std::string& gpu : visible_[rank]) {
      if (!asked_.insert(gpu).second || !place(of_.at(gpu))) continue;
      of_[gpu] = rank;
      return true;
    }
    return false;
  }

  const std::vector<VisibleGpus>& visible_;
  std::map<std::string, std::size_t> of_;
  std::set<std::string> asked_;  ///< those whose owners have been asked to move on behalf of the rank that comes in
};

/// The GPU of each rank among those it sees, or nothing where there are not enough.
std::optional<std::vector<int>> one_gpu_each(const std::vector<VisibleGpus>& visible) {
  Owners owners{visible};
  for (std::size_t rank = 0; rank < visible.size(); ++rank)
    if (!owners.add(rank)) return std::nullopt;
  std::vector<int> indices;
  for (std::size_t rank = 0; rank < visible.size(); ++rank) {
    const auto own = std::ranges::find_if(visible[rank], [&](const std::string& gpu) { return owners.has(rank, gpu); });
    indices.push_back(static_cast<int>(own - visible[rank].begin()));
  }
  return indices;
}

int different_gpus(const std::vector<VisibleGpus>& visible) {
  std::set<std::string> all;
  for (const VisibleGpus& each : visible) all.insert(each.begin(), each.end());
  return static_cast<int>(all.size());
}

/// "GPU:2" or "GPU-5d0b".
std::string text_of(const ChosenGpu& gpu) {
  return gpu.uuid.empty() ? fmt::format("GPU:{}", gpu.number) : "GPU-" + excerpt(gpu.uuid);
}

/// The place of a chosen GPU among those that a rank sees.
int find_chosen(const ChosenGpu& gpu, const VisibleGpus& visible) {
  const auto fail = [&](std::string_view found) {
    throw ConfigError{fmt::format("--devices: {} is {} of {} that a rank of this node sees; expected one of them",
                                  text_of(gpu), found, counted(static_cast<int>(visible.size()), "GPU"))};
  };
  if (gpu.uuid.empty()) {
    if (gpu.number >= static_cast<int>(visible.size())) fail("none");
    return gpu.number;
  }
  const auto is_it = [&](const std::string& uuid) { return uuid.starts_with(gpu.uuid); };
  const auto found = std::ranges::find_if(visible, is_it);
  if (found == visible.end()) fail("none");
  if (std::any_of(found + 1, visible.end(), is_it)) fail("more than one");
  return static_cast<int>(found - visible.begin());
}

std::vector<int> find_all_chosen(const NodePlace& place) {
  if (place.chosen.size() != place.visible.size())
    throw InvalidArgument{
        fmt::format("{} GPUs are chosen for {} ranks of a node", place.chosen.size(), place.visible.size())};
  std::vector<int> indices;
  std::map<std::string, std::size_t> owners;
  for (std::size_t rank = 0; rank < place.chosen.size(); ++rank) {
    const VisibleGpus& visible = place.visible[rank];
    indices.push_back(find_chosen(place.chosen[rank], visible));
    const auto [owner, is_new] = owners.try_emplace(visible[static_cast<std::size_t>(indices.back())], rank);
    if (!is_new && !place.allow_shared_gpu)
      throw ConfigError{fmt::format("--devices: {} and {} are one GPU of this node; expected another one for each rank",
                                    text_of(place.chosen[owner->second]), text_of(place.chosen[rank]))};
  }
  return indices;
}

/// What is wrong where ranks that need a GPU see none.
std::string describe_missing_gpus(const NodePlace& place) {
  const std::size_t ranks = place.visible.size();
  const auto without = std::ranges::count_if(place.visible, &VisibleGpus::empty);
  const auto first = std::ranges::find_if(place.visible, &VisibleGpus::empty) - place.visible.begin();
  const std::string why = place.why_none.empty() ? "" : place.why_none[static_cast<std::size_t>(first)];
  const bool all = static_cast<std::size_t>(without) == ranks;
  return fmt::format("{}: {} no GPU that can be used{}{}; expected one for each rank, or --device cpu",
                     place.chosen.empty() ? "--device cuda" : "--devices",
                     all ? "this node has"
                         : fmt::format("of {} on this node, {} see{}", counted(static_cast<int>(ranks), "rank"),
                                       without, without == 1 ? "s" : ""),
                     why.empty() ? "" : ": ", why);
}

/// bind_device for every rank of the node.
std::vector<DeviceBinding> bind_all(const NodePlace& place) {
  const std::size_t ranks = place.visible.size();
  if (place.rank_in_node < 0 || static_cast<std::size_t>(place.rank_in_node) >= ranks)
    throw InvalidArgument{fmt::format("no such place: rank {} of {} on a node", place.rank_in_node, ranks)};
  const std::vector<DeviceBinding> on_cpu(ranks, {DeviceKind::cpu, 0});
  if (place.requested == DeviceKind::cpu) return on_cpu;
  if (std::ranges::any_of(place.visible, &VisibleGpus::empty)) {
    if (!place.requested) return on_cpu;
    throw ConfigError{describe_missing_gpus(place)};
  }
  std::optional<std::vector<int>> indices = place.chosen.empty() ? one_gpu_each(place.visible) : find_all_chosen(place);
  if (!indices && !place.allow_shared_gpu)
    throw ConfigError{
        fmt::format("--device {}: {} on this node, which has {}; expected one for each rank, or --device cpu",
                    name_of(place.requested), counted(static_cast<int>(ranks), "rank"),
                    counted(different_gpus(place.visible), "GPU"))};
  std::vector<DeviceBinding> bindings;
  for (std::size_t rank = 0; rank < ranks; ++rank)
    bindings.push_back(
        {DeviceKind::cuda, indices ? (*indices)[rank] : static_cast<int>(rank % place.visible[rank].size())});
  return bindings;
}

/// The UUIDs of the GPUs that ranks are bound to, one for each such rank.
std::vector<std::string> bound_gpus(const NodePlace& place, const std::vector<DeviceBinding>& bindings) {
  std::vector<std::string> bound;
  for (std::size_t rank = 0; rank < bindings.size(); ++rank)
    if (bindings[rank].kind == DeviceKind::cuda)
      bound.push_back(place.visible[rank][static_cast<std::size_t>(bindings[rank].index)]);
  return bound;
}

}  // namespace

DeviceBinding bind_device(const NodePlace& place) {
  return bind_all(place)[static_cast<std::size_t>(place.rank_in_node)];
}

bool shares_gpu(const NodePlace& place) {
  const std::vector<std::string> bound = bound_gpus(place, bind_all(place));
  return std::set<std::string>{bound.begin(), bound.end()}.size() < bound.size();
}

std::vector<int> unused_gpus(const NodePlace& place) {
  const std::vector<std::string> bound = bound_gpus(place, bind_all(place));
  const VisibleGpus& own = place.visible[static_cast<std::size_t>(place.rank_in_node)];
  std::vector<int> unused;
  for (std::size_t gpu = 0; gpu < own.size(); ++gpu)
    if (std::ranges::find(bound, own[gpu]) == bound.end()) unused.push_back(static_cast<int>(gpu));
  return unused;
}

}  // namespace lockstep
