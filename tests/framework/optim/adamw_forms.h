// Parameters and moments in every form that AdamW keeps them in, for its tests:
// what they stand for, and what a step should make of them, said element by
// element.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "framework/base/at.h"
#include "framework/base/rng.h"
#include "framework/optim/kernels.h"
#include "framework/tensor/bfloat16.h"
#include "framework/tensor/block8.h"
#include "framework/tensor/master.h"

namespace delink::testing {

struct Form {
  MasterForm master = MasterForm::kWhole;
  StateStorage moments = StateStorage::kExact;
};

inline std::vector<Form> AllForms() {
  std::vector<Form> forms;
  for (const MasterForm master :
       {MasterForm::kWhole, MasterForm::kSplit, MasterForm::kNone}) {
    for (const StateStorage moments :
         {StateStorage::kExact, StateStorage::kBF16, StateStorage::kBlock8}) {
      forms.push_back({master, moments});
    }
  }
  return forms;
}

// n elements of a parameter, the first of which is number `first` of it and
// `in_block` of a block of 8-bit values.
struct AdamWForms {
  Form form;
  int64_t n, in_block, first;
  RngKey key = Fold(KeyFromSeed(5), uint64_t{3});
  std::vector<float> p, g;
  std::vector<uint16_t> w, low;
  // As they are kept: of the three pairs one is used.
  std::vector<float> m, v;
  std::vector<uint16_t> m16, v16;
  std::vector<uint8_t> m8, v8;
  std::vector<float> m_scales, v_scales;

  AdamWForms(Form of, int64_t elements, int64_t in = 0, int64_t from = 0)
      : form(of), n(elements), in_block(in), first(from) {
    const RngKey values = KeyFromSeed(9);
    for (int64_t i = 0; i < n; ++i) {
      const auto at = static_cast<uint64_t>(4 * i);
      const auto normal = [&](uint64_t k) {
        return static_cast<float>(Normal(values, at + k));
      };
      g.push_back(normal(1));
      p.push_back(normal(0));
      m.push_back(normal(2));
      // Over many decades, as second moments are.
      v.push_back(std::abs(normal(3)) * std::exp(4 * normal(1)));
    }
    Keep();
  }

  int64_t blocks() const { return (in_block + n + kBlock8 - 1) / kBlock8; }
  // Of element i.
  size_t BlockOf(int64_t i) const {
    return static_cast<size_t>((in_block + i) / kBlock8);
  }

  // p, m and v become what is kept, and what that stands for.
  void Keep() {
    w.clear(), low.clear();
    for (float& value : p) {
      const SplitMaster split = SplitMaster::Of(value);
      const bool whole = form.master == MasterForm::kWhole;
      w.push_back(whole ? BFloat16(value).bits : split.weight);
      low.push_back(split.low);
      if (form.master == MasterForm::kNone) {
        value = BFloat16::FromBits(split.weight);
      }
    }
    if (form.moments == StateStorage::kBF16) {
      Halve(m, &m16);
      Halve(v, &v16);
    } else if (form.moments == StateStorage::kBlock8) {
      Encode(true, m, &m8, &m_scales);
      Encode(false, v, &v8, &v_scales);
      Decode();
    }
  }

  // m and v as the bytes stand for them.
  void Decode() {
    for (int64_t i = 0; i < n; ++i) {
      const auto at = static_cast<size_t>(i);
      m[at] = kSignedFractions8[m8[at]] * m_scales[BlockOf(i)];
      v[at] = kUnsignedFractions8[v8[at]] * v_scales[BlockOf(i)];
    }
  }

  uint16_t RandomHalf(int64_t i, uint64_t stream) const {
    const auto index = static_cast<uint64_t>(first + i);
    const uint32_t word = Philox(key, index / 8, stream)[index % 8 / 2];
    return static_cast<uint16_t>(index % 2 == 0 ? word : word >> 16);
  }

  // What a step should leave, given what AdamW makes of p, m and v as numbers.
  void StepWith(void (*adamw)(Stream&, const AdamWArgs&), Stream& stream,
                const UpdateControl& control) {
    AdamWArgs args = Hyper(&control);
    args.p = p.data();
    args.g = g.data();
    args.m = m.data();
    args.v = v.data();
    args.n = n;
    adamw(stream, args);
    if (control.skip != 0) return;
    for (int64_t i = 0; i < n; ++i) {
      const auto at = static_cast<size_t>(i);
      if (form.master == MasterForm::kNone) {
        w[at] = RoundStochastically(p[at], RandomHalf(i, 0));
        p[at] = BFloat16::FromBits(w[at]);
      } else if (form.master == MasterForm::kSplit) {
        w[at] = SplitMaster::Of(p[at]).weight;
        low[at] = SplitMaster::Of(p[at]).low;
      } else {
        w[at] = BFloat16(p[at]).bits;
      }
      if (form.moments == StateStorage::kBF16) {
        m16[at] = RoundStochastically(m[at], RandomHalf(i, 1));
        v16[at] = RoundStochastically(v[at], RandomHalf(i, 2));
      }
    }
    if (form.moments == StateStorage::kBlock8) {
      Encode(true, m, &m8, &m_scales);
      Encode(false, v, &v8, &v_scales);
    }
  }

  AdamWArgs Hyper(const UpdateControl* control) const {
    return {.n = n,
            .lr_scale = 0.5,
            .beta1 = 0.9,
            .beta2 = 0.95,
            .eps = 1e-8,
            .decay = 0.1,
            .update = 3,
            .control = control};
  }

  // Elements [begin, end) of host memory.
  AdamWArgs Args(int64_t begin, int64_t end, const UpdateControl* control) {
    return Args(begin, end, control, *this);
  }
  // The same of the arrays of `at`, which are called as these.
  template <typename Arrays>
  AdamWArgs Args(int64_t begin, int64_t end, const UpdateControl* control,
                 Arrays& at) const {
    AdamWArgs args = Hyper(control);
    const auto block = static_cast<int64_t>(BlockOf(begin));
    args.master = form.master;
    args.moments = form.moments;
    if (form.master == MasterForm::kWhole) args.p = at.p.data() + begin;
    args.w = at.w.data() + begin;
    args.low = at.low.data() + begin;
    args.g = at.g.data() + begin;
    args.m = at.m.data() + begin;
    args.v = at.v.data() + begin;
    if (form.moments == StateStorage::kBF16) {
      args.m = at.m16.data() + begin;
      args.v = at.v16.data() + begin;
    } else if (form.moments == StateStorage::kBlock8) {
      args.m = at.m8.data() + begin;
      args.v = at.v8.data() + begin;
      args.m_scales = at.m_scales.data() + block;
      args.v_scales = at.v_scales.data() + block;
    }
    args.n = end - begin;
    args.in_block = (in_block + begin) % kBlock8;
    args.key = key;
    args.numbers.first = first + begin;
    return args;
  }

  // The bits of everything that is kept. (Ignores m, v and p where these are
  // not.)
  bool SameAs(const AdamWForms& other) const {
    const auto same = [](const auto& a, const auto& b) {
      return a.size() == b.size() &&
             std::equal(a.begin(), a.end(), b.begin(), [](auto x, auto y) {
               if constexpr (sizeof(x) == 4) {
                 return std::bit_cast<uint32_t>(x) ==
                        std::bit_cast<uint32_t>(y);
               } else {
                 return x == y;
               }
             });
    };
    return same(w, other.w) &&
           (form.master != MasterForm::kWhole || same(p, other.p)) &&
           (form.master != MasterForm::kSplit || same(low, other.low)) &&
           (form.moments != StateStorage::kExact ||
            (same(m, other.m) && same(v, other.v))) &&
           same(m16, other.m16) && same(v16, other.v16) && same(m8, other.m8) &&
           same(v8, other.v8) && same(m_scales, other.m_scales) &&
           same(v_scales, other.v_scales);
  }

 private:
  static void Halve(std::vector<float>& values, std::vector<uint16_t>* bits) {
    bits->clear();
    for (float& value : values) {
      bits->push_back(BFloat16(value).bits);
      value = BFloat16(value);
    }
  }

  // In double, by a search through what codes stand for.
  void Encode(bool is_signed, const std::vector<float>& values,
              std::vector<uint8_t>* codes, std::vector<float>* scales) const {
    scales->assign(static_cast<size_t>(blocks()), 0.0F);
    for (int64_t i = 0; i < n; ++i) {
      float& scale = (*scales)[BlockOf(i)];
      scale = std::max(scale, std::abs(At(values, i)));
    }
    codes->clear();
    for (int64_t i = 0; i < n; ++i) {
      const float scale = (*scales)[BlockOf(i)];
      const float value = At(values, i);
      codes->push_back(scale == 0 ? uint8_t{0}
                                  : CodeOf(is_signed, value * (1 / scale)));
    }
  }

  static uint8_t CodeOf(bool is_signed, float fraction) {
    const double x = std::abs(fraction);
    if (x < 1e-7F) return 0;
    const int top = is_signed ? 127 : 255;
    if (!is_signed && x >= 0.998F) return 255;
    int code = 1;
    double floor = 1e-7;
    for (int decade = 0, segments = is_signed ? 1 : 2; decade < 7;
         ++decade, segments *= 2, floor *= 10) {
      for (int j = 0; j < segments; ++j, ++code) {
        const double end = floor * (1 + 9.0 * (j + 1) / segments);
        if (x < end || code == top - (is_signed ? 0 : 1)) {
          return static_cast<uint8_t>(is_signed && fraction < 0 ? code + 128
                                                                : code);
        }
      }
    }
    return static_cast<uint8_t>(top);
  }
};

}  // namespace delink::testing
