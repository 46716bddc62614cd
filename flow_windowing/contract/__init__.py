"""The contract of windows: what users implement, and what windows and late values say."""
