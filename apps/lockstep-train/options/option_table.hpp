// The table of lockstep-train's options. The help lists them in this order, and of several that are wrong, the first is
// told.
#pragma once

#include <vector>

#include "apps/lockstep-train/options/option_row.hpp"

namespace lockstep {

OptionGroup data_and_model_options();
OptionGroup training_options();
OptionGroup rank_and_device_options();
OptionGroup checkpoint_options();
OptionGroup weight_options();
OptionGroup purpose_options();
OptionGroup output_options();

inline std::vector<OptionGroup> option_table() {
  return {data_and_model_options(), training_options(), rank_and_device_options(), checkpoint_options(),
          weight_options(),         purpose_options(),  output_options()};
}

}  // namespace lockstep
