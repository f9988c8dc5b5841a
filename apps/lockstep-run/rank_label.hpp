// What a launcher that is asked to puts before each line of its ranks.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace lockstep::run {

/// How many bytes of `line` are such a label: "[0] " of MPICH's mpiexec -l, "0: " of srun --label, "[1,0]<stderr>:" of
/// mpirun --tag-output. 0 without a label; nothing if the line ends where a label may go on.
std::optional<std::size_t> label_length(std::string_view line);

}  // namespace lockstep::run
