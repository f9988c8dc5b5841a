// What a test may do to a simulated GPU that no program does to a real one by lockstep.
#pragma once

#include <lockstep/device/device.hpp>

namespace lockstep::test {

/// While it lives, `stream` of a simulated GPU is being captured, as far as that can be asked; its work is still done.
class Capture {
 public:
  explicit Capture(Stream& stream);
  Capture(const Capture&) = delete;
  ~Capture();

 private:
  Stream& stream_;
};

}  // namespace lockstep::test
