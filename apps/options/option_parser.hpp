// The command line of a program. CLI11 passes every value on as text, so that our own words say what it must be.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace lockstep {

/// Those of `names` that a user who wrote `name` may have meant: spelt nearly so, or with a part in common. At most
/// three, the likeliest first.
std::vector<std::string> similar_to(const std::string& name, const std::vector<std::string>& names);

class OptionParser {
 public:
  /// Reads the value of `option`; ConfigError, naming the option, for a wrong value.
  using Take = std::function<void(const std::string& option, const std::string& text)>;

  /// `program` is its name in help, version and messages: "lockstep-train".
  OptionParser(std::string program, const std::string& description);
  OptionParser(const OptionParser&) = delete;
  ~OptionParser();

  /// Adds a command, for a program of several commands; a command line names one of them. The groups and options that
  /// follow belong to it.
  void command(const std::string& name, const std::string& help);

  /// Sets the heading, in the help, of the options that follow.
  void group(std::string name) { group_ = std::move(name); }

  void option(const std::string& name, const char* value_name, const std::string& help, Take take);

  /// Adds an option that may be given more than once; `take` gets one value after the other.
  void repeatable(const std::string& name, const char* value_name, const std::string& help, Take take);

  /// Adds an option without a value.
  void flag(const std::string& name, const std::string& help, std::function<void()> take);

  /// Adds words that belong to no option, such as the names of folders; `take` gets one after the other.
  void words(const char* name, const std::string& help, Take take);

  /// Names, without dashes, that other programs give to the option `name`: who tries one of them is told `name`.
  void known_elsewhere(const std::string& name, const std::vector<std::string>& as);

  /// Returns the help or the version if asked for. ConfigError in one line that says what is wrong.
  std::optional<std::string> parse(int argc, const char* const* argv);

  /// The command that was named.
  const std::string& chosen() const { return chosen_; }

 private:
  std::string what_is_wrong(const std::string& parse_error) const;
  std::string unknown_option(const std::string& given) const;
  std::string commands() const;
  const CLI::App* named_command() const;

  std::string program_;
  std::string group_ = "Options";
  std::unique_ptr<CLI::App> app_;
  CLI::App* current_;  ///< owns the options that follow
  std::vector<CLI::App*> commands_;
  std::map<std::string, std::string> elsewhere_;  ///< an option's name here, by that of other programs
  std::string chosen_;
};

}  // namespace lockstep
