// What the libraries behind some kernels (cuBLASLt, cuDNN) keep for a device:
// handles, plans, choices of algorithms. The device owns one Libraries, which
// lives as long as its streams do; kernels reach it through StreamInfo.
#pragma once

#include <memory>
#include <mutex>
#include <typeindex>
#include <unordered_map>

namespace delink::cuda {

class Libraries {
 public:
  // The device's one T, made by the first call that asks for it, with the
  // device current. Thread-safe; what T does about threads is its own business.
  template <typename T>
  T& Get() {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::shared_ptr<void>& kept = kept_[typeid(T)];
    if (kept == nullptr) kept = std::make_shared<T>();
    return *static_cast<T*>(kept.get());
  }

 private:
  std::mutex mutex_;
  std::unordered_map<std::type_index, std::shared_ptr<void>> kept_;
};

}  // namespace delink::cuda
