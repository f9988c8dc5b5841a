// What programs of Python's leave in files.
#include "arrays.hpp"

#include <cstdint>
#include <fstream>
#include <stdexcept>

#include <torch/types.h>

namespace lockstep::test {

at::Tensor read_doubles(const std::string& path, at::IntArrayRef shape) {
  std::ifstream file{path, std::ios::binary | std::ios::ate};
  const auto bytes = static_cast<std::int64_t>(file.tellg());
  at::Tensor values = torch::empty({bytes / 8}, torch::kDouble);
  if (!file.seekg(0).read(static_cast<char*>(values.data_ptr()), bytes))
    throw std::runtime_error{"cannot read " + path};
  return values.view(shape);
}

}  // namespace lockstep::test
