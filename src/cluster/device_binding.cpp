#include <algorithm>

#include <fmt/format.h>

#include <lockstep/base/error.hpp>
#include <lockstep/cluster/device_binding.hpp>

#include "cluster/counted.hpp"
#include "cluster/spec_json.hpp"

namespace lockstep {

DeviceRequest parse_device_request(std::string_view text, std::string_view source) {
  for (const DeviceRequest request : {DeviceRequest::automatic, DeviceRequest::cpu, DeviceRequest::cuda})
    if (text == name_of(request)) return request;
  throw ConfigError{fmt::format("{}: expected auto, cpu or cuda, got {}", source, spec_json::shown(text))};
}

const char* name_of(DeviceRequest request) {
  switch (request) {
    case DeviceRequest::automatic: return "auto";
    case DeviceRequest::cpu: return "cpu";
    case DeviceRequest::cuda: return "cuda";
  }
  return "?";
}

DeviceRequest settle_request(DeviceRequest requested, std::span<const int> gpus) {
  if (requested != DeviceRequest::automatic) return requested;
  return std::ranges::find(gpus, 0) == gpus.end() ? requested : DeviceRequest::cpu;
}

DeviceBinding bind_device(const NodePlace& place) {
  if (place.rank_in_node < 0 || place.rank_in_node >= place.ranks_on_node || place.gpus_on_node < 0)
    throw InvalidArgument{fmt::format("no such place: rank {} of {} on a node with {} GPUs", place.rank_in_node,
                                      place.ranks_on_node, place.gpus_on_node)};
  if (place.requested == DeviceRequest::cpu) return {BoundKind::cpu, 0};
  if (place.gpus_on_node == 0) {
    if (place.requested == DeviceRequest::automatic) return {BoundKind::cpu, 0};
    throw ConfigError{
        "--device cuda: this node has no GPU that can be used; expected one for each rank, or --device cpu"};
  }
  if (place.ranks_on_node > place.gpus_on_node && !place.allow_shared_gpu)
    throw ConfigError{fmt::format(
        "--device {}: {} on this node, which has {}; expected one for each rank, or --device cpu",
        name_of(place.requested), counted(place.ranks_on_node, "rank"), counted(place.gpus_on_node, "GPU"))};
  return {BoundKind::cuda, place.rank_in_node % place.gpus_on_node};
}

std::vector<int> unused_gpus(const NodePlace& place) {
  const bool some_are_used = bind_device(place).kind == BoundKind::cuda;
  std::vector<int> unused;
  for (int gpu = some_are_used ? place.ranks_on_node : 0; gpu < place.gpus_on_node; ++gpu) unused.push_back(gpu);
  return unused;
}

}  // namespace lockstep
