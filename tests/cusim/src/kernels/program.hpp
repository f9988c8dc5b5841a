// What the program's files say about addresses: names of kernels, and constants.
#pragma once

#include <string>

namespace cusim::program {

/// "relu_kernel<float>": the function at `address`, without namespaces and parameters; its address where the program
/// has no symbols.
std::string function_name(const void* address);

/// Whether the address is in a part of the program or of a library that is mapped without permission to write.
bool is_constant(const void* address);

}  // namespace cusim::program
