"""What commands share: options, files, and how results are shown."""
