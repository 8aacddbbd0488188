// cuda.copy, cuda.transpose, cuda.concat and the other operators that are strided copies (ops/moves.h); one source,
// move.cu, which knows nothing but the size of elements.
//
// Floor: what is written, read once and written once; 268 MB each way are 131 us at 4.1 TB/s on an H200.
#include <algorithm>
#include <array>

#include "core/loops.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/movement/movement_kernels.h"
#include "ops/moves.h"

namespace ridgeline::cuda {
namespace {

constexpr int kThreads = 256, kSteps = 4;
constexpr int kMostRank = 8;
constexpr int kTileThreads = 16;  // threads of a block along each side of a transpose
constexpr int64_t kParameterBytes = 3900;

struct Piece {
  int input = 0, output = 0;
  int64_t from = 0, to = 0;
  Loops loops;  // operand 0: source, 1: target
  bool turned = false;
};

int side_of(int element) { return element == 1 ? 8 : 16 / element; }

struct Moves {
  std::vector<Piece> pieces;
  int element = 1, pack = 1, rank = 4;
  bool turns = false;
};

Piece piece_of(const StridedCopy& copy) {
  const Layout source(copy.shape, copy.from_strides), target(copy.shape, copy.to_strides);
  const Layout* const operands[] = {&source, &target};
  Piece piece{copy.input, copy.output, copy.from, copy.to, make_loops(copy.shape, operands, 1), false};
  Loops& loops = piece.loops;
  const int last = loops.axes() - 1;
  if (last < 1 || loops.strides[0][size_t(last)] == 1 || loops.strides[1][size_t(last)] != 1) return piece;
  if (loops.extents[size_t(last)] < 8) return piece;
  for (int a = 0; a < last; ++a) {
    if (loops.strides[0][size_t(a)] != 1 || loops.extents[size_t(a)] < 8) continue;
    // The axis that follows itself in the source comes last but one.
    const auto rotate = [&](std::vector<int64_t>& v) {
      std::rotate(v.begin() + a, v.begin() + a + 1, v.begin() + last);
    };
    rotate(loops.extents);
    for (auto& strides : loops.strides) rotate(strides);
    piece.turned = true;
    break;
  }
  return piece;
}

Moves moves_of(CopyPlanner planner, const Problem& p) {
  Moves m;
  m.element = info(p.input(0).dtype).bits / 8;
  int axes = 1;
  for (const StridedCopy& copy : planner(p)) {
    Piece piece = piece_of(copy);
    if (piece.loops.elements() == 0) continue;
    m.turns = m.turns || piece.turned;
    axes = std::max(axes, piece.loops.axes());
    m.pieces.push_back(std::move(piece));
  }
  m.rank = axes <= 3 ? 3 : axes <= 5 ? 5 : kMostRank;
  // The widest word that all walks allow, if the addresses do.
  m.pack = 16 / m.element;
  for (const Piece& piece : m.pieces) {
    if (piece.turned) continue;
    const auto divides = [&](int64_t v) {
      while (m.pack > 1 && v % m.pack) m.pack /= 2;
    };
    if (piece.loops.strides[0].back() != 1 || piece.loops.strides[1].back() != 1) m.pack = 1;
    divides(piece.loops.extents.back());
  }
  return m;
}

int64_t piece_bytes(int rank) { return 4 * 8 + rank * 24 + 16; }
int batch_of(const Moves& m) {
  const int most = int(kParameterBytes / piece_bytes(m.rank));
  // Few classes of how many pieces a launch takes.
  const int pieces = int(m.pieces.size());
  return pieces <= 1 ? 1 : pieces <= 4 ? 4 : most;
}

Support supports(CopyPlanner planner, const std::string& reason, const Problem& p) {
  if (!reason.empty()) return no("{}", reason);
  for (const StridedCopy& copy : planner(p))
    if (piece_of(copy).loops.axes() > kMostRank) return no("more than {} axes that do not merge", kMostRank);
  return yes();
}

int64_t written_bytes(const Problem& p) {
  int64_t bytes = 0;
  for (const Operand& out : p.outputs)
    if (out.present()) bytes += out.bytes();
  return bytes;
}

double estimate(CopyPlanner planner, const Problem& p, const Ceilings& c) {
  const Moves m = moves_of(planner, p);
  const int64_t written = written_bytes(p);
  const double narrow = m.pack * m.element >= 8 || m.turns ? 1.0 : m.pack * m.element >= 4 ? 1.5 : 3.0;
  const double launches = double((int64_t(m.pieces.size()) + batch_of(m) - 1) / batch_of(m));
  return c.stream_ns(std::min(written, p.read_bytes()), written, 1) * narrow + launches * c.launch_ns.at(1, 1);
}

Source source(CopyPlanner planner, const Problem& p) {
  const Moves m = moves_of(planner, p);
  Source source;
  source.file = "movement/move.cu";
  source.entry = "move_pieces";
  source.program = fmt::format(
      "#define ELEMENT {}\n#define PACK {}\n#define RANK {}\n#define PIECES {}\n#define THREADS {}\n#define STEPS {}\n"
      "#define TRANSPOSES {}\n",
      m.element, m.pack, m.rank, batch_of(m), kThreads, kSteps, m.turns ? 1 : 0);
  return source;
}

// Packs move as words where addresses and all strides but the innermost are multiples of them.
bool whole(const Piece& piece, int operand, uint64_t address, int element, int elements) {
  const int64_t bytes = int64_t(element) * elements;
  if (address % uint64_t(bytes)) return false;
  const int last = piece.loops.axes() - 1;
  for (int a = 0; a <= last; ++a) {
    if (piece.loops.strides[size_t(operand)][size_t(a)] == 1 || piece.loops.extents[size_t(a)] == 1) continue;
    if (piece.loops.strides[size_t(operand)][size_t(a)] % elements) return false;
  }
  return true;
}

int64_t append_piece(std::vector<uint64_t>& words, const Moves& m, const Piece& piece, uint64_t from, uint64_t to,
                     int64_t first) {
  const Loops& loops = piece.loops;
  const int axes = loops.axes(), before = m.rank - axes, last = axes - 1;
  const int elements = piece.turned ? side_of(m.element) : m.pack;
  const int64_t tile = int64_t(kTileThreads) * elements;
  int64_t blocks = 0, count = 0, tiles_from = 0, tiles_to = 0;
  if (piece.turned) {
    tiles_from = (loops.extents[size_t(last - 1)] + tile - 1) / tile;
    tiles_to = (loops.extents[size_t(last)] + tile - 1) / tile;
    blocks = loops.elements() / (loops.extents[size_t(last)] * loops.extents[size_t(last - 1)]) * tiles_from * tiles_to;
    count = blocks;
  } else {
    count = loops.elements() / m.pack;
    blocks = (count + kThreads * kSteps - 1) / (kThreads * kSteps);
  }
  words.insert(words.end(), {from, to, uint64_t(first), uint64_t(count)});
  for (int a = 0; a < m.rank; ++a) {
    uint64_t extent = a < before ? 1 : uint64_t(loops.extents[size_t(a - before)]);
    if (a == m.rank - 1 && !piece.turned) extent /= uint64_t(m.pack);
    words.push_back(extent);
  }
  for (int k = 0; k < 2; ++k)
    for (int a = 0; a < m.rank; ++a) {
      int64_t stride = a < before ? 0 : loops.strides[size_t(k)][size_t(a - before)];
      if (a == m.rank - 1 && !piece.turned) stride *= m.pack;
      words.push_back(uint64_t(stride));
    }
  bool words_only = true;  // of a transpose: its sides are whole words
  for (int a = last - 1; piece.turned && a <= last; ++a)
    words_only = words_only && loops.extents[size_t(a)] % elements == 0;
  const uint64_t flags = (piece.turned ? 1 : 0) | (words_only && whole(piece, 0, from, m.element, elements) ? 2 : 0) |
                         (words_only && whole(piece, 1, to, m.element, elements) ? 4 : 0);
  words.push_back(flags | uint64_t(tiles_from) << 32);
  words.push_back(uint64_t(tiles_to));
  return blocks;
}

void launch_moves(CopyPlanner planner, const KernelCall& call, const Buffers& buffers, Stream stream) {
  const Moves m = moves_of(planner, call.problem);
  const size_t batch = size_t(batch_of(m));
  for (size_t at = 0; at < m.pieces.size(); at += batch) {
    std::vector<uint64_t> words;
    int64_t blocks = 0;
    for (size_t k = at; k < std::min(at + batch, m.pieces.size()); ++k) {
      const Piece& piece = m.pieces[k];
      const auto address = [&](void* base, int64_t offset) {
        return reinterpret_cast<uint64_t>(base) + uint64_t(offset * m.element);
      };
      blocks += append_piece(words, m, piece, address(buffers.inputs[piece.input], piece.from),
                             address(buffers.outputs[piece.output], piece.to), blocks);
    }
    // Pieces that are not there begin behind the last block.
    const size_t all = batch * size_t(piece_bytes(m.rank) / 8);
    while (words.size() < all) {
      const size_t begin = words.size();
      words.resize(begin + size_t(piece_bytes(m.rank) / 8), 0);
      words[begin + 2] = UINT64_MAX;
    }
    void* parameters[] = {words.data()};
    launch(call.state_as<LoadedKernel>(), {blocks}, kThreads, stream, parameters, {.dependent = true});
  }
}

template <CopyPlanner kPlanner, std::string (*kReject)(const Problem&)>
constexpr Kernel mover(std::string_view name, std::string_view op) {
  Kernel k;
  k.name = name;
  k.op = op;
  k.device = DeviceKind::kCuda;
  k.supports = [](const Problem& p) {
    const std::string reason = kReject(p);
    return reason.empty() ? supports(kPlanner, reason, p) : no("{}", reason);
  };
  k.estimate = [](const Problem& p, const Tile&, const Ceilings& c) { return estimate(kPlanner, p, c); };
  k.source = [](const Problem& p, const Tile&) { return source(kPlanner, p); };
  k.launch = [](const KernelCall& call, const Buffers& buffers, StreamHandle* stream) {
    launch_moves(kPlanner, call, buffers, stream);
  };
  return k;
}

constexpr std::array kMovers = {
    mover<plan_copy, copies_reject>("cuda.copy", "Copy"),
    mover<plan_copy, copies_reject>("cuda.identity", "Identity"),
    mover<plan_transpose, copies_reject>("cuda.transpose", "Transpose"),
    mover<plan_reshape, reshape_reject>("cuda.reshape", "Reshape"),
    mover<plan_reshape, reshape_reject>("cuda.flatten", "Flatten"),
    mover<plan_reshape, reshape_reject>("cuda.squeeze", "Squeeze"),
    mover<plan_reshape, reshape_reject>("cuda.unsqueeze", "Unsqueeze"),
    mover<plan_expand, copies_reject>("cuda.expand", "Expand"),
    mover<plan_tile, copies_reject>("cuda.tile", "Tile"),
    mover<plan_slice, slice_reject>("cuda.slice", "Slice"),
    mover<plan_concat, copies_reject>("cuda.concat", "Concat"),
    mover<plan_split, copies_reject>("cuda.split", "Split"),
    mover<plan_depth_to_space, copies_reject>("cuda.depth_to_space", "DepthToSpace"),
    mover<plan_space_to_depth, copies_reject>("cuda.space_to_depth", "SpaceToDepth"),
};

}  // namespace

std::span<const Kernel* const> move_kernels() {
  static const std::vector<const Kernel*> list = [] {
    std::vector<const Kernel*> all;
    for (const Kernel& kernel : kMovers) all.push_back(&kernel);
    return all;
  }();
  return list;
}

}  // namespace ridgeline::cuda
