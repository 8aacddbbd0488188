#include "formats/make/make.h"

#include <algorithm>
#include <cctype>
#include <charconv>

#include "formats/make/builder.h"
#include "ridgeline/error.h"

namespace ridgeline {

namespace {

struct Model {
  MakeEntry entry;
  void (*build)(make::Builder&);
  int64_t default_seq;  // 0: it has no sequence
};

constexpr Model kModels[] = {
    {{"resnet50",
      "ResNet-50 v1.5, images [N,3,224,224]; every BatchNormalization a node of its own; 25.6 M parameters"},
     make::resnet50,
     0},
    {{"mobilenet_v3",
      "MobileNetV3-small, images [N,3,224,224]: depthwise, squeeze-and-excite, HardSwish; 2.5 M parameters"},
     make::mobilenet_v3,
     0},
    {{"bert", "BERT-base with pooler, 12 layers of 768; additive mask, erf GELU; 109.5 M parameters"}, make::bert, 128},
    {{"vit", "ViT-B/16, images [N,3,224,224], 12 layers of 768; 86.6 M parameters"}, make::vit, 0},
    {{"decoder", "a small Llama: 4 layers of 256, RMSNorm spelled out, rotary positions, grouped queries, SiLU"},
     make::decoder,
     64},
    {{"mlp", "three Gemm with Relu between, [N,64] to [N,10]; 0.1 MB"}, make::mlp, 0},
};

}  // namespace

const std::vector<MakeEntry>& make_entries() {
  static const std::vector<MakeEntry> entries = [] {
    std::vector<MakeEntry> all;
    for (const Model& m : kModels) all.push_back(m.entry);
    return all;
  }();
  return entries;
}

MakeDim parse_make_dim(std::string_view text, std::string_view symbol) {
  int64_t value = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool is_number = error == std::errc() && end == text.data() + text.size();
  if (is_number && value > 0) return {value, {}};
  if (is_number && value == 0) return {0, std::string(symbol)};
  const bool is_name =
      !text.empty() && !is_number && (std::isalpha(static_cast<unsigned char>(text[0])) || text[0] == '_');
  if (!is_name) fail(ErrorCode::kUsage, "'{}' is no extent: a positive number, 0 or a name (both symbolic)", text);
  return {0, std::string(text)};
}

void make_model(std::string_view name, const MakeOptions& options, const std::string& path) {
  const auto* model =
      std::find_if(std::begin(kModels), std::end(kModels), [&](const Model& m) { return m.entry.name == name; });
  if (model == std::end(kModels)) {
    std::string names;
    for (const Model& m : kModels) names += fmt::format("{}{}", names.empty() ? "" : ", ", m.entry.name);
    fail(ErrorCode::kUsage, "there is no synthetic model '{}'; there are {}", name, names);
  }
  MakeOptions with_defaults = options;
  if (!options.seq.is_symbolic() && options.seq.value == 0) with_defaults.seq.value = model->default_seq;
  if (model->default_seq == 0 && (options.seq.is_symbolic() || options.seq.value > 0)) {
    fail(ErrorCode::kUsage, "make {}: it has no sequence, leave --seq out", name);
  }
  // The decoder's mask is as large as the square of its sequence, and is made in memory.
  constexpr int64_t kMostBatch = 1 << 20, kMostSeq = 8192;
  if (options.batch.value > kMostBatch)
    fail(ErrorCode::kUsage, "make {}: --batch {}: at most {}", name, options.batch.value, kMostBatch);
  if (options.seq.value > kMostSeq)
    fail(ErrorCode::kUsage, "make {}: --seq {}: at most {}", name, options.seq.value, kMostSeq);
  make::Builder builder(name, with_defaults);
  model->build(builder);
  builder.write(path);
}

}  // namespace ridgeline
