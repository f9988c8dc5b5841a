// Which device a rank uses, as a pure function of what the ranks of its node see.
#pragma once

#include <cstdint>
#include <span>
#include <string>
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

/// UUIDs of GPUs, in the order in which CUDA numbers them in a process.
using VisibleGpus = std::vector<std::string>;

struct NodePlace {
  DeviceRequest requested = DeviceRequest::automatic;
  int rank_in_node = 0;
  /// What each rank of the node sees, in rank order. Launchers may show each rank all GPUs of the node, or only its
  /// own.
  std::vector<VisibleGpus> visible;
  bool allow_shared_gpu = false;  ///< for tests: if there are not enough GPUs, the ranks go round those they see
};

struct DeviceBinding {
  BoundKind kind = BoundKind::cpu;
  int index = 0;  ///< of the GPU among those that this rank sees; 0 for the CPU

  friend bool operator==(const DeviceBinding&, const DeviceBinding&) = default;
};

/// One GPU for each rank of the node: the first of those it sees that no rank before it has, in rank order; ranks that
/// see few of them come first where otherwise some rank would go without. ConfigError on every rank of the node if GPUs
/// are asked for and a rank sees none, or if there are not enough for all (unless they may be shared): two ranks on one
/// GPU fail late and badly in NCCL.
DeviceBinding bind_device(const NodePlace& place);

/// Whether two ranks of the node are bound to one GPU.
bool shares_gpu(const NodePlace& place);

/// The GPUs that this rank sees and no rank of its node is bound to, ascending.
std::vector<int> unused_gpus(const NodePlace& place);

}  // namespace lockstep
