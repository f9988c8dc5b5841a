// Tags in words.
#pragma once

#include <cstdint>
#include <string>

#include <lockstep/base/here.hpp>

#include "control/tag.hpp"

namespace lockstep {

/// Whether the program makes this agreement by a call, whose place the tag names.
bool is_call(TagKind kind);

/// "step 5", "the evaluation after step 5".
std::string name_of_run(detail::RunKind kind, std::uint64_t step);

/// Where a rank announced the failure `tag`: "in step 5, computing after merge_call #1 (trainer.cpp:120)".
std::string place_of_failure(const Tag& tag);

}  // namespace lockstep
