"""Readers of other people's files, one module a format: each returns Episodes, and findings about doubtful contents."""
