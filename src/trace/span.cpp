#include <lockstep/trace/span.hpp>

#include "trace/ring.hpp"

namespace lockstep::trace {

Span::Span(std::string_view name) noexcept {
  Ring* const ring = Ring::current();
  const Ring::Open open = ring ? ring->begin(Kind::program, name) : Ring::Open{};
  number_ = open.number;
  begin_ = open.begin;
}

Span::~Span() {
  if (begin_ == 0) return;
  if (Ring* const ring = Ring::current()) ring->end({number_, begin_});
}

}  // namespace lockstep::trace
