#include "partition.h"

#include <algorithm>
#include <vector>

namespace dorylus {

namespace {

template <class T> Fresh<T> filled(int64_t count, T value) {
  Fresh<T> array(count);
  std::fill_n(array.data(), count, value);
  return array;
}

// The load of every label.
class Loads {
 public:
  explicit Loads(Work* held) : held_(held) {}
  void add(int32_t label, Work work) {
    held_[label].vertices += work.vertices, held_[label].edges += work.edges;
  }
  void remove(int32_t label, Work work) { add(label, {-work.vertices, -work.edges}); }
  Work with(int32_t label, Work work) const {
    return {held_[label].vertices + work.vertices, held_[label].edges + work.edges};
  }
  bool fits(int32_t label, Work work, Work limit) const {
    Work sum = with(label, work);
    return sum.vertices <= limit.vertices && sum.edges <= limit.edges;
  }

 private:
  Work* held_;
};

// Visits the clusters' rows and passes on the labels of their in-neighbours. Rows, columns and labels lie
// anywhere in memory, each found through the one before: all three are fetched ahead.
class NeighbourLabels {
 public:
  NeighbourLabels(const Csr& csr, const Clusters& clusters, const int32_t* labels)
      : csr_(csr), clusters_(clusters), labels_(labels), end_(clusters.starts[clusters.count]) {}

  template <int kStep, class See> void look(int64_t cluster, See see) const {
    for (int64_t m = clusters_.starts[cluster]; m < clusters_.starts[cluster + 1]; ++m) {
      fetch_ahead<kStep>(m);
      const int64_t row = clusters_.row(m), last = csr_.indptr[row + 1];
      for (int64_t e = csr_.indptr[row]; e < last; ++e) {
        if (e + kAhead < last) __builtin_prefetch(labels_ + csr_.indices[e + kAhead]);
        const int32_t label = labels_[csr_.indices[e]];
        if (label >= 0) see(label);
      }
    }
  }

 private:
  static constexpr int64_t kAhead = 8;

  template <int kStep> void fetch_ahead(int64_t m) const {
    if (inside(m + 16 * kStep)) __builtin_prefetch(csr_.indptr + clusters_.row(m + 16 * kStep));
    if (inside(m + 8 * kStep)) __builtin_prefetch(csr_.indices + csr_.indptr[clusters_.row(m + 8 * kStep)]);
    if (!inside(m + 4 * kStep)) return;
    const int64_t row = clusters_.row(m + 4 * kStep), first = csr_.indptr[row];
    for (int64_t e = first; e < std::min(first + kAhead, csr_.indptr[row + 1]); ++e)
      __builtin_prefetch(labels_ + csr_.indices[e]);
  }
  bool inside(int64_t m) const { return m >= 0 && m < end_; }

  Csr csr_;
  Clusters clusters_;
  const int32_t* labels_;
  int64_t end_;
};

void relabel(const Clusters& clusters, int64_t cluster, int32_t* labels, int32_t label) {
  for (int64_t m = clusters.starts[cluster]; m < clusters.starts[cluster + 1]; ++m) labels[clusters.members[m]] = label;
}

Work work_of(const Csr& csr, const Clusters& clusters, int64_t cluster) {
  Work work{clusters.starts[cluster + 1] - clusters.starts[cluster], 0};
  for (int64_t m = clusters.starts[cluster]; m < clusters.starts[cluster + 1]; ++m)
    work.edges += csr.indptr[clusters.row(m) + 1] - csr.indptr[clusters.row(m)];
  return work;
}

// The finaliser of MurmurHash3.
uint64_t mixed(uint64_t x) {
  x = (x ^ (x >> 33)) * 0xff51afd7ed558ccdull;
  x = (x ^ (x >> 33)) * 0xc4ceb9fe1a85ec53ull;
  return x ^ (x >> 33);
}

// The label seen most that has room; among equals the one a cluster has, then the one that the seed ranks first.
int32_t most_seen(const std::vector<int32_t>& met, Fresh<int32_t>& seen, const Loads& loads, int32_t own, Work work, Work room,
                  uint64_t salt) {
  int32_t best = own;
  uint64_t best_rank = UINT64_MAX;
  for (int32_t label : met) {
    if (label == own || seen[label] < seen[best] || !loads.fits(label, work, room)) continue;
    const uint64_t rank = mixed(salt ^ uint64_t(label));
    if (seen[label] > seen[best] || rank > best_rank) best = label, best_rank = rank;
  }
  return best;
}

// The price of a place: a vertex counts as a mean vertex's edges, an edge as one; it rises with the part's load.
class Prices {
 public:
  explicit Prices(const Placing& how)
      : vertex_share_(double(how.num_parts) / double(how.total.vertices)),
        edge_share_(how.total.edges > 0 ? double(how.num_parts) / double(how.total.edges) : 0.0),
        vertex_work_(1.0 + double(how.total.edges) / double(how.total.vertices)),
        steepness_(how.steepness) {}

  double of(Work work, Work sum) const {
    return 0.5 * (double(work.vertices) * vertex_work_ * raised(double(sum.vertices) * vertex_share_) +
                  double(work.edges) * raised(double(sum.edges) * edge_share_));
  }
  double fullness(Work sum) const {
    return std::max(double(sum.vertices) * vertex_share_, double(sum.edges) * edge_share_);
  }

 private:
  double raised(double x) const {
    for (int i = 0; i < steepness_; ++i) x *= x;
    return x;
  }
  double vertex_share_, edge_share_, vertex_work_;
  int steepness_;
};

// The part with the most in-neighbours for its price; the least full one where all others are at their limits.
int32_t best_part(const std::vector<int64_t>& seen, const Loads& loads, const Prices& prices, int32_t own, Work work,
                  const Placing& how) {
  int32_t best = -1, emptiest = 0;
  double best_score = 0, least = 0;
  for (int32_t part = 0; part < how.num_parts; ++part) {
    const Work sum = loads.with(part, work);
    if (const double full = prices.fullness(sum); part == 0 || full < least) emptiest = part, least = full;
    if (how.strict && part != own && !loads.fits(part, work, how.limit)) continue;
    const double score = double(seen[part]) - prices.of(work, sum);
    if (best < 0 || score > best_score || (score == best_score && part == own)) best = part, best_score = score;
  }
  return best < 0 ? emptiest : best;
}

}  // namespace

void partition_held(const int64_t* indptr, int64_t num_rows, const int32_t* labels, int64_t num_labels, Work* held) {
  std::fill_n(held, num_labels, Work{});
  Loads loads(held);
  for (int64_t v = 0; v < num_rows; ++v)
    if (labels[v] >= 0) loads.add(labels[v], {1, indptr[v + 1] - indptr[v]});
}

int64_t partition_merge(const Csr& csr, const Clusters& clusters, int64_t num_vertices, int32_t* labels, Work* held,
                        Work room, uint64_t seed) {
  Loads loads(held);
  Fresh<int32_t> seen = filled<int32_t>(num_vertices, 0);
  NeighbourLabels rows(csr, clusters, labels);
  std::vector<int32_t> met;
  int64_t moved = 0;
  for (int64_t c = clusters.count - 1; c >= 0; --c) {
    const Work work = work_of(csr, clusters, c);
    if (work.vertices >= room.vertices || work.edges >= room.edges) continue;
    const int32_t own = labels[clusters.members[clusters.starts[c]]];
    relabel(clusters, c, labels, -1);  // edges inside the cluster must not count
    rows.look<-1>(c, [&](int32_t label) {
      if (seen[label]++ == 0) met.push_back(label);
    });
    loads.remove(own, work);
    const int32_t best = most_seen(met, seen, loads, own, work, room, mixed(seed ^ (uint64_t(clusters.first + c) << 32)));
    for (int32_t label : met) seen[label] = 0;
    met.clear();
    loads.add(best, work);
    relabel(clusters, c, labels, best);
    moved += best != own;
  }
  return moved;
}

int64_t partition_place(const Csr& csr, const Clusters& clusters, int32_t* parts, Work* held, const Placing& how) {
  Loads loads(held);
  const Prices prices(how);
  NeighbourLabels rows(csr, clusters, parts);
  std::vector<int64_t> seen(how.num_parts);
  int64_t moved = 0;
  for (int64_t c = 0; c < clusters.count; ++c) {
    const Work work = work_of(csr, clusters, c);
    const int32_t own = parts[clusters.members[clusters.starts[c]]];
    relabel(clusters, c, parts, -1);
    std::fill(seen.begin(), seen.end(), 0);
    rows.look<1>(c, [&](int32_t part) { ++seen[part]; });
    if (own >= 0) loads.remove(own, work);
    const int32_t best = best_part(seen, loads, prices, own, work, how);
    loads.add(best, work);
    relabel(clusters, c, parts, best);
    moved += best != own;
  }
  return moved;
}

void partition_deal(const int64_t* indptr, int64_t num_rows, const int32_t* order, int32_t num_parts,
                    int64_t vertex_limit, int32_t* parts) {
  std::vector<Work> loads(num_parts);
  for (int64_t i = 0; i < num_rows; ++i) {
    int32_t best = -1;
    for (int32_t part = 0; part < num_parts; ++part) {
      if (loads[part].vertices >= vertex_limit) continue;
      const bool lighter = best < 0 || loads[part].edges < loads[best].edges ||
                           (loads[part].edges == loads[best].edges && loads[part].vertices < loads[best].vertices);
      if (lighter) best = part;
    }
    const int64_t v = order[i];
    parts[v] = best;
    loads[best].vertices += 1;
    loads[best].edges += indptr[v + 1] - indptr[v];
  }
}

int64_t partition_across(const Csr& csr, int64_t num_rows, int64_t first_row, const int32_t* parts, int64_t first_part,
                         int32_t* readers, int32_t* targets) {
  constexpr int64_t kAhead = 16;
  auto bit = [first_part](int32_t part) -> int32_t {
    const int64_t number = part - first_part;
    return number >= 0 && number < 32 ? int32_t(uint32_t(1) << number) : 0;
  };
  int64_t cut = 0;
  for (int64_t r = 0; r < num_rows; ++r) {
    const int32_t own = parts[first_row + r], own_bit = bit(own);
    for (int64_t e = csr.indptr[r]; e < csr.indptr[r + 1]; ++e) {
      if (e + kAhead < csr.indptr[num_rows]) {
        __builtin_prefetch(parts + csr.indices[e + kAhead]);
        __builtin_prefetch(readers + csr.indices[e + kAhead], 1);
      }
      const int32_t source = csr.indices[e], part = parts[source];
      if (part == own) continue;
      ++cut;
      readers[source] |= own_bit;
      if (targets != nullptr) targets[first_row + r] |= bit(part);
    }
  }
  return cut;
}

}  // namespace dorylus
