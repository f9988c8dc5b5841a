#include <fmt/format.h>
#include <fmt/ranges.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/core/base/shape.hpp>

#include "core/base/element_count.hpp"

namespace lockstep {

std::int64_t element_count(const Shape& shape) {
  std::int64_t count = 1;
  for (const std::int64_t extent : shape) {
    if (extent < 0) throw InvalidArgument{fmt::format("shape {} has a negative extent", describe(shape))};
    if (__builtin_mul_overflow(count, extent, &count))
      throw InvalidArgument{fmt::format("shape {} has more elements than 64 bits can count", describe(shape))};
  }
  return count;
}

void Shape::refuse_more() {
  throw InvalidArgument{fmt::format("a shape of more than {0} dimensions; expected at most {0}", most_dimensions)};
}

std::string describe(const Shape& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

}  // namespace lockstep
