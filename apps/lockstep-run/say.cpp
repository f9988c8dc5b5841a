#include "apps/lockstep-run/say.hpp"

#include <unistd.h>

namespace lockstep::run {

void say(const std::string& line) {
  const std::string text = "lockstep-run: " + line + "\n";
  (void)!::write(STDERR_FILENO, text.data(), text.size());
}

}  // namespace lockstep::run
