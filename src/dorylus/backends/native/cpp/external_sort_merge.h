// Merges sorted runs of a scratch file into blocks, ahead of the consumer.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "external_sort.h"
#include "external_sort_file.h"

namespace dorylus {

struct Run {
  int64_t offset, count;
};

// The records of one run in order, read a buffer at a time; the file's space is freed with each.
template <class Record> class RunReader {
 public:
  RunReader(const ScratchFile& file, Run run, int64_t buffer_bytes)
      : file_(&file), left_(run.count), offset_(run.offset), buffer_(buffer_bytes) {
    refill();
  }

  bool done() const { return at_ == end_; }
  const Record& head() const { return *at_; }
  void advance() {
    if (++at_ == end_) refill();
  }

 private:
  void refill() {
    int64_t count = std::min<int64_t>(left_, buffer_.bytes() / int64_t(sizeof(Record)));
    int64_t bytes = round_up(count * int64_t(sizeof(Record)), kSector);
    if (count > 0) file_->read(buffer_.template as<std::byte>(), bytes, offset_);
    file_->forget(offset_, bytes);  // now, so that no record takes space both here and in the output
    offset_ += bytes;
    left_ -= count;
    at_ = buffer_.template as<Record>();
    end_ = at_ + count;
  }

  const ScratchFile* file_;
  int64_t left_, offset_;
  Pages buffer_;
  const Record *at_ = nullptr, *end_ = nullptr;
};

// The least of many runs at any time: a tree of losers, one comparison a level. Equal keys come in the order of runs.
template <class Record> class Tournament {
 public:
  explicit Tournament(std::vector<RunReader<Record>> runs) : runs_(std::move(runs)), losers_(runs_.size(), -1) {
    for (const RunReader<Record>& run : runs_) keys_.push_back(run.done() ? kNone : run.head().key);
    for (int run = 0; run < int(runs_.size()); ++run) enter(run);
  }

  bool done() const { return runs_.empty() || keys_[winner_] == kNone; }
  const Record& head() const { return runs_[winner_].head(); }

  void advance() {
    RunReader<Record>& run = runs_[winner_];
    run.advance();
    keys_[winner_] = run.done() ? kNone : run.head().key;
    int best = winner_;
    for (int node = parent(winner_); node > 0; node /= 2)
      if (before(losers_[node], best)) std::swap(losers_[node], best);
    winner_ = best;
  }

 private:
  static constexpr uint64_t kNone = UINT64_MAX;

  int parent(int run) const { return (run + int(runs_.size())) / 2; }
  bool before(int a, int b) const { return keys_[a] < keys_[b] || (keys_[a] == keys_[b] && a < b); }

  // A run that reaches a match first is stored there until its opponent comes.
  void enter(int run) {
    int best = run;
    for (int node = parent(run); node > 0; node /= 2) {
      if (losers_[node] < 0) {
        losers_[node] = best;
        return;
      }
      if (before(losers_[node], best)) std::swap(losers_[node], best);
    }
    winner_ = best;
  }

  std::vector<RunReader<Record>> runs_;
  std::vector<uint64_t> keys_;
  std::vector<int> losers_;
  int winner_ = 0;
};

template <class Record> class Merge final : public SortedEdges {
 public:
  Merge(std::shared_ptr<ScratchFile> file, std::vector<Run> runs, int64_t memory_bytes, int64_t block_edges,
        bool coalesce);
  ~Merge() override;
  std::optional<SortedBlock> next() override;

 private:
  static constexpr size_t kAhead = 1;  // blocks that wait for the consumer, beside the one being made

  void work();
  std::optional<SortedBlock> make_block();
  bool put(std::optional<SortedBlock> block);  // false: the consumer has stopped

  std::shared_ptr<ScratchFile> file_;
  Tournament<Record> edges_;
  int64_t block_edges_;
  bool coalesce_;
  std::optional<Record> last_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::optional<SortedBlock>> made_;
  std::exception_ptr failure_;
  bool stopped_ = false, ended_ = false;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace dorylus
