"""The contract of windows: logics that users implement, metadata and late values."""
