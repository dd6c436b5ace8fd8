#include "framework/module/binder.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "framework/base/at.h"
#include "framework/base/check.h"
#include "framework/device/backend.h"

namespace delink {
namespace {

// The shape of the rectangles of a parameter that are here: its own shape if
// all of it is here, else with fewer rows, columns or entries.
Shape ShapeOf(const ParamSpec& spec, const std::vector<Rect>& rects) {
  if (rects.size() == 1 && rects[0] == WholeOf(spec.shape)) return spec.shape;
  const Entries all = EntriesOf(spec);
  int64_t rows = 0, elements = 0;
  for (const Rect& rect : rects) {
    rows += rect.rows;
    elements += rect.elements();
  }
  if (spec.shape.rank() < 2) return {rows};
  int64_t entries = all.count;
  if (elements > 0) {
    const Rect& last = rects.back();
    entries = (last.row + last.rows - 1) / all.rows - rects[0].row / all.rows;
    ++entries;
  }
  if (spec.vectors) return {entries, elements / entries};
  const int64_t columns = rects.empty() ? all.columns : rects[0].columns;
  if (spec.shape.rank() == 2) return {rows, columns};
  return {entries, rows / entries, columns};
}

}  // namespace

Binder::Binder(ParamStore& store) : store_(&store) {
  const Layout& layout = store.layout();
  bindings_.resize(static_cast<size_t>(store.blocks() + 2));
  std::map<std::string, const ParamDecl*> decls;
  for (const ParamDecl& decl : layout.registry().decls) {
    decls.emplace(decl.name, &decl);
  }
  for (const LogicalTensor& tensor : layout.tensors()) {
    FindBindings(tensor, *decls[tensor.name]);
  }
  FindStrangers();
}

void Binder::FindBindings(const LogicalTensor& tensor, const ParamDecl& decl) {
  const std::vector<int>& slabs = store_->slabs_of_layer(decl.layer);
  std::map<Rect, Binding> pieces;  // by their first rectangle
  for (size_t i = 0; i < slabs.size(); ++i) {
    const LocalSlab& local = store_->local(slabs[i]);
    const auto at =
        std::find(local.params.begin(), local.params.end(), tensor.param);
    if (local.logical != tensor.slab || at == local.params.end()) continue;
    const auto p = static_cast<size_t>(at - local.params.begin());
    const std::vector<Rect>& rects = local.rects[p];
    pieces[rects.empty() ? Rect() : rects[0]] = {
        .param = decl.param.get(),
        .is_rest = false,
        .has_rest = false,
        .shape = ShapeOf(decl.spec, rects),
        .slab = slabs[i],
        .index = static_cast<int>(i),
        .offset = local.slab.params[p].offset};
  }
  DELINK_CHECK_LE(pieces.size(), size_t{2}) << tensor.name;
  std::vector<Binding>& bindings = At(bindings_, decl.layer);
  for (auto& [first, binding] : pieces) {
    binding.is_rest = first != pieces.begin()->first;
    binding.has_rest = !binding.is_rest && pieces.size() > 1;
    bindings.push_back(binding);
  }
}

Param& Binder::ParamOf(const Binding& binding) {
  return binding.is_rest ? *binding.param->rest() : *binding.param;
}

void Binder::FindStrangers() {
  strangers_.resize(bindings_.size());
  for (size_t layer = 0; layer < bindings_.size(); ++layer) {
    std::set<std::pair<int, int64_t>> bound;
    for (const Binding& b : bindings_[layer]) {
      if (b.shape.elements() > 0) bound.emplace(b.slab, b.offset);
    }
    const std::vector<int>& slabs =
        store_->slabs_of_layer(static_cast<int>(layer));
    for (size_t i = 0; i < slabs.size(); ++i) {
      for (const SlabParam& param : store_->slab(slabs[i]).params) {
        if (param.elements == 0 || bound.contains({slabs[i], param.offset})) {
          continue;
        }
        strangers_[layer].push_back({.slab = slabs[i],
                                     .index = static_cast<int>(i),
                                     .offset = param.offset,
                                     .elements = param.elements});
      }
    }
  }
}

void Binder::Bind(int layer, const std::vector<bool>* written,
                  const std::vector<void*>* gradients) {
  DELINK_CHECK(store_->sharing().VisitsLayer(layer, store_->blocks())) << layer;
  const auto gradient_at = [&](int slab, size_t index, int64_t offset,
                               const Shape& shape) {
    const DType dtype = store_->dtype(slab, Plane::kGradient);
    if (gradients == nullptr || (*gradients)[index] == nullptr) {
      return Tensor(store_->at(slab, Plane::kGradient, offset), dtype, shape);
    }
    return Tensor(
        static_cast<char*>((*gradients)[index]) + offset * SizeOf(dtype), dtype,
        shape);
  };
  for (const Binding& b : At(bindings_, layer)) {
    const Tensor weight(store_->at(b.slab, Plane::kWeight, b.offset),
                        store_->dtype(b.slab, Plane::kWeight), b.shape);
    Tensor grad;
    bool accumulate = false;
    if (written != nullptr) {
      const auto index = static_cast<size_t>(b.index);
      grad = gradient_at(b.slab, index, b.offset, b.shape);
      accumulate = (*written)[index];
    }
    if (!b.is_rest && b.has_rest != (b.param->rest() != nullptr)) {
      b.param->BindRest(b.has_rest ? std::make_unique<Param>() : nullptr);
    }
    ParamOf(b).Bind(weight, grad, accumulate);
  }
  strange_gradients_.clear();
  if (written == nullptr) return;
  for (const Stranger& s : At(strangers_, layer)) {
    const auto index = static_cast<size_t>(s.index);
    if ((*written)[index]) continue;
    strange_gradients_.push_back(
        gradient_at(s.slab, index, s.offset, {s.elements}));
  }
}

void Binder::FinishGradients(int layer, Stream& stream) {
  Device& device = store_->device();
  for (const Binding& b : At(bindings_, layer)) {
    const Param& param = ParamOf(b);
    if (param.written()) continue;
    const Tensor& grad = param.grad();
    device.FillZero(stream, grad.data(), grad.bytes());
  }
  for (const Tensor& grad : strange_gradients_) {
    device.FillZero(stream, grad.data(), grad.bytes());
  }
}

}  // namespace delink
