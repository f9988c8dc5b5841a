#include "apps/options/wrapped_text.hpp"

#include <algorithm>

namespace lockstep {
namespace {

// Of a text to the right of something.
constexpr std::size_t fewest_columns = 24;

/// Where the text on the right of a line begins; npos if there is none. Two blanks precede it, or in a list of options
/// one, where the option is as long as its column.
std::size_t right_side(std::string_view line) {
  constexpr std::size_t column_of_options = 28;
  if (!line.starts_with("  ")) return line.npos;
  const std::size_t left = line.find_first_not_of(' ');
  if (left == line.npos) return line.npos;
  if (left >= column_of_options) return left;  // the option is in the line above
  const std::size_t gap = line.find("  ", left);
  if (gap != line.npos) return line.find_first_not_of(' ', gap);
  const bool is_full = line.size() > column_of_options && line[column_of_options - 1] == ' ';
  return is_full ? column_of_options : line.npos;
}

/// Adds the words of `text`, from the column where `out` ends. Lines that follow begin with `indent` blanks.
void add_words(std::string_view text, std::size_t width, std::size_t indent, std::string& out) {
  std::size_t column = out.size() - (out.rfind('\n') + 1);
  const std::size_t first_word = text.find_first_not_of(' ');
  out.append(std::min(first_word, text.size()), ' ');
  column += std::min(first_word, text.size());
  bool begins_line = true;
  for (std::size_t at = first_word; at < text.size();) {
    // Blanks between words stay, except where a line ends.
    const std::size_t blanks_end = std::min(text.find_first_not_of(' ', at), text.size());
    const std::size_t end = std::min(text.find(' ', blanks_end), text.size());
    const std::size_t blanks = blanks_end - at, word = end - blanks_end;
    if (word == 0) break;
    if (!begins_line && column + blanks + word > width) {
      out.append("\n").append(indent, ' ');
      column = indent;
    } else {
      out.append(blanks, ' ');
      column += blanks;
    }
    out.append(text.substr(blanks_end, word));
    column += word;
    begins_line = false;
    at = end;
  }
}

void wrap_line(std::string_view line, std::size_t width, std::string& out) {
  if (line.size() <= width) {
    out.append(line).append("\n");
    return;
  }
  std::size_t right = right_side(line);
  const std::size_t narrow_indent = std::min<std::size_t>(4, width / 4);
  if (right == line.npos) {
    add_words(line, width, line.starts_with("  ") ? narrow_indent : 0, out);
  } else if (width >= right + fewest_columns) {
    out.append(line.substr(0, right));
    add_words(line.substr(right), width, right, out);
  } else {
    const std::string_view left = line.substr(0, line.find_last_not_of(' ', right - 1) + 1);
    if (!left.empty() && left.find_first_not_of(' ') != left.npos) {
      add_words(left, width, narrow_indent, out);
      out.append("\n");
    }
    out.append(narrow_indent, ' ');
    add_words(line.substr(right), width, narrow_indent, out);
  }
  out.append("\n");
}

}  // namespace

std::string wrapped(std::string_view text, std::size_t width) {
  std::string out;
  for (std::size_t first = 0; first < text.size();) {
    const std::size_t end = std::min(text.find('\n', first), text.size());
    wrap_line(text.substr(first, end - first), width, out);
    first = end + 1;
  }
  return out;
}

}  // namespace lockstep
