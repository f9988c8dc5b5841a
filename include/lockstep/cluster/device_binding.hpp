// Which device a rank uses, as a pure function of what its node has.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace lockstep {

/// What the user asked for. `automatic` takes GPUs where every node has some, and the CPU otherwise.
enum class DeviceRequest : std::uint8_t { automatic, cpu, cuda };

/// "auto", "cpu" or "cuda"; ConfigError, listing them, for anything else. `source` is the option that held
/// `text`.
DeviceRequest parse_device_request(std::string_view text, std::string_view source = "--device");

/// "auto", "cpu" or "cuda".
const char* name_of(DeviceRequest request);

/// What `requested` comes to in a job whose rank r finds `gpus[r]` of them on its node. Ranks reduce together, so they
/// all use one kind of device: as soon as one finds no GPU, `automatic` is `cpu` for everybody.
DeviceRequest settle_request(DeviceRequest requested, std::span<const int> gpus);

/// What a rank is bound to.
enum class BoundKind : std::uint8_t { cpu, cuda };

struct NodePlace {
  DeviceRequest requested = DeviceRequest::automatic;
  int rank_in_node = 0;
  int ranks_on_node = 1;
  int gpus_on_node = 0;
  bool allow_shared_gpu = false;  ///< for tests: ranks beyond the GPUs start over at GPU 0
};

struct DeviceBinding {
  BoundKind kind = BoundKind::cpu;
  int index = 0;  ///< of the GPU on its node; 0 for the CPU

  friend bool operator==(const DeviceBinding&, const DeviceBinding&) = default;
};

/// One GPU for each rank of the node, in rank order. ConfigError on every rank of the node if GPUs are asked
/// for and there are none, or fewer than ranks (unless they may be shared): two ranks on one GPU fail late
/// and badly in NCCL.
DeviceBinding bind_device(const NodePlace& place);

/// The GPUs of the node that none of its ranks is bound to, ascending.
std::vector<int> unused_gpus(const NodePlace& place);

}  // namespace lockstep
