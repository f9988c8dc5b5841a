// Which device a rank uses, as a pure function of what its node has.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace lockstep {

/// What the user asked for. `automatic` means GPUs if every node has some, otherwise the CPU.
enum class DeviceRequest : std::uint8_t { automatic, cpu, cuda };

/// Parses "auto", "cpu" or "cuda". Anything else is a ConfigError that lists them. `source` is the option that held
/// `text`.
DeviceRequest parse_device_request(std::string_view text, std::string_view source = "--device");

/// "auto", "cpu" or "cuda".
const char* name_of(DeviceRequest request);

/// Resolves `requested` for a job whose rank r finds `gpus[r]` GPUs on its node. Ranks reduce together, so they all use
/// one kind of device: if any rank finds no GPU, `automatic` becomes `cpu` for all. Otherwise returns `requested`.
DeviceRequest settle_request(DeviceRequest requested, std::span<const int> gpus);

/// The kind of device that a rank is bound to.
enum class BoundKind : std::uint8_t { cpu, cuda };

/// A rank's place on its node, and what it asks for.
struct NodePlace {
  DeviceRequest requested = DeviceRequest::automatic;
  int rank_in_node = 0;
  int ranks_on_node = 1;
  int gpus_on_node = 0;
  bool allow_shared_gpu = false;  ///< for tests: ranks beyond the number of GPUs wrap around to GPU 0
};

struct DeviceBinding {
  BoundKind kind = BoundKind::cpu;
  int index = 0;  ///< index of the GPU on its node; 0 for the CPU

  friend bool operator==(const DeviceBinding&, const DeviceBinding&) = default;
};

/// The device of this rank: one GPU for each rank of the node, in rank order; the CPU if it is requested, or if
/// `automatic` finds no GPU. ConfigError on every rank of the node if GPUs are requested and there are none, or if
/// there are fewer than ranks (unless they may be shared): two ranks on one GPU fail late and badly in NCCL.
/// InvalidArgument for an impossible place.
DeviceBinding bind_device(const NodePlace& place);

/// The GPUs of the node that none of its ranks is bound to, ascending. Throws as bind_device does.
std::vector<int> unused_gpus(const NodePlace& place);

}  // namespace lockstep
