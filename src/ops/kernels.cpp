#include <fmt/format.h>

#include <lockstep/base/error.hpp>
#include <lockstep/ops/kernels.hpp>

#include "backends.hpp"

namespace lockstep::ops {

KernelChoice parse_kernel_choice(std::string_view name) {
  if (name == "auto") return KernelChoice::automatic;
  if (name == "reference") return KernelChoice::reference;
  if (name == "onednn") return KernelChoice::onednn;
  throw ConfigError{fmt::format("there are no kernels called '{}': expected auto, reference or onednn", name)};
}

std::unique_ptr<Kernels> make_kernels(KernelChoice choice, Threads threads) {
  if (threads.count < 1) throw InvalidArgument{fmt::format("kernels need at least one thread, not {}", threads.count)};
  switch (choice) {
    case KernelChoice::automatic: return onednn_is_built_in() ? make_onednn_kernels(threads) : make_reference_kernels();
    case KernelChoice::reference: return make_reference_kernels();
    case KernelChoice::onednn: return make_onednn_kernels(threads);
  }
  throw InvalidArgument{fmt::format("{} is no choice of kernels", static_cast<int>(choice))};
}

}  // namespace lockstep::ops
