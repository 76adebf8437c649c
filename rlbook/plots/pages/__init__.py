"""Pages of one file, to play with and to look into: they work from the disk and load nothing."""
