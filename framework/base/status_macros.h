// Status plumbing: hand an error up, or take the value out.
//
//   DELINK_RETURN_IF_ERROR(file.Sync());
//   DELINK_ASSIGN_OR_RETURN(Corpus corpus, Corpus::Open(path));
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define DELINK_CONCAT_INNER_(a, b) a##b
#define DELINK_CONCAT_(a, b) DELINK_CONCAT_INNER_(a, b)

#define DELINK_RETURN_IF_ERROR(expression)                                \
  do {                                                                    \
    if (absl::Status delink_status = (expression); !delink_status.ok()) { \
      return delink_status;                                               \
    }                                                                     \
  } while (false)

#define DELINK_ASSIGN_OR_RETURN(lhs, expression)                      \
  DELINK_ASSIGN_OR_RETURN_(DELINK_CONCAT_(delink_or_, __LINE__), lhs, \
                           expression)

#define DELINK_ASSIGN_OR_RETURN_(result, lhs, expression) \
  auto result = (expression);                             \
  if (!result.ok()) return std::move(result).status();    \
  lhs = *std::move(result)
