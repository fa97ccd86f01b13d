// Reading edges from text: a line an edge, its fields cut by blanks or by one character. One pass, no copies of lines.
#pragma once

#include <optional>
#include <string_view>

#include "buffer.h"

namespace dorylus {

// The form of a text's lines. Columns count from 0.
struct TextForm {
  int64_t source, destination, weight;  // weight: -1 for none
  int64_t num_fields;                   // that every line has
  char separator;                       // 0: any run of blanks and tabs
  bool quotes;                          // whether a field may stand in double quotes
  std::string_view comments;            // characters that open one where a field could begin
  int64_t lowest, highest;              // numbers of vertices lie between these
};

// The faults of a line, in the order of `TEXT_FAULTS` in the Python module.
enum class TextFault : int { none, fields, quotes, number, overflow, range, empty, weight };

// Where reading stopped, and the reason.
struct TextEnd {
  int64_t num_lines;           // read whole, the faulty one not counted
  TextFault fault;
  int64_t fault_begin, fault_end;  // the faulty line, without its newline
};

// Names one after another: name i is bytes[offsets[i]:offsets[i + 1]].
struct Names {
  Fresh<uint8_t> bytes;
  Fresh<int64_t> offsets;
};

// Edges whose ends are numbers, or names.
template <class Ends> struct TextEdges {
  Ends source, destination;
  std::optional<Fresh<float>> weight;
  TextEnd end;
};

TextEdges<Fresh<int64_t>> read_number_edges(std::string_view text, const TextForm& form);
TextEdges<Names> read_name_edges(std::string_view text, const TextForm& form);

}  // namespace dorylus
