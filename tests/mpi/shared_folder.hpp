// A folder for the files that the ranks of a test share.
#pragma once

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/sync/strategy/strategy.hpp>
#include <lockstep/tf/extended/extended.hpp>

#include "support/job.hpp"
#include "support/ranks.hpp"

namespace lockstep::test {

/// A folder that all ranks know, gone with the chief's object: files are looked at there.
class SharedFolder {
 public:
  SharedFolder() {
    if (runtime().is_chief()) own_.emplace();
    std::vector<std::uint8_t> text(256);
    if (own_) std::ranges::copy(own_->path().string(), text.begin());
    const auto shared = StrategyExtended{runtime().strategy()}.broadcast_to(PerReplica{Tensor::from(text, {256})});
    text = shared.value().to_vector<std::uint8_t>();
    path_ = std::string{text.begin(), std::ranges::find(text, 0)};
  }

  std::filesystem::path operator/(const char* name) const { return path_ / name; }
  /// On the chief; elsewhere it does nothing.
  void write(const char* name, std::string_view bytes) const {
    if (own_) own_->write(name, bytes);
  }
  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& each : std::filesystem::directory_iterator{path_}) found.push_back(each.path().filename());
    std::ranges::sort(found);
    return found;
  }

 private:
  std::optional<TemporaryDirectory> own_;
  std::filesystem::path path_;
};

}  // namespace lockstep::test
