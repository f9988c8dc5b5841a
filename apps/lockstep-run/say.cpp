#include "apps/lockstep-run/say.hpp"

#include "core/base/stream.hpp"

namespace lockstep::run {

void say(const std::string& line) {
  write_to_stderr("lockstep-run: " + line + "\n");
}

}  // namespace lockstep::run
