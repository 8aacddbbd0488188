// The layout of every image, as one decision of the whole graph: planar or with the channels innermost, by the sum of
// the kernels' estimates and of the copies between layouts. The layout pass says which values may be stored channels
// last; here it is decided which are.
//
// The sum over nodes of what each costs under the labels of its operands is a pairwise energy; an exact minimum is a
// cut of a graph only where it is submodular, which residual sums are not. So: from the better of all planar and all
// channels last, single images and whole regions (images joined by work that walks both sides alike) are flipped while
// that lowers the sum. Convolutions gain from the other layout in runs, which single flips alone would not cross.
#include <algorithm>
#include <map>
#include <numeric>

#include "plan/lower.h"

namespace ridgeline {
namespace {

// Estimates of the two layouts' kernels err by more than this (docs/tuning.md, regret): what differs by less is left
// as the pass marked it.
constexpr double kLeastGain = 0.03;

bool is_convolution(const Node& node) { return node.is("Conv") || node.is("ConvTranspose") || node.is("ConvInteger"); }

}  // namespace

class LayoutSearch {
 public:
  LayoutSearch(Lowering& lowering, std::vector<ValueId> images) : l_(lowering), images_(std::move(images)) {
    index_.assign(size_t(l_.graph_.value_count()), -1);
    for (size_t i = 0; i < images_.size(); ++i) index_[size_t(images_[i])] = int(i);
    for (NodeId id : l_.order_) {
      const Node& node = l_.graph_.node(id);
      Touched touched{&node, l_.problem_of(node), {}, {}};
      for (ValueId v : node.inputs) touched.add(v == kNoValue ? -1 : index_[size_t(v)]);
      for (ValueId v : node.outputs) touched.add(v == kNoValue ? -1 : index_[size_t(v)]);
      if (touched.images.empty() || touched.images.size() > kMostImages) continue;
      nodes_.push_back(std::move(touched));
    }
    nodes_of_.resize(images_.size());
    for (size_t n = 0; n < nodes_.size(); ++n)
      for (int image : nodes_[n].images) nodes_of_[size_t(image)].push_back(int(n));
  }

  LayoutSummary run(std::vector<char>& last) {
    LayoutSummary summary;
    std::vector<char> planar(images_.size(), 0);
    last.assign(images_.size(), 1);
    summary.images = int(images_.size());
    summary.all_last_ns = total(last);
    summary.all_planar_ns = total(planar);
    if (summary.all_planar_ns < summary.all_last_ns * (1 - kLeastGain)) last = planar;
    const std::vector<std::vector<int>> moves = all_moves();
    for (bool changed = true; changed;) {
      changed = false;
      for (const std::vector<int>& move : moves) changed = flip_if_less(move, last) || changed;
    }
    summary.chosen_ns = total(last);
    summary.last = int(std::count(last.begin(), last.end(), 1));
    return summary;
  }

 private:
  static constexpr size_t kMostImages = 16;  // of one node; a Concat of more stays as it is marked

  struct Touched {
    const Node* node;
    Problem problem;  // all row-major
    std::vector<int> images;
    std::map<uint32_t, double> known;  // labels of `images` -> cost_ns
    void add(int image) {
      if (image >= 0 && std::find(images.begin(), images.end(), image) == images.end()) images.push_back(image);
    }
  };

  double cost(Touched& t, const std::vector<char>& last) {
    uint32_t labels = 0;
    for (size_t i = 0; i < t.images.size(); ++i) labels |= uint32_t(last[size_t(t.images[i])]) << i;
    const auto [at, added] = t.known.try_emplace(labels, 0);
    if (added)
      at->second = l_.layout_cost_ns(*t.node, t.problem, [&](ValueId v) {
        const int image = index_[size_t(v)];
        return image >= 0 && last[size_t(image)];
      });
    return at->second;
  }

  double total(const std::vector<char>& last) {
    double sum = 0;
    for (Touched& t : nodes_) sum += cost(t, last);
    return sum;
  }

  bool flip_if_less(const std::vector<int>& move, std::vector<char>& last) {
    std::vector<int> concerned;
    for (int image : move)
      concerned.insert(concerned.end(), nodes_of_[size_t(image)].begin(), nodes_of_[size_t(image)].end());
    std::sort(concerned.begin(), concerned.end());
    concerned.erase(std::unique(concerned.begin(), concerned.end()), concerned.end());
    const auto sum = [&] {
      double ns = 0;
      for (int n : concerned) ns += cost(nodes_[size_t(n)], last);
      return ns;
    };
    const auto flip = [&] {
      for (int image : move) last[size_t(image)] ^= 1;
    };
    const double before = sum();
    flip();
    if (sum() < before * (1 - kLeastGain)) return true;
    flip();
    return false;
  }

  // Single images; regions joined by all that is no convolution; the same with the residuals of convolutions.
  std::vector<std::vector<int>> all_moves() const {
    std::vector<std::vector<int>> moves;
    for (size_t i = 0; i < images_.size(); ++i) moves.push_back({int(i)});
    for (const bool residuals : {false, true}) {
      std::vector<int> root(images_.size());
      std::iota(root.begin(), root.end(), 0);
      const auto find = [&](int i) {
        while (root[size_t(i)] != i) i = root[size_t(i)] = root[size_t(root[size_t(i)])];
        return i;
      };
      for (const Touched& t : nodes_) {
        const bool convolution = is_convolution(*t.node);
        if (convolution && !residuals) continue;
        int first = -1;
        const auto join = [&](ValueId v) {
          const int image = v == kNoValue ? -1 : index_[size_t(v)];
          if (image < 0) return;
          if (first < 0)
            first = find(image);
          else
            root[size_t(find(image))] = first;
        };
        for (size_t i = convolution ? size_t(t.node->op_inputs) : 0; i < t.node->inputs.size(); ++i)
          join(t.node->inputs[i]);
        for (ValueId v : t.node->outputs) join(v);
      }
      std::map<int, std::vector<int>> regions;
      for (size_t i = 0; i < images_.size(); ++i) regions[find(int(i))].push_back(int(i));
      for (auto& [key, region] : regions)
        if (region.size() > 1) moves.push_back(std::move(region));
    }
    return moves;
  }

  Lowering& l_;
  std::vector<ValueId> images_;
  std::vector<int> index_;  // by value: its place in images_
  std::vector<Touched> nodes_;
  std::vector<std::vector<int>> nodes_of_;
};

// One node under these labels: its kernel with the copies that it wants, or what a view or a Concat has to move.
double Lowering::layout_cost_ns(const Node& node, const Problem& problem, const std::function<bool(ValueId)>& is_last) {
  Problem p = problem;
  const auto label = [&](Operand& operand, ValueId v) {
    if (v != kNoValue && is_last(v)) operand.layout = Layout::channels_last(operand.shape());
  };
  // Elementwise problems leave omitted operands out.
  size_t at = 0;
  for (ValueId v : node.inputs) {
    if (node.op->is_elementwise() && v == kNoValue) continue;
    if (at < p.inputs.size()) label(p.inputs[at++], v);
  }
  for (size_t o = 0; o < node.outputs.size(); ++o) label(p.outputs[o], node.outputs[o]);

  if (node.is("Concat")) {
    double ns = 0;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const bool in_place = graph_.uses(node.inputs[i]) == 1 && is_last(node.inputs[i]) == is_last(node.output());
      if (!in_place) ns += copy_ns(p.inputs[i]);
    }
    return ns;
  }
  if (may_be_view(*node.op) && options_.views && view_of(p)) return 0;
  std::optional<Variant> best;
  consider_with_copies(best, node, p);
  // No kernel of our own, or not the one that was asked for by name.
  return best ? best->cost_ns + (best->reference ? 1e12 : 0) : 1e12;
}

void Lowering::choose_layouts() {
  stored_last_.assign(size_t(graph_.value_count()), 0);
  std::vector<ValueId> images;
  for (NodeId id : order_) {
    for (ValueId v : graph_.node(id).outputs) {
      if (v == kNoValue || !graph_.value(v).channels_last) continue;
      stored_last_[size_t(v)] = 1;
      if (!graph_.value(v).is_output && element_count(shapes_[size_t(v)]) > 0) images.push_back(v);
    }
  }
  // Where weights stand packed they stand for one layout: it stays.
  if (images.empty() || options_.keep_packings || options_.reference_only) return;
  std::vector<char> last;
  plan_.layouts = LayoutSearch(*this, images).run(last);
  for (size_t i = 0; i < images.size(); ++i) {
    stored_last_[size_t(images[i])] = last[i];
    if (!options_.dry) graph_.value(images[i]).channels_last = last[i] != 0;  // for the next binding of its shapes
  }
}

}  // namespace ridgeline
