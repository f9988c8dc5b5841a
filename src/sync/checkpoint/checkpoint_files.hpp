// Which files a checkpoint is made of.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <lockstep/sync/checkpoint/checkpoint_manager.hpp>

#include "sync/checkpoint/checkpoint_folder.hpp"
#include "sync/checkpoint/strategy_values.hpp"

namespace lockstep {

/// The file of the optimizers' state.
inline constexpr std::string_view optimizer_file = "optimizer.safetensors";

enum class FilesOf { everything, weights };

/// LOCAL, on the chief.
inline std::vector<TensorFile> files_of(const StrategyValues& values, FilesOf parts = FilesOf::everything) {
  std::vector<TensorFile> files{{std::string{weights_file}, values.variables()}};
  if (parts == FilesOf::everything) files.push_back({std::string{optimizer_file}, values.optimizer_state()});
  return files;
}

}  // namespace lockstep
