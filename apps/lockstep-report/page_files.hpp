// The files beside this one that make up the page, as the build has put them into the program.
#pragma once

#include <string_view>

namespace lockstep::report::page_files {

extern const std::string_view html, style, figures, script;
/// Chart.js; empty in a build that did not find it.
extern const std::string_view charts;

}  // namespace lockstep::report::page_files
