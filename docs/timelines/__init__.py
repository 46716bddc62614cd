"""Drawing what windows, watermarks and late values do, from runs of the library itself."""
