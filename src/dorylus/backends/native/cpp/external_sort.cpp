#include "external_sort.h"

#include <future>

#include "external_sort_merge.h"

namespace dorylus {

namespace {

constexpr int64_t kLeastMemory = 3 * kIoUnit;

template <class Record> class Spool final : public EdgeSort {
 public:
  Spool(int descriptor, const SortOptions& options)
      : options_(options),
        file_(std::make_shared<ScratchFile>(descriptor)),
        capacity_(options.memory_bytes / 3 / kIoUnit * kIoUnit / int64_t(sizeof(Record))),
        filling_(capacity_ * sizeof(Record)),
        sorting_(capacity_ * sizeof(Record)),
        spare_(capacity_ * sizeof(Record)) {}

  ~Spool() override {
    if (pending_.valid()) pending_.wait();
  }

  void add(const EdgeColumns& edges) override {
    if (ended_) bad_value("edges were added after sorted() was called");
    for (int64_t e = 0; e < edges.count; ++e) {
      int32_t row = edges.rows[e], column = edges.columns[e];
      if ((row | column) < 0) refuse(e, row, column);
      float weight = Record::kWeighted ? edges.weights[e] : 0.0f;
      if (row == column && options_.drop_self_loops) continue;
      push(key_of(row, column), weight);
      if (options_.undirected && row != column) push(key_of(column, row), weight);
    }
  }

  std::unique_ptr<SortedEdges> sorted(int64_t memory_bytes, int64_t block_edges) override {
    if (ended_) bad_value("sorted() was called twice");
    ended_ = true;
    if (filled_ > 0) hand_over();
    settle();
    filling_ = Pages(0), sorting_ = Pages(0), spare_ = Pages(0);
    return std::make_unique<Merge<Record>>(file_, std::move(runs_), memory_bytes, block_edges, options_.coalesce);
  }

  int64_t spooled_bytes() override {
    settle();
    return end_;
  }

 private:
  void push(uint64_t key, float weight) {
    if (filled_ == capacity_) hand_over();
    Record& record = filling_.as<Record>()[filled_++];
    record.key = key;
    if constexpr (Record::kWeighted) record.weight = weight;
    used_ |= key;
  }

  [[noreturn]] static void refuse(int64_t edge, int32_t row, int32_t column) {
    bad_value("edge " + std::to_string(edge) + " is (" + std::to_string(row) + ", " + std::to_string(column) +
              "): rows and columns are numbered from 0");
  }

  // The full array goes to the thread that sorts and writes; the array that it has finished is filled next.
  void hand_over() {
    settle();
    std::swap(filling_, sorting_);
    int64_t count = std::exchange(filled_, 0);
    pending_ = std::async(std::launch::async, [this, count, used = used_] { write_run(count, used); });
  }

  void settle() {
    if (pending_.valid()) pending_.get();  // rethrows the thread's exception
  }

  void write_run(int64_t count, uint64_t used) {
    Record* run = radix_sort(sorting_.as<Record>(), spare_.as<Record>(), count, used);
    if (options_.coalesce) count = drop_repeats(run, count);
    int64_t bytes = round_up(count * int64_t(sizeof(Record)), kSector);
    file_->write(reinterpret_cast<const std::byte*>(run), bytes, end_);
    runs_.push_back({end_, count});
    end_ += bytes;
  }

  SortOptions options_;
  std::shared_ptr<ScratchFile> file_;
  int64_t capacity_, filled_ = 0, end_ = 0;
  uint64_t used_ = 0;  // the bits that any key has had
  bool ended_ = false;
  Pages filling_, sorting_, spare_;
  std::vector<Run> runs_;
  std::future<void> pending_;
};

}  // namespace

std::unique_ptr<EdgeSort> EdgeSort::make(int descriptor, const SortOptions& options) {
  if (options.memory_bytes < kLeastMemory)
    bad_value("memory_bytes is " + std::to_string(options.memory_bytes) + ": give at least " +
              std::to_string(kLeastMemory));
  if (options.weighted) return std::make_unique<Spool<WeightedEdge>>(descriptor, options);
  return std::make_unique<Spool<Edge>>(descriptor, options);
}

}  // namespace dorylus
