#include <lockstep/core/trace/span.hpp>

#include "core/trace/ring.hpp"

namespace lockstep::trace {

Span::Span(std::string_view name) noexcept {
  const Ring::Open open = Ring::begin(Kind::program, name);
  number_ = open.number;
  begin_ = open.begin;
}

Span::~Span() {
  Ring::end({number_, begin_});
}

}  // namespace lockstep::trace
