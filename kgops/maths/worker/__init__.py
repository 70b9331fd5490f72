"""What all worker processes share: entry, devices, outputs, reports, memory."""
