// The host's stream, as one whose work is captured into a graph while a test says so.
#pragma once

#include "support/forwarding_stream.hpp"

namespace lockstep::test {

class CapturedStream final : public ForwardingStream {
 public:
  /// Reads `capturing` each time.
  explicit CapturedStream(const bool& capturing) : capturing_{capturing} {}

  bool is_capturing() const override { return capturing_; }

 private:
  const bool& capturing_;
};

}  // namespace lockstep::test
