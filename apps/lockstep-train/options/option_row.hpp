// A row of the table of options: what the help, the parser and the checks of a command line know of an option. To add
// an option, add a row to its group.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "apps/lockstep-train/options/command_line.hpp"

namespace lockstep {

inline std::vector<std::pair<const char*, ModelKind>> model_names() {
  return {{"mlp", ModelKind::mlp}, {"convnet", ModelKind::convnet}, {"gpt", ModelKind::gpt}};
}

/// Puts the value of `option` where it belongs; `text` is empty for a flag. ConfigError, naming the option, for a wrong
/// value.
using SetOption = std::function<void(CommandLine& line, const std::string& option, const std::string& text)>;

/// The runs that have a use for an option.
enum class OptionUse : std::uint8_t { every_run, no_prediction, training, prediction };

enum class OptionNeeds : std::uint8_t { nothing, checkpoint_dir };

enum class OptionTimes : std::uint8_t { once, any };

struct OptionRow {
  std::string name;        ///< "--steps"
  std::string value_name;  ///< "N", for the help; empty for a flag
  std::string help;
  SetOption set;
  std::vector<ModelKind> models = {};  ///< those that take it; if empty, all do
  OptionUse use = OptionUse::every_run;
  OptionNeeds needs = OptionNeeds::nothing;
  OptionTimes times = OptionTimes::once;
  std::vector<std::string> elsewhere = {};  ///< names, without dashes, that other programs give to it
};

struct OptionGroup {
  std::string heading;  ///< in the help
  std::vector<OptionRow> rows;
};

}  // namespace lockstep
