// Which device a rank uses, as a pure function of what the ranks of its node see.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/core/base/device_kind.hpp>

namespace lockstep {

/// What the user asked for. Empty means GPUs if every node has some, otherwise the CPU.
using DeviceRequest = std::optional<DeviceKind>;

/// Parses "auto", "cpu" or "cuda". Anything else is a ConfigError that lists them. `source` is the option that held
/// `text`.
DeviceRequest parse_device_request(std::string_view text, std::string_view source = "--device");

/// "auto", "cpu" or "cuda".
std::string_view name_of(const DeviceRequest& request);

/// Resolves `requested` for a job whose rank r finds `gpus[r]` GPUs on its node. Ranks reduce together, so they all use
/// one kind of device: if any rank finds no GPU, an empty request becomes the CPU on all ranks. Otherwise returns
/// `requested`.
DeviceRequest settle_request(DeviceRequest requested, std::span<const int> gpus);

/// UUIDs of GPUs, in the order in which CUDA numbers them in a process.
using VisibleGpus = std::vector<std::string>;

/// A GPU that the user chose for a rank (DeviceList).
struct ChosenGpu {
  int number = 0;    ///< among those that the rank sees
  std::string uuid;  ///< instead of the number: the beginning of a UUID, in lower case and without dashes

  friend bool operator==(const ChosenGpu&, const ChosenGpu&) = default;
};

/// A rank's place on its node, and what it asks for.
struct NodePlace {
  DeviceRequest requested = {};
  int rank_in_node = 0;
  /// The GPUs that each rank of the node sees, in rank order. A launcher may show every rank all GPUs of the node, or
  /// each rank only its own.
  std::vector<VisibleGpus> visible;
  std::vector<std::string> why_none = {};  ///< for each rank of the node, why it sees no GPU if it sees none; or empty
  std::vector<ChosenGpu> chosen = {};      ///< for each rank of the node, or empty
  bool allow_shared_gpu = false;  ///< for tests: if there are too few GPUs, ranks wrap around to the first they see
};

struct DeviceBinding {
  DeviceKind kind = DeviceKind::cpu;
  int index = 0;  ///< index of the GPU among those that this rank sees; 0 for the CPU

  friend bool operator==(const DeviceBinding&, const DeviceBinding&) = default;
};

/// The device of this rank: a GPU that it sees, different for each rank of the node, or the CPU if it is requested, or
/// if nothing is requested and there is no GPU. Each rank in turn takes the first GPU that is free. If none is left, an
/// earlier rank is reassigned, so every rank gets its own GPU whenever that is possible. If the user chose GPUs, ranks
/// take those instead. ConfigError on every rank of the node if GPUs are requested and a rank sees none, if a rank does
/// not see the GPU chosen for it, or if there are too few or one is chosen twice (unless they may be shared): two ranks
/// on one GPU fail late and badly in NCCL. InvalidArgument for an impossible place.
DeviceBinding bind_device(const NodePlace& place);

/// Whether two ranks of the node are bound to the same GPU. Throws as bind_device does.
bool shares_gpu(const NodePlace& place);

/// The GPUs that this rank sees and no rank of its node is bound to, ascending. Throws as bind_device does.
std::vector<int> unused_gpus(const NodePlace& place);

}  // namespace lockstep
