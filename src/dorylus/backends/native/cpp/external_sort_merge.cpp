#include "external_sort_merge.h"

namespace dorylus {

namespace {

constexpr int64_t kMostRead = 341 * kIoUnit;  // about 4 MiB: longer reads are no faster

template <class Record> std::vector<RunReader<Record>> readers_of(const ScratchFile& file, const std::vector<Run>& runs,
                                                                  int64_t memory_bytes) {
  std::vector<RunReader<Record>> readers;
  if (runs.empty()) return readers;
  int64_t share = memory_bytes / std::ssize(runs) / kIoUnit * kIoUnit;
  if (share < kIoUnit)
    bad_value("merging " + std::to_string(runs.size()) + " runs takes " +
              std::to_string(std::ssize(runs) * kIoUnit) + " bytes, but memory_bytes is " +
              std::to_string(memory_bytes));
  readers.reserve(runs.size());
  for (Run run : runs) readers.emplace_back(file, run, std::min(share, kMostRead));
  return readers;
}

void append(SortedBlock& block, int64_t at, const Edge& edge) {
  block.rows[at] = int32_t(edge.key >> 32);
  block.columns[at] = int32_t(edge.key & 0xffffffff);
}

void append(SortedBlock& block, int64_t at, const WeightedEdge& edge) {
  append(block, at, Edge{edge.key});
  (*block.weights)[at] = edge.weight;
}

}  // namespace

template <class Record> Merge<Record>::Merge(std::shared_ptr<ScratchFile> file, std::vector<Run> runs,
                                             int64_t memory_bytes, int64_t block_edges, bool coalesce)
    : file_(std::move(file)),
      edges_(readers_of<Record>(*file_, runs, memory_bytes)),
      block_edges_(block_edges),
      coalesce_(coalesce),
      thread_([this] { work(); }) {}

template <class Record> Merge<Record>::~Merge() {
  {
    std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

template <class Record> std::optional<SortedBlock> Merge<Record>::next() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !made_.empty() || failure_ || ended_; });
  if (made_.empty()) {
    if (failure_) std::rethrow_exception(failure_);
    return std::nullopt;
  }
  std::optional<SortedBlock> block = std::move(made_.front());
  made_.pop_front();
  changed_.notify_all();
  return block;
}

template <class Record> void Merge<Record>::work() {
  std::exception_ptr failure;
  try {
    while (std::optional<SortedBlock> block = make_block())
      if (!put(std::move(block))) return;
  } catch (...) {
    failure = std::current_exception();
  }
  std::lock_guard lock(mutex_);
  failure_ = failure;
  ended_ = true;
  changed_.notify_all();
}

template <class Record> std::optional<SortedBlock> Merge<Record>::make_block() {
  if (edges_.done()) return std::nullopt;
  SortedBlock block{Fresh<int32_t>(block_edges_), Fresh<int32_t>(block_edges_), std::nullopt};
  if (Record::kWeighted) block.weights.emplace(block_edges_);
  int64_t count = 0;
  for (; count < block_edges_ && !edges_.done(); edges_.advance()) {
    const Record& edge = edges_.head();
    if (coalesce_ && last_ && repeats(*last_, edge)) continue;
    append(block, count++, edge);
    if (coalesce_) last_ = edge;
  }
  block.rows.shrink(count);
  block.columns.shrink(count);
  if (block.weights) block.weights->shrink(count);
  return block;
}

template <class Record> bool Merge<Record>::put(std::optional<SortedBlock> block) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return stopped_ || made_.size() < kAhead; });
  made_.push_back(std::move(block));
  changed_.notify_all();
  return !stopped_;
}

template class Merge<Edge>;
template class Merge<WeightedEdge>;

}  // namespace dorylus
