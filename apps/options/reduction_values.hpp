// The options of reductions that several programs have: what --help says of them, and how their values are read.
#pragma once

#include <string>

#include <lockstep/core/base/dtype.hpp>

#include "apps/options/option_values.hpp"

namespace lockstep {

inline constexpr const char* compression_values = "f16|bf16";
inline constexpr const char* compression_help =
    "Send f32 gradients between nodes in 16 bits. The result then depends on which shards share a node";
inline constexpr const char* shard_optimizer_help =
    "Let each rank update a part of the weights and keep the optimizer's state of this part alone. The result is the "
    "same";

inline DType parse_compression(const std::string& option, const std::string& text) {
  return parse_choice<DType>(option, text, {{"f16", DType::f16}, {"bf16", DType::bf16}});
}

}  // namespace lockstep
