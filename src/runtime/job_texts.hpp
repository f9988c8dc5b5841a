// Texts of any length that the ranks tell each other while the job starts.
#pragma once

#include <string>
#include <vector>

#include "control/channel.hpp"

namespace lockstep {

/// COLL. Every rank's `text`, in rank order.
std::vector<std::string> gather_texts(ControlChannel& channel, const std::string& text);

/// COLL. Rank 0's `text` on every rank.
std::string broadcast_text(ControlChannel& channel, std::string text);

}  // namespace lockstep
