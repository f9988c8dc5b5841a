#include <lockstep/core/base/device_kind.hpp>

namespace lockstep {

std::string_view name_of(DeviceKind kind) {
  switch (kind) {
    case DeviceKind::cpu: return "cpu";
    case DeviceKind::cuda: return "cuda";
  }
  return "?";
}

}  // namespace lockstep
