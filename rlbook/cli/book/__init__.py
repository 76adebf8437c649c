"""The commands of the book: its course, its exercises and its museum of bugs."""
