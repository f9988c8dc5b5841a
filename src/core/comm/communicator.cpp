#include "core/comm/communicator.hpp"

#include <algorithm>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>

#include "core/comm/slices.hpp"

namespace lockstep {

Work Work::later(std::function<void()> collective) {
  struct Later final : Pending {
    explicit Later(std::function<void()> its_collective) : collective{std::move(its_collective)} {}
    void wait() override { collective(); }
    std::function<void()> collective;
  };
  return Work{std::make_unique<Later>(std::move(collective))};
}

std::unique_ptr<Communicator> Communicator::subset(std::span<const int>, std::uint64_t) {
  throw InvalidArgument{fmt::format("the backend '{}' makes no communicators of some of its ranks", backend())};
}

std::vector<std::int64_t> even_slices(std::int64_t count, int slices, std::int64_t granule) {
  const std::int64_t granules = (count + granule - 1) / granule;
  std::vector<std::int64_t> bounds;
  bounds.reserve(static_cast<std::size_t>(slices) + 1);
  for (int slice = 0; slice <= slices; ++slice) bounds.push_back(std::min(count, granules * slice / slices * granule));
  return bounds;
}

std::int64_t longest_slice(std::span<const std::int64_t> bounds) {
  std::int64_t longest = 0;
  for (std::size_t i = 1; i < bounds.size(); ++i) longest = std::max(longest, bounds[i] - bounds[i - 1]);
  return longest;
}

}  // namespace lockstep
