#include "apps/lockstep-train/tasks/same_kernels.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <ranges>
#include <string_view>
#include <vector>

namespace lockstep {
namespace {

std::vector<std::string> parts_of(std::string_view text) {
  std::vector<std::string> parts;
  for (const auto& part : std::views::split(text, std::string_view{", "})) parts.emplace_back(part.begin(), part.end());
  return parts;
}

}  // namespace

// Part by part, because same_on_all shows only short texts in words.
void require_same_kernels(Strategy& strategy, const std::string& fingerprint) {
  std::vector<std::string> parts = parts_of(fingerprint);
  const std::uint64_t count = strategy.broadcast_object(std::uint64_t{parts.size()}).value();
  // Every rank compares as often as replica 0, and once more for what it has beyond that.
  parts.resize(std::max<std::size_t>(parts.size(), count + 1), "nothing else");
  for (std::size_t i = 0; i <= count; ++i) (void)strategy.same_on_all("kernels: " + parts[i]);
}

}  // namespace lockstep
