"""Interactive pages and reports, one file each: they work from the disk and load nothing."""
