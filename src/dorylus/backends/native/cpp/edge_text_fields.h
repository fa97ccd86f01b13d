// The fields of one line, and the numbers in them.
#pragma once

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <string>

#include "edge_text.h"

namespace dorylus {

// Where fields are cut by tabs, a tab is no blank: it may stand before an empty field.
inline bool is_blank(char c, const TextForm& form) { return c == ' ' || (c == '\t' && form.separator != '\t'); }

inline std::string_view without_leading_blanks(std::string_view field, const TextForm& form) {
  while (!field.empty() && is_blank(field.front(), form)) field.remove_prefix(1);
  return field;
}

inline std::string_view trimmed(std::string_view field, const TextForm& form) {
  while (!field.empty() && is_blank(field.back(), form)) field.remove_suffix(1);
  return without_leading_blanks(field, form);
}

// The line up to a comment. A mark inside a word (as in an address) opens none.
inline std::string_view without_comment(std::string_view line, const TextForm& form) {
  for (size_t at = 0; at < line.size(); ++at) {
    if (form.comments.find(line[at]) == std::string_view::npos) continue;
    bool opens = at == 0 || is_blank(line[at - 1], form) || (form.separator != 0 && line[at - 1] == form.separator);
    if (opens) return trimmed(line.substr(0, at), form);
  }
  return trimmed(line, form);
}

// A field as it lies in the line, without the quotes around it.
struct Field {
  std::string_view text;
  bool doubled = false;  // whether quotes within it are written twice
};

// The fields that an edge is made of.
struct EdgeFields {
  Field source, destination, weight;
};

// Writes a field with its quotes once; where it ends now.
inline uint8_t* copy(const Field& field, uint8_t* to) {
  const std::string_view text = field.text;
  if (!field.doubled) {
    std::memcpy(to, text.data(), text.size());
    return to + text.size();
  }
  for (size_t at = 0; at < text.size(); ++at) {
    *to++ = uint8_t(text[at]);
    if (text[at] == '"') ++at;
  }
  return to;
}

// Takes the fields of a line one after another.
class LineFields {
 public:
  LineFields(std::string_view line, const TextForm& form) : rest_(line), form_(form) {}

  TextFault take(EdgeFields& edge) {
    int64_t count = 0;
    for (bool more = true; more; ++count) {
      Field field;
      if (!next(field, more)) return TextFault::quotes;
      if (count == form_.source) edge.source = field;
      if (count == form_.destination) edge.destination = field;
      if (count == form_.weight) edge.weight = field;
    }
    return count == form_.num_fields ? TextFault::none : TextFault::fields;
  }

 private:
  // False where quotes are not closed, or something follows them.
  bool next(Field& field, bool& more) {
    if (form_.separator == 0) return next_word(field, more);
    if (form_.quotes) {
      std::string_view from = without_leading_blanks(rest_, form_);
      if (!from.empty() && from.front() == '"') return next_quoted(from, field, more);
    }
    size_t end = rest_.find(form_.separator);
    more = end != std::string_view::npos;
    field.text = trimmed(rest_.substr(0, end), form_);
    rest_ = more ? rest_.substr(end + 1) : std::string_view();
    return true;
  }

  bool next_word(Field& field, bool& more) {
    size_t end = 0;
    while (end < rest_.size() && !is_blank(rest_[end], form_)) ++end;
    field.text = rest_.substr(0, end);
    rest_ = without_leading_blanks(rest_.substr(end), form_);
    more = !rest_.empty();
    return true;
  }

  bool next_quoted(std::string_view from, Field& field, bool& more) {
    size_t close = from.find('"', 1);
    for (; close < from.size() - 1 && from[close + 1] == '"'; close = from.find('"', close + 2)) field.doubled = true;
    if (close == std::string_view::npos) return false;
    field.text = from.substr(1, close - 1);
    from = without_leading_blanks(from.substr(close + 1), form_);
    more = !from.empty();
    if (more && from.front() != form_.separator) return false;
    rest_ = more ? from.substr(1) : std::string_view();
    return true;
  }

  std::string_view rest_;
  const TextForm& form_;
};

// A whole number with an optional sign.
inline TextFault to_number(std::string_view field, const TextForm& form, int64_t& number) {
  if (field.size() > 1 && field.front() == '+' && field[1] != '-') field.remove_prefix(1);
  auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), number);
  if (error == std::errc::invalid_argument || end != field.data() + field.size()) return TextFault::number;
  if (error == std::errc::result_out_of_range) return TextFault::overflow;
  return number < form.lowest || number > form.highest ? TextFault::range : TextFault::none;
}

// A finite number; a magnitude below the smallest float is 0.
inline bool to_weight(std::string_view field, float& weight) {
  if (field.size() > 1 && field.front() == '+' && field[1] != '-') field.remove_prefix(1);
  double value = 0;
  auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value);
  if (error == std::errc::invalid_argument || end != field.data() + field.size()) return false;
  if (error == std::errc::result_out_of_range) value = std::strtod(std::string(field).c_str(), nullptr);
  weight = float(value);
  return std::isfinite(weight);
}

}  // namespace dorylus
