"""Programs of the tests run once and briefly: compile them quickly rather than well."""

import os

os.environ.setdefault(
    "XLA_FLAGS", "--xla_backend_optimization_level=1 --xla_llvm_disable_expensive_passes=true"
)
